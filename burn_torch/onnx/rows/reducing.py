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


def _reduces(name: str, op: str) -> None:
    row(name)(lambda w, x, *, dims: w.reduce(op, x, dims))


def _finds(extreme: str, extreme_op: str, place: str, place_op: str) -> None:
    """Writes the extreme element of each line, where it is, or both."""

    def where(w: Writer, x: Wire, *, dim: int) -> Wire:
        return w.node(place_op, x, axis=dim, keepdims=1)

    _reduces(extreme, extreme_op)
    row(place)(where)
    row(f"{extreme[1:]}_with_indices")(lambda w, x, *, dim: (w.reduce(extreme_op, x, (dim,)), where(w, x, dim=dim)))


_reduces("mean", "ReduceMean")
_finds("amax", "ReduceMax", "argmax", "ArgMax")
_finds("amin", "ReduceMin", "argmin", "ArgMin")


@row("any")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    count = w.reduce("ReduceSum", w.cast(w.cast(x, DType.BOOL), DType.I64), dims)
    return w.node("Greater", count, w.number(0, DType.I64))


@row("all")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    missing = w.reduce("ReduceSum", w.cast(w.node("Not", w.cast(x, DType.BOOL)), DType.I64), dims)
    return w.node("Equal", missing, w.number(0, DType.I64))


@row("var_mean")
def _spread(w: Writer, x: Wire, *, dims: Sequence[int], correction: int) -> tuple[Wire, Wire]:
    mean = w.reduce("ReduceMean", x, dims)
    centred = w.node("Sub", x, mean)
    degrees = w.count(x, dims) - correction
    if not isinstance(degrees, Size):
        degrees = max(degrees, 0)
    total = w.reduce("ReduceSum", w.node("Mul", centred, centred), dims)
    return w.node("Div", total, w.number(degrees, x.dtype)), mean


@row("var")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...], correction: int) -> Wire:
    return _spread(w, x, dims=dims, correction=correction)[0]


@row("logsumexp")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...]) -> Wire:
    if any(x.shape[i] == 0 for i in dims):
        return w.node("Log", w.reduce("ReduceSum", w.node("Exp", x), dims))
    top = w.reduce("ReduceMax", x, dims)
    endless = w.node("Equal", w.node("Abs", top), w.number(math.inf, x.dtype))
    top = w.node("Where", endless, w.number(0.0, x.dtype), top)  # inf - inf would be NaN
    return w.node("Add", w.node("Log", w.reduce("ReduceSum", w.node("Exp", w.node("Sub", x, top)), dims)), top)


# -- scans ---------------------------------------------------------------------------------------------------------
def _scans(name: str, op: str) -> None:
    def scan(w: Writer, x: Wire, *, dim: int) -> Wire:
        return x if x.ndim == 0 else _widely(w, x, lambda x: w.node(op, x, w.number(dim, DType.I64)))

    row(name)(scan)


_scans("cumsum", "CumSum")
_scans("cumprod", "CumProd")


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
