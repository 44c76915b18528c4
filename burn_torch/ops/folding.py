"""Windows of an image as columns of a matrix (im2col), and columns added back into an image (col2im)."""

from __future__ import annotations

import math

import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import (
    Faults,
    PerAxis,
    both_sides,
    check_fit,
    check_settings,
    check_spatial,
    fit,
    scatter_windows,
    unfit,
    widened,
    window_counts,
    windows,
)

_COLUMN_CASES = [  # x, settings
    ((2, 3, 5, 6), {"kernel": (2, 3), "stride": (1, 1), "dilation": (1, 1), "padding": (0, 0)}),
    ((1, 2, 7, 6), {"kernel": (3, 2), "stride": (2, 3), "dilation": (2, 1), "padding": (1, 2)}),
    ((0, 2, 4, 4), {"kernel": (2, 2), "stride": (2, 2), "dilation": (1, 1), "padding": (0, 0)}),
]


def _column_shape(
    batch: int, channels: int, size: Shape, *, kernel: Shape, stride: Shape, dilation: Shape, padding: Shape
) -> tuple[int, int, int]:
    counts = window_counts(size, kernel, stride, both_sides(padding), dilation)
    return batch, channels * math.prod(kernel), math.prod(counts)


def _numpy_unfold4d(x: Array, *, kernel: Shape, stride: Shape, dilation: Shape, padding: Shape) -> Array:
    view = windows(fit(x, both_sides(padding)), kernel, stride, dilation)
    batch, channels, *counts = view.shape[:4]
    return view.transpose(0, 1, 4, 5, 2, 3).reshape(batch, channels * math.prod(kernel), math.prod(counts))


def _torch_unfold4d(call: Call) -> Candidate:
    kernel, stride, dilation, padding = call.attrs.values()
    return lambda x: torch._C._nn.im2col(x, kernel, dilation, padding, stride)


@op(
    torch=PerCall(_torch_unfold4d),
    numpy=_numpy_unfold4d,
    samples=[sample(uniform(-1, 1, x), **settings) for x, settings in _COLUMN_CASES],
)
def unfold4d(x: TensorSpec, *, kernel: PerAxis, stride: PerAxis, dilation: PerAxis, padding: PerAxis) -> TensorSpec:
    """The windows of an image as columns (im2col); padding is zeros.

    Shapes: x (batch, channels, height, width) -> (batch, channels * kernel height * kernel width, windows).
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.unfold.
    """
    faults = Faults()
    check_spatial(faults, x.require(FLOAT), axes=(2,))
    settings = {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": padding}
    _check_columns(faults, x.shape[2:], **settings)
    faults.stop()
    return x.with_shape(_column_shape(x.shape[0], x.shape[1], x.shape[2:], **settings))


@unfold4d.gradient
def _(g, y, x, **settings):
    return fold4d(g, output_size=x.shape[2:], **settings)


def _numpy_fold4d(
    x: Array, *, output_size: Shape, kernel: Shape, stride: Shape, dilation: Shape, padding: Shape
) -> Array:
    pairs = both_sides(padding)
    counts = window_counts(output_size, kernel, stride, pairs, dilation)
    columns = widened(x).reshape(x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *counts)
    padded = tuple(s + 2 * p for s, p in zip(output_size, padding, strict=True))
    return unfit(scatter_windows(columns.transpose(0, 1, 4, 5, 2, 3), padded, stride, dilation), pairs)


def _torch_fold4d(call: Call) -> Candidate:
    size, kernel, stride, dilation, padding = call.attrs.values()
    return lambda x: torch._C._nn.col2im(x, size, kernel, dilation, padding, stride)


@op(
    torch=PerCall(_torch_fold4d),
    numpy=_numpy_fold4d,
    packed="any",  # NdArray cuts it out of a larger array
    samples=[
        sample(uniform(-1, 1, _column_shape(x[0], x[1], x[2:], **settings)), output_size=x[2:], **settings)
        for x, settings in _COLUMN_CASES
    ],
)
def fold4d(
    x: TensorSpec, *, output_size: PerAxis, kernel: PerAxis, stride: PerAxis, dilation: PerAxis, padding: PerAxis
) -> TensorSpec:
    """Adds columns into the windows of an image (col2im): the transpose of `unfold4d`, and its gradient.

    Shapes: x (batch, channels * kernel height * kernel width, windows) -> (batch, channels, *output_size).
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.fold.
    """
    faults = Faults()
    x.require(FLOAT)
    if x.ndim != 3:
        faults.add(f"x has {x.ndim} axes", expected="x (batch, rows, windows)", mend="insert the batch axis")
    check_settings(faults, 2, output_size=output_size)
    settings = {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": padding}
    _check_columns(faults, output_size, **settings)
    faults.stop()
    taps = math.prod(kernel)
    batch, channels = x.shape[0], x.shape[1] // taps
    expected = _column_shape(batch, channels, output_size, **settings)
    if x.shape != expected or not channels:
        faults.add(
            "the columns do not fit the windows",
            expected=f"x (batch, a multiple of {taps}, {expected[2]}) for output_size {output_size}",
            mend="pass the output_size and the settings with which unfold4d made the columns",
        )
    faults.stop()
    return x.with_shape((batch, channels, *output_size))


@fold4d.gradient
def _(g, y, x, *, output_size, **settings):
    return unfold4d(g, **settings)


def _check_columns(
    faults: Primitive, size: Shape, kernel: Shape, stride: Shape, dilation: Shape, padding: Shape
) -> None:
    check_settings(faults, 2, kernel=kernel, stride=stride, dilation=dilation)
    check_settings(faults, 2, least=0, padding=padding)
    faults.stop()
    check_fit(faults, size, kernel, both_sides(padding), dilation)
