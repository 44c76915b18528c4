"""Sizes that are not known yet: polynomials of symbols, with a note of all that was asked about them.

    scope = Scope({"s0": 12})
    rows = scope.symbol("s0")          # 12 here, another number next time
    rows * 64 // 8                     # s0 * 8, exactly
    rows == 1                          # False, since a symbol is 2 or more: nothing is noted
    rows <= 16384                      # True here, so this is noted: `scope.guards` has "s0 <= 16384"

Rules of shape, passes and the scheduler run on such sizes as they run on whole numbers.  Their decisions hold wherever
the noted guards hold: a size that code makes a plain number of is noted as equal to that number.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.symbolic.polynomials import (
    Factor,
    Product,
    Terms,
    bounds,
    collected,
    leading,
    multiplied,
    spelt_out,
    without,
)

__all__ = [
    "Guard",
    "Real",
    "Scope",
    "Size",
    "exact_quotient",
    "greatest_divisor",
    "known_below",
    "known_multiple",
    "largest_sizes",
    "real",
    "same_shape",
    "same_size",
    "size_hint",
    "size_of",
    "sizes_in",
]

_scopes: Final = itertools.count()


@final
@dataclass(frozen=True)
class Guard:
    """A question and its answer here: `size == 0`, `size < 0`, or that it does not.  `text` has symbols alone."""

    size: Size
    kind: str
    holds: bool

    @property
    def text(self) -> str:
        """As Python, of symbols."""
        sign = {("==", True): "==", ("==", False): "!=", ("<", True): "<", ("<", False): ">="}[self.kind, self.holds]
        positive, negative = self.size.sides()
        if positive.isdigit() and sign == ">=":
            return f"{negative} <= {positive}"
        return f"{positive} {sign} {negative}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and (self.size.key, self.kind) == (other.size.key, other.kind)

    def __hash__(self) -> int:
        return hash((self.size.key, self.kind))


@final
class Scope:
    """Symbols, their values here, and what was asked about them.

    demanding  whether equality is denied where it does not follow: a rule of shape that needs it then fails, and
               `denied` says what it asked last
    bordering  of what was asked then, sizes that are just not negative: an end that lies at the end of an axis
    granted    sizes that count as 0 all the same
    """

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.number: Final = next(_scopes)
        self.hints: Final = dict(hints)
        self.guards: Final[dict[Guard, None]] = {}
        self.denied: Final[list[Size]] = []
        self.bordering: Final[list[Size]] = []
        self.granted: Final[dict[Any, Size]] = {}
        self.demanding = False
        self.factors: Final[dict[str, Factor]] = {}
        """By their names in kernels."""
        self._parts: Final[dict[str, Factor]] = {}
        for name, hint in self.hints.items():
            self.factors[name] = Factor(name, name, hint, 2, math.inf, None)

    def add(self, hint: int) -> Size:
        """One more symbol."""
        name = f"s{len(self.hints)}"
        self.hints[name] = hint
        self.factors[name] = Factor(name, name, hint, 2, math.inf, None)
        return self.symbol(name)

    def factor(self, name: str) -> Size:
        """A factor that kernels know by a name: a symbol, which is 2 or more, or a quotient or remainder of some."""
        return Size(self, {(self.factors[name],): 1})

    symbol = factor

    def answer(self, kind: str, size: Size) -> bool:
        """Tells if `size == 0` or `size < 0` here, where it does not follow from what symbols are."""
        truth = size.hint == 0 if kind == "==" else size.hint < 0
        if self.demanding:
            if kind == "==" and truth and size.key not in self.granted and (-size).key not in self.granted:
                self.denied.append(size)
                return False
            if kind == "<" and size.hint == 0:
                self.bordering.append(size)
            return truth
        if kind == "<" and any(_implies(guard, size, truth) for guard in self.guards):
            return truth
        self.guards.setdefault(Guard(size, kind, truth))
        return truth

    def needed(self) -> list[Guard]:
        """The guards but for those that follow from others."""
        kept: list[Guard] = []
        for guard in reversed(self.guards):
            if guard.kind != "<" or not any(_implies(other, guard.size, guard.holds) for other in kept):
                kept.append(guard)
        return kept[::-1]

    def part(self, sign: str, of: Size | int, by: Size | int) -> Size:
        """of // by, or of % by, where neither is a polynomial."""
        text = f"({_text_of(of)}) {sign} {_in_brackets(by)}"
        factor = self._parts.get(text)
        if factor is None:
            a, b = size_hint(of), size_hint(by)
            hint = a // b if sign == "//" else a % b
            low, high = _low(of), _high(of)
            if _low(by) <= 0:
                low, high = -math.inf, math.inf
            elif sign == "%":
                low, high = 0, min(_high(by) - 1, high if low >= 0 else math.inf)
            else:
                low = 0 if low >= 0 else -math.inf
                high = high // _low(by) if 0 <= high < math.inf else math.inf
            name = f"d{len(self._parts)}"
            factor = self._parts[text] = self.factors[name] = Factor(name, text, hint, low, high, (sign, of, by))
        return Size(self, {(factor,): 1})


