"""Numbers beside tensors of integers: a number stands for a tensor of their type, so the type must hold it.

torch wraps such a number around, or takes it modulo the type, and numpy refuses it; here both refuse it in one
error.  Comparisons need no type that holds both sides: what is below the range of a type is below all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from burn_torch.core.errors import ArgumentError, explain
from burn_torch.core.frames import user_line
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.ops.op import Call, PerCall

__all__ = ["beyond", "division_by_zero", "held", "number_ranges", "too_large"]


def held(candidate: Callable[..., Any] | PerCall) -> PerCall:
    """A candidate whose number must be one that the integers beside it can be.  Costs nothing on floats and tensors."""

    def build(call: Call) -> Callable[..., Any]:
        if isinstance(candidate, PerCall):
            function = candidate.build(call)
        else:
            function = partial(candidate, **call.attrs) if call.attrs else candidate
        limits = _limits(call)
        if limits is None:
            return function
        position, low, high = limits

        def run(*inputs: Any) -> Any:
            if not low <= inputs[position] <= high:
                raise too_large(call, inputs)
            return function(*inputs)

        return run

    return PerCall(build)


def beyond(call: Call, function: Callable[..., Any], constant: Callable[[Any, bool], Any]) -> Callable[..., Any]:
    """A comparison that is right for numbers beyond the integers beside them.

    constant: makes the answer, one truth value in the shape of a tensor.
    """
    limits = _limits(call)
    if limits is None:
        return function
    position, low, high = limits

    def run(x: Any, y: Any) -> Any:
        number, tensor = (x, y) if position == 0 else (y, x)
        if low <= number <= high:
            return function(x, y)
        assert call.op.scalar is not None
        # every value of the type lies on the same side of the number as 0 does
        return constant(tensor, call.op.scalar(number, 0) if position == 0 else call.op.scalar(0, number))

    return run


def _limits(call: Call) -> tuple[int, int, int] | None:
    """Where the number is, and the least and largest value of the integers beside it; None where there is neither."""
    tensor = next(spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec))
    at = [i for i, spec in enumerate(call.specs) if isinstance(spec, NumberSpec)]
    if not at or not tensor.dtype.is_int:
        return None
    info = np.iinfo(tensor.dtype.numpy)
    return at[0], int(info.min), int(info.max)


def number_ranges(call: Call) -> list[tuple[int, int, int]]:
    """For each whole number among a Call's inputs its position, and what no leaf refuses or treats apart: the range of
    the integers beside it, else 64 bits.  The numbers of random rows are keys."""
    limits = None if call.op.random else _limits(call)
    low, high = (-(1 << 63), (1 << 64) - 1) if limits is None else limits[1:]
    return [(i, low, high) for i, spec in enumerate(call.specs) if isinstance(spec, NumberSpec) and spec.kind == "int"]


def too_large(call: Call, inputs: Sequence[Any]) -> ArgumentError:
    """The error of a number that the type of the tensors beside it cannot hold."""
    tensor = next((spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec)), None)
    numbers = [_shown(x) for x in inputs if isinstance(x, int) and not isinstance(x, bool)]
    expected, mend = "whole numbers of at most 64 bits", "write it as a float: float(number)"
    if tensor is not None and tensor.dtype.is_int:
        info = np.iinfo(tensor.dtype.numpy)
        expected = f"whole numbers from {info.min} to {info.max}"
        mend = "cast the tensor to a wider type first, for example with .int() or .float()"
    return _at_user_line(
        ArgumentError(
            explain(
                f"{call.op.name}: a number leaves the element type",
                given=f"{', '.join(numbers)} in {call.op.signature.describe(call.specs, call.attrs)}",
                expected=expected,
                mend=mend,
            )
        )
    )


def division_by_zero(call: Call) -> ArgumentError:
    """The error of integers divided by 0, which have no infinity to answer with."""
    return _at_user_line(
        ArgumentError(
            explain(
                f"{call.op.name}: an integer is divided by zero",
                given=call.op.signature.describe(call.specs, call.attrs),
                expected="divisors other than 0; integers have no infinity and no NaN",
                mend="cast to a float type first, or replace the zeros: y.mask_fill(y == 0, 1)",
            )
        )
    )


def _shown(number: int) -> str:
    # Python itself refuses to write thousands of digits
    return str(number) if number.bit_length() < 128 else f"a number of {number.bit_length()} bits"


def _at_user_line(error: ArgumentError) -> ArgumentError:
    where = user_line(3)
    if where is not None:
        error.add_note(f"at {where}")
    return error
