"""Along axes: reductions, scans, order.

ONNX leaves open where NaN stands in an order, so the largest of a line with NaN is the runtime's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Shape, Size
from burn_torch.onnx.exporting.writer import Cannot, Wire, Writer
from burn_torch.onnx.rows.registry import row

_WIDE = (DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32)


def _widely(w: Writer, x: Wire, compute: Callable[[Wire], Wire]) -> Wire:
    """Integers below 32 bits are computed in i32, and wrap around as they are cast back."""
    return compute(x) if x.dtype in _WIDE else w.cast(compute(w.cast(x, DType.I32)), x.dtype)


@row("sum")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    return _widely(w, x, lambda x: w.reduce("ReduceSum", x, dims))


@row("sum_to_shape")
def _(w: Writer, x: Wire, *, shape: Shape) -> Wire:
    own = (1,) * (x.ndim - len(shape)) + shape
    dims = [i for i, (have, want) in enumerate(zip(x.shape, own, strict=True)) if have != want]
    summed = _widely(w, x, lambda x: w.reduce("ReduceSum", x, dims))
    return w.reshape(Wire(summed, x.dtype, own), shape)


@row("prod")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    return _widely(w, x, lambda x: w.reduce("ReduceProd", x, dims))


@row("mean")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    return w.reduce("ReduceMean", x, dims)


@row("amax")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    return w.reduce("ReduceMax", x, dims)


@row("amin")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    return w.reduce("ReduceMin", x, dims)


@row("argmax")
def _(w: Writer, x: Wire, *, dim: int) -> Wire:
    return w.node("ArgMax", x, axis=dim, keepdims=1)


@row("argmin")
def _(w: Writer, x: Wire, *, dim: int) -> Wire:
    return w.node("ArgMin", x, axis=dim, keepdims=1)


@row("max_with_indices")
def _(w: Writer, x: Wire, *, dim: int) -> tuple[Wire, Wire]:
    return w.reduce("ReduceMax", x, (dim,)), w.node("ArgMax", x, axis=dim, keepdims=1)


@row("min_with_indices")
def _(w: Writer, x: Wire, *, dim: int) -> tuple[Wire, Wire]:
    return w.reduce("ReduceMin", x, (dim,)), w.node("ArgMin", x, axis=dim, keepdims=1)


@row("any")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    count = w.reduce("ReduceSum", w.cast(w.cast(x, DType.BOOL), DType.I64), dims)
    return w.node("Greater", count, w.number(0, DType.I64))


@row("all")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    missing = w.reduce("ReduceSum", w.cast(w.node("Not", w.cast(x, DType.BOOL)), DType.I64), dims)
    return w.node("Equal", missing, w.number(0, DType.I64))


@row("var")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...], correction: int) -> Wire:
    return _spread(w, x, dims, correction)[0]


@row("var_mean")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...], correction: int) -> tuple[Wire, Wire]:
    return _spread(w, x, dims, correction)


def _spread(w: Writer, x: Wire, dims: Sequence[int], correction: int) -> tuple[Wire, Wire]:
    mean = w.reduce("ReduceMean", x, dims)
    centred = w.node("Sub", x, mean)
    degrees = w.count(x, dims) - correction
    if not isinstance(degrees, Size):
        degrees = max(degrees, 0)
    total = w.reduce("ReduceSum", w.node("Mul", centred, centred), dims)
    return w.node("Div", total, w.number(degrees, x.dtype)), mean


@row("logsumexp")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    if any(x.shape[i] == 0 for i in dims):
        return w.node("Log", w.reduce("ReduceSum", w.node("Exp", x), dims))
    top = w.reduce("ReduceMax", x, dims)
    endless = w.node("Equal", w.node("Abs", top), w.number(math.inf, x.dtype))
    top = w.node("Where", endless, w.number(0.0, x.dtype), top)  # inf - inf would be NaN
    return w.node("Add", w.node("Log", w.reduce("ReduceSum", w.node("Exp", w.node("Sub", x, top)), dims)), top)


# -- scans ---------------------------------------------------------------------------------------------------------
@row("cumsum")
def _(w: Writer, x: Wire, *, dim: int) -> Wire:
    if x.ndim == 0:
        return x
    return _widely(w, x, lambda x: w.node("CumSum", x, w.number(dim, DType.I64)))


@row("cumprod")
def _(w: Writer, x: Wire, *, dim: int) -> Wire:
    if x.ndim == 0:
        return x
    return _widely(w, x, lambda x: w.node("CumProd", x, w.number(dim, DType.I64)))


# -- order ---------------------------------------------------------------------------------------------------------
def _sort(w: Writer, x: Wire, dim: int, count: Wire, *, largest: bool) -> tuple[Wire, ...]:
    return w.node("TopK", x, count, outputs=2, axis=dim, largest=int(largest), sorted=1)


@row("sort_with_indices")
def _(w: Writer, x: Wire, *, dim: int, descending: bool) -> tuple[Wire, ...]:
    return _sort(w, x, dim, w.length(x.shape[dim]), largest=descending)


@row("topk_with_indices")
def _(w: Writer, x: Wire, *, k: int, dim: int, largest: bool) -> tuple[Wire, ...]:
    return _sort(w, x, dim, w.length(k), largest=largest)


@row("median_with_indices")
def _(w: Writer, x: Wire, *, dim: int) -> tuple[Wire, ...]:
    size = x.shape[dim]
    if isinstance(size, Size):
        raise Cannot("the median over a dynamic axis")
    middle = w.array(np.array([(size - 1) // 2]), DType.I64)
    return tuple(w.node("Gather", y, middle, axis=dim) for y in _sort(w, x, dim, w.length(size), largest=False))
