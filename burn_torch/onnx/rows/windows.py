"""Convolution, pooling, resampling: operators over the spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from burn_torch import ops
from burn_torch.backend.tracing import suspended
from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Length, Shape, Size
from burn_torch.onnx.exporting.writer import Cannot, Wire, Writer
from burn_torch.onnx.folding import host
from burn_torch.onnx.operators.registry import Host
from burn_torch.onnx.rows.registry import row
from burn_torch.ops.pooling import pool_counts
from burn_torch.tensor import Tensor

Ints: TypeAlias = tuple[int, ...]
Pairs: TypeAlias = tuple[tuple[Length, Length], ...]


def _both(w: Writer, pairs: Pairs) -> list[int]:
    """Amounts before and after each axis as ONNX writes them: all before, then all after."""
    amounts = [(w.fixed(before, "the padding"), w.fixed(after, "the padding")) for before, after in pairs]
    return [before for before, _ in amounts] + [after for _, after in amounts]


def _kernel(w: Writer, weight: Wire) -> list[int]:
    return [w.fixed(size, "the kernel") for size in weight.shape[2:]]


def _settings(kernel: Sequence[int], stride: Ints, dilation: Ints, groups: int) -> dict[str, Any]:
    """The attributes of a convolution, but for its padding."""
    return {"kernel_shape": list(kernel), "strides": list(stride), "dilations": list(dilation), "group": groups}


@row("conv")
def _(
    w: Writer, x: Wire, weight: Wire, bias: Wire | None, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Wire:
    pads = _both(w, padding)
    if min(pads, default=0) < 0:  # cuts off, which Conv does not take
        half = len(pads) // 2
        x = w.node("Pad", x, w.ints([0, 0, *pads[:half], 0, 0, *pads[half:]]), w.number(0.0, x.dtype))
        pads = [0] * len(pads)
    y: Wire = w.node("Conv", x, weight, bias, pads=pads, **_settings(_kernel(w, weight), stride, dilation, groups))
    return y


@row("conv_transpose")
def _(
    w: Writer,
    x: Wire,
    weight: Wire,
    bias: Wire | None,
    *,
    stride: Ints,
    padding: Shape,
    output_padding: Shape,
    dilation: Ints,
    groups: int,
) -> Wire:
    cut = [w.fixed(p, "the padding") for p in padding]
    extra = [w.fixed(o, "the output padding") for o in output_padding]
    settings = _settings(_kernel(w, weight), stride, dilation, groups)
    y: Wire
    if all(o < step for o, step in zip(extra, stride, strict=True)):
        y = w.node("ConvTranspose", x, weight, bias, pads=cut * 2, output_padding=extra, **settings)
        return y
    # runtimes take no more than a stride: less is cut off at the end, and zeros follow where nothing is left to cut
    ends = [max(p - o, 0) for p, o in zip(cut, extra, strict=True)]
    beyond = [max(o - p, 0) for p, o in zip(cut, extra, strict=True)]
    y = w.node("ConvTranspose", x, weight, pads=cut + ends, **settings)
    y = w.node("Pad", y, w.ints([0] * (2 + len(cut)) + [0, 0, *beyond]), w.number(0.0, x.dtype))
    return y if bias is None else w.node("Add", y, w.reshape(bias, (*bias.shape, *(1,) * len(cut))))


# -- windows as columns -------------------------------------------------------------------------------------
def _taps(w: Writer, channels: int, kernel: Sequence[int], dtype: DType) -> Wire:
    """A kernel for each channel and each place of a window that takes just that element."""
    places = math.prod(kernel)
    one = np.eye(places).reshape(places, 1, *kernel)
    return w.array(np.tile(one, (channels, 1, *(1,) * len(kernel))), dtype)


@row("unfold4d")
def _(w: Writer, x: Wire, *, kernel: Ints, stride: Ints, dilation: Ints, padding: Shape) -> Wire:
    channels = w.fixed(x.shape[1], "the number of channels")
    pads = _both(w, tuple((p, p) for p in padding))
    taps = _taps(w, channels, kernel, x.dtype)
    y = w.node("Conv", x, taps, pads=pads, **_settings(kernel, stride, dilation, channels))
    shape = w.results[0].shape
    return w.node("Reshape", y, w.ints([0, shape[1], -1] if 0 not in shape else shape))


@row("fold4d")
def _(w: Writer, x: Wire, *, output_size: Shape, kernel: Ints, stride: Ints, dilation: Ints, padding: Shape) -> Wire:
    size = [w.fixed(s, "the size of the image") for s in output_size]
    pads = [w.fixed(p, "the padding") for p in padding]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    counts = [(s + 2 * p - r) // step + 1 for s, p, r, step in zip(size, pads, reach, stride, strict=True)]
    beyond = [
        s - ((n - 1) * step - 2 * p + r) for s, n, step, p, r in zip(size, counts, stride, pads, reach, strict=True)
    ]
    channels = w.fixed(x.shape[1], "the number of channels") // math.prod(kernel)
    windows = w.node("Reshape", x, w.ints([0, channels * math.prod(kernel), *counts]))
    taps, settings = _taps(w, channels, kernel, x.dtype), _settings(kernel, stride, dilation, channels)
    y: Wire = w.node("ConvTranspose", windows, taps, pads=pads * 2, output_padding=beyond, **settings)
    return y


@row("unfold_backward")
def _(w: Writer, g: Wire, *, shape: Shape, dim: int, size: Length, step: int) -> Wire:
    others = [*range(dim), *range(dim + 1, g.ndim - 1)]
    kernel, length = w.fixed(size, "the size of a window"), w.fixed(shape[dim], "the length")
    count = (length - kernel) // step + 1
    lines = w.node("Reshape", w.permute(g, [*others, g.ndim - 1, dim]), w.ints([-1, kernel, count]))
    taps, settings = _taps(w, 1, (kernel,), g.dtype), _settings((kernel,), (step,), (1,), 1)
    added = w.node("ConvTranspose", lines, taps, output_padding=[(length - kernel) % step], **settings)
    moved = w.node("Reshape", added, w.ints([*(g.shape[i] for i in others), length]))
    return w.node("Transpose", moved, perm=[*range(dim), len(others), *range(dim, len(others))])


# -- pooling --------------------------------------------------------------------------------------------------
def _window(
    w: Writer, x: Wire, kernel: Ints, stride: Ints, padding: Shape, dilation: Ints, ceil: bool
) -> tuple[dict[str, list[int]], list[int], list[int]]:
    """The attributes of windows, and the padding before and after each axis with which all of them are whole.

    How ONNX rounds up differs between its opsets.
    """
    size = tuple(w.fixed(k, "the window") for k in kernel)
    before = [w.fixed(p, "the padding") for p in padding]
    settings = {"kernel_shape": list(size), "strides": [w.fixed(s, "the stride") for s in stride]}
    if not ceil:
        return settings, before, before
    sizes = tuple(w.fixed(s, "how many windows of ceil_mode there are") for s in x.shape[2:])
    counts = pool_counts(sizes, size, stride, tuple(before), dilation, True)
    after = [
        max(p, (n - 1) * step + d * (k - 1) + 1 - s - p)
        for s, k, step, p, d, n in zip(sizes, size, stride, before, dilation, counts, strict=True)
    ]
    return settings, before, after


@row("max_pool_with_indices")
def _(
    w: Writer, x: Wire, *, kernel: Ints, stride: Ints, padding: Shape, dilation: Ints, ceil_mode: bool
) -> tuple[Wire, Wire]:
    settings, before, after = _window(w, x, kernel, stride, padding, dilation, ceil_mode)
    values, flat = w.node("MaxPool", x, outputs=2, pads=before + after, dilations=list(dilation), **settings)
    plane = w.count(x, range(2, x.ndim))
    return values, w.node("Mod", flat, w.number(plane, DType.I64))


@row("avg_pool")
def _(
    w: Writer, x: Wire, *, kernel: Ints, stride: Ints, padding: Shape, count_include_pad: bool, ceil_mode: bool
) -> Wire:
    settings, before, after = _window(w, x, kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    if count_include_pad and (any(before) or after != before):  # zeros that count; what lies past them never does
        x = w.node("Pad", x, w.ints([0, 0, *before, 0, 0, *before]), w.number(0.0, x.dtype))
        after = [a - b for a, b in zip(after, before, strict=True)]
        before = [0] * len(before)
    return w.node("AveragePool", x, outputs=1, pads=before + after, count_include_pad=0, **settings)


@row("adaptive_avg_pool")
def _(w: Writer, x: Wire, *, output_size: Shape) -> Wire:
    if all(size == 1 for size in output_size):
        return w.node("GlobalAveragePool", x)
    sizes = [
        (w.fixed(s, "the bins of an average"), w.fixed(n, "the bins"))
        for s, n in zip(x.shape[2:], output_size, strict=True)
    ]
    if all(s % n == 0 for s, n in sizes):
        step = [s // n for s, n in sizes]
        return w.node("AveragePool", x, kernel_shape=step, strides=step)
    y = x
    for axis, (s, n) in enumerate(sizes, 2):
        if s != n:
            y = _mixed(w, y, axis, x.ndim, _weights("adaptive_avg_pool", s, output_size=(n,)))
    return y


def _weights(row_name: str, size: int, **attrs: object) -> Host:
    """Returns what a row that is linear along one axis does to each unit vector: (size, outputs), f64."""
    with suspended():
        unit = Tensor.from_data(np.eye(size).reshape(1, size, size), host())
        mixed: Tensor = ops.REGISTRY[row_name](unit, **attrs)
        weights: Host = mixed.into_data().values[0]
        return weights


def _mixed(w: Writer, x: Wire, axis: int, ndim: int, weights: Host) -> Wire:
    """x with the elements along an axis mixed by weights (size, outputs)."""
    matrix = w.array(weights, x.dtype)
    if axis == ndim - 1:
        return w.node("MatMul", x, matrix)
    order = [*(i for i in range(ndim) if i != axis), axis]
    back = [order.index(i) for i in range(ndim)]
    y = w.node("MatMul", w.node("Transpose", x, perm=order), matrix)
    return w.node("Transpose", y, perm=back)


# -- resampling -----------------------------------------------------------------------------------------------
@row("interpolate")
def _(w: Writer, x: Wire, *, output_size: Shape, mode: str, align_corners: bool) -> Wire:
    sizes = list(zip(x.shape[2:], output_size, strict=True))
    fixed = not any(isinstance(size, Size) for pair in sizes for size in pair)
    if mode in ("cubic", "lanczos") or (mode == "linear" and fixed and x.dtype is not DType.F32):
        y = x
        for axis, (s, n) in enumerate(sizes, 2):
            s, n = w.fixed(s, f"resampling by {mode}"), w.fixed(n, f"resampling by {mode}")
            y = _mixed(
                w, y, axis, x.ndim, _weights("interpolate", s, output_size=(n,), mode=mode, align_corners=align_corners)
            )
        return y
    if mode != "linear":
        return _nearest(w, x, sizes, exact=mode == "nearest_exact")
    return w.node(
        "Resize",
        x,
        None,
        None,
        w.ints([*x.shape[:2], *output_size]),
        mode="linear",
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
    )


def _nearest(w: Writer, x: Wire, sizes: Sequence[tuple[Length, Length]], *, exact: bool) -> Wire:
    """Each axis taken at floor(i n / m), or floor((2 i + 1) n / 2 m): in whole numbers, since Resize rounds n / m."""
    factors = [_factor(n, m) for n, m in sizes]
    if None not in factors and x.dtype is DType.F32:
        scales = w.array(np.array([1, 1, *factors], np.float64), DType.F32)
        return w.node(
            "Resize", x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    y = x
    for axis, (n, m) in enumerate(sizes, 2):
        if n == m:
            continue
        places = w.range(m)
        if exact:
            places = w.node("Add", w.node("Mul", places, w.ints([2])), w.ints([1]))
        scaled = w.node("Mul", places, w.length(n))
        y = w.node("Gather", y, w.node("Div", scaled, w.length(m * 2 if exact else m)), axis=axis)
    return y


def _factor(n: Length, m: Length) -> int | None:
    """How many times m is n; None where it is not always the same whole number."""
    if n == 0 or isinstance(n, int) != isinstance(m, int):
        return None
    ratio = m // n
    return ratio if isinstance(ratio, int) and n * ratio == m else None


@row("grid_sample_2d")
def _(w: Writer, x: Wire, grid: Wire, *, mode: str, padding_mode: str, align_corners: bool) -> Wire:
    words = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"} if w.opset >= 20 else {}
    if x.ndim != 4:
        raise Cannot("a grid over other than two axes")
    return w.node(
        "GridSample", x, grid, mode=words.get(mode, mode), padding_mode=padding_mode, align_corners=int(align_corners)
    )
