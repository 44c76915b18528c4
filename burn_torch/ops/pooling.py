"""Pooling over one, two or three spatial axes: largest, mean, and mean over a given number of bins.

Each backward is a row that is linear in g, so its own gradient is the forward again (for the maximum: the elements
at the indices).  torch's one-axis backward functions do not exist; those rows run the two-axis ones on height 1.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.sizes import Size
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import dtype_fault
from burn_torch.ops.laws import Expands
from burn_torch.ops.op import Call, PerCall, op
from burn_torch.ops.samples import distinct, sample, uniform
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.windows import (
    Faults,
    both_sides,
    check_fit,
    check_settings,
    check_spatial,
    fit,
    reach,
    scatter_windows,
    stand_in,
    tap_slices,
    unfit,
    widened,
    windows,
)

_aten = torch.ops.aten
_nn = torch._C._nn


# -- geometry ----------------------------------------------------------------------------------------------
def pool_counts(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> tuple[int, ...]:
    """How many windows lie on each axis.

    With `ceil_mode` the last window may reach past the padding, but must start inside the input or the padding before
    it: torch's rule.
    """
    counts = []
    for s, k, step, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        room = s + 2 * p - reach(k, d)
        count = (room + (step - 1 if ceil_mode else 0)) // step + 1
        counts.append(count - 1 if ceil_mode and (count - 1) * step >= s + p else count)
    return tuple(counts)


def _overhang(size, kernel, stride, padding, dilation, counts):
    """Padding (before, after) with which all windows are whole; windows may leave some of the end unread."""
    return tuple(
        (p, (count - 1) * step + reach(k, d) - s - p)
        for s, k, step, p, d, count in zip(size, kernel, stride, padding, dilation, counts, strict=True)
    )


def _counts_over(faults, size, kernel, stride, padding, dilation, ceil_mode):
    """The counts of windows over an input of `size`; stops at what does not fit."""
    spatial = len(size)
    check_settings(faults, spatial, kernel=kernel, stride=stride, dilation=dilation)
    check_settings(faults, spatial, least=0, padding=padding)
    faults.stop()
    check_fit(faults, size, kernel, both_sides(padding), dilation)
    counts = pool_counts(size, kernel, stride, padding, dilation, ceil_mode)
    for axis, (s, k, step, p, d) in enumerate(zip(size, kernel, stride, padding, dilation, strict=True)):
        before = range(min(counts[axis], -(-p // step)))  # windows that start in the padding
        if 2 * p > k or any((i * step - p) % d >= s for i in before):
            faults.add(
                f"padding {p} is too large along spatial axis {axis}",
                expected=f"at most {k // 2}, half of the kernel, and an element of the input in each window",
                mend="lower the padding, or pad the input first (for a maximum with -inf)",
            )
    faults.stop()
    return counts


def _pooled(x, kernel, stride, padding, dilation, ceil_mode):
    """The shape of x (batch, channels, *spatial) after pooling."""
    faults = Faults()
    check_spatial(faults, x.require(FLOAT))
    return (*x.shape[:2], *_counts_over(faults, x.shape[2:], kernel, stride, padding, dilation, ceil_mode))


def _unpooled(g, size, kernel, stride, padding, dilation, ceil_mode):
    """The shape of the input of spatial sizes `size` whose pooling has the shape of g."""
    faults = Faults()
    check_settings(faults, check_spatial(faults, g.require(FLOAT), "g"), size=size)
    faults.stop()
    counts = _counts_over(faults, size, kernel, stride, padding, dilation, ceil_mode)
    if g.shape[2:] != counts:
        faults.add(
            "g is no output of this pooling",
            expected=f"g (batch, channels, {', '.join(map(str, counts))})",
            mend="pass the gradient of the pooling's output, with the settings of the pooling",
        )
    faults.stop()
    return (*g.shape[:2], *size)


def _check_indices(indices, shape):
    if indices.dtype is not DType.I64 or indices.shape != shape:
        raise dtype_fault(
            "these are no indices of this pooling",
            expected=f"indices {shape} i64, as max_pool_with_indices gives them",
            mend="keep the indices that came with the values",
        )


def _ones(kernel):
    return (1,) * len(kernel)


def _lift(*settings):
    """One-axis settings for height 1: (neutral entry, setting) pairs."""
    return tuple((neutral, *setting) for neutral, setting in settings)


# -- max_pool ----------------------------------------------------------------------------------------------
def _settings(kernel, stride, padding, dilation=None, *, ceil_mode=False):
    return {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation or _ones(kernel),
        "ceil_mode": ceil_mode,
    }


_MAX_CASES = [
    ((2, 3, 7), _settings((3,), (2,), (1,), ceil_mode=True)),
    ((2, 2, 6, 7), _settings((2, 3), (2, 1), (1, 0))),
    ((1, 2, 7, 8), _settings((3, 2), (2, 3), (1, 1), (2, 3), ceil_mode=True)),
    ((1, 2, 4, 5, 3), _settings((2, 2, 2), (2, 2, 1), (0, 1, 0), ceil_mode=True)),
    ((0, 2, 4, 4), _settings((2, 2), (2, 2), (0, 0))),
]


def _torch_max_pool(call: Call):
    pool = {1: torch.max_pool1d_with_indices, 2: _nn.max_pool2d_with_indices, 3: _nn.max_pool3d_with_indices}
    largest = pool[len(call.attrs["kernel"])]
    return TorchCode(
        "max_pool({0}, {kernel}, {stride}, {padding}, {dilation}, {ceil_mode})", max_pool=largest, **call.attrs
    )


def _numpy_max_pool(x, *, kernel, stride, padding, dilation, ceil_mode):
    size = x.shape[2:]
    counts = pool_counts(size, kernel, stride, padding, dilation, ceil_mode)
    around = _overhang(size, kernel, stride, padding, dilation, counts)
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
    x: TensorSpec,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[TensorSpec, TensorSpec]:
    """The largest element of each window, and its flat index in the spatial axes of x.

    Padding never wins, and is at most half of the kernel, so that each window holds an element.  Of equal elements the
    first counts; NaN is larger than all, and of several the last counts.  The gradient goes to the index.

    Shapes: x (batch, channels, *spatial) -> values, indices (batch, channels, *counts), 1 to 3 spatial axes; with
        `ceil_mode` a window may reach past the end (see `pool_counts`).  The batch may be empty.
    Dtypes: float in, the same float and i64 out.
    PyTorch: torch.nn.functional.max_pool1d, max_pool2d, max_pool3d with return_indices=True.
    """
    y = x.with_shape(_pooled(x, kernel, stride, padding, dilation, ceil_mode))
    return y, y.with_dtype(DType.I64)


@max_pool_with_indices.gradient
def _(g, y, x, **settings):
    return (max_pool_with_indices_backward(g[0], y[1], size=x.shape[2:], **settings),)


def _torch_max_pool_backward(call: Call):
    g = call.specs[0]
    assert isinstance(g, TensorSpec)
    size, kernel, stride, padding, dilation, ceil_mode = call.attrs.values()
    if len(size) == 1:
        kernel, stride, padding, dilation = _lift((1, kernel), (1, stride), (0, padding), (1, dilation))
    like = stand_in((*g.shape[:2], *_flat_lift(size)), g.dtype, g.place)
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


def _flat_lift(size):
    return (1, *size) if len(size) == 1 else size


def _numpy_max_pool_backward(g, indices, *, size, **settings):
    planes = math.prod(g.shape[:2])
    x = np.zeros((planes, math.prod(size)), widened(g).dtype)
    count = math.prod(g.shape[2:])
    np.add.at(x, (np.arange(planes)[:, None], indices.reshape(planes, count)), g.reshape(planes, count))
    return x.reshape(*g.shape[:2], *size)


def _indices_of(shape, settings):
    """Draws indices that a pooling can give: torch's GPU kernels look for them in the windows only."""
    return lambda generator: _numpy_max_pool(generator.permutation(math.prod(shape)).reshape(shape), **settings)[1]


