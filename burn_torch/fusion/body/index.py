"""Index arithmetic: where an element lies, as a function of the loops of a kernel.

    x = Var("x", 12)
    row, col = split_index(x, (3, 4))            # x // 4, x % 4
    flat_index((row, col), (3, 4))               # x again: equal indexes are equal objects

An `Index` is a whole number: a sum of multiples of atoms and a constant.  Atoms are loop variables, quotients and
remainders of sums by constants, and places in a part of an axis.  Every index knows the range that it stays in, which
is what simplifies it: what is below d has no quotient by d, and is its own remainder.

Multiples, constants and the ends of ranges may be symbolic (`symbolic/sizes.py`).  Only what holds whatever the symbols
are simplifies an index; what is merely true of the sizes at hand is never asked.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final, final

from burn_torch.fusion.body.reasons import Unsymbolic
from burn_torch.symbolic.sizes import Size, exact_quotient, greatest_divisor, known_below, known_multiple, same_size

__all__ = ["Index", "Part", "Var", "constant", "flat_index", "in_fours", "part_of", "split_index", "strided_index"]

Whole = int | Size


def _key(value: Whole) -> object:
    """Returns a key that only equal wholes share, and that is compared without asking anything."""
    return value.key if isinstance(value, Size) else value


def _is(value: Whole, number: int) -> bool:
    return not isinstance(value, Size) and value == number


class Atom(ABC):
    """A term of an index, which is a sum of multiples of atoms; it lies in [0, high]."""

    __slots__ = ("high", "key")

    key: tuple[object, ...]
    high: Whole

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

    def __init__(self, name: str, size: Whole) -> None:
        self.name: Final = name
        self.size: Final = size
        self.key = ("var", name, _key(size))
        self.high = 0 if _is(size, 0) else size - 1

    def variables(self) -> frozenset[Var]:
        """Itself."""
        return frozenset([self])

    def __repr__(self) -> str:
        return self.name


@final
class _Quotient(Atom):
    """of // by, for an index that is never negative."""

    __slots__ = ("by", "of")

    def __init__(self, of: Index, by: Whole) -> None:
        self.of: Final = of
        self.by: Final = by
        self.key = ("//", of.key, _key(by))
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

    def __init__(self, of: Index, by: Whole) -> None:
        self.of: Final = of
        self.by: Final = by
        self.key = ("%", of.key, _key(by))
        self.high = of.high if known_below(of.high, by) else by - 1

    def variables(self) -> frozenset[Var]:
        """Those of what is divided."""
        return self.of.variables()

    def __repr__(self) -> str:
        return f"({self.of!r}) % {self.by}"


@final
class Part(Atom):
    """of - start where that lies in [0, size); elsewhere it is none that anybody may use, whatever it is."""

    __slots__ = ("of", "size", "start")

    def __init__(self, of: Index, start: Whole, size: Whole) -> None:
        self.of: Final = of
        self.start: Final = start
        self.size: Final = size
        self.key = ("part", of.key, _key(start), _key(size))
        self.high = size - 1

    def variables(self) -> frozenset[Var]:
        """Those of what it is a part of."""
        return self.of.variables()

    def tests(self) -> list[str]:
        """The conditions of its use, as source."""
        low = [] if known_below(self.start - 1, self.of.low) else [f"({self.of!r} >= {self.start})"]
        end = self.start + self.size
        return low if known_below(self.of.high, end) else [*low, f"({self.of!r} < {end})"]

    def __repr__(self) -> str:
        return repr(self.of) if _is(self.start, 0) else f"{self.of!r} - {_bracket(self.start)}"


def _bracket(value: Whole) -> str:
    return f"({value})" if isinstance(value, Size) else str(value)


