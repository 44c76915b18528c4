"""Shapes: views, slices, joins, padding, and tensors that are made of nothing."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Length, Shape, Size
from burn_torch.onnx.exporting.writer import Cannot, Number, Wire, Writer
from burn_torch.onnx.rows.registry import row

LAST: Final = (1 << 63) - 1
"""An end beyond every axis."""


@row("reshape")
def _(w: Writer, x: Wire, *, shape: Shape) -> Wire:
    return w.reshape(x, shape)


@row("permute")
def _(w: Writer, x: Wire, *, axes: tuple[int, ...]) -> Wire:
    return w.permute(x, axes)


@row("expand")
def _(w: Writer, x: Wire, *, shape: Shape) -> Wire:
    return w.expand(x, shape)


@row("flip")
def _(w: Writer, x: Wire, *, axes: tuple[int, ...]) -> Wire:
    if not axes:
        return x
    n = len(axes)
    return w.node("Slice", x, w.ints([-1] * n), w.ints([-LAST] * n), w.ints(list(axes)), w.ints([-1] * n))


@row("roll")
def _(w: Writer, x: Wire, *, shifts: Shape, dims: tuple[int, ...]) -> Wire:
    y: Wire = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        by = w.fixed(shift, "the shift") if isinstance(size, Size) else w.fixed(shift, "the shift") % max(size, 1)
        if isinstance(size, Size) and not -min(size.values) <= by <= min(size.values):
            raise Cannot("a shift beyond the size of a dynamic axis")
        if by:
            y = w.node("Concat", w.cut(y, dim, -by, LAST), w.cut(y, dim, 0, -by), axis=dim)
    return y


@row("repeat")
def _(w: Writer, x: Wire, *, times: Shape) -> Wire:
    return w.node("Tile", x, w.ints(times)) if times else x


def triangle(w: Writer, x: Wire, *, diagonal: Length, upper: bool) -> Wire:
    """x on one side of a diagonal, else 0."""
    rows, columns = x.shape[-2:]
    kept = beyond(w, rows, columns, diagonal if upper else diagonal + 1)
    if not upper:
        kept = w.node("Not", kept)
    return w.node("Where", kept, x, w.number(0, x.dtype))


row("triu")(partial(triangle, upper=True))
row("tril")(partial(triangle, upper=False))


def beyond(w: Writer, rows: Length, columns: Length, diagonal: Length) -> Wire:
    """For each element of a matrix: whether column - row >= diagonal."""
    down, across = w.unsqueeze(w.range(rows), [1]), w.range(columns)
    least = w.number(diagonal, DType.I64)
    return w.node("GreaterOrEqual", w.node("Sub", across, down), least)


# -- parts ---------------------------------------------------------------------------------------------------------
def _bounds(w: Writer, size: Length, start: Length, end: Length) -> tuple[Length, Length]:
    """A range as ONNX is told it: counted from the end where that is constant and the count from the front is not."""
    if end == size:
        end = LAST
    elif isinstance(end, Size) and not isinstance(end - size, Size):
        end = end - size
    if isinstance(start, Size) and not isinstance(start - size, Size):
        begin = start - size
        start = begin if begin != 0 else LAST
    return start, end


@row("slice")
def _(w: Writer, x: Wire, *, ranges: tuple[tuple[Length, Length, int], ...]) -> Wire:
    cut = [(i, *r) for i, r in enumerate(ranges) if r != (0, x.shape[i], 1)]
    if not cut:
        return x
    bounds = [_bounds(w, x.shape[i], start, end) for i, start, end, _ in cut]
    return w.node(
        "Slice",
        x,
        w.ints([start for start, _ in bounds]),
        w.ints([end for _, end in bounds]),
        w.ints([i for i, *_ in cut]),
        w.ints([step for *_, step in cut]),
    )


@row("slice_assign")
def _(w: Writer, x: Wire, values: Wire, *, ranges: tuple[tuple[Length, Length, int], ...]) -> Wire:
    cut = [(i, *r) for i, r in enumerate(ranges) if r != (0, x.shape[i], 1)]
    if 0 in values.shape:
        return x
    return _assign(w, x, x.shape, values, cut) if cut else values


def _assign(w: Writer, x: Wire, shape: Shape, values: Wire, cut: list[tuple[int, Length, Length, int]]) -> Wire:
    """x with values in the ranges of some axes: what lies before, the range itself, what lies after."""
    (axis, start, end, step), *rest = cut
    size = shape[axis]
    begin, stop = _bounds(w, size, start, end)

    def ends(first: Length, last: Length, by: int = 1) -> Wire:
        return w.node("Slice", x, w.ints([first]), w.ints([last]), w.ints([axis]), w.ints([by]))

    inner = values
    if rest:
        taken = -(-(w.fixed(end, "a range") - w.fixed(start, "a range")) // step) if step != 1 else end - start
        inner = _assign(w, ends(begin, stop, step), (*shape[:axis], taken, *shape[axis + 1 :]), values, rest)
    if step != 1:
        numbers = np.arange(w.fixed(start, "a range"), w.fixed(end, "a range"), step)
        return _along(w, x, numbers, inner, axis, len(shape))
    parts = [inner]
    if start != 0:
        parts.insert(0, ends(0, begin))
    if end != size:
        parts.append(ends(stop, LAST))
    return w.node("Concat", *parts, axis=axis) if len(parts) > 1 else inner


def _along(w: Writer, x: Wire, numbers: Any, values: Wire, axis: int, ndim: int) -> Wire:
    """x with values at these places of one axis."""
    shape = [-1 if i == axis else 1 for i in range(ndim)]
    places = w.node("Expand", w.array(numbers.reshape(shape), DType.I64), w.node("Shape", values))
    return w.node("ScatterElements", x, places, values, axis=axis)


@row("cat")
def _(w: Writer, *xs: Wire, dim: int) -> Wire:
    return xs[0] if len(xs) == 1 else w.node("Concat", *xs, axis=dim)


@row("split")
def _(w: Writer, x: Wire, *, sizes: Shape, dim: int) -> tuple[Wire, ...]:
    if len(sizes) == 1:
        return (x,)
    return w.node("Split", x, w.ints(sizes), outputs=len(sizes), axis=dim)


@row("pad")
def _(w: Writer, x: Wire, value: Number, *, padding: tuple[tuple[Length, Length], ...], mode: str) -> Wire:
    if not padding:
        return x
    amounts = w.ints([before for before, _ in padding] + [after for _, after in padding])
    return w.node("Pad", x, amounts, w.number(value, x.dtype) if mode == "constant" else None, mode=mode)


@row("unfold")
def _(w: Writer, x: Wire, *, dim: int, size: Length, step: int) -> Wire:
    width = w.fixed(size, "the size of a window")
    starts = x.shape[dim] - width + 1
    if isinstance(starts, Size):
        begin, by = w.number(0, DType.I64), w.number(step, DType.I64)
        each = w.node("Range", begin, w.number(starts, DType.I64), by)
        places = w.node("Add", w.unsqueeze(each, [1]), w.array(np.arange(width), DType.I64))
    else:
        places = w.array(np.arange(0, starts, step)[:, None] + np.arange(width), DType.I64)
    taken = w.node("Gather", x, places, axis=dim)
    order = [*range(dim + 1), *range(dim + 2, x.ndim + 1), dim + 1]
    return w.node("Transpose", taken, perm=order)


# -- made of nothing --------------------------------------------------------------------------------------------------
@row("full")
def _(w: Writer, value: Number, *, shape: Shape, dtype: DType, place: str) -> Wire:
    known = isinstance(value, int | float)
    if known and shape == ():
        return w.number(value, dtype)
    return w.node("Expand", w.number(value, dtype), w.ints(shape))


@row("arange")
def _(w: Writer, start: Number, step: Number, *, length: Length, dtype: DType, place: str) -> Wire:
    numbers = isinstance(start, int | float) and isinstance(step, int | float)
    if numbers and not isinstance(length, Size) and length <= 4096:
        wide = np.float64 if dtype.is_float else np.int64
        return w.array((np.arange(length) * step + start).astype(wide), dtype)  # type: ignore[operator]  # they are numbers
    counted = w.cast(w.range(length), dtype)
    y = counted if step == 1 else w.node("Mul", counted, w.number(step, dtype))
    return y if start == 0 else w.node("Add", y, w.number(start, dtype))


@row("eye")
def _(w: Writer, *, size: Length, dtype: DType, place: str) -> Wire:
    down, across = w.unsqueeze(w.range(size), [1]), w.range(size)
    return w.cast(w.node("Equal", down, across), dtype)
