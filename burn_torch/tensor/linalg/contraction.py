"""Einstein's sums: products of several tensors, summed over letters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from string import ascii_letters
from typing import Final, TypeAlias

import numpy as np

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.errors import BurnTorchError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.wording import described
from burn_torch.tensor.apply import apply_one, require_tensor, unary
from burn_torch.tensor.tensor import Tensor

__all__ = ["einsum"]

Named: TypeAlias = tuple[str, Tensor]
"""A tensor with a letter for each of its axes."""


def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """The sum of products that an equation names: `einsum("ij,jk->ik", x, y)` is the matrix product.

    Axes that share a letter run together; letters that the right side leaves out are summed.  A letter that occurs
    twice in a term is its diagonal, and "..." stands for all axes that are not named, which broadcast.  Without "->"
    the result has the letters that occur once, in the order of the alphabet, behind those of "...".  More than two
    tensors are multiplied in pairs, in the order that takes the fewest operations (numpy.einsum_path).

    Shapes: a letter has one size in all terms, or 1.  Dtypes: numbers, all the same.
    Raises: ShapeError where the equation does not fit the tensors.  PyTorch: torch.einsum; numpy.einsum.
    """
    terms, result = _read(equation, tensors)
    sizes = _sizes(equation, terms, tensors)
    named = [_diagonal(term, x) for term, x in zip(terms, tensors, strict=True)]
    for step in _order(named, result, sizes):
        group = [named[i] for i in step]
        named = [x for i, x in enumerate(named) if i not in step]
        while len(group) > 1:
            needed = set(result).union(*(letters for letters, _ in (*named, *group[2:])))
            group[:2] = [_contract(group[0], group[1], needed)]
        named += group
    letters, x = _sum_out(*named[0], set(result))
    return unary(ops.permute, x, tuple(letters.index(letter) for letter in result))


# -- the equation -----------------------------------------------------------------------------------------
def _read(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of each tensor and of the result, with letters in place of "..."."""
    if not isinstance(equation, str):
        raise told(
            DTypeError,
            "the equation is no text",
            given=f"equation {described(equation)}",
            expected="a text, and the tensors behind it",
            mend='write einsum("ij,jk->ik", x, y)',
        )
    for i, x in enumerate(tensors):
        require_tensor(x, f"tensors[{i}]")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise _misfit(equation, tensors, f"{len(terms)} terms for {len(tensors)} tensors", "one term for each tensor")
    spare = [letter for letter in ascii_letters if letter not in equation]
    widths = [x.ndim - len(term.replace("...", "", 1)) for term, x in zip(terms, tensors, strict=True)]
    dotted = [width for term, width in zip(terms, widths, strict=True) if "..." in term]
    if max(dotted, default=0) > len(spare):
        raise _misfit(equation, tensors, "there are not enough letters", f"at most {len(ascii_letters)} axes in all")
    dots = "".join(spare[: max(dotted, default=0)])
    for i, (term, width) in enumerate(zip(terms, widths, strict=True)):
        if width < 0 or (width and "..." not in term):
            expected = "a letter for each axis, or ... for several"
            raise _misfit(equation, tensors, f"term {i} is {term!r}, for {tensors[i].ndim} axes", expected)
        terms[i] = term.replace("...", dots[len(dots) - width :], 1)
    counts = Counter("".join(terms))
    if not arrow:
        right = "..." + "".join(sorted(x for x, count in counts.items() if count == 1 and x not in dots))
    right = right.replace("...", dots, 1)
    unknown = sorted(set("".join(terms) + right) - set(ascii_letters))
    if unknown:
        raise _misfit(equation, tensors, f"{unknown[0]!r} is no letter", "letters, commas, ... and ->")
    if len(set(right)) < len(right) or set(right) - set(counts):
        raise _misfit(equation, tensors, "the right side is wrong", "letters of the left side, each once")
    return terms, right


