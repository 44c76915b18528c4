"""The largest element of each window, over one, two or three spatial axes.

The backward is a row that is linear in g, so its own gradient reads the elements at the indices.  torch's one-axis
backward does not exist; that row runs the two-axis one on height 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import dtype_fault
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.pooling import lift, lifted_size, overhang, pool_counts, pooled, undilated, unpooled
from burn_torch.ops.samples import Array, distinct, sample, uniform
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import PerAxis, fit, stand_in, tap_slices, widened

_aten = torch.ops.aten
_nn = torch._C._nn


def _check_indices(indices: TensorSpec, shape: Shape) -> None:
    if indices.dtype is not DType.I64 or indices.shape != shape:
        raise dtype_fault(
            "these are no indices of this pooling",
            expected=f"indices {shape} i64, as max_pool_with_indices gives them",
            mend="keep the indices that came with the values",
        )


def _settings(
    kernel: Shape, stride: Shape, padding: Shape, dilation: Shape | None = None, *, ceil_mode: bool = False
) -> Mapping[str, Any]:
    windows = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation or undilated(kernel)}
    return {**windows, "ceil_mode": ceil_mode}


_MAX_CASES = [
    ((2, 3, 7), _settings((3,), (2,), (1,), ceil_mode=True)),
    ((2, 2, 6, 7), _settings((2, 3), (2, 1), (1, 0))),
    ((1, 2, 7, 8), _settings((3, 2), (2, 3), (1, 1), (2, 3), ceil_mode=True)),
    ((1, 2, 4, 5, 3), _settings((2, 2, 2), (2, 2, 1), (0, 1, 0), ceil_mode=True)),
    ((0, 2, 4, 4), _settings((2, 2), (2, 2), (0, 0))),
]


def _torch_max_pool(call: Call) -> Primitive:
    pool = {1: torch.max_pool1d_with_indices, 2: _nn.max_pool2d_with_indices, 3: _nn.max_pool3d_with_indices}
    largest = pool[len(call.attrs["kernel"])]
    return TorchCode(
        "max_pool({0}, {kernel}, {stride}, {padding}, {dilation}, {ceil_mode})", max_pool=largest, **call.attrs
    )


def _numpy_max_pool(
    x: Array, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[Array, Array]:
    size = x.shape[2:]
    counts = pool_counts(size, kernel, stride, padding, dilation, ceil_mode)
    around = overhang(size, kernel, stride, padding, dilation, counts)
    padded = fit(x, around)
    places = fit(np.arange(math.prod(size)).reshape(size), around, -1)
    values = np.zeros((*x.shape[:2], *counts), x.dtype)
    indices = np.full(values.shape, -1, np.int64)
    for _, where in tap_slices(counts, kernel, stride, dilation):
        value, place = padded[where], places[where]
        better = (place >= 0) & ((indices < 0) | (value > values) | np.isnan(value))
        values, indices = np.where(better, value, values), np.where(better, place, indices)
    return values, indices


@op(
    torch=PerCall(_torch_max_pool),
    numpy=_numpy_max_pool,
    samples=[sample(distinct(shape), **settings) for shape, settings in _MAX_CASES],
)
def max_pool_with_indices(
    x: TensorSpec, *, kernel: PerAxis, stride: PerAxis, padding: PerAxis, dilation: PerAxis, ceil_mode: bool
) -> tuple[TensorSpec, TensorSpec]:
    """The largest element of each window, and its flat index in the spatial axes of x.

    Padding never wins, and is at most half of the kernel, so that each window holds an element.  Among equal elements
    the first counts; NaN is larger than all, and among several the last counts.  The gradient goes to the index.

    Shapes: x (batch, channels, *spatial) -> values, indices (batch, channels, *counts), 1 to 3 spatial axes; with
        `ceil_mode` a window may reach past the end (see `pool_counts`).  The batch may be empty.
    Dtypes: float in, the same float and i64 out.
    PyTorch: torch.nn.functional.max_pool1d, max_pool2d, max_pool3d with return_indices=True.
    """
    y = x.with_shape(pooled(x, kernel, stride, padding, dilation, ceil_mode))
    return y, y.with_dtype(DType.I64)


@max_pool_with_indices.gradient
def _(g, y, x, **settings):
    return (max_pool_with_indices_backward(g[0], y[1], size=x.shape[2:], **settings),)


def _torch_max_pool_backward(call: Call) -> Primitive:
    g = call.tensor(0)
    size, kernel, stride, padding, dilation, ceil_mode = call.attrs.values()
    if len(size) == 1:
        kernel, stride, padding, dilation = lift((1, kernel), (1, stride), (0, padding), (1, dilation))
    like = stand_in((*g.shape[:2], *lifted_size(size)), g.dtype, g.place)
    scatter = (
        _aten.max_pool3d_with_indices_backward if len(size) == 3 else _aten.max_pool2d_with_indices_backward
    ).default
    if len(size) == 1:
        return lambda g, indices: scatter(
            g.unsqueeze(2), like, kernel, stride, padding, dilation, ceil_mode, indices.unsqueeze(2)
        ).squeeze(2)
    return TorchCode(
        "max_pool_backward({0}, {like}, {kernel}, {stride}, {padding}, {dilation}, {ceil_mode}, {1})",
        max_pool_backward=scatter, like=like, kernel=kernel, stride=stride, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode,
    )  # fmt: skip


def _numpy_max_pool_backward(g: Array, indices: Array, *, size: Shape, **settings: bool | Shape) -> Array:
    planes = math.prod(g.shape[:2])
    x = np.zeros((planes, math.prod(size)), widened(g).dtype)
    count = math.prod(g.shape[2:])
    np.add.at(x, (np.arange(planes)[:, None], indices.reshape(planes, count)), g.reshape(planes, count))
    return x.reshape(*g.shape[:2], *size)


def _indices_of(shape: Shape, settings: Mapping[str, Any]) -> Candidate:
    """Draws indices that a pooling can give: torch's GPU kernels look for them in the windows only."""
    return lambda generator: _numpy_max_pool(generator.permutation(math.prod(shape)).reshape(shape), **settings)[1]


