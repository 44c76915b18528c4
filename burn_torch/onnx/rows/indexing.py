"""Indices: gathering and scattering, embeddings, one-hot vectors."""

from __future__ import annotations

from typing import Final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Length
from burn_torch.onnx.exporting.writer import Cannot, Number, Wire, Writer
from burn_torch.onnx.rows.registry import row

REDUCTIONS: Final = {"add": 16, "mul": 16, "min": 18, "max": 18}
"""From which opset on ONNX has an update, under the same word."""


def reduction(w: Writer, update: str) -> str | None:
    """ONNX's word for an update.  Raises: Cannot where the opset has none."""
    if update == "assign":
        return None
    if w.opset < REDUCTIONS[update]:
        raise Cannot(f"an update by {update} needs opset {REDUCTIONS[update]}")
    return update


def places(w: Writer, indices: Wire) -> Wire:
    """Indices in an element type that ONNX takes."""
    return indices if indices.dtype in (DType.I64, DType.I32) else w.cast(indices, DType.I64)


@row("select")
def _(w: Writer, x: Wire, indices: Wire, *, dim: int) -> Wire:
    return w.node("Gather", x, places(w, indices), axis=dim)


@row("embedding")
def _(w: Writer, weight: Wire, indices: Wire) -> Wire:
    return w.node("Gather", weight, places(w, indices), axis=0)


@row("gather")
def _(w: Writer, x: Wire, indices: Wire, *, dim: int) -> Wire:
    return w.node("GatherElements", x, places(w, indices), axis=dim)


@row("gather_nd")
def _(w: Writer, x: Wire, indices: Wire) -> Wire:
    return w.node("GatherND", x, w.cast(indices, DType.I64))


@row("one_hot")
def _(w: Writer, indices: Wire, on: Number, off: Number, *, num_classes: Length, axis: int, dtype: DType) -> Wire:
    wide = DType.F32 if dtype.is_float else DType.I64  # what runtimes have a kernel for
    exact = dtype in (DType.F32, DType.I64) or not dtype.is_float
    choice = [w.number(x, wide) for x in ((off, on) if exact else (0.0, 1.0))]
    values = w.node("Concat", *(w.unsqueeze(x, [0]) for x in choice), axis=0)
    where = w.cast(indices, DType.I64)
    if indices.ndim == 0:
        where = w.unsqueeze(where, [0])
    y = w.node("OneHot", where, w.length(num_classes), values, axis=axis)
    if indices.ndim == 0:
        y = w.node("Squeeze", y, w.ints([1 if axis == 0 else 0]))
    if exact:
        return w.cast(y, dtype)
    return w.node("Where", w.cast(y, DType.BOOL), w.number(on, dtype), w.number(off, dtype))


@row("scatter")
def _(w: Writer, x: Wire, indices: Wire, values: Wire, *, dim: int, update: str) -> Wire:
    return w.node("ScatterElements", x, places(w, indices), values, axis=dim, reduction=reduction(w, update))


@row("scatter_distinct")
def _(w: Writer, indices: Wire, values: Wire, *, dim: int, size: Length) -> Wire:
    shape = (*values.shape[:dim], size, *values.shape[dim + 1 :])
    blank = w.node("Expand", w.number(0.0 if values.dtype.is_float else 0, values.dtype), w.ints(shape))
    return w.node("ScatterElements", blank, places(w, indices), values, axis=dim)


@row("select_assign")
def _(w: Writer, x: Wire, indices: Wire, values: Wire, *, dim: int, update: str) -> Wire:
    beside = w.unsqueeze(places(w, indices), [i for i in range(x.ndim) if i != dim])
    everywhere = w.node("Expand", beside, w.ints(values.shape))
    return w.node("ScatterElements", x, everywhere, values, axis=dim, reduction=reduction(w, update))


@row("scatter_nd")
def _(w: Writer, x: Wire, indices: Wire, values: Wire, *, update: str) -> Wire:
    return w.node("ScatterND", x, w.cast(indices, DType.I64), values, reduction=reduction(w, update))


def _diagonal_places(w: Writer, x: Wire, offset: int, dims: tuple[int, int]) -> tuple[list[int], Wire]:
    """The axes of x with rows and columns last, and where the diagonal lies when those two are one axis."""
    rows, columns = (w.fixed(x.shape[dim], "an axis of a diagonal") for dim in dims)
    places = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    return [*(i for i in range(x.ndim) if i not in dims), *dims], w.array(places.copy(), DType.I64)


def _with_one_axis(w: Writer, x: Wire, order: list[int]) -> Wire:
    shape = [x.shape[i] for i in order]
    return w.reshape(w.permute(x, order), (*shape[:-2], shape[-2] * shape[-1]))


@row("diagonal")
def _(w: Writer, x: Wire, *, offset: int, dims: tuple[int, int]) -> Wire:
    order, places = _diagonal_places(w, x, offset, dims)
    return w.node("Gather", _with_one_axis(w, x, order), places, axis=x.ndim - 2)


@row("diagonal_assign")
def _(w: Writer, x: Wire, values: Wire, *, offset: int, dims: tuple[int, int]) -> Wire:
    order, places = _diagonal_places(w, x, offset, dims)
    everywhere = w.node("Expand", places, w.ints(values.shape))
    flat = _with_one_axis(w, x, order)
    assigned = w.node("ScatterElements", flat, everywhere, values, axis=x.ndim - 2)
    apart = w.reshape(Wire(assigned, x.dtype, flat.shape), tuple(x.shape[i] for i in order))
    return w.permute(apart, [order.index(i) for i in range(x.ndim)])


@row("linear_index")
def _(w: Writer, indices: Wire, *, sizes: tuple[Length, ...]) -> Wire:
    fixed = [w.fixed(size, "the size of an indexed axis") for size in sizes]
    strides = np.cumprod([1, *fixed[:0:-1]])[::-1]
    whole = w.node("Mul", w.cast(indices, DType.I64), w.array(strides.copy(), DType.I64))
    total = w.node("ReduceSum", whole, w.ints([indices.ndim - 1]), keepdims=0)
    return w.node("Reshape", total, w.ints([-1]))