def _output(shape, settings):
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
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> TensorSpec:
    """Adds each element of g to the place in an input of spatial sizes `size` that its index names.

    Shapes: g, indices (batch, channels, *counts) -> (batch, channels, *size).  Dtypes: g float, indices i64.
    An index must lie in its window.
    """
    shape = _unpooled(g, size, kernel, stride, padding, dilation, ceil_mode)
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
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> TensorSpec:
    """The elements of x at indices of `max_pool_with_indices`: how its values change as x moves along this x.

    Shapes: x (batch, channels, *spatial), indices (batch, channels, *counts) -> (batch, channels, *counts).
    Dtypes: x float, indices i64.
    """
    shape = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    _check_indices(indices, shape)
    return x.with_shape(shape)


@max_pool_at.gradient
def _(g, y, x, indices, **settings):
    return max_pool_with_indices_backward(g, indices, size=x.shape[2:], **settings), None


# -- avg_pool ------------------------------------------------------------------------------------------------
def _avg_settings(kernel, stride, padding, count_include_pad, ceil_mode):
    return {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "count_include_pad": count_include_pad,
        "ceil_mode": ceil_mode,
    }


_AVG_CASES = [
    ((2, 3, 8), _avg_settings((3,), (2,), (1,), False, True)),
    ((2, 2, 6, 7), _avg_settings((2, 3), (2, 2), (1, 1), True, False)),
    ((1, 2, 6, 8), _avg_settings((3, 4), (2, 3), (1, 2), True, True)),
    ((1, 2, 6, 8), _avg_settings((3, 4), (2, 3), (1, 2), False, True)),
    ((1, 2, 4, 5, 3), _avg_settings((2, 2, 2), (2, 2, 1), (0, 1, 1), False, True)),
    ((1, 2, 1, 3, 2), _avg_settings((2, 2, 2), (1, 2, 2), (1, 1, 0), False, True)),  # smaller than the kernel
    ((0, 2, 4, 4), _avg_settings((2, 2), (2, 2), (0, 0), True, False)),
]


