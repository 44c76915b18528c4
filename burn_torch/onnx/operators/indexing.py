"""Operators that read and write at indices: Gather, ScatterND, TopK, OneHot, NonZero, Unique, ..."""

from __future__ import annotations

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import axis_of, ints, malformed, misfit, reshaped, squeezed
from burn_torch.onnx.operators.registry import Host, earlier, operator
from burn_torch.ops.op import Op
from burn_torch.tensor import Tensor

__all__ = [
    "compress", "gather", "gather_elements", "gather_nd", "nonzero", "one_hot", "reverse_sequence", "scatter",
    "scatter_elements", "scatter_nd", "tensor_scatter", "topk", "topk_1", "topk_10", "unique",
]  # fmt: skip


def _wrap(indices: Tensor, size: int) -> Tensor:
    """Indices counted from the front; negative ones count from the end."""
    wide = indices.cast(DType.I64)
    return wide.mask_where(wide.lower(0), wide + size)


# -- reading ------------------------------------------------------------------------------------------------
@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """The entries at indices along an axis, whose place the axes of the indices take."""
    at = axis_of(axis, x.ndim)
    flat = _wrap(reshaped(indices, (indices.num_elements(),)), x.shape[at])
    return reshaped(ops.select(x, flat, dim=at), (*x.shape[:at], *indices.shape, *x.shape[at + 1 :]))


@operator("GatherElements", 11)
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """The element that each index names along an axis, at its own place on the others."""
    at = axis_of(axis, x.ndim)
    return ops.gather(x, _wrap(indices, x.shape[at]), dim=at)


