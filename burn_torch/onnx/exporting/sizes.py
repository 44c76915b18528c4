"""Sizes that vary: what was a whole number in each trace, and is a formula of the dynamic axes in the exported graph.

A function is traced at several sizes of its dynamic axes.  A number that is the same in all traces is a constant; one
that differs is a `Size`: its values, one a trace.  `Formula` says which function of the axes gives these values.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np

__all__ = ["Formula", "Length", "Shape", "Size", "Symbol", "formula", "merged", "product"]


class PerTrace:
    """A number that differs between the traces."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values: Final = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerTrace) and type(other) is type(self) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self.values))}]"


def _in_each(function: Callable[[int, int], int]) -> Callable[[Size, Length], Length]:
    """Arithmetic with a size, done in each trace."""

    def compute(size: Size, other: Length) -> Length:
        values = other.values if isinstance(other, Size) else itertools.repeat(other)
        return merged([function(a, b) for a, b in zip(size.values, values, strict=False)])

    return compute


@final
class Size(PerTrace):
    """A whole number that differs between the traces.  Arithmetic with it is done in each of them."""

    __slots__ = ()

    __add__ = __radd__ = _in_each(operator.add)
    __sub__, __rsub__ = _in_each(operator.sub), _in_each(lambda a, b: b - a)
    __mul__ = __rmul__ = _in_each(operator.mul)
    __floordiv__, __rfloordiv__ = _in_each(operator.floordiv), _in_each(lambda a, b: b // a)


Length: TypeAlias = int | Size
Shape: TypeAlias = tuple[Length, ...]


def merged(values: Sequence[int]) -> Length:
    """The number that all values are, or the Size of them."""
    return values[0] if all(value == values[0] for value in values) else Size(tuple(values))


def product(sizes: Iterable[Length]) -> Length:
    """The product of sizes; 1 of none."""
    result: Length = 1
    for size in sizes:
        result = result * size
    return result


class Symbol(NamedTuple):
    """A dynamic axis: its name, what it was in each trace, and an input that has it.

    factor   the sizes are multiples of it; then `size` counts these
    """

    name: str
    size: Size
    source: Any
    axis: int
    factor: int = 1


class Formula(NamedTuple):
    """sum(factor * product(axes)) + constant, over symbols by their number."""

    terms: tuple[tuple[int, tuple[int, ...]], ...]
    constant: int


def formula(size: Size, symbols: Sequence[Symbol]) -> Formula | None:
    """Returns what gives a size from the dynamic axes; None where no sum of them and no product does.

    There are more traces than unknowns, so that a formula which fits them all is no accident.
    """
    wanted = np.array(size.values, np.float64)
    axes = [np.array(symbol.size.values, np.float64) for symbol in symbols]
    for i, axis in enumerate(axes):
        fit = _fit(wanted, [axis], [(i,)])
        if fit is not None:
            return fit
    fit = _fit(wanted, axes, [(i,) for i in range(len(axes))])
    if fit is not None:
        return fit
    numbers = range(len(axes))
    for count in (2, 3):
        for chosen in itertools.combinations_with_replacement(numbers, count):
            fit = _fit(wanted, [math.prod((axes[i] for i in chosen), start=np.ones(()))], [chosen])
            if fit is not None:
                return fit
    return None


def _fit(wanted: Any, columns: Sequence[Any], terms: Sequence[tuple[int, ...]]) -> Formula | None:
    """Whole factors and a whole constant with which the columns give what is wanted, in every trace."""
    if len(columns) + 1 >= len(wanted):
        return None
    matrix = np.stack([*columns, np.ones_like(wanted)], axis=1)
    solution = np.rint(np.linalg.lstsq(matrix, wanted, rcond=None)[0])
    if not np.array_equal(matrix @ solution, wanted):
        return None
    whole = [int(x) for x in solution]
    return Formula(tuple((n, term) for n, term in zip(whole, terms, strict=False) if n), whole[-1])
