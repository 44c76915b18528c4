"""Equations of symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burn_torch.symbolic.polynomials import Product, without
from burn_torch.symbolic.sizes import Size, exact_quotient, greatest_divisor, size_of

__all__ = ["solved"]


def solved(equation: Size, order: Sequence[str]) -> tuple[str, Any] | None:
    """A symbol and what it must be for `equation` to be 0: the first of `order` for which that is a polynomial."""
    common = greatest_divisor(equation, equation)
    if isinstance(common, Size):
        rest = exact_quotient(equation, common)
        if not isinstance(rest, Size):  # one term, such as channels % groups: no symbol makes it 0 by itself
            return None
        equation = rest
    for name in order:
        factor: dict[Product, int] = {}
        others: dict[Product, int] = {}
        for product, count in equation.terms.items():
            at = [f for f in product if f.name == name and f.parts is None]
            if not at:
                others[product] = count
            elif len(at) == 1:
                left = without(product, (at[0],))
                assert left is not None
                factor[left] = count
            else:
                break
        else:
            if not factor:
                continue
            value = exact_quotient(size_of(equation.scope, others) * -1, size_of(equation.scope, factor))
            if value is not None and name not in (value.symbols() if isinstance(value, Size) else ()):
                return name, value
    return None
