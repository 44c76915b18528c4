"""Polynomials of symbols: sums of whole multiples of products, which sizes are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

__all__ = ["Factor", "Product", "Terms", "bounds", "collected", "leading", "multiplied", "spelt_out", "without"]

Product: TypeAlias = tuple["Factor", ...]
"""Factors in the order of their keys; the empty product is 1."""

Terms: TypeAlias = Mapping[Product, int]
"""How often each product counts."""


@final
@dataclass(slots=True, eq=False)
class Factor:
    """A symbol, or a quotient or remainder that is no polynomial.

    name   as kernels call it
    text   as a Python expression of symbols
    hint   its value here; it lies in [low, high]
    """

    name: str
    text: str
    hint: int
    low: float
    high: float
    parts: tuple[str, Any, Any] | None

    def __repr__(self) -> str:
        return self.name


def bounds(terms: Terms) -> tuple[float, float]:
    """The ends of the range in which a sum lies; whole, or infinite."""
    low: float = 0
    high: float = 0
    for product, count in terms.items():
        least, most = _range(product)
        low += count * (least if count > 0 else most)
        high += count * (most if count > 0 else least)
    return low, high


def _range(product: Product) -> tuple[float, float]:
    low: float = 1
    high: float = 1
    for factor in product:
        ends = [a and b and a * b for a in (low, high) for b in (factor.low, factor.high)]  # 0 * inf is 0 here
        low, high = min(ends), max(ends)
    return low, high


def multiplied(a: Product, b: Product) -> Product:
    """The product of two products."""
    return tuple(sorted((*a, *b), key=lambda f: f.text)) if a and b else a or b


def collected(terms: Iterable[tuple[Product, int]]) -> dict[Product, int]:
    """A sum, each product once."""
    total: dict[Product, int] = {}
    for product, count in terms:
        total[product] = total.get(product, 0) + count
    return total


def leading(terms: Terms) -> tuple[Product, int]:
    """The term of the highest degree."""
    return max(terms.items(), key=lambda term: (len(term[0]), [f.text for f in term[0]]))


def without(product: Product, factors: Product) -> Product | None:
    """A product without some of its factors; None where it lacks one."""
    left = list(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def spelt_out(terms: Terms, *, names: bool) -> str:
    """As source; `names`: quotients and remainders by their names, not by what they are."""
    parts: list[str] = []
    for product, count in sorted(terms.items(), key=lambda t: ([f.text for f in t[0]] or ["~"], t[1])):
        factors = [f.name if names or f.parts is None else f"({f.text})" for f in product]
        size = abs(count)
        text = " * ".join([*factors, *([str(size)] if size != 1 or not factors else [])])
        parts.append(f" {'-' if count < 0 else '+'} {text}" if parts else f"{'-' if count < 0 else ''}{text}")
    return "".join(parts)
