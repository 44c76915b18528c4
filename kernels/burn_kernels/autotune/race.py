"""Finds the fastest of several calls in few samples: rounds in turns, the hopeless left out, the winner confirmed.

Each candidate is called once without counting, since its first call compiles and warms up.  Then come rounds, each
in the opposite order of the one before, so that a clock that drifts favours nobody.  Who is more than twice behind the
best in both of two rounds is eliminated, then who is more than 1.5 times behind after the third.  It ends after ten
rounds, or when two rounds in a row improved the best by less than 2 %.  At last the two best go five more rounds
against each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Outcome", "race", "ranking"]

LEAST_ROUNDS = 3
MOST_ROUNDS = 10
CONFIRMING_ROUNDS = 5
HOPELESS = 1.5
FAR = 2.0
STILL = 0.02
ALIKE = 0.02


@dataclass
class Outcome:
    """The outcome of a race."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of each round by candidate."""
    eliminated: set[str] = field(default_factory=set)
    failed: dict[str, Exception] = field(default_factory=dict)
    """Candidates that raised, with what."""
    complete: bool = True
    """True if the budget lasted to the end."""

    def median(self, name: str) -> float:
        """The median of a candidate's samples."""
        return statistics.median(self.samples[name])


def race(
    names: Sequence[str], sample: Callable[[str], float], *, within: Callable[[], bool], eliminating: bool = True
) -> Outcome:
    """Times candidates; `sample` runs one once and gives milliseconds, `within` says whether there is time left."""
    outcome, running = Outcome(), list(names)

    def once(name: str) -> float | None:
        try:
            return sample(name)
        except Exception as error:
            outcome.failed[name] = error
            outcome.samples.pop(name, None)
            running.remove(name)
            return None

    def round_of(rivals: Sequence[str], number: int) -> None:
        for name in list(rivals) if number % 2 else list(reversed(rivals)):
            if name in running and (ms := once(name)) is not None:
                outcome.samples.setdefault(name, []).append(ms)

    for name in names:
        once(name)
    still, best = 0, float("inf")
    for number in range(MOST_ROUNDS):
        if not running:
            return outcome
        if not within():
            outcome.complete = False
            break
        round_of(running, number)
        if not running:
            return outcome
        fastest = min(outcome.median(name) for name in running)
        still, best = (still + 1 if fastest > best * (1 - STILL) else 0), min(best, fastest)
        early = number + 1 < LEAST_ROUNDS
        if eliminating:
            # twice at once could be a busy host's doing, twice in both is not
            least = {name: min(outcome.samples[name]) for name in running}
            far = [name for name in running if number and least[name] > FAR * min(least.values())]
            hopeless = far if early else [name for name in running if outcome.median(name) > HOPELESS * fastest]
            outcome.eliminated.update(hopeless)
            running[:] = [name for name in running if name not in hopeless]
            if not early and (still >= 2 or len(running) == 1):
                break
    first = sorted((name for name in running if name in outcome.samples), key=outcome.median)[:2]
    for number in range(CONFIRMING_ROUNDS if len(first) == 2 else 0):
        if not within():
            outcome.complete = False
            break
        round_of(first, number)
    return outcome


def ranking(medians: dict[str, float], order: Sequence[str]) -> list[str]:
    """Names from best to worst; among those within 2 % of the best the one that comes first in `order` leads.

    >>> ranking({"a": 1.01, "b": 1.0, "c": 3.0}, ["a", "b", "c"])
    ['a', 'b', 'c']
    """
    if not medians:
        return []
    limit = min(medians.values()) * (1 + ALIKE)
    place = {name: number for number, name in enumerate(order)}
    alike = sorted((n for n in medians if medians[n] <= limit), key=lambda n: place.get(n, len(place)))
    others = sorted((n for n in medians if medians[n] > limit), key=lambda n: medians[n])
    return [*alike, *others]
