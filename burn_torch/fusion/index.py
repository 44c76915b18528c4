"""Index arithmetic: where an element lies, as a function of the loops of a kernel.

    x = Var("x", 12)
    row, col = split_index(x, (3, 4))            # x // 4, x % 4
    flat_index((row, col), (3, 4))               # x again: equal indexes are equal objects

An `Index` is a whole number: a sum of multiples of atoms and a constant.  Atoms are loop variables, and quotients and
remainders of sums by constants.  Every index knows the range that it stays in, which is what simplifies it: what is
below d has no quotient by d, and is its own remainder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, final

__all__ = ["Index", "Var", "constant", "flat_index", "split_index"]


class Atom(ABC):
    """What an index is a sum of multiples of; it lies in [0, high]."""

    __slots__ = ("high", "key")

    key: tuple[object, ...]
    high: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @abstractmethod
    def variables(self) -> frozenset[Var]:
        """The loops that it depends on."""


@final
class Var(Atom):
    """A loop variable: it runs over [0, size)."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name: Final = name
        self.size: Final = size
        self.key = ("var", name, size)
        self.high = max(size - 1, 0)

    def variables(self) -> frozenset[Var]:
        """Itself."""
        return frozenset([self])

    def __repr__(self) -> str:
        return self.name


@final
class _Quotient(Atom):
    """of // by, for an index that is never negative."""

    __slots__ = ("by", "of")

    def __init__(self, of: Index, by: int) -> None:
        self.of: Final = of
        self.by: Final = by
        self.key = ("//", of.key, by)
        self.high = of.high // by

    def variables(self) -> frozenset[Var]:
        """Those of what is divided."""
        return self.of.variables()

    def __repr__(self) -> str:
        return f"({self.of!r}) // {self.by}"


@final
class _Remainder(Atom):
    """of % by, for an index that is never negative."""

    __slots__ = ("by", "of")

    def __init__(self, of: Index, by: int) -> None:
        self.of: Final = of
        self.by: Final = by
        self.key = ("%", of.key, by)
        self.high = min(of.high, by - 1)

    def variables(self) -> frozenset[Var]:
        """Those of what is divided."""
        return self.of.variables()

    def __repr__(self) -> str:
        return f"({self.of!r}) % {self.by}"


