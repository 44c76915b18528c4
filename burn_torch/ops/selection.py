"""Rows that choose between values, bound them, or change their element type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from burn_torch.core.dtype import BOOL, FLOAT, NUMERIC, STORED, DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.ops.comparison import greater_equal, lower_equal
from burn_torch.ops.held_numbers import held
from burn_torch.ops.laws import Converts, Select, Unsigned
from burn_torch.ops.logic import bool_and, bool_not
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import broadcast_shapes, elementwise, sum_to
from burn_torch.ops.samples import booleans, distinct, fixed, sample, uniform
from burn_torch.ops.signature import Number, Operand
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive


def _torch_mask_where(call: Call) -> Primitive:
    if isinstance(call.specs[2], NumberSpec):
        return torch.masked_fill  # broadcasts both sides, and makes no tensor of the number
    return TorchCode("where({1}, {2}, {0})", where=torch.where)


@op(
    torch=held(PerCall(_torch_mask_where), stored=True),
    numpy=held(lambda x, mask, value: np.where(mask, value, x), stored=True),
    inplace=PerCall(lambda call: torch.Tensor.masked_fill_ if isinstance(call.specs[2], NumberSpec) else None),
    pointwise="where({1}, {2}, {0})",
    cost="cheap",
    packed="dense",  # torch.masked_fill makes contiguous memory, torch.where that of the mask
    laws=[Select(mask=1, true=2, false=0), Unsigned("bits")],
    samples=[
        sample(uniform(-3, 3), fixed(np.array([[True, False] * 2] * 3), bool), uniform(-3, 3)),
        sample(uniform(-3, 3, (2, 1, 4)), fixed(np.array([[True], [False], [True]]), bool), uniform(-3, 3, (4,))),
        sample(uniform(-3, 3), fixed(np.array([True, False, True, True]), bool), 1.5),
        sample(uniform(-3, 3, (1, 4)), fixed(np.array([[True], [False], [False]]), bool), -2.0),
        sample(uniform(-3, 3, (0, 3)), booleans((3,)), uniform(-3, 3, (3,))),
        sample(uniform(-3, 3, ()), fixed(np.array(False), bool), 1.5),
    ],
)
def mask_where(x: TensorSpec, mask: TensorSpec, value: Operand) -> TensorSpec:
    """`value` where the mask is true, x elsewhere.

    Shapes: x, mask, value broadcast -> their common shape.  Dtypes: x any, value the same; mask bool.
    The side that is not chosen gets no gradient, NaN or not.  PyTorch: torch.where(mask, value, x).
    """
    mask.require(BOOL)
    chosen = elementwise(x, value, dtypes=NUMERIC | BOOL)
    return chosen.with_shape(broadcast_shapes(chosen.shape, mask.shape))


@mask_where.gradient
def _(g, y, x, mask, value):
    return (
        sum_to(mask_where(g, mask, 0.0), x),
        None,
        None if value.is_number else sum_to(mask_where(g, bool_not(mask), 0.0), value),
    )


# -- bounds -------------------------------------------------------------------------------------------------
@op(
    torch=held(torch.clamp, stored=True),
    numpy=held(np.clip, stored=True),
    inplace=torch.Tensor.clamp_,
    pointwise="minimum({2}, maximum({1}, {0}))",
    cost="cheap",
    laws=[Unsigned("order")],
    samples=[
        sample(distinct((3, 4)), -0.8, 0.9),
        sample(distinct((3, 4)), -1, 1),
        sample(fixed(np.array(0.3)), -0.8, 0.9),
        sample(uniform(-3, 3, (0, 3)), -0.8, 0.9),
    ],
)
def clamp(x: TensorSpec, low: Number, high: Number) -> TensorSpec:
    """x brought into [low, high]; NaN stays NaN.  If low > high, it is high.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    The gradient passes where low <= x <= high, at the bounds too.
    """
    return elementwise(x, low, high)


@clamp.gradient
def _(g, y, x, low, high):
    inside = bool_and(greater_equal(x, low), lower_equal(x, high))
    return mask_where(g, bool_not(inside), 0.0), None, None


@op(
    torch=held(torch.clamp_min, stored=True),
    numpy=held(np.maximum, stored=True),
    inplace=torch.Tensor.clamp_min_,
    pointwise="maximum({1}, {0})",
    cost="cheap",
    laws=[Unsigned("order")],
    samples=[sample(distinct((3, 4)), -0.3), sample(fixed(np.array(0.3)), -0.8), sample(uniform(-3, 3, (0, 3)), -0.8)],
)
def clamp_min(x: TensorSpec, low: Number) -> TensorSpec:
    """x, or `low` where x is lower; NaN stays NaN.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.  The gradient passes where x >= low, at the bound too.
    """
    return elementwise(x, low)


@clamp_min.gradient
def _(g, y, x, low):
    return mask_where(g, bool_not(greater_equal(x, low)), 0.0), None


@op(
    torch=held(torch.clamp_max, stored=True),
    numpy=held(np.minimum, stored=True),
    inplace=torch.Tensor.clamp_max_,
    pointwise="minimum({1}, {0})",
    cost="cheap",
    laws=[Unsigned("order")],
    samples=[sample(distinct((3, 4)), 0.3), sample(fixed(np.array(0.3)), 0.8), sample(uniform(-3, 3, (0, 3)), 0.8)],
)
def clamp_max(x: TensorSpec, high: Number) -> TensorSpec:
    """x, or `high` where x is higher; NaN stays NaN.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.  The gradient passes where x <= high, at the bound too.
    """
    return elementwise(x, high)


@clamp_max.gradient
def _(g, y, x, high):
    return mask_where(g, bool_not(lower_equal(x, high)), 0.0), None


# -- element types ---------------------------------------------------------------------------------------------
def _merged_casts(inner: Call, outer: Call, exact: bool) -> Mapping[str, Any] | None:
    x = inner.tensor(0)
    start, between, end = x.dtype, inner.result.dtype, outer.result.dtype
    if start.is_bool or start is between:
        return outer.attrs
    # what a type between holds exactly is not rounded there; out of range of an integer type nothing is defined
    kept = between in _HELD_BY.get(start, ()) and not (end.is_int and (start.is_float or between.is_float))
    return outer.attrs if kept else None


_HELD_BY: Final = {
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
    DType.I8: (DType.I16, DType.I32, DType.I64, DType.F32, DType.F64),
    DType.U8: (DType.I16, DType.I32, DType.I64, DType.F32, DType.F64),
    DType.I16: (DType.I32, DType.I64, DType.F32, DType.F64),
    DType.I32: (DType.I64, DType.F64),
}


def _torch_cast(call: Call) -> Candidate:
    dtype = call.attrs["dtype"]
    if dtype is not DType.F8_E4M3 or call.is_input:
        return TorchCode("{0}.to({dtype})", dtype=TO_TORCH[dtype])
    # torch gave NaN beyond the range before version 2.13, and stays at the largest number since
    return lambda x: x.float().clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


@op(
    torch=PerCall(_torch_cast),
    numpy=lambda x, *, dtype: x.astype(dtype.numpy, copy=False),
    view="same",
    pointwise="cast({0}, {dtype})",
    cost="cheap",
    same=lambda call: call.result is call.specs[0],
    merge=_merged_casts,
    laws=[Converts()],
    samples=[
        sample(uniform(-3, 3), dtype=DType.F32),
        sample(uniform(-3, 3, (2, 0)), dtype=DType.F64),
        sample(uniform(-3, 3), dtype=DType.F64),
        sample(uniform(1, 100), dtype=DType.I64),
        sample(uniform(1, 100), dtype=DType.U8),
        sample(fixed([-1.5, 0.0, 0.5]), dtype=DType.BOOL),
        sample(booleans(), dtype=DType.F32),
    ],
)
def cast(x: TensorSpec, *, dtype: DType) -> TensorSpec:
    """The same values in another element type; of the same type x itself.

    Shapes: x (*s) -> (*s).  Dtypes: any to any.  Floats to integers go toward zero, to bool they are "not zero";
    what an integer type cannot hold is not defined.  Beyond its range f8_e4m3 gives its largest number, and f8_e5m2 an
    infinity.  Between floats the gradient is cast back; through integers, bool and floats of 8 bits there is none.
    """
    return x.require(STORED).with_dtype(dtype)


@cast.gradient
def _(g, y, x, *, dtype):
    return cast(g, dtype=x.dtype) if x.dtype in FLOAT else None
