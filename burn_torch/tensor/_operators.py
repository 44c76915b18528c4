"""Python's operators, element by element; numbers may stand on either side."""

from __future__ import annotations

from typing import NoReturn, Self

import numpy as np

from burn_torch import ops
from burn_torch.core.errors import DTypeError
from burn_torch.core.frames import told
from burn_torch.tensor._set_methods import SetMethods
from burn_torch.tensor.apply import binary, foreign, operate, reflect, shown, unary

__all__ = ["Operators"]


class Operators(SetMethods):
    """Operators.  `==` and `!=` compare elements, so `is` tells whether two names mean one tensor."""

    __slots__ = ()

    # -- arithmetic -----------------------------------------------------------------------------
    def __add__(self, other: object) -> Self:
        return operate(ops.add, self, other)

    def __sub__(self, other: object) -> Self:
        return operate(ops.sub, self, other)

    def __mul__(self, other: object) -> Self:
        return operate(ops.mul, self, other)

    def __truediv__(self, other: object) -> Self:
        return operate(ops.div, self, other)

    def __mod__(self, other: object) -> Self:
        return operate(ops.remainder, self, other)

    def __pow__(self, other: object) -> Self:
        return operate(ops.pow, self, other)

    def __matmul__(self, other: object) -> Self:
        return binary(ops.matmul, self, other) if isinstance(other, Operators) else foreign(ops.matmul, self, other)

    def __rmatmul__(self, other: object) -> Self:
        return foreign(ops.matmul, self, other)

    def __radd__(self, other: object) -> Self:
        return operate(ops.add, self, other)

    def __rsub__(self, other: object) -> Self:
        return reflect(ops.sub, self, other)

    def __rmul__(self, other: object) -> Self:
        return operate(ops.mul, self, other)

    def __rtruediv__(self, other: object) -> Self:
        return reflect(ops.div, self, other)

    def __rmod__(self, other: object) -> Self:
        return reflect(ops.remainder, self, other)

    def __rpow__(self, other: object) -> Self:
        return reflect(ops.pow, self, other)

    def __neg__(self) -> Self:
        return unary(ops.neg, self)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return unary(ops.abs, self)

    # -- comparison -------------------------------------------------------------------------------
    def __eq__(self, other: object) -> Self:  # type: ignore[override]  # element by element, as in torch
        return operate(ops.equal, self, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]  # element by element, as in torch
        return operate(ops.not_equal, self, other)

    def __lt__(self, other: object) -> Self:
        return operate(ops.lower, self, other)

    def __le__(self, other: object) -> Self:
        return operate(ops.lower_equal, self, other)

    def __gt__(self, other: object) -> Self:
        return operate(ops.greater, self, other)

    def __ge__(self, other: object) -> Self:
        return operate(ops.greater_equal, self, other)

    __hash__ = object.__hash__

    # -- truth values and bits ----------------------------------------------------------------------
    def __invert__(self) -> Self:
        return unary(ops.bool_not if self.spec.dtype.is_bool else ops.bitwise_not, self)

    def __and__(self, other: object) -> Self:
        if self.spec.dtype.is_bool:
            return operate(ops.bool_and, self, self._truth(other))
        return operate(ops.bitwise_and, self, other)

    def __or__(self, other: object) -> Self:
        if self.spec.dtype.is_bool:
            return operate(ops.bool_or, self, self._truth(other))
        return operate(ops.bitwise_or, self, other)

    def __xor__(self, other: object) -> Self:
        if self.spec.dtype.is_bool:
            return operate(ops.bool_xor, self, self._truth(other))
        return operate(ops.bitwise_xor, self, other)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def _truth(self, other: object) -> object:
        # rows of truth values take tensors
        return self.new_full((), bool(other)) if isinstance(other, bool | np.bool_) else other

    # -- what Python has and tensors have not ----------------------------------------------------------
    def __floordiv__(self, other: object) -> object:
        return super().__floordiv__(other) if self.is_number else self._refuse_floor("//", "x", shown(other))

    def __rfloordiv__(self, other: object) -> object:
        return super().__rfloordiv__(other) if self.is_number else self._refuse_floor("//", shown(other), "x")

    def __divmod__(self, other: object) -> object:
        return super().__divmod__(other) if self.is_number else self._refuse_floor("divmod", "x", shown(other))

    def __rdivmod__(self, other: object) -> object:
        return super().__rdivmod__(other) if self.is_number else self._refuse_floor("divmod", shown(other), "x")

    def _refuse_floor(self, operation: str, x: str, y: str) -> NoReturn:
        raise told(
            DTypeError,
            f"tensors have no {operation}",
            given=f"{x} {operation} {y}, of {self.spec}" if operation == "//" else f"divmod({x}, {y}), of {self.spec}",
            expected="another operation",
            mend=f"({x} / {y}).floor() of floats; ({x} - {x} % {y}) / {y} of integers, whose / cuts toward zero",
        )

    def __lshift__(self, other: object) -> Self:
        return operate(ops.bitwise_left_shift, self, other)

    def __rshift__(self, other: object) -> Self:
        return operate(ops.bitwise_right_shift, self, other)

    def __rlshift__(self, other: object) -> Self:
        return reflect(ops.bitwise_left_shift, self, other)

    def __rrshift__(self, other: object) -> Self:
        return reflect(ops.bitwise_right_shift, self, other)

    def __round__(self, digits: int | None = None) -> object:
        if digits is None and not self.is_number:
            return unary(ops.round, self)
        if self.is_number:
            return super().__round__(digits)
        raise told(
            DTypeError,
            "tensors are rounded to whole numbers",
            given=f"round(x, {digits}) of {self.spec}",
            expected="round(x)",
            mend=f"(x * 10.0**{digits}).round() / 10.0**{digits}",
        )