def _implies(guard: Guard, size: Size, truth: bool) -> bool:
    """Tells if it follows from a guard that `size < 0`, or that it is not."""
    if guard.kind != "<" or guard.holds is not truth:
        return False
    return _never_above(size, guard.size) if truth else _never_above(guard.size, size)


def _never_above(a: Size | int, b: Size | int) -> bool:
    difference = a - b
    if isinstance(difference, Size) and _high(difference) > 0:
        difference = _reduce(difference)
    return _high(difference) <= 0


def _low(value: Size | int) -> float:
    return value.low if isinstance(value, Size) else value


def _high(value: Size | int) -> float:
    return value.high if isinstance(value, Size) else value


def _of_sizes(function: Callable[[Size, Any], Any]) -> Callable[[Size, Any], Any]:
    """An operator of a size and a size or whole number; other operands are left to them."""
    return lambda size, other: NotImplemented if _terms(other) is None else function(size, other)


@final
class Size:
    """A whole number: a sum of multiples of products of symbols.  Equal sums have equal keys.

    To compare, to convert and to ask for the truth of one notes a guard where the answer does not follow.
    """

    __slots__ = ("high", "hint", "key", "low", "scope", "terms")

    def __init__(self, scope: Scope, terms: Terms) -> None:
        self.scope: Final = scope
        self.terms: Final = dict(terms)
        self.key: Final = (scope.number, tuple(sorted((tuple(f.text for f in p), c) for p, c in self.terms.items())))
        self.hint: Final = sum(count * math.prod(f.hint for f in product) for product, count in self.terms.items())
        self.low, self.high = bounds(self.terms)

    # -- arithmetic ------------------------------------------------------------------------------
    def __add__(self, other: Size | int) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        return _sum(self.scope, [*self.terms.items(), *terms.items()])

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    __sub__ = _of_sizes(lambda a, b: a + b * -1)
    __rsub__ = _of_sizes(lambda a, b: a * -1 + b)

    def __mul__(self, other: Size | int) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        return _sum(self.scope, ((multiplied(a, b), m * n) for a, m in self.terms.items() for b, n in terms.items()))

    __rmul__ = __mul__

    __floordiv__ = _of_sizes(lambda of, by: _divide(of, by)[0])
    __rfloordiv__ = _of_sizes(lambda by, of: _divide(of, by)[0])
    __mod__ = _of_sizes(lambda of, by: _divide(of, by)[1])
    __rmod__ = _of_sizes(lambda by, of: _divide(of, by)[1])

    def __truediv__(self, by: float) -> Real:
        return Real(1.0 / by, self, inverse=False)

    def __rtruediv__(self, of: float) -> Real:
        return Real(of, self, inverse=True)

    # -- asking ----------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Size | int):
            return NotImplemented
        if isinstance(other, Size) and other.key == self.key:
            return True
        return _is_zero(self - other)

    __lt__ = _of_sizes(lambda a, b: _is_negative(a - b))
    __gt__ = _of_sizes(lambda a, b: _is_negative(b - a))
    __le__ = _of_sizes(lambda a, b: not _is_negative(b - a))
    __ge__ = _of_sizes(lambda a, b: not _is_negative(a - b))

    def __bool__(self) -> bool:
        return not _is_zero(self)

    def __hash__(self) -> int:
        return hash(self.key)

    def __index__(self) -> int:
        """The number that it is here; from now on it must be."""
        self.scope.guards.setdefault(Guard(_as_size(self - self.hint), "==", True))
        return self.hint

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    # -- reading ---------------------------------------------------------------------------------
    def symbols(self) -> set[str]:
        """The symbols in it."""
        symbols: set[str] = set()
        for product in self.terms:
            for factor in product:
                if factor.parts is None:
                    symbols.add(factor.name)
                else:
                    for part in factor.parts[1:]:
                        symbols |= part.symbols() if isinstance(part, Size) else set()
        return symbols

    def replaced(self, values: Mapping[str, Any]) -> Any:
        """The size with other sizes, perhaps of another scope, or numbers in place of its symbols."""
        total: Any = 0
        for product, count in self.terms.items():
            term: Any = count
            for factor in product:
                if factor.parts is None:
                    term = values[factor.name] * term
                else:
                    sign, of, by = factor.parts
                    of = of.replaced(values) if isinstance(of, Size) else of
                    by = by.replaced(values) if isinstance(by, Size) else by
                    term = (of // by if sign == "//" else of % by) * term
            total = term + total
        return total

    def factor(self) -> str | None:
        """The one symbol, quotient or remainder that it is; None where it is more."""
        ((product, count),) = self.terms.items() if len(self.terms) == 1 else (((), 0),)
        return product[0].text if len(product) == 1 and count == 1 else None

    def spelt(self, names: Mapping[str, str]) -> str | None:
        """As source, with other names for its symbols, quotients and remainders; None where one has none."""
        if not all(factor.text in names for product in self.terms for factor in product):
            return None
        return " + ".join(
            " * ".join([*(names[factor.text] for factor in product), str(count)])
            for product, count in self.terms.items()
        )

    def written(self, *, names: bool) -> str:
        """As source; `names`: quotients and remainders by their names, not by what they are."""
        return spelt_out(self.terms, names=names)

    def sides(self) -> tuple[str, str]:
        """Two texts whose difference it is, neither with a minus."""
        positive = {p: c for p, c in self.terms.items() if c > 0}
        negative = {p: -c for p, c in self.terms.items() if c < 0}
        return _text_of(size_of(self.scope, positive)), _text_of(size_of(self.scope, negative))

    def __str__(self) -> str:
        """As kernels write it."""
        text = self.written(names=True)
        return f"({text})" if " " in text else text

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return format(str(self), how)


def _of_number(function: Callable[[float, float], float]) -> Callable[[Any, float], float]:
    """Arithmetic with the plain number that a Real is here."""
    return lambda real, other: function(float(real), other)


@final
class Real:
    """A number made of a size: scale * size, or scale / size.

    Any other use makes the plain number of it that it is here, and notes that its size must be that.
    """

    __slots__ = ("inverse", "key", "scale", "size")

    def __init__(self, scale: float, size: Size, *, inverse: bool) -> None:
        self.scale: Final = float(scale)
        self.size: Final = size
        self.inverse: Final = inverse
        self.key: Final = (self.scale, size.key, inverse)

    def of(self, size: int) -> float:
        """The number where the size is this one."""
        return self.scale / size if self.inverse else self.scale * size

    def __float__(self) -> float:
        return self.of(int(self.size))

    __mul__ = __rmul__ = _of_number(operator.mul)
    __add__ = __radd__ = _of_number(operator.add)
    __truediv__, __rtruediv__ = _of_number(operator.truediv), _of_number(lambda a, b: b / a)
    __sub__, __rsub__ = _of_number(operator.sub), _of_number(lambda a, b: b - a)

    def __neg__(self) -> float:
        return -float(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real) and other.key == self.key:
            return True
        return float(self) == (float(other) if isinstance(other, Real) else other)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.scale!r} {'/' if self.inverse else '*'} {self.size}"