def _places(indices: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Entries of several indices, counted from the front."""
    wide = indices.cast(DType.I64)
    total = Tensor.from_data(np.array(sizes, np.int64), indices.device)
    return wide.mask_where(wide.lower(0), wide + total)


@operator("GatherND", 11)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """The slices of x that entries of indices name on its axes after the first `batch_dims`, which run along."""
    k = indices.shape[-1]
    places = _places(indices, x.shape[batch_dims : batch_dims + k])
    if batch_dims:
        lead = indices.shape[:-1]
        grid = np.indices(lead, np.int64)[:batch_dims]
        before = Tensor.from_data(np.moveaxis(grid, 0, -1), x.device)
        places = Tensor.cat([before, places], len(lead))
    return ops.gather_nd(x, places)


# -- writing -------------------------------------------------------------------------------------------------
_UPDATES = {"none": "assign", "add": "add", "mul": "mul", "max": "max", "min": "min"}


_OF_TRUTHS = {"add": "max", "mul": "min"}
"""A sum of truths is "or", a product "and"."""


def _join_updates(row: Op, x: Tensor, places: Tensor, updates: Tensor, reduction: str, **more: int) -> Tensor:
    """x with the updates written at places by a row that scatters."""
    if x.dtype is DType.BOOL and reduction != "none":
        numbers, kind = (x.cast(DType.I32), updates.cast(DType.I32)), _OF_TRUTHS.get(reduction, reduction)
        return _join_updates(row, numbers[0], places, numbers[1], kind, **more).cast(DType.BOOL)
    if reduction not in _UPDATES:
        raise malformed("no such reduction", given=repr(reduction), expected=", ".join(_UPDATES))
    return row(x, places, updates, update=_UPDATES[reduction], **more)


@operator("ScatterElements", 11)
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    """x with elements put at indices along an axis, or joined with what is there."""
    at = axis_of(axis, x.ndim)
    return _join_updates(ops.scatter, x, _wrap(indices, x.shape[at]), updates, reduction, dim=at)


_PUT = "x with elements put at indices along an axis."
scatter = earlier(scatter_elements, "scatter", 9, 10, lacks=["reduction"], op="Scatter", what=_PUT)


@operator("ScatterND", 11)
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """x with slices put where entries of indices say, or joined with what is there."""
    places = _places(indices, x.shape[: indices.shape[-1]])
    return _join_updates(ops.scatter_nd, x, places, updates, reduction)


@operator("TensorScatter", 24)
def tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Host | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """A cache with an update written into each sample along an axis, from an index on; `circular` wraps around."""
    at = axis_of(axis, past.ndim)
    starts = np.zeros(past.shape[0], np.int64) if write_indices is None else np.asarray(write_indices, np.int64)
    steps = starts.reshape(-1, 1) + np.arange(update.shape[at])
    if mode == "circular":
        steps %= past.shape[at]
    index = steps.reshape(past.shape[0], *(update.shape[at] if i == at else 1 for i in range(1, past.ndim)))
    places = Tensor.from_data(np.ascontiguousarray(np.broadcast_to(index, update.shape)), past.device)
    return ops.scatter(past, places, update, dim=at, update="assign")


# -- order -------------------------------------------------------------------------------------------------------
@operator("TopK", 11)
def topk(x: Tensor, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis in order, and where each was.

    Sorting is stable, so the first of equal elements comes first.
    """
    at, count = axis_of(axis, x.ndim), ints(k)[0]
    if not 0 <= count <= (x.shape[at] if x.ndim else 1):
        raise misfit(
            "TopK: there are not that many elements",
            given=f"k {count} on axis {at} of {x.shape}",
            expected="k of at most the size of the axis",
        )
    values, indices = ops.sort_with_indices(x, dim=at, descending=bool(largest))
    return values.narrow(at, 0, count), indices.narrow(at, 0, count)


_LARGEST = "The k largest elements along an axis in order, and where each was."
topk_10 = earlier(topk, "topk_10", 10, 10, lacks=["largest", "sorted"], what=_LARGEST)
topk_1 = earlier(topk, "topk_1", 1, 9, attributes=["k"], lacks=["largest", "sorted"], what=_LARGEST)


@operator("Unique", 11)
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The different elements, or slices along an axis: them, where each is first, which each was, how often."""
    y, first, inverse, counts = x.unique_with_counts(axis)
    inverse = inverse.flatten()
    if not sorted:  # in the order in which they are met
        order = first.argsort(0)
        y = y.select(0 if axis is None else axis, order)
        first, counts = first.select(0, order), counts.select(0, order)
        inverse = order.argsort(0).select(0, inverse)
    return y, first, inverse, counts


# -- masks --------------------------------------------------------------------------------------------------------
@operator("NonZero", 9)
def nonzero(x: Tensor) -> Tensor:
    """The places of elements that are not zero, one a column."""
    places: Tensor = ops.nonzero(x if x.ndim else reshaped(x, (1,)))
    return places.transpose()


@operator("Compress", 9)
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The slices along an axis (or the elements) for which the condition holds."""
    flat = reshaped(x, (x.num_elements(),)) if axis is None else x
    at = 0 if axis is None else axis_of(axis, x.ndim)
    chosen = squeezed(ops.nonzero(condition), (1,))
    return ops.select(flat, chosen, dim=at)


@operator("OneHot", 9)
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    """values[1] at each index along a new axis, values[0] elsewhere; an index out of range has none."""
    classes = int(depth.reshape(-1)[0])
    at = axis_of(axis, indices.ndim + 1)
    wide = indices.cast(DType.I64)
    wide = wide.mask_where(wide.lower(0), wide + classes)
    count = Tensor.from_data(np.arange(classes, dtype=np.int64), indices.device)
    count = reshaped(count, (classes, *(1,) * (indices.ndim - at)))
    hit = reshaped(wide, (*wide.shape[:at], 1, *wide.shape[at:])).equal(count)
    off, on = (reshaped(values.narrow(0, i, 1), ()) for i in (0, 1))
    return ops.mask_where(off, hit, on)


@operator("ReverseSequence", 10)
def reverse_sequence(x: Tensor, sequence_lens: Host, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Each sample of a batch with its first steps, as many as its length says, in reverse order."""
    steps, batch = x.shape[time_axis], x.shape[batch_axis]
    at = np.arange(steps)[:, None]
    lengths = sequence_lens.reshape(1, batch)
    index = np.where(at < lengths, lengths - 1 - at, at)
    index = index if time_axis == 0 else index.T
    places = np.broadcast_to(index.reshape(*index.shape, *(1,) * (x.ndim - 2)), x.shape)
    return ops.gather(x, Tensor.from_data(np.ascontiguousarray(places, np.int64), x.device), dim=time_axis)