@final
class Index:
    """A sum of multiples of atoms and a constant, in [low, high].  Equal sums are equal."""

    __slots__ = ("constant", "high", "key", "low", "terms")

    def __init__(self, terms: dict[Atom, int], constant: int) -> None:
        self.terms: Final = {atom: count for atom, count in terms.items() if count and atom.high}
        self.constant: Final = constant
        self.key: Final = (frozenset((atom.key, count) for atom, count in self.terms.items()), constant)
        self.low: Final = constant + sum(count * atom.high for atom, count in self.terms.items() if count < 0)
        self.high: Final = constant + sum(count * atom.high for atom, count in self.terms.items() if count > 0)

    def variables(self) -> frozenset[Var]:
        """The loops that it depends on."""
        return frozenset().union(*(atom.variables() for atom in self.terms))

    # -- arithmetic --------------------------------------------------------------------------
    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            terms[atom] = terms.get(atom, 0) + count
        return _joined(Index(terms, self.constant + other.constant))

    def __mul__(self, factor: int) -> Index:
        return Index({atom: count * factor for atom, count in self.terms.items()}, self.constant * factor)

    def __floordiv__(self, by: int) -> Index:
        whole, rest = self._split(by)
        if rest.low >= 0 and rest.high < by:
            return whole
        common = by
        for count in rest.terms.values():
            common = _gcd(common, count)
        if common > 1:  # (4 a + r) // 8 = a // 2 for r in [0, 4)
            reduced, left = rest._split(common)
            if left.low >= 0 and left.high < common:
                return whole + (reduced // (by // common))
        if len(rest.terms) == 1 and not rest.constant:
            ((atom, count),) = rest.terms.items()
            if count == 1 and isinstance(atom, _Quotient):
                return whole + _atom(_Quotient(atom.of, atom.by * by))
        assert rest.low >= 0, f"{self!r} // {by} may be negative"
        return whole + _atom(_Quotient(rest, by))

    def __mod__(self, by: int) -> Index:
        _, rest = self._split(by)
        if rest.low >= 0 and rest.high < by:
            return rest
        if len(rest.terms) == 1 and not rest.constant:
            ((atom, count),) = rest.terms.items()
            if count == 1 and isinstance(atom, _Remainder) and atom.by % by == 0:
                return Index({}, 0) + (Index(atom.of.terms, atom.of.constant) % by)
        common = by
        for count in (*rest.terms.values(), rest.constant):
            common = _gcd(common, count)
        if common > 1:
            return (
                Index({a: c // common for a, c in rest.terms.items()}, rest.constant // common) % (by // common)
            ) * common
        assert rest.low >= 0, f"{self!r} % {by} may be negative"
        return _atom(_Remainder(rest, by))

    def _split(self, by: int) -> tuple[Index, Index]:
        """(whole, rest) with self = whole * by + rest, the rest without what `by` divides, and never negative if self
        is not.
        """
        whole = {atom: count // by for atom, count in self.terms.items() if count % by == 0}
        rest = Index({atom: count for atom, count in self.terms.items() if count % by}, self.constant % by)
        missing = max(-(rest.low // by), 0) if self.low >= 0 else 0  # 35 - x is no 3 - x, whatever divides 32
        return Index(whole, self.constant // by - missing), rest + missing * by

    def replaced(self, values: dict[Var, Index]) -> Index:
        """This index with other indexes in place of loop variables."""
        total = Index({}, self.constant)
        for atom, count in self.terms.items():
            if isinstance(atom, Var):
                found = values.get(atom)
                part = _atom(atom) if found is None else found
            elif isinstance(atom, _Quotient):
                part = atom.of.replaced(values) // atom.by
            else:
                assert isinstance(atom, _Remainder)
                part = atom.of.replaced(values) % atom.by
            total = total + part * count
        return total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.written()

    def written(self) -> str:
        """As source, which is Python and Triton alike; the terms in a fixed order."""
        parts = []
        for atom, count in sorted(self.terms.items(), key=lambda term: (-abs(term[1]), repr(term[0]))):
            text = repr(atom)
            if not isinstance(atom, Var):
                text = f"({text})"
            parts.append(text if count == 1 else f"{text} * {count}")
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def constant(value: int) -> Index:
    """An index that is always the same."""
    return Index({}, value)


def index_of(variable: Var) -> Index:
    """The loop variable itself."""
    return _atom(variable)


def _atom(atom: Atom) -> Index:
    return Index({atom: 1}, 0)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)


def _joined(index: Index) -> Index:
    """The sum with quotient * d + remainder put together again, as often as there are such pairs."""
    found = True
    while found:
        found = False
        for atom, count in index.terms.items():
            if not isinstance(atom, _Remainder):
                continue
            quotient = atom.of // atom.by
            if len(quotient.terms) != 1 or quotient.constant:
                continue
            ((other, scale),) = quotient.terms.items()
            if scale == 1 and index.terms.get(other) == count * atom.by:
                terms = {a: c for a, c in index.terms.items() if a not in (atom, other)}
                index = Index(terms, index.constant)
                for part, times in atom.of.terms.items():
                    terms = dict(index.terms)
                    terms[part] = terms.get(part, 0) + times * count
                    index = Index(terms, index.constant)
                index = Index(index.terms, index.constant + atom.of.constant * count)
                found = True
                break
    return index


# -- shapes ------------------------------------------------------------------------------------------
def flat_index(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """The place of an element in row-major order."""
    total = constant(0)
    step = 1
    for i, size in zip(reversed(index), reversed(shape), strict=True):
        total = total + i * step
        step *= size
    return total


def split_index(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The inverse of `flat_index`: where the element with this place in row-major order lies."""
    made: list[Index] = []
    rest = flat
    for position, size in enumerate(reversed(shape)):
        first = position == len(shape) - 1
        made.append(rest if first and rest.high < size else rest % size if size > 1 else constant(0))
        rest = rest // size if size else constant(0)
    return tuple(reversed(made))
