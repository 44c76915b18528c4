"""Axes, lists of numbers and element types as ONNX writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.tensor import Device, Tensor

__all__ = [
    "ONNX_DTYPES",
    "OTHER_DTYPES",
    "axes_of",
    "axis_of",
    "constant",
    "dtype_of",
    "full",
    "ints",
    "malformed",
    "squeezed",
    "unsqueezed",
]

ONNX_DTYPES: Final = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    4: DType.U16,
    5: DType.I16,
    6: DType.I32,
    7: DType.I64,
    9: DType.BOOL,
    10: DType.F16,
    11: DType.F64,
    12: DType.U32,
    13: DType.U64,
    16: DType.BF16,
}
"""TensorProto.DataType to ours."""

OTHER_DTYPES: Final = {
    8: "STRING",
    14: "COMPLEX64",
    15: "COMPLEX128",
    17: "FLOAT8E4M3FN",
    18: "FLOAT8E4M3FNUZ",
    19: "FLOAT8E5M2",
    20: "FLOAT8E5M2FNUZ",
    21: "UINT4",
    22: "INT4",
    23: "FLOAT4E2M1",
    24: "FLOAT8E8M0",
    25: "UINT2",
    26: "INT2",
}
"""Element types that tensors here do not have, under ONNX's names."""


def malformed(what: str, *, given: str, expected: str) -> OnnxError:
    """The error of a model that breaks a rule of ONNX."""
    return OnnxError(what, given=given, expected=expected, mend="the model is malformed")


def dtype_of(number: int) -> DType:
    """The element type of a TensorProto.DataType.  Raises: OnnxError for one that tensors here do not have."""
    known = ONNX_DTYPES.get(number)
    if known is None:
        raise OnnxError(
            "this element type is not supported",
            given=OTHER_DTYPES.get(number, f"data type {number}"),
            expected=", ".join(dtype.name for dtype in ONNX_DTYPES.values()),
            mend="export the model with one of those",
        )
    return known


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the front.  Raises: OnnxError for one outside."""
    if not -ndim <= axis < max(ndim, 1):
        raise OnnxError(
            "there is no such axis",
            given=f"axis {axis} of a tensor with {ndim} axes",
            expected=f"-{ndim} to {ndim - 1}",
            mend="the model or its input has another shape than meant",
        )
    return axis % ndim if ndim else 0


def axes_of(axes: Iterable[int], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, each once, in order."""
    return tuple(sorted({axis_of(int(axis), ndim) for axis in axes}))


def ints(values: object) -> tuple[int, ...]:
    """Whole numbers of an array."""
    return tuple(int(value) for value in np.asarray(values).reshape(-1))


def squeezed(x: Tensor, axes: Iterable[int]) -> Tensor:
    """Without these axes, counted from the front, of size 1."""
    gone = set(axes)
    return reshaped(x, tuple(size for i, size in enumerate(x.shape) if i not in gone))


def unsqueezed(x: Tensor, axes: Iterable[int]) -> Tensor:
    """With axes of size 1 at these places of the result."""
    chosen = [int(axis) for axis in axes]
    ndim = x.ndim + len(chosen)
    at = {axis_of(axis, ndim) for axis in chosen}
    if len(at) != len(chosen):
        raise malformed("an axis is named twice", given=f"axes {chosen}", expected="each axis once")
    sizes = iter(x.shape)
    return reshaped(x, tuple(1 if i in at else next(sizes) for i in range(ndim)))


def reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements under another shape, without Burn's reading of 0 and -1."""
    from burn_torch import ops

    return ops.reshape(x, shape=shape)


def full(shape: Iterable[int], value: float, like: Tensor, dtype: DType | None = None) -> Tensor:
    """One number everywhere, where `like` lies."""
    return Tensor.full(tuple(shape), value, (like.device, like.dtype if dtype is None else dtype))


def constant(values: Any, device: Device, dtype: DType) -> Tensor:
    """Numbers as a tensor."""
    return Tensor.from_data(np.asarray(values), device, dtype)
