"""Axes, lists of numbers and element types as ONNX writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.tensor import Device, Tensor

__all__ = [
    "ONNX_DTYPES",
    "ONNX_NAMES",
    "OTHER_DTYPES",
    "Ints",
    "axes_of",
    "axis_of",
    "constant",
    "dtype_of",
    "full",
    "ints",
    "malformed",
    "misfit",
    "squeezed",
    "unsqueezed",
]

Ints: TypeAlias = tuple[int, ...]
"""Sizes, axes, or other whole numbers, one an axis."""

_NAMES: Final = (
    "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE", "UINT32",
    "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
    "UINT4", "INT4", "FLOAT4E2M1", "FLOAT8E8M0", "UINT2", "INT2",
)  # fmt: skip
_OURS: Final = {
    "FLOAT": DType.F32, "UINT8": DType.U8, "INT8": DType.I8, "UINT16": DType.U16, "INT16": DType.I16,
    "INT32": DType.I32, "INT64": DType.I64, "BOOL": DType.BOOL, "FLOAT16": DType.F16, "DOUBLE": DType.F64,
    "UINT32": DType.U32, "UINT64": DType.U64, "BFLOAT16": DType.BF16,
}  # fmt: skip

ONNX_NAMES: Final = dict(enumerate(_NAMES, start=1))
"""The names of element types by their number, TensorProto.DataType."""

ONNX_DTYPES: Final = {number: _OURS[name] for number, name in ONNX_NAMES.items() if name in _OURS}
"""TensorProto.DataType to ours."""

OTHER_DTYPES: Final = {number: name for number, name in ONNX_NAMES.items() if name not in _OURS}
"""Element types that tensors here do not have, under ONNX's names."""


def malformed(what: str, *, given: str, expected: str) -> OnnxError:
    """The error of a model that breaks a rule of ONNX."""
    return OnnxError(what, given=given, expected=expected, mend="the model is malformed")


def misfit(what: str, *, given: str, expected: str) -> OnnxError:
    """The error of an input that an operator of the model does not take."""
    mend = "the input has another shape than the model was exported for"
    return OnnxError(what, given=given, expected=expected, mend=mend)


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


def constant(values: object, device: Device, dtype: DType) -> Tensor:
    """Numbers as a tensor."""
    return Tensor.from_data(np.asarray(values), device, dtype)