def _misfit(equation: str, tensors: Sequence[Tensor], what: str, expected: str) -> BurnTorchError:
    return told(
        ShapeError,
        f"the equation does not fit the tensors: {what}",
        given=f"{equation!r} of {', '.join(str(x.spec) for x in tensors) or 'no tensors'}",
        expected=expected,
        mend='write, for example, einsum("bij,bjk->bik", x, y)',
    )


def _sizes(equation: str, terms: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, int]:
    """The size of each letter; a 1 broadcasts to that of another term."""
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        own = dict(zip(term, x.shape, strict=True))
        clashes = [(own[letter], size) for letter, size in zip(term, x.shape, strict=True) if own[letter] != size]
        clashes += [(sizes[letter], size) for letter, size in own.items() if 1 != sizes.get(letter, size) != size != 1]
        for known, size in clashes:
            what = f"one letter stands for the sizes {known} and {size}"
            raise _misfit(equation, tensors, what, "one size for each letter, or 1 in another term")
        sizes |= {letter: size for letter, size in own.items() if sizes.get(letter, 1) == 1}
    return sizes


def _order(named: Sequence[Named], result: str, sizes: dict[str, int]) -> Sequence[Sequence[int]]:
    """The tensors to multiply in each step, as positions among what is left; their product comes last."""
    if len(named) < 3 or any(size.__class__ is not int for size in sizes.values()):  # sizes that a trace keeps open
        return [range(len(named))]
    shapes = [np.broadcast_to(0, [sizes[letter] for letter in letters]) for letters, _ in named]
    equation = f"{','.join(letters for letters, _ in named)}->{result}"
    path: list[tuple[int, ...]] = np.einsum_path(
        equation, *shapes, optimize="optimal" if len(named) <= _FEW else "greedy"
    )[0][1:]
    return path


_FEW: Final = 6
"""Up to this many tensors the best order is searched for: 1 ms for 6, 18 ms for 7 (2 cores, numpy 2.4, 2026-11-23)."""


# -- products ------------------------------------------------------------------------------------------------
def _diagonal(letters: str, x: Tensor) -> Named:
    """The diagonal over axes that share a letter."""
    for letter, count in Counter(letters).items():
        for _ in range(count - 1):
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = x.diagonal(0, first, second)
            letters = "".join(other for i, other in enumerate(letters) if i not in (first, second)) + letter
    return letters, x


def _sum_out(letters: str, x: Tensor, needed: set[str]) -> Named:
    """The sum over the letters that nothing else needs."""
    gone = tuple(i for i, letter in enumerate(letters) if letter not in needed)
    if not gone:
        return letters, x
    kept = "".join(letter for letter in letters if letter in needed)
    return kept, unary(ops.reshape, unary(ops.sum, x, gone), tuple(n for i, n in enumerate(x.shape) if i not in gone))


def _contract(first: Named, second: Named, needed: set[str]) -> Named:
    """The product of two tensors, summed over the letters of both that nothing else needs: a product of matrices."""
    (a, x), (b, y) = _sum_out(*first, needed | set(second[0])), _sum_out(*second, needed | set(first[0]))
    batch = [letter for letter in a if letter in b and letter in needed]
    inner = [letter for letter in a if letter in b and letter not in needed]
    rows = [letter for letter in a if letter not in b]
    columns = [letter for letter in b if letter not in a]
    sizes = dict(zip(a, x.shape, strict=True))
    sizes |= {letter: n for letter, n in zip(b, y.shape, strict=True) if sizes.get(letter, 1) == 1}

    def lay(letters: str, t: Tensor, *groups: list[str]) -> Tensor:
        order = [letter for group in groups for letter in group]
        t = unary(ops.permute, t, tuple(letters.index(letter) for letter in order))
        t = unary(ops.expand, t, tuple(sizes[letter] for letter in order))
        return unary(ops.reshape, t, tuple(math.prod(sizes[letter] for letter in group) for group in groups))

    z = apply_one(ops.matmul, (lay(a, x, batch, rows, inner), lay(b, y, batch, inner, columns)))
    order = [*batch, *rows, *columns]
    return "".join(order), unary(ops.reshape, z, tuple(sizes[letter] for letter in order))


check_functions(globals(), "linalg")