def real(count: Size | int) -> Any:
    """A whole number as a float, a size too."""
    return Real(1.0, count, inverse=False) if isinstance(count, Size) else float(count)


# -- how it is done ----------------------------------------------------------------------------------
def _terms(value: object) -> Terms | None:
    if isinstance(value, Size):
        return value.terms
    return {(): int(value)} if isinstance(value, int) else None


def _sum(scope: Scope, terms: Iterable[tuple[Product, int]]) -> Size | int:
    return size_of(scope, collected(terms))


def size_of(scope: Scope, terms: Terms) -> Size | int:
    """A sum of terms; a plain number where it has no symbol."""
    terms = {product: count for product, count in terms.items() if count}
    if not terms or (len(terms) == 1 and () in terms):
        return terms.get((), 0)
    return Size(scope, terms)


def _as_size(value: Size | int) -> Size:
    assert isinstance(value, Size)
    return value


def _text_of(value: Size | int) -> str:
    return value.written(names=False) if isinstance(value, Size) else str(value)


def _in_brackets(value: Size | int) -> str:
    text = _text_of(value)
    return f"({text})" if " " in text else text


def _scope_of(*values: Size | int) -> Scope:
    return next(value.scope for value in values if isinstance(value, Size))


def _is_zero(value: Size | int) -> bool:
    if isinstance(value, int):
        return value == 0
    if value.low > 0 or value.high < 0:
        return False
    value = _reduce(value)
    content = math.gcd(*(count for product, count in value.terms.items() if product))
    if value.low > 0 or value.high < 0 or value.terms.get((), 0) % content:
        return False
    return value.scope.answer("==", value)


def _reduce(value: Size) -> Size:
    """A size of the same sign, without common factors as far as these are positive."""
    common = greatest_divisor(value, value)
    if not isinstance(common, Size) or common.low <= 0 or len(value.terms) < 2:
        return value
    ((product, _),) = common.terms.items()
    return _as_size(exact_quotient(value, Size(value.scope, {product: 1})))