def _torch_avg_pool(call: Call):
    x = call.specs[0]
    assert isinstance(x, TensorSpec)
    kernel, stride, padding, count_include_pad, ceil_mode = call.attrs.values()

    def over(axes):
        pool = {1: torch.avg_pool1d, 2: _nn.avg_pool2d, 3: _nn.avg_pool3d}[len(kernel[axes])]
        settings = (kernel[axes], stride[axes], padding[axes], ceil_mode, count_include_pad)
        return lambda x: pool(x, *settings)

    if _is_small(x.shape[2:], kernel):
        return partial(_axis_by_axis, over(slice(1, 3)), over(slice(0, 1)))
    return _wide_enough(over(slice(None)), x)


def _is_small(size, kernel):
    """Whether torch's kernels over three axes refuse the input: padded to the kernel's size, but smaller itself."""
    return len(size) == 3 and any(s < k for s, k in zip(size, kernel, strict=True))


def _axis_by_axis(planes, line, x):
    """A mean over three axes as one over the last two, then one over the first."""
    y = planes(x.flatten(1, 2)).unflatten(1, x.shape[1:3]).movedim(2, -1)
    return line(y.flatten(1, 3)).unflatten(1, y.shape[1:4]).movedim(-1, 2)


def _wide_enough(run, x):
    """`run` in float32 where torch lacks half precision: over three axes on a CPU."""
    if x.place == "cpu" and x.ndim == 5 and x.dtype in (DType.F16, DType.BF16):
        return lambda x: run(x.float()).to(x.dtype)
    return run


def _divisors(size, kernel, stride, padding, count_include_pad, counts):
    """How many elements each window is the mean of, as an array of shape `counts`."""
    result = np.ones(())
    for s, k, step, p, count in zip(size, kernel, stride, padding, counts, strict=True):
        start = np.arange(count) * step - p
        end = np.minimum(start + k, s + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, s)
        result = np.multiply.outer(result, end - start)
    return result


def _numpy_avg_pool(x, *, kernel, stride, padding, count_include_pad, ceil_mode):
    size, ones = x.shape[2:], _ones(kernel)
    counts = pool_counts(size, kernel, stride, padding, ones, ceil_mode)
    whole = fit(widened(x), _overhang(size, kernel, stride, padding, ones, counts))
    sums = windows(whole, kernel, stride, ones).sum(axis=tuple(range(-len(kernel), 0)))
    return sums / _divisors(size, kernel, stride, padding, count_include_pad, counts).astype(sums.dtype)


@op(
    torch=PerCall(_torch_avg_pool),
    numpy=_numpy_avg_pool,
    packed="dense",
    samples=[sample(uniform(-1, 1, shape), **settings) for shape, settings in _AVG_CASES],
)
def avg_pool(
    x: TensorSpec,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
    ceil_mode: bool,
) -> TensorSpec:
    """The mean of each window.

    `count_include_pad` divides by the elements of the window with the padding, else without it; what a window of
    `ceil_mode` covers past the padding never counts.

    Shapes: x (batch, channels, *spatial) -> (batch, channels, *counts), 1 to 3 spatial axes; the batch may be empty.
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.avg_pool1d, avg_pool2d, avg_pool3d.
    """
    return x.with_shape(_pooled(x, kernel, stride, padding, _ones(kernel), ceil_mode))


@avg_pool.gradient
def _(g, y, x, **settings):
    return avg_pool_backward(g, size=x.shape[2:], **settings)


