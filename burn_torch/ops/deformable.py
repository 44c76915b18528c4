"""Convolution whose windows read each element at a place of its own."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.arithmetic import mul
from burn_torch.ops.comparison import greater_equal, is_nan, lower_equal
from burn_torch.ops.convolution import check_convolution
from burn_torch.ops.creation import arange
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.functions import floor
from burn_torch.ops.indexing import gather
from burn_torch.ops.logic import bool_and, bool_not, bool_or
from burn_torch.ops.moments import like, widened
from burn_torch.ops.op import op
from burn_torch.ops.products import matmul
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, Drawer, Sample, sample, uniform
from burn_torch.ops.selection import cast, mask_where
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.slicing import narrow, pad
from burn_torch.ops.value import Value
from burn_torch.ops.windows import Pairs, PerAxis, window_counts

if TYPE_CHECKING:
    from numpy.random import Generator


def _offsets(shape: tuple[int, ...]) -> Drawer:
    """Ways to places between pixels, some of them outside: a place on a pixel has no slope of its own."""

    def draw(generator: Generator) -> Array:
        return generator.integers(-2, 3, shape) + generator.uniform(0.1, 0.4, shape)

    return draw


def _sample(
    x: tuple[int, ...], weight: tuple[int, ...], padding: Pairs, *, stride: int = 1, dilation: int = 1,
    groups: int = 1, offset_groups: int = 1, masked: bool = True,
) -> Sample:  # fmt: skip
    n, kernel = len(x) - 2, weight[2:]
    steps, gaps = (stride,) * n, (dilation,) * n
    counts = window_counts(x[2:], kernel, steps, padding, gaps)
    taps = offset_groups * math.prod(kernel)
    return sample(
        uniform(-1, 1, x),
        _offsets((x[0], taps * n, *counts)),
        uniform(-1, 1, weight),
        uniform(0.2, 1, (x[0], taps, *counts)) if masked else None,
        uniform(-1, 1, weight[:1]) if masked else None,
        stride=steps, padding=padding, dilation=gaps, groups=groups, offset_groups=offset_groups,
    )  # fmt: skip


@op(
    precision="high",
    samples=[
        _sample((2, 2, 3, 4), (2, 2, 2, 2), ((1, 0), (0, 1))),
        _sample((1, 4, 5, 4), (2, 2, 3, 2), ((1, 1), (1, 1)), stride=2, groups=2, offset_groups=2, masked=False),
        _sample((1, 2, 6), (1, 2, 2), ((0, 0),), dilation=2),
        _sample((0, 2, 3, 4), (2, 2, 2, 2), ((0, 0), (0, 0))),
    ],
    source="Dai et al. 2017, https://arxiv.org/abs/1703.06211; Zhu et al. 2018 (mask), https://arxiv.org/abs/1811.11168",
)
def deform_conv(
    x: TensorSpec,
    offset: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    bias: TensorSpec | None,
    *,
    stride: PerAxis,
    padding: Pairs,
    dilation: PerAxis,
    groups: int,
    offset_groups: int,
) -> TensorSpec:
    """`conv` that reads x at places moved by offsets, between pixels by linear interpolation, times a mask.

        y[n, o, i] = bias[o] + sum over c, j of mask[n, j, i] * weight[o, c, j]
                     * x[n, c, i * stride - before + j * dilation + offset[n, j, i]]

    x is 0 outside.  The channels of a group of offsets share its places.  A place that is NaN gives NaN; on a pixel the
    slope is that of the pixel after.

    Shapes: x (batch, channels_in, *spatial), weight (channels_out, channels_in / groups, *kernel), bias
        (channels_out,), offset (batch, offset_groups * taps * axes, *counts), each tap's axes beside each other, mask
        (batch, offset_groups * taps, *counts) -> (batch, channels_out, *counts); taps is the number of elements of the
        kernel.
    Dtypes: float, all the same; half types compute in float32.
    PyTorch: torchvision.ops.deform_conv2d.
    """
    same_dtype(x.require(FLOAT), offset, weight, mask, bias)
    y = check_convolution(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
    counts, taps = y.shape[2:], math.prod(weight.shape[2:])
    if offset_groups < 1 or x.shape[1] % offset_groups:
        raise shape_fault(
            f"offset_groups {offset_groups} does not divide the {x.shape[1]} input channels",
            expected="channels_in that is a multiple of offset_groups, of at least 1",
            mend="change offset_groups or the number of input channels",
        )
    for name, spec, each in (("offset", offset, taps * len(counts)), ("mask", mask, taps)):
        expected = (x.shape[0], offset_groups * each, *counts)
        if spec is not None and spec.shape != expected:
            raise shape_fault(
                f"{name} does not fit the windows",
                expected=f"{name} {expected}: {each} numbers for each group of offsets at each window",
                mend="compute it by a convolution with the same kernel, stride, padding and dilation",
            )
    return y


def _along(like: Value, start: int, step: int, length: int, axis: int, ndim: int) -> Value:
    """start, start + step, ... along one axis of `ndim`, beside a value."""
    attrs = {"length": length, "dtype": like.dtype, "place": like.place}
    counted = arange.run(like.backend, type(like), (start, step), attrs)
    placed: Value = reshape(counted, shape=tuple(length if i == axis else 1 for i in range(ndim)))
    return placed


def _read_between(x: Value, places: list[Value]) -> Value:
    """x between its elements, 0 outside.

    Shapes: x (planes, channels, *spatial), places (planes, points) for each axis -> (planes, channels, points).
    """
    planes, channels, *sizes = x.shape
    nothing, points = math.prod(sizes), places[0].shape[1]
    pixels = pad(reshape(x, shape=(planes, channels, nothing)), 0.0, padding=((0, 0), (0, 0), (0, 1)), mode="constant")
    below = [floor(p) for p in places]
    nowhere = functools.reduce(bool_or, map(is_nan, places))
    total: Value | None = None
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index = weight = inside = None
        for p, low, size, side in zip(places, below, sizes, corner, strict=True):
            at, part = (low + 1.0, p - low) if side else (low, low + 1.0 - p)
            fits = bool_and(greater_equal(at, 0.0), lower_equal(at, size - 1.0))
            at = cast(mask_where(at, bool_not(fits), 0.0), dtype=DType.I64)
            index = at if index is None else index * size + at
            weight = part if weight is None else mul(weight, part)
            inside = fits if inside is None else bool_and(inside, fits)
        outside = bool_not(inside)
        index = reshape(mask_where(index, outside, nothing), shape=(planes, 1, points))
        weight = mask_where(mask_where(weight, outside, 0.0), nowhere, math.nan)
        values = gather(pixels, expand(index, shape=(planes, channels, points)), dim=2)
        values = values * reshape(weight, shape=(planes, 1, points))
        total = values if total is None else total + values
    assert total is not None, "there is at least one axis"
    return total


@deform_conv.decomposes
def _(x, offset, weight, mask, bias, *, stride, padding, dilation, groups, offset_groups):
    unwidened, batch, channels = x, x.shape[0], x.shape[1]
    x, offset, weight = widened(x), widened(offset), widened(weight)
    kernel = weight.shape[2:]
    n, taps = len(kernel), math.prod(kernel)
    counts = window_counts(x.shape[2:], kernel, stride, padding, dilation)
    planes, windows = batch * offset_groups, math.prod(counts)
    offsets = reshape(offset, shape=(planes, *kernel, n, *counts))
    places = []
    for i in range(n):
        moved = reshape(narrow(offsets, 1 + n, i, i + 1), shape=(planes, *kernel, *counts))
        tap = _along(offset, 0, dilation[i], kernel[i], 1 + i, 1 + 2 * n)
        window = _along(offset, -padding[i][0], stride[i], counts[i], 1 + n + i, 1 + 2 * n)
        places.append(reshape(moved + (tap + window), shape=(planes, taps * windows)))
    columns = _read_between(reshape(x, shape=(planes, channels // offset_groups, *x.shape[2:])), places)
    if mask is not None:
        columns = columns * reshape(widened(mask), shape=(planes, 1, taps * windows))
    columns = reshape(columns, shape=(batch, groups, channels // groups * taps, windows))
    filters = reshape(weight, shape=(1, groups, weight.shape[0] // groups, weight.shape[1] * taps))
    y = reshape(matmul(filters, columns), shape=(batch, weight.shape[0], *counts))
    if bias is not None:
        y = y + reshape(widened(bias), shape=(1, weight.shape[0], *(1,) * n))
    return like(unwidened, y)