def _output(shape: Shape, settings: Mapping[str, Any]) -> Shape:
    return (*shape[:2], *pool_counts(shape[2:], *settings.values()))


@op(
    torch=PerCall(_torch_max_pool_backward),
    numpy=_numpy_max_pool_backward,
    samples=[
        sample(uniform(-1, 1, _output(shape, settings)), _indices_of(shape, settings), size=shape[2:], **settings)
        for shape, settings in _MAX_CASES
    ],
)
def max_pool_with_indices_backward(
    g: TensorSpec,
    indices: TensorSpec,
    *,
    size: Shape,
    kernel: PerAxis,
    stride: PerAxis,
    padding: PerAxis,
    dilation: PerAxis,
    ceil_mode: bool,
) -> TensorSpec:
    """Adds each element of g to the place in an input of spatial sizes `size` that its index names.

    Shapes: g, indices (batch, channels, *counts) -> (batch, channels, *size).  Dtypes: g float, indices i64.
    An index must lie in its window.
    """
    shape = unpooled(g, size, kernel, stride, padding, dilation, ceil_mode)
    _check_indices(indices, g.shape)
    return g.with_shape(shape)


@max_pool_with_indices_backward.gradient
def _(h, z, g, indices, *, size, **settings):
    return max_pool_at(h, indices, **settings), None


@op(
    torch=lambda x, indices, **settings: x.flatten(2).gather(2, indices.flatten(2)).view(indices.shape),
    numpy=lambda x, indices, **settings: np.take_along_axis(
        x.reshape(*x.shape[:2], math.prod(x.shape[2:])),
        indices.reshape(*indices.shape[:2], math.prod(indices.shape[2:])),
        2,
    ).reshape(indices.shape),
    samples=[sample(uniform(-1, 1, shape), _indices_of(shape, settings), **settings) for shape, settings in _MAX_CASES],
)
def max_pool_at(
    x: TensorSpec,
    indices: TensorSpec,
    *,
    kernel: PerAxis,
    stride: PerAxis,
    padding: PerAxis,
    dilation: PerAxis,
    ceil_mode: bool,
) -> TensorSpec:
    """The elements of x at indices of `max_pool_with_indices`: how its values change as x moves along this x.

    Shapes: x (batch, channels, *spatial), indices (batch, channels, *counts) -> (batch, channels, *counts).
    Dtypes: x float, indices i64.
    """
    shape = pooled(x, kernel, stride, padding, dilation, ceil_mode)
    _check_indices(indices, shape)
    return x.with_shape(shape)


@max_pool_at.gradient
def _(g, y, x, indices, **settings):
    return max_pool_with_indices_backward(g, indices, size=x.shape[2:], **settings), None