def _is_negative(value: Size | int) -> bool:
    if isinstance(value, int):
        return value < 0
    if value.high < 0:
        return True
    if value.low >= 0:
        return False
    value = _reduce(value)
    return value.high < 0 or (value.low < 0 and value.scope.answer("<", value))


def exact_quotient(of: Size | int, by: Size | int) -> Any:
    """of / by where that is a polynomial with whole factors; None where it is not.  It notes nothing."""
    if isinstance(by, int):
        if isinstance(of, int):
            return None if by == 0 or of % by else of // by
        if by == 0 or any(count % by for count in of.terms.values()):
            return None
        return size_of(of.scope, {product: count // by for product, count in of.terms.items()})
    rest: Any = of
    quotient: Any = 0
    product, count = leading(by.terms)
    while not isinstance(rest, int):
        other, times = leading(rest.terms)
        left = without(other, product)
        if left is None or times % count:
            return None
        part = size_of(by.scope, {left: times // count})
        rest, quotient = rest - by * part, quotient + part
    return quotient if rest == 0 else None


def greatest_divisor(a: Size | int, b: Size | int) -> Any:
    """A common divisor: of numbers the greatest, else the greatest single product.  It notes nothing."""
    if isinstance(a, int) and isinstance(b, int):
        return math.gcd(a, b)
    terms: list[tuple[Product, int]] = []
    for value in (a, b):
        value_terms = _terms(value)
        assert value_terms is not None
        terms += [(product, count) for product, count in value_terms.items() if count]
    common = list(terms[0][0])
    for product, _ in terms[1:]:
        left = list(product)
        common = [f for f in common if f in left and (left.remove(f) or True)]  # type: ignore[func-returns-value]  # None
    return size_of(_scope_of(a, b), {tuple(common): math.gcd(*(count for _, count in terms))})


def _divide(of: Size | int, by: Size | int, *, turned: bool = False) -> tuple[Any, Any]:
    """(of // by, of % by), rounded down.  turned: of an opposite, which is not turned again."""
    if by == 0:
        raise ZeroDivisionError("a size is divided by 0")
    scope = _scope_of(of, by)
    whole: Any = 0
    rest: Any = 0
    for product, count in (_terms(of) or {}).items():
        term = size_of(scope, {product: count})
        quotient = exact_quotient(term, by)
        if quotient is None and isinstance(by, int) and product == ():
            quotient, left = divmod(count, by)
            whole, rest = whole + quotient, rest + left
        elif quotient is None:
            rest = rest + term
        else:
            whole = whole + quotient
    if _low(rest) >= 0 and known_below(rest, by):
        return whole, rest
    if _high(rest) <= 0 and _low(rest) < 0 and not turned:  # rounding down is rounding the opposite up
        upwards = _divide(rest * -1 + by - 1, by, turned=True)[0]
        return whole - upwards, rest + upwards * by
    return whole + scope.part("//", rest, by), scope.part("%", rest, by)


# -- questions that note nothing ---------------------------------------------------------------------
def known_below(a: Size | int, b: Size | int) -> bool:
    """Tells if a < b whatever the symbols are."""
    if a.__class__ is int and b.__class__ is int:
        return a < b
    difference = a - b
    if isinstance(difference, Size) and _high(difference) >= 0:
        difference = _reduce(difference)
    return bool(_high(difference) < 0)


def same_size(a: Size | int, b: Size | int) -> bool:
    """Tells if the two are equal whatever the symbols are."""
    if a.__class__ is int and b.__class__ is int:
        return a == b
    if isinstance(a, Size):
        return isinstance(b, Size) and a.key == b.key
    return not isinstance(b, Size) and a == b


def known_multiple(size: Size | int, number: int) -> bool:
    """Tells if `number` divides a size: where it does not follow but is so here, that is noted; else nothing is."""
    if isinstance(size, int):
        return size % number == 0
    rest = _divide(size, number)[1]
    if not isinstance(rest, Size):
        return bool(rest == 0)
    return rest.hint == 0 and rest.scope.answer("==", rest)


def largest_sizes(sizes: Iterable[Size | int]) -> list[Size | int]:
    """Those of some sizes that no other one exceeds whatever the symbols are."""
    kept: list[Size | int] = []
    for size in sizes:
        if not any(_never_above(size, other) for other in kept):
            kept = [other for other in kept if not _never_above(other, size)] + [size]
    return kept


def same_shape(a: Sequence[Size | int], b: Sequence[Size | int]) -> bool:
    """Tells if two shapes are equal whatever the symbols are."""
    return len(a) == len(b) and all(map(same_size, a, b))


def size_hint(value: Size | int) -> int:
    """The number that a size is here; to estimate costs with, where either answer is right."""
    return value.hint if isinstance(value, Size) else value


def sizes_in(value: object) -> Iterator[Size]:
    """The sizes in nested tuples."""
    if isinstance(value, Size):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from sizes_in(part)
