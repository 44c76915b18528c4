"""Unsigned integers: the table stores u16, u32 and u64 and computes on signed ones; here they are computed as those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.registry import Outputs
from burn_torch.tensor import Tensor

__all__ = ["ordered", "quotient", "sortable", "unsorted", "widened"]

_STORED: Final = frozenset({DType.U16, DType.U32, DType.U64})
_TOP: Final = -(1 << 63)


def _dtype(values: tuple[object, ...]) -> DType | None:
    for value in values:
        if isinstance(value, Tensor):
            return value.dtype if value.dtype in _STORED else None
    return None


def _as_signed(value: object) -> Outputs:
    if isinstance(value, Tensor):
        return value.cast(DType.I64) if value.dtype in _STORED else value
    return value - (1 << 64) if isinstance(value, int) and value >= 1 << 63 else value


def widened(function: Callable[..., Any], *values: Any) -> Outputs:
    """function(*values), through i64 where the values are unsigned.

    Right for sums, differences, products and bits, which wrap around alike; for what depends on order see `ordered`.
    """
    dtype = _dtype(values)
    if dtype is None:
        return function(*values)
    y = function(*[_as_signed(value) for value in values])
    return y.cast(dtype) if y.dtype is DType.I64 else y


def ordered(function: Callable[..., Any], *values: Any) -> Outputs:
    """function(*values) for comparisons, minima and maxima: u64 keeps its order with the top bit turned over."""
    dtype = _dtype(values)
    if dtype is not DType.U64:
        return widened(function, *values)
    y = function(*[_shift(value) for value in values])
    return y.bitwise_xor(_TOP).cast(dtype) if y.dtype is DType.I64 else y


def _shift(value: object) -> Outputs:
    value = _as_signed(value)
    if isinstance(value, Tensor):
        return value.bitwise_xor(_TOP) if value.dtype is DType.I64 else value
    return value ^ _TOP if isinstance(value, int) else value


def sortable(x: Tensor) -> Tensor:
    """Numbers of the same order, of a type that the table orders."""
    if x.dtype not in _STORED:
        return x
    return x.cast(DType.I64).bitwise_xor(_TOP) if x.dtype is DType.U64 else x.cast(DType.I64)


def unsorted(y: Tensor, dtype: DType) -> Tensor:
    """Returns what `sortable` was made of."""
    return (y.bitwise_xor(_TOP) if dtype is DType.U64 else y).cast(dtype)


def quotient(x: Any, y: Any) -> Outputs:
    """x / y of u64 held as i64, rounded down: half of x is divided, which has no sign, and the rest is mended."""
    half = x.bitwise_right_shift(1).bitwise_and((1 << 63) - 1)
    large = y.lower(0)  # a divisor of 2^63 or more goes in once or not at all
    divisor = y.mask_fill(large, 1)
    q = (half / divisor) * 2
    rest = x - q * divisor
    more = rest.bitwise_xor(_TOP).greater_equal(divisor.bitwise_xor(_TOP))
    once = x.bitwise_xor(_TOP).greater_equal(y.bitwise_xor(_TOP))
    return (q + more.cast(DType.I64)).mask_where(large, once.cast(DType.I64))
