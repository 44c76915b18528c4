"""Comparing two sequences of tokens, on the host: edit distance, longest common subsequence, runs of n tokens.

The two distances work on all cells of a row at once, as the bits of one Python integer: about n * m / 64 steps instead
of n * m.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

__all__ = ["common_subsequence", "edit_distance", "runs"]

T = TypeVar("T", bound=Hashable)


def edit_distance(x: Sequence[T], y: Sequence[T]) -> int:
    """How many insertions, deletions and substitutions make y of x (Levenshtein).

    Source: Hyyrö 2003, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", figure 4.

    >>> edit_distance("kitten", "sitting")
    3
    """
    if not x or not y:
        return len(x) + len(y)
    places, ones = _places(x), (1 << len(x)) - 1
    last = 1 << (len(x) - 1)
    up, down, distance = ones, 0, len(x)  # where a column rises and falls from one row to the next
    for token in y:
        equal = places.get(token, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up, right_down = down | ~(diagonal | up), up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = right_up << 1 | 1
        up = (right_down << 1 | ~(diagonal | right_up)) & ones
        down = right_up & diagonal & ones
    return distance


def common_subsequence(x: Sequence[T], y: Sequence[T]) -> int:
    """The length of the longest sequence that is left of both after taking tokens out.

    Source: Crochemore et al. 2001, "A fast and practical bit-vector algorithm for the longest common subsequence".

    >>> common_subsequence("AGCAT", "GAC")
    2
    """
    places, ones = _places(x), (1 << len(x)) - 1
    free = ones
    for token in y:
        hit = free & places.get(token, 0)
        free = ((free + hit) | (free - hit)) & ones
    return len(x) - free.bit_count()


def runs(tokens: Sequence[T], n: int) -> Counter[tuple[T, ...]]:
    """How often each run of n tokens occurs.

    >>> runs("abab", 2)[("a", "b")]
    2
    """
    return Counter(zip(*(tokens[start:] for start in range(n)), strict=False))


def _places(tokens: Sequence[T]) -> dict[T, int]:
    """For each token the bits of the places where it is."""
    places: dict[T, int] = {}
    for place, token in enumerate(tokens):
        places[token] = places.get(token, 0) | 1 << place
    return places