def _torch_avg_pool_backward(call: Call):
    g = call.specs[0]
    assert isinstance(g, TensorSpec)
    size, kernel, stride, padding, count_include_pad, ceil_mode = call.attrs.values()
    dtype = DType.F32 if g.ndim == 5 and g.place == "cpu" and g.dtype is not DType.F64 else g.dtype

    def over(axes, channels):
        ends = (kernel[axes], stride[axes], padding[axes])
        settings = (*ends, ceil_mode, count_include_pad, None)
        spread = _aten.avg_pool3d_backward.default if len(size[axes]) == 3 else _aten.avg_pool2d_backward.default
        if len(size[axes]) > 1:
            like = stand_in((g.shape[0], channels, *size[axes]), dtype, g.place)
            return lambda g: spread(g, like, *settings)
        lifted = (*_lift(*zip((1, 1, 0), ends, strict=True)), ceil_mode, count_include_pad, None)
        flat = stand_in((g.shape[0], channels, 1, *size[axes]), dtype, g.place)
        return lambda g: spread(g.unsqueeze(2), flat, *lifted).squeeze(2)

    channels = g.shape[1]
    if _is_small(size, kernel):
        planes, line = over(slice(1, 3), channels * g.shape[2]), over(slice(0, 1), channels * size[1] * size[2])
        return _wide_enough(partial(_axis_by_axis, planes, line), g)
    return _wide_enough(over(slice(None), channels), g)


def _numpy_avg_pool_backward(g, *, size, kernel, stride, padding, count_include_pad, ceil_mode):
    counts, ones = g.shape[2:], _ones(kernel)
    g = widened(g)
    share = g / _divisors(size, kernel, stride, padding, count_include_pad, counts).astype(g.dtype)
    columns = np.broadcast_to(share.reshape(*share.shape, *ones), (*share.shape, *kernel))
    around = _overhang(size, kernel, stride, padding, ones, counts)
    padded = tuple(s + before + after for s, (before, after) in zip(size, around, strict=True))
    return unfit(scatter_windows(columns, padded, stride, ones), around)


def _avg_output(shape, settings):
    kernel, stride, padding, _, ceil_mode = settings.values()
    return (*shape[:2], *pool_counts(shape[2:], kernel, stride, padding, _ones(kernel), ceil_mode))


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
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
    ceil_mode: bool,
) -> TensorSpec:
    """Spreads each element of g evenly over its window in an input of spatial sizes `size`: avg_pool's transpose.

    Shapes: g (batch, channels, *counts) -> (batch, channels, *size).  Dtypes: float in, the same float out.
    """
    return g.with_shape(_unpooled(g, size, kernel, stride, padding, _ones(kernel), ceil_mode))


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
    """Where each of `count` bins over `size` elements starts and ends: floor and ceiling, so bins may overlap."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _windows_of_bins(size: Shape, counts: Shape) -> Shape | None:
    """The kernel of the windows that two axes of equal bins are; None for other bins.

    torch's windows are faster than its bins: 0.60 and 0.64 ms against 0.78 and 0.85, forward and backward, for 64
    images of 16 channels of 24 x 24 (one thread of an x86 CPU).
    """
    if len(size) != 2 or any(s % count or not s for s, count in zip(size, counts, strict=True)):
        return None
    return tuple(s // count for s, count in zip(size, counts, strict=True))


def _torch_adaptive_avg_pool(call: Call):
    size = call.attrs["output_size"]
    kernel = _windows_of_bins(call.specs[0].shape[2:], size)  # type: ignore[union-attr]  # a tensor: the rule ran
    if kernel is not None:
        return TorchCode("avg_pool2d({0}, {kernel}, {kernel})", avg_pool2d=_nn.avg_pool2d, kernel=kernel)
    pool = {1: torch.adaptive_avg_pool1d, 2: _nn.adaptive_avg_pool2d, 3: _nn.adaptive_avg_pool3d}
    return partial(pool[len(size)], output_size=size)


def _numpy_adaptive_avg_pool(x, *, output_size):
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


def _torch_adaptive_avg_pool_backward(call: Call):
    g = call.specs[0]
    assert isinstance(g, TensorSpec)
    size = call.attrs["size"]
    like = stand_in((*g.shape[:2], *_flat_lift(size)), g.dtype, g.place)
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


def _numpy_adaptive_avg_pool_backward(g, *, size):
    x = widened(g)
    for axis, (s, count) in enumerate(zip(size, g.shape[2:], strict=True), 2):
        parts, x = x, np.zeros((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype)
        for i, (start, end) in enumerate(bins(s, count)):
            lead = (slice(None),) * axis
            x[(*lead, slice(start, end))] += parts[(*lead, slice(i, i + 1))] / (end - start)
    return x


def _spread_evenly(g, *, size):
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
