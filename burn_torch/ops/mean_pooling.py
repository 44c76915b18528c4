"""The mean of each window, or of each of a given number of bins, over one, two or three spatial axes.

Each backward is a row that is linear in g, so its own gradient is the forward again.  torch's one-axis backward
functions do not exist; those rows run the two-axis ones on height 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.laws import Expands
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.pooling import lift, lifted_size, overhang, pool_counts, pooled, undilated, unpooled
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import (
    Faults,
    PerAxis,
    check_settings,
    check_spatial,
    fit,
    scatter_windows,
    stand_in,
    unfit,
    widened,
    windows,
)
from burn_torch.symbolic.sizes import Size

_aten = torch.ops.aten
_nn = torch._C._nn


# -- avg_pool ------------------------------------------------------------------------------------------------
def _avg_settings(*values: Shape | bool) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "padding", "count_include_pad", "ceil_mode"), values, strict=True))


_AVG_CASES = [
    ((2, 3, 8), _avg_settings((3,), (2,), (1,), False, True)),
    ((2, 2, 6, 7), _avg_settings((2, 3), (2, 2), (1, 1), True, False)),
    ((1, 2, 6, 8), _avg_settings((3, 4), (2, 3), (1, 2), True, True)),
    ((1, 2, 6, 8), _avg_settings((3, 4), (2, 3), (1, 2), False, True)),
    ((1, 2, 4, 5, 3), _avg_settings((2, 2, 2), (2, 2, 1), (0, 1, 1), False, True)),
    ((1, 2, 1, 3, 2), _avg_settings((2, 2, 2), (1, 2, 2), (1, 1, 0), False, True)),  # smaller than the kernel
    ((0, 2, 4, 4), _avg_settings((2, 2), (2, 2), (0, 0), True, False)),
]


def _torch_avg_pool(call: Call) -> Candidate:
    x = call.tensor(0)
    kernel, stride, padding, count_include_pad, ceil_mode = call.attrs.values()

    def over(axes: Primitive) -> Candidate:
        pool = {1: torch.avg_pool1d, 2: _nn.avg_pool2d, 3: _nn.avg_pool3d}[len(kernel[axes])]
        settings = (kernel[axes], stride[axes], padding[axes], ceil_mode, count_include_pad)
        return lambda x: pool(x, *settings)

    if _is_small(x.shape[2:], kernel):
        return partial(_axis_by_axis, over(slice(1, 3)), over(slice(0, 1)))
    return _wide_enough(over(slice(None)), x)


def _is_small(size: Shape, kernel: Shape) -> bool:
    """Tells if torch's kernels over three axes refuse the input: padded to the kernel's size, but smaller itself."""
    return len(size) == 3 and any(s < k for s, k in zip(size, kernel, strict=True))


def _axis_by_axis(planes: Candidate, line: Candidate, x: torch.Tensor) -> torch.Tensor:
    """A mean over three axes as one over the last two, then one over the first."""
    y = planes(x.flatten(1, 2)).unflatten(1, x.shape[1:3]).movedim(2, -1)
    return line(y.flatten(1, 3)).unflatten(1, y.shape[1:4]).movedim(-1, 2)


def _wide_enough(run: Candidate, x: TensorSpec) -> Candidate:
    """`run` in float32 where torch lacks half precision: over three axes on a CPU."""
    if x.place == "cpu" and x.ndim == 5 and x.dtype in (DType.F16, DType.BF16):
        return lambda x: run(x.float()).to(x.dtype)
    return run


def _divisors(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, count_include_pad: bool, counts: Shape
) -> Array:
    """How many elements each window is the mean of, as an array of shape `counts`."""
    result = np.ones(())
    for s, k, step, p, count in zip(size, kernel, stride, padding, counts, strict=True):
        start = np.arange(count) * step - p
        end = np.minimum(start + k, s + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, s)
        result = np.multiply.outer(result, end - start)
    return result


def _numpy_avg_pool(
    x: Array, *, kernel: Shape, stride: Shape, padding: Shape, count_include_pad: bool, ceil_mode: bool
) -> Array:
    size, ones = x.shape[2:], undilated(kernel)
    counts = pool_counts(size, kernel, stride, padding, ones, ceil_mode)
    whole = fit(widened(x), overhang(size, kernel, stride, padding, ones, counts))
    sums = windows(whole, kernel, stride, ones).sum(axis=tuple(range(-len(kernel), 0)))
    return sums / _divisors(size, kernel, stride, padding, count_include_pad, counts).astype(sums.dtype)


@op(
    torch=PerCall(_torch_avg_pool),
    numpy=_numpy_avg_pool,
    packed="dense",
    samples=[sample(uniform(-1, 1, shape), **settings) for shape, settings in _AVG_CASES],
)
def avg_pool(
    x: TensorSpec, *, kernel: PerAxis, stride: PerAxis, padding: PerAxis, count_include_pad: bool, ceil_mode: bool
) -> TensorSpec:
    """The mean of each window.

    `count_include_pad` divides by the elements of the window with the padding, else without it; what a window of
    `ceil_mode` covers past the padding never counts.

    Shapes: x (batch, channels, *spatial) -> (batch, channels, *counts), 1 to 3 spatial axes; the batch may be empty.
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.avg_pool1d, avg_pool2d, avg_pool3d.
    """
    return x.with_shape(pooled(x, kernel, stride, padding, undilated(kernel), ceil_mode))


@avg_pool.gradient
def _(g, y, x, **settings):
    return avg_pool_backward(g, size=x.shape[2:], **settings)


def _torch_avg_pool_backward(call: Call) -> Candidate:
    g = call.tensor(0)
    size, kernel, stride, padding, count_include_pad, ceil_mode = call.attrs.values()
    dtype = DType.F32 if g.ndim == 5 and g.place == "cpu" and g.dtype is not DType.F64 else g.dtype

    def over(axes: Primitive, channels: int) -> Candidate:
        ends = (kernel[axes], stride[axes], padding[axes])
        settings = (*ends, ceil_mode, count_include_pad, None)
        spread = _aten.avg_pool3d_backward.default if len(size[axes]) == 3 else _aten.avg_pool2d_backward.default
        if len(size[axes]) > 1:
            like = stand_in((g.shape[0], channels, *size[axes]), dtype, g.place)
            return lambda g: spread(g, like, *settings)
        lifted = (*lift(*zip((1, 1, 0), ends, strict=True)), ceil_mode, count_include_pad, None)
        flat = stand_in((g.shape[0], channels, 1, *size[axes]), dtype, g.place)
        return lambda g: spread(g.unsqueeze(2), flat, *lifted).squeeze(2)

    channels = g.shape[1]
    if _is_small(size, kernel):
        planes, line = over(slice(1, 3), channels * g.shape[2]), over(slice(0, 1), channels * size[1] * size[2])
        return _wide_enough(partial(_axis_by_axis, planes, line), g)
    return _wide_enough(over(slice(None), channels), g)


def _numpy_avg_pool_backward(
    g: Array, *, size: Shape, kernel: Shape, stride: Shape, padding: Shape, count_include_pad: bool, ceil_mode: bool
) -> Array:
    counts, ones = g.shape[2:], undilated(kernel)
    g = widened(g)
    share = g / _divisors(size, kernel, stride, padding, count_include_pad, counts).astype(g.dtype)
    columns = np.broadcast_to(share.reshape(*share.shape, *ones), (*share.shape, *kernel))
    around = overhang(size, kernel, stride, padding, ones, counts)
    padded = tuple(s + before + after for s, (before, after) in zip(size, around, strict=True))
    return unfit(scatter_windows(columns, padded, stride, ones), around)


def _avg_output(shape: Shape, settings: Mapping[str, Any]) -> Shape:
    kernel, stride, padding, _, ceil_mode = settings.values()
    return (*shape[:2], *pool_counts(shape[2:], kernel, stride, padding, undilated(kernel), ceil_mode))


@op(
    torch=PerCall(_torch_avg_pool_backward),
    numpy=_numpy_avg_pool_backward,
    packed="any",  # NdArray cuts it out of a larger array
    samples=[
        sample(uniform(-1, 1, _avg_output(shape, settings)), size=shape[2:], **settings)
        for shape, settings in _AVG_CASES
    ],
)
def avg_pool_backward(
    g: TensorSpec,
    *,
    size: Shape,
    kernel: PerAxis,
    stride: PerAxis,
    padding: PerAxis,
    count_include_pad: bool,
    ceil_mode: bool,
) -> TensorSpec:
    """Spreads each element of g evenly over its window in an input of spatial sizes `size`: avg_pool's transpose.

    Shapes: g (batch, channels, *counts) -> (batch, channels, *size).  Dtypes: float in, the same float out.
    """
    return g.with_shape(unpooled(g, size, kernel, stride, padding, undilated(kernel), ceil_mode))


@avg_pool_backward.gradient
def _(h, z, g, *, size, **settings):
    return avg_pool(h, **settings)


# -- adaptive_avg_pool -----------------------------------------------------------------------------------------
_ADAPTIVE_CASES = [
    ((2, 3, 7), (3,)),
    ((2, 3, 3), (5,)),
    ((2, 2, 7, 5), (3, 5)),
    ((1, 2, 6, 4), (1, 1)),
    ((1, 2, 4, 5, 3), (2, 3, 1)),
    ((0, 2, 4, 4), (2, 2)),
    ((2, 3, 6, 4), (2, 4)),
]


def bins(size: int, count: int) -> list[tuple[int, int]]:
    """The start and the end of each of `count` bins over `size` elements: floor and ceiling, so bins may overlap."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _windows_of_bins(size: Shape, counts: Shape) -> Shape | None:
    """The kernel of the windows that two axes of equal bins are; None for other bins.

    torch's windows are faster than its bins: 0.60 and 0.64 ms against 0.78 and 0.85, forward and backward, for 64
    images of 16 channels of 24 x 24 (one thread of an x86 CPU).
    """
    if len(size) != 2 or any(s % count or not s for s, count in zip(size, counts, strict=True)):
        return None
    return tuple(s // count for s, count in zip(size, counts, strict=True))


def _torch_adaptive_avg_pool(call: Call) -> Primitive:
    size = call.attrs["output_size"]
    kernel = _windows_of_bins(call.tensor(0).shape[2:], size)
    if kernel is not None:
        return TorchCode("avg_pool2d({0}, {kernel}, {kernel})", avg_pool2d=_nn.avg_pool2d, kernel=kernel)
    pool = {1: torch.adaptive_avg_pool1d, 2: _nn.adaptive_avg_pool2d, 3: _nn.adaptive_avg_pool3d}
    return partial(pool[len(size)], output_size=size)


def _numpy_adaptive_avg_pool(x: Array, *, output_size: Shape) -> Array:
    y = widened(x)
    for axis, count in enumerate(output_size, 2):  # bins are boxes, so their mean is the mean of means
        parts = [y.take(range(*ends), axis).mean(axis) for ends in bins(x.shape[axis], count)]
        y = np.stack(parts, axis)
    return y


@op(
    torch=PerCall(_torch_adaptive_avg_pool),
    numpy=_numpy_adaptive_avg_pool,
    samples=[sample(uniform(-1, 1, shape), output_size=size) for shape, size in _ADAPTIVE_CASES],
)
def adaptive_avg_pool(x: TensorSpec, *, output_size: tuple[int, ...]) -> TensorSpec:
    """The means over `output_size` bins along each spatial axis.

    Bin i of n over s elements is the range [floor(i * s / n), ceil((i + 1) * s / n)).

    Shapes: x (batch, channels, *spatial) -> (batch, channels, *output_size), 1 to 3 spatial axes; the batch may be
        empty.
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d.
    """
    faults = Faults()
    check_settings(faults, check_spatial(faults, x.require(FLOAT)), output_size=output_size)
    faults.stop()
    return x.with_shape((*x.shape[:2], *output_size))


@adaptive_avg_pool.gradient
def _(g, y, x, *, output_size):
    return adaptive_avg_pool_backward(g, size=x.shape[2:])


def _torch_adaptive_avg_pool_backward(call: Call) -> Primitive:
    g = call.tensor(0)
    size = call.attrs["size"]
    like = stand_in((*g.shape[:2], *lifted_size(size)), g.dtype, g.place)
    kernel = _windows_of_bins(size, g.shape[2:])
    if kernel is not None:
        return TorchCode(
            "avg_pool2d_backward({0}, {like}, {kernel}, {kernel}, (0, 0), False, True, None)",
            avg_pool2d_backward=_aten.avg_pool2d_backward.default, like=like, kernel=kernel,
        )  # fmt: skip
    spread = (_aten._adaptive_avg_pool3d_backward if len(size) == 3 else _aten._adaptive_avg_pool2d_backward).default
    if len(size) == 1:
        return lambda g: spread(g.unsqueeze(2), like).squeeze(2)
    return TorchCode("adaptive_avg_pool_backward({0}, {like})", adaptive_avg_pool_backward=spread, like=like)


def _numpy_adaptive_avg_pool_backward(g: Array, *, size: Shape) -> Array:
    x = widened(g)
    for axis, (s, count) in enumerate(zip(size, g.shape[2:], strict=True), 2):
        parts, x = x, np.zeros((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype)
        for i, (start, end) in enumerate(bins(s, count)):
            lead = (slice(None),) * axis
            x[(*lead, slice(start, end))] += parts[(*lead, slice(i, i + 1))] / (end - start)
    return x


def _spread_evenly(g: Primitive, *, size: Primitive) -> Primitive:
    """Bins of one size that tile the image: each element as often as its bin has places.  None for others."""
    counts = g.shape[2:]
    if any(isinstance(s, Size) for s in (*size, *g.shape)):
        return None
    if any(s % n or not s for s, n in zip(size, counts, strict=True)):
        return None
    sides = [s // n for s, n in zip(size, counts, strict=True)]
    shares = reshape(g * (1.0 / math.prod(sides)), shape=(*g.shape[:2], *(n for c in counts for n in (c, 1))))
    places = (*g.shape[:2], *(n for pair in zip(counts, sides, strict=True) for n in pair))
    return reshape(expand(shares, shape=places), shape=(*g.shape[:2], *size))


@op(
    torch=PerCall(_torch_adaptive_avg_pool_backward),
    numpy=_numpy_adaptive_avg_pool_backward,
    laws=[Expands(_spread_evenly)],
    samples=[sample(uniform(-1, 1, (*shape[:2], *size)), size=shape[2:]) for shape, size in _ADAPTIVE_CASES],
)
def adaptive_avg_pool_backward(g: TensorSpec, *, size: Shape) -> TensorSpec:
    """Spreads each element of g evenly over its bin in an input of spatial sizes `size`.

    Shapes: g (batch, channels, *counts) -> (batch, channels, *size).  Dtypes: float in, the same float out.
    """
    faults = Faults()
    check_settings(faults, check_spatial(faults, g.require(FLOAT), "g"), size=size)
    faults.stop()
    return g.with_shape((*g.shape[:2], *size))


@adaptive_avg_pool_backward.gradient
def _(h, z, g, *, size):
    return adaptive_avg_pool(h, output_size=g.shape[2:])