@final
class Index:
    """A sum of multiples of atoms and a constant, in [low, high].  Equal sums are equal."""

    __slots__ = ("_key", "_text", "_variables", "constant", "high", "low", "terms")

    def __init__(self, terms: dict[Atom, Whole], constant: Whole) -> None:
        kept: dict[Atom, Whole] = {}
        low, high = constant, constant
        for atom, count in terms.items():
            most = atom.high
            if _is(count, 0) or _is(most, 0):
                continue
            kept[atom] = count
            if known_below(count, 1):
                low = low + count * most
            elif known_below(-1, count):
                high = high + count * most
            else:
                raise Unsymbolic(f"a multiple of unknown sign: {count}")
        self.terms: Final = kept
        self.constant: Final = constant
        self.low: Final = low
        self.high: Final = high
        self._key: tuple[object, ...] | None = None
        self._variables: frozenset[Var] | None = None
        self._text = ""

    @property
    def key(self) -> tuple[object, ...]:
        """The key that only equal sums share; most are never compared."""
        if self._key is None:
            self._key = frozenset((a.key, _key(count)) for a, count in self.terms.items()), _key(self.constant)
        return self._key

    def variables(self) -> frozenset[Var]:
        """The loops that it depends on."""
        if self._variables is None:
            self._variables = frozenset().union(*(atom.variables() for atom in self.terms))
        return self._variables

    def parts(self) -> Iterator[Part]:
        """The parts of axes that it lies in."""
        for atom in self.terms:
            if isinstance(atom, Part):
                yield atom
            if not isinstance(atom, Var):
                assert isinstance(atom, Part | _Quotient | _Remainder)
                yield from atom.of.parts()

    def tests(self) -> list[str]:
        """The conditions of its use, as source."""
        return list(dict.fromkeys(test for part in self.parts() for test in part.tests()))

    def step(self, variable: Var) -> Whole | None:
        """By how much it grows with a loop variable; None where unevenly."""
        total: Whole = 0
        for atom, count in self.terms.items():
            if atom == variable:
                total = total + count
            elif variable in atom.variables():
                inner = atom.of.step(variable) if isinstance(atom, Part) else None
                if inner is None:
                    return None
                total = total + inner * count
        return total

    def stride(self, variable: Var) -> Whole:
        """How much more it is one step of a loop on, except where a quotient or a remainder carries."""
        total: Whole = 0
        for atom, count in self.terms.items():
            if isinstance(atom, Var):
                total = total + (count if atom == variable else 0)
            elif isinstance(atom, _Remainder | Part):
                total = total + atom.of.stride(variable) * count
        return total

    def constant_run(self, variable: Var) -> int:
        """How many steps of a loop, from a multiple of so many on, leave it as it is; 0 where that is not known."""
        runs: list[int] = []
        for atom in self.terms:
            if not isinstance(atom, _Quotient | _Remainder):
                runs.append(0)
            elif isinstance(atom, _Remainder):
                runs.append(atom.of.constant_run(variable))
            elif isinstance(atom.by, int) and atom.of.terms.keys() == {variable} and atom.of.stride(variable) == 1:
                runs.append(atom.by if _is(atom.of.constant, 0) else 0)
            else:
                runs.append(0)
        return math.gcd(*runs) if runs and all(runs) else 0

    # -- arithmetic --------------------------------------------------------------------------
    def __add__(self, other: Index | Whole) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, self.constant + other)
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            terms[atom] = terms.get(atom, 0) + count
        return _join_quotients(Index(terms, self.constant + other.constant))

    def __mul__(self, factor: Whole) -> Index:
        return Index({atom: count * factor for atom, count in self.terms.items()}, self.constant * factor)

    def __floordiv__(self, by: Whole) -> Index:
        whole, rest = self._split(by)
        if rest._within(by):
            return whole
        common: Whole = by
        for count in rest.terms.values():
            common = greatest_divisor(common, count)
        if not _is(common, 1):  # (4 a + r) // 8 = a // 2 for r in [0, 4)
            reduced, left = rest._split(common)
            if left._within(common):
                ratio: Whole = exact_quotient(by, common)
                return whole + (reduced // ratio)
        if len(rest.terms) == 1 and _is(rest.constant, 0):
            ((atom, count),) = rest.terms.items()
            if _is(count, 1) and isinstance(atom, _Quotient):
                return whole + _atom(_Quotient(atom.of, atom.by * by))
        assert not known_below(rest.low, 0), f"{self!r} // {by} may be negative"
        return whole + _atom(_Quotient(rest, by))

    def __mod__(self, by: Whole) -> Index:
        _, rest = self._split(by)
        if rest._within(by):
            return rest
        if len(rest.terms) == 1 and _is(rest.constant, 0):
            ((atom, count),) = rest.terms.items()
            if _is(count, 1) and isinstance(atom, _Remainder) and exact_quotient(atom.by, by) is not None:
                return Index({}, 0) + (Index(atom.of.terms, atom.of.constant) % by)
        common: Whole = by
        for count in (*rest.terms.values(), rest.constant):
            common = common if _is(count, 0) else greatest_divisor(common, count)
        if not _is(common, 1):
            reduced = {a: exact_quotient(c, common) for a, c in rest.terms.items()}
            left: Whole = exact_quotient(by, common)
            return (Index(reduced, exact_quotient(rest.constant, common)) % left) * common
        assert not known_below(rest.low, 0), f"{self!r} % {by} may be negative"
        return _atom(_Remainder(rest, by))

    def _within(self, by: Whole) -> bool:
        """Asks whether it lies in [0, by) whatever the symbols are."""
        return known_below(-1, self.low) and known_below(self.high, by)

    def _split(self, by: Whole) -> tuple[Index, Index]:
        """(whole, rest) with self = whole * by + rest, the rest without what `by` divides; negative only if self is."""
        whole: dict[Atom, Whole] = {}
        rest: dict[Atom, Whole] = {}
        for atom, count in self.terms.items():
            quotient = exact_quotient(count, by)
            if quotient is None:
                rest[atom] = count
            else:
                whole[atom] = quotient
        if isinstance(by, Size) or isinstance(self.constant, Size):
            quotient = exact_quotient(self.constant, by)
            if quotient is None:
                return Index(whole, 0), Index(rest, self.constant)
            return Index(whole, quotient), Index(rest, 0)
        left = Index(rest, self.constant % by)
        missing = max(-(left.low // by), 0) if not isinstance(left.low, Size) and known_below(-1, self.low) else 0
        return Index(whole, self.constant // by - missing), left + missing * by  # 35 - x is no 3 - x

    def replaced(self, values: dict[Var, Index]) -> Index:
        """This index with other indexes in place of loop variables."""
        total = Index({}, self.constant)
        for atom, count in self.terms.items():
            if isinstance(atom, Var):
                other = values.get(atom)
                part = _atom(atom) if other is None else other
            elif isinstance(atom, _Quotient):
                part = atom.of.replaced(values) // atom.by
            elif isinstance(atom, Part):
                part = _atom(Part(atom.of.replaced(values), atom.start, atom.size))
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
        """As source, which is Python and Triton alike; the terms in a fixed order, symbolic ones first."""
        if not self._text:
            self._text = self._spell()
        return self._text

    def _spell(self) -> str:
        parts = []
        for atom, count in sorted(self.terms.items(), key=_order):
            text = repr(atom)
            if not isinstance(atom, Var):
                text = f"({text})"
            parts.append(text if _is(count, 1) else f"{text} * {count}")
        if not _is(self.constant, 0) or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _order(term: tuple[Atom, Whole]) -> tuple[bool, int, str, str]:
    atom, count = term
    if isinstance(count, Size):
        return False, 0, str(count), repr(atom)
    return True, -abs(count), "", repr(atom)


def constant(value: Whole) -> Index:
    """An index that is always the same."""
    return Index({}, value)


def index_of(variable: Var) -> Index:
    """The loop variable itself."""
    return _atom(variable)


def _atom(atom: Atom) -> Index:
    return Index({atom: 1}, 0)


def part_of(of: Index, start: Whole, size: Whole) -> Index | None:
    """of - start, to be used where it lies in [0, size); None where it never does."""
    if known_below(of.high, start) or known_below(start + size - 1, of.low) or _is(size, 0):
        return None
    if known_below(start - 1, of.low) and known_below(of.high, start + size):
        return of if _is(start, 0) else of + start * -1
    return _atom(Part(of, start, size))


def _divides(by: Whole, number: Whole) -> bool:
    return exact_quotient(number, by) is not None


def _digits_above(index: Index, digit: _Remainder, quotient: Index, scale: Whole) -> tuple[Atom, Whole] | None:
    """In a sum, quotient % d * scale: above a digit n % by it is one more of the same number, and n % (d * by) both.

    Gives it with d * by.  It may be written as (n % (d * by)) // by.
    """
    for atom, count in index.terms.items():
        if not same_size(count, scale):
            continue
        if isinstance(atom, _Remainder) and atom.of == quotient:
            return atom, digit.by * atom.by
        if isinstance(atom, _Quotient) and same_size(atom.by, digit.by) and len(atom.of.terms) == 1:
            ((inner, times),) = atom.of.terms.items()
            alone = _is(times, 1) and _is(atom.of.constant, 0)
            if alone and isinstance(inner, _Remainder) and inner.of == digit.of and _divides(digit.by, inner.by):
                return atom, inner.by
    return None


def _join_quotients(index: Index) -> Index:
    """The sum with quotient * d + remainder put together again, as often as there are such pairs."""
    changed = True
    while changed:
        changed = False
        for atom, count in index.terms.items():
            if not isinstance(atom, _Remainder):
                continue
            quotient = atom.of // atom.by
            if len(quotient.terms) != 1 or not _is(quotient.constant, 0):
                continue
            if (upper := _digits_above(index, atom, quotient, count * atom.by)) is not None:
                terms = {a: c for a, c in index.terms.items() if a not in (atom, upper[0])}
                both = _atom(_Remainder(atom.of, upper[1])) * count
                index = Index({**terms, **{a: terms.get(a, 0) + c for a, c in both.terms.items()}}, index.constant)
                changed = True
                break
            ((other, scale),) = quotient.terms.items()
            if _is(scale, 1) and same_size(index.terms.get(other, 0), count * atom.by):
                terms = {a: c for a, c in index.terms.items() if a not in (atom, other)}
                index = Index(terms, index.constant)
                for part, times in atom.of.terms.items():
                    terms = dict(index.terms)
                    terms[part] = terms.get(part, 0) + times * count
                    index = Index(terms, index.constant)
                index = Index(index.terms, index.constant + atom.of.constant * count)
                changed = True
                break
    return index


# -- shapes ------------------------------------------------------------------------------------------
def flat_index(index: Sequence[Index], shape: Sequence[Whole]) -> Index:
    """The place of an element in row-major order."""
    if _is_plain(shape):
        return _flat_index(tuple(index), tuple(shape))
    return _flatten(index, shape)


def _is_plain(shape: Sequence[Whole]) -> bool:
    """Asks whether no size is a symbol: to compare those asks about them."""
    return all(size.__class__ is int for size in shape)


def _flatten(index: Sequence[Index], shape: Sequence[Whole]) -> Index:
    total = constant(0)
    step: Whole = 1
    for i, size in zip(reversed(index), reversed(shape), strict=True):
        total = total + i * step
        step = step * size
    return total


_flat_index: Final = functools.lru_cache(maxsize=8192)(_flatten)


def strided_index(index: Sequence[Index], strides: Sequence[Whole]) -> Index:
    """The place in memory of the element at `index`, in a layout of these strides, in elements."""
    total = constant(0)
    for at, stride in zip(index, strides, strict=True):
        total = total + at * stride
    return total


def split_index(flat: Index, shape: Sequence[Whole]) -> tuple[Index, ...]:
    """The inverse of `flat_index`: where the element with this place in row-major order lies."""
    if _is_plain(shape):
        return _split_index(flat, tuple(shape))
    return _unflatten(flat, shape)


def _unflatten(flat: Index, shape: Sequence[Whole]) -> tuple[Index, ...]:
    places: list[Index] = []
    rest = flat
    for position, size in enumerate(reversed(shape)):
        first = position == len(shape) - 1
        if first and known_below(rest.high, size):
            places.append(rest)
        else:
            places.append(constant(0) if known_below(size, 2) else rest % size)
        rest = constant(0) if _is(size, 0) else rest // size
    return tuple(reversed(places))


_split_index: Final = functools.lru_cache(maxsize=8192)(_unflatten)


# -- neighbours --------------------------------------------------------------------------------------
def in_fours(index: Index, variable: Var) -> bool:
    """Asks whether it is 4 n, 4 n + 1, 4 n + 2 and 4 n + 3 at 4 m to 4 m + 3 of a loop, whatever the other loops do.

    >>> r = Var("r", 48)
    >>> [in_fours(i, r) for i in (index_of(r), index_of(r) % 24 + (index_of(r) // 24) * 96, index_of(r) * 2)]
    [True, True, False]
    """
    climbing = [atom for atom in index.terms if not _steady(atom, variable)]
    if len(climbing) != 1 or not _is(index.terms[climbing[0]], 1) or not _climbs(climbing[0], variable):
        return False
    others = (count for atom, count in index.terms.items() if atom is not climbing[0])
    return all(known_multiple(count, 4) for count in (*others, index.constant))


def _steady(atom: Atom, variable: Var) -> bool:
    """Asks whether it is one number at 4 m to 4 m + 3 of the loop."""
    if variable not in atom.variables():
        return True
    if isinstance(atom, Var | Part):
        return False
    assert isinstance(atom, _Quotient | _Remainder)
    if all(_steady(inner, variable) for inner in atom.of.terms):
        return True
    return isinstance(atom, _Quotient) and known_multiple(atom.by, 4) and in_fours(atom.of, variable)


def _climbs(atom: Atom, variable: Var) -> bool:
    """Asks whether it grows by one within a four, from a multiple of four on."""
    if isinstance(atom, Var):
        return atom == variable
    return isinstance(atom, _Remainder) and known_multiple(atom.by, 4) and in_fours(atom.of, variable)
