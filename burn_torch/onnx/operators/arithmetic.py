"""Functions of several tensors, element by element: Add, Pow, Mod, Max, Greater, And, BitShift, Where, ..."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import axis_of, malformed
from burn_torch.onnx.operators.registry import Entry, Operand, Outputs, operator
from burn_torch.ops.op import Op
from burn_torch.tensor import Tensor

__all__ = [
    "add", "add_1", "bit_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "divide_1", "equal", "equal_1",
    "greater", "greater_1", "greater_equal", "less", "less_1", "less_equal", "logical_and", "logical_and_1",
    "logical_or", "logical_or_1", "logical_xor", "logical_xor_1", "maximum", "mean", "minimum", "modulo", "multiply",
    "multiply_1", "power", "power_1", "subtract", "subtract_1", "total", "where",
]  # fmt: skip


PAIRS: Final[dict[str, str]] = {}
"""The operators that are a row of the table on two operands, by the name of the row; exports read it too."""


def _rowwise(
    op: str, since: int, name: str, what: str, row: Op, compute: Callable[..., Any] = Op.__call__, written: str = ""
) -> Entry:
    """An operator that computes a row of the table on two operands."""
    PAIRS[row.name] = op

    def function(x: Operand, y: Operand) -> Tensor:
        return compute(row, x, y)

    function.__name__, function.__doc__ = name, what
    return operator(op, since, written=written or None)(function)


# -- arithmetic ---------------------------------------------------------------------------------------------
add = _rowwise("Add", 7, "add", "x + y.", ops.add, written="{0} + {1}")
subtract = _rowwise("Sub", 7, "subtract", "x - y.", ops.sub, written="{0} - {1}")
multiply = _rowwise("Mul", 7, "multiply", "x * y.", ops.mul, written="{0} * {1}")


@operator("Div", 7, written="{0} / {1}")
def divide(x: Operand, y: Operand) -> Tensor:
    """x / y; of integers cut toward zero."""
    quotient: Tensor = ops.div(x, y)
    return quotient


@operator("Pow", 7)
def power(x: Tensor, y: Operand) -> Tensor:
    """x to the power y, in the element type of x."""
    if isinstance(y, Tensor) and x.dtype is not y.dtype:
        if x.dtype.is_int and y.dtype.is_float:
            z: Tensor = ops.pow(x.cast(DType.F64), y.cast(DType.F64))
            return z.cast(x.dtype)
        y = y.cast(x.dtype)
    if x.dtype.is_int and isinstance(y, float):
        z = ops.pow(x.cast(DType.F64), y)
        return z.cast(x.dtype)
    if x.dtype.is_float and isinstance(y, int):
        y = float(y)
    return x.powf(y)


@operator("Mod", 10)
def modulo(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """Returns what x leaves when divided by y, with the sign of y; with `fmod` that of x."""
    rest: Tensor = (ops.fmod if fmod else ops.remainder)(x, y)
    return rest


# -- any number of tensors -------------------------------------------------------------------------------------
@operator("Max")
def maximum(*xs: Tensor) -> Tensor:
    """The largest, element by element."""
    return reduce(ops.maximum, xs)


@operator("Min")
def minimum(*xs: Tensor) -> Tensor:
    """The smallest, element by element."""
    return reduce(ops.minimum, xs)


@operator("Sum")
def total(*xs: Tensor) -> Tensor:
    """The sum of all."""
    return reduce(lambda x, y: x + y, xs)


@operator("Mean")
def mean(*xs: Tensor) -> Tensor:
    """The mean of all."""
    return total(*xs) / float(len(xs))


# -- comparison -------------------------------------------------------------------------------------------------
def _compare(row: Op, x: object, y: object) -> Outputs:
    if isinstance(x, Tensor) and x.dtype is DType.BOOL and isinstance(y, bool):
        y = Tensor.full((), y, (x.device, DType.BOOL))
    return row(x, y)


equal = _rowwise("Equal", 7, "equal", "Returns whether x is y.", ops.equal, _compare)
greater = _rowwise("Greater", 7, "greater", "Returns whether x > y.", ops.greater, _compare)
greater_equal = _rowwise("GreaterOrEqual", 12, "greater_equal", "Returns whether x >= y.", ops.greater_equal, _compare)
less = _rowwise("Less", 7, "less", "Returns whether x < y.", ops.lower, _compare)
less_equal = _rowwise("LessOrEqual", 12, "less_equal", "Returns whether x <= y.", ops.lower_equal, _compare)


@operator("Where", 9)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where the condition holds, else y."""
    return ops.mask_where(y, condition, x)


# -- truth values and bits -------------------------------------------------------------------------------------------
@operator("And", 7)
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """x and y."""
    return x.bool_and(y)


@operator("Or", 7)
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    """x or y."""
    return x.bool_or(y)


@operator("Xor", 7)
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    """Either x or y."""
    return x.bool_xor(y)


@operator("BitwiseAnd", 18)
def bitwise_and(x: Tensor, y: Tensor) -> Tensor:
    """x & y."""
    return x.bitwise_and(y)


@operator("BitwiseOr", 18)
def bitwise_or(x: Tensor, y: Tensor) -> Tensor:
    """x | y."""
    return x.bitwise_or(y)


@operator("BitwiseXor", 18)
def bitwise_xor(x: Tensor, y: Tensor) -> Tensor:
    """x ^ y."""
    return x.bitwise_xor(y)


@operator("BitShift", 11)
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """x moved up (LEFT) or down (RIGHT) by y places; bits that come in are 0 for unsigned numbers."""
    if direction not in ("LEFT", "RIGHT"):
        raise malformed("BitShift: no such direction", given=repr(direction), expected="LEFT or RIGHT")
    return x.bitwise_left_shift(y) if direction == "LEFT" else x.bitwise_right_shift(y)


# -- opset 1 to 6: broadcasting is asked for, and begins at an axis ---------------------------------------------------
def _old(name: str, new: Entry) -> Entry:
    def function(
        x: Tensor, y: Tensor, *, broadcast: int = 0, axis: int | None = None, consumed_inputs: object = None
    ) -> Outputs:
        if broadcast and axis is not None:
            after = x.ndim - axis_of(axis, x.ndim) - y.ndim
            if after > 0:
                y = y.reshape(*y.shape, *(1,) * after)
        return new(x, y)

    function.__name__ = name
    function.__doc__ = (
        f"{new.op} of opset 1 to 6: y broadcasts where `broadcast` says so, its axes beginning at `axis`."
    )
    return operator(new.op, 1, 6)(function)


add_1 = _old("add_1", add)
subtract_1 = _old("subtract_1", subtract)
multiply_1 = _old("multiply_1", multiply)
divide_1 = _old("divide_1", divide)
power_1 = _old("power_1", power)
equal_1 = _old("equal_1", equal)
greater_1 = _old("greater_1", greater)
less_1 = _old("less_1", less)
logical_and_1 = _old("logical_and_1", logical_and)
logical_or_1 = _old("logical_or_1", logical_or)
logical_xor_1 = _old("logical_xor_1", logical_xor)
