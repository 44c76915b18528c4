"""Rows that cut tensors into ranges and windows, and join them: slice, slice_assign, cat, split, pad, unfold."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import ALL, FLOAT
from burn_torch.core.errors import ConfigError
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import RuleFault, shape_fault
from burn_torch.ops.held_numbers import held
from burn_torch.ops.laws import Moves, Regions
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import elementwise, front_axis, same_dtype
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import flip
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.value import Primitive, Value

Ranges = tuple[tuple[int, int, int], ...]


# -- slice ------------------------------------------------------------------------------------------
def _slice_shape(x: TensorSpec, ranges: Ranges) -> Shape:
    faults = []
    if len(ranges) != x.ndim:
        faults.append(f"{len(ranges)} ranges for {x.ndim} axes")
    for i, (size, (start, end, step)) in enumerate(zip(x.shape, ranges, strict=False)):
        if not 0 <= start <= end <= size:
            faults.append(f"range {start}:{end} on axis {i} of size {size}")
        if step < 1:
            faults.append(f"step {step} on axis {i}")
    if faults:
        raise shape_fault(
            f"the ranges do not fit the tensor: {'; '.join(faults)}",
            expected="one (start, end, step) an axis with 0 <= start <= end <= size and step >= 1",
            mend="count from the front and cut at the size; slice in steps of 1 or more and flip to go backwards",
        )
    return tuple(-(-(end - start) // step) for start, end, step in ranges)


def _cut(call: Call) -> list[tuple[int, int, int, int]]:
    """(axis, start, end, step) of the axes that are not taken whole."""
    x = call.tensor(0)
    return [(i, *r) for i, r in enumerate(call.attrs["ranges"]) if r != (0, x.shape[i], 1)]


def _index(ranges: Ranges) -> tuple[builtins.slice, ...]:
    return tuple(builtins.slice(*r) for r in ranges)


def _torch_slice(call: Call) -> Primitive:
    cut = _cut(call)
    if not cut:
        return TorchCode("{0}")
    if len(cut) == 1 and cut[0][3] == 1:
        dim, start, end, _ = cut[0]
        length = end - start
        return TorchCode("{0}.narrow({dim}, {start}, {length})", dim=dim, start=start, length=length)
    index = _index(call.attrs["ranges"])
    return lambda x: x[index]


def _merged_slices(inner: Call, outer: Call, exact: bool) -> dict[str, Ranges]:
    ranges = []
    for (start, _, step), (first, end, stride) in zip(inner.attrs["ranges"], outer.attrs["ranges"], strict=True):
        count = -(-(end - first) // stride)
        begin = start + first * step if count else 0
        ranges.append((begin, begin + (count - 1) * step * stride + 1 if count else 0, step * stride))
    return {"ranges": tuple(ranges)}


@op(
    torch=PerCall(_torch_slice),
    numpy=lambda x, *, ranges: x[_index(ranges)],
    view=True,
    cost="cheap",
    same=lambda call: call.result is call.specs[0],
    merge=_merged_slices,
    laws=[
        Moves(lambda call, output, index: [i * r[2] + r[0] for i, r in zip(index, call.attrs["ranges"], strict=True)])
    ],
    samples=[
        sample(uniform(-1, 1, (5, 4)), ranges=((1, 3, 1), (0, 4, 1))),
        sample(uniform(-1, 1, (7, 4)), ranges=((1, 6, 2), (3, 4, 3))),
        sample(uniform(-1, 1, (3, 4)), ranges=((0, 3, 1), (2, 2, 1))),
        sample(uniform(-1, 1, (0, 4)), ranges=((0, 0, 1), (1, 3, 1))),
        sample(uniform(-1, 1, ()), ranges=()),
    ],
)
def slice(x: TensorSpec, *, ranges: tuple[tuple[int, int, int], ...]) -> TensorSpec:
    """The elements in a range of each axis: from start, below end, every step-th.

    Shapes: x (*s) -> the number of steps on each axis.  Dtypes: any.
    """
    return x.with_shape(_slice_shape(x, ranges))


@slice.gradient
def _(g, y, x, *, ranges):
    zeros_around = tuple((start, size - end) for size, (start, end, _) in zip(x.shape, ranges, strict=True))
    if all(step == 1 for _, _, step in ranges):
        return pad(g, 0.0, padding=zeros_around, mode="constant")
    return slice_assign(g.new_full(x.shape, 0.0), g, ranges=ranges)


def _torch_slice_assign(call: Call) -> Candidate:
    index = _index(call.attrs["ranges"])

    def run(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[index].copy_(values)
        return y

    return run


def _numpy_slice_assign(x: Array, values: Array, *, ranges: tuple[Primitive, ...]) -> Array:
    y = np.array(x)
    y[_index(ranges)] = values
    return y


def _assigned_parts(call: Call) -> list[tuple[int, list[tuple[Primitive, Primitive]]]] | None:
    """The values in their range, x around it; None where the range has steps."""
    ranges, x = call.attrs["ranges"], call.tensor(0)
    if any(step != 1 for _, _, step in ranges):
        return None
    return [(1, [(start, end - start) for start, end, _ in ranges]), (0, [(0, size) for size in x.shape])]


@op(
    torch=PerCall(_torch_slice_assign),
    numpy=_numpy_slice_assign,
    laws=[Regions(_assigned_parts)],
    samples=[
        sample(uniform(-1, 1, (5, 4)), uniform(-1, 1, (2, 4)), ranges=((1, 3, 1), (0, 4, 1))),
        sample(uniform(-1, 1, (7, 4)), uniform(-1, 1, (3, 1)), ranges=((1, 6, 2), (3, 4, 3))),
        sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (3, 0)), ranges=((0, 3, 1), (2, 2, 1))),
    ],
)
def slice_assign(x: TensorSpec, values: TensorSpec, *, ranges: tuple[tuple[int, int, int], ...]) -> TensorSpec:
    """x with other values in a range of each axis; see `slice`.

    Shapes: x (*s), values as slice(x, ranges) -> (*s).  Dtypes: any, both the same.
    """
    same_dtype(x, values)
    shape = _slice_shape(x, ranges)
    if values.shape != shape:
        raise shape_fault(
            "the values do not fill the range",
            expected=f"values {shape}, the shape of the range",
            mend="expand the values first; they are not broadcast in silence",
        )
    return x


@slice_assign.gradient
def _(g, y, x, values, *, ranges):
    return slice_assign(g, g.new_full(values.shape, 0.0), ranges=ranges), slice(g, ranges=ranges)


# -- cat -------------------------------------------------------------------------------------------------
def _joined_parts(call: Call) -> list[tuple[int, list[tuple[Primitive, Primitive]]]]:
    """Each part behind the one before it."""
    parts: list[tuple[int, list[tuple[Primitive, Primitive]]]] = []
    start: Any = 0
    for i, x in enumerate(call.specs):
        assert isinstance(x, TensorSpec)
        dim = call.attrs["dim"]
        parts.append((i, [(start if axis == dim else 0, size) for axis, size in enumerate(x.shape)]))
        start = start + x.shape[dim]
    return parts


@op(
    torch=PerCall(lambda call: TorchCode("cat(({all},), {dim})", cat=torch.cat, dim=call.attrs["dim"])),
    numpy=lambda *xs, dim: np.concatenate(xs, dim),
    laws=[Regions(_joined_parts)],
    samples=[
        sample(uniform(-1, 1, (2, 3)), uniform(-1, 1, (1, 3)), uniform(-1, 1, (4, 3)), dim=0),
        sample(uniform(-1, 1, (2, 3, 1)), uniform(-1, 1, (2, 0, 1)), uniform(-1, 1, (2, 2, 1)), dim=1),
        sample(uniform(-1, 1, (2, 0)), uniform(-1, 1, (2, 0)), dim=1),
        sample(uniform(-1, 1, (3,)), dim=0),
    ],
)
def cat(*xs: TensorSpec, dim: int) -> TensorSpec:
    """Tensors joined along an axis.

    Shapes: xs, equal but on `dim` -> the same with the sum of their sizes on `dim`.  Dtypes: any, all the same.
    """
    if not xs:
        raise shape_fault("no tensor was given", expected="one tensor or more", mend="leave the call out")
    first = xs[0]
    same_dtype(*xs)
    front_axis(dim, first.ndim)
    rest = (*first.shape[:dim], *first.shape[dim + 1 :])
    wrong = [
        f"xs[{i}] {x.shape}"
        for i, x in enumerate(xs)
        if x.ndim != first.ndim or (*x.shape[:dim], *x.shape[dim + 1 :]) != rest
    ]
    if wrong:
        raise shape_fault(
            f"{', '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not fit xs[0] {first.shape}",
            expected=f"shapes that are equal on every axis but {dim}",
            mend="pad or slice to equal sizes, or join along another axis",
        )
    return first.with_shape((*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]))


@cat.gradient
def _(g, y, *xs, dim):
    entries = []
    start = 0
    for x in xs:
        end = start + x.shape[dim]
        entries.append(slice(g, ranges=_along(g.shape, dim, start, end)))
        start = end
    return entries


def _along(shape: Shape, dim: int, start: int, end: int) -> Ranges:
    """A range on one axis, the others whole."""
    return tuple((start, end, 1) if i == dim else (0, size, 1) for i, size in enumerate(shape))


def narrow(x: Value, dim: int, start: int, end: int) -> Value:
    """The elements from start, below end, on one axis of a value."""
    return slice(x, ranges=_along(x.shape, dim, start, end))


# -- split -----------------------------------------------------------------------------------------------
def _numpy_split(x: Array, *, sizes: Shape, dim: int) -> tuple[Primitive, ...]:
    ends = np.cumsum(sizes[:-1], dtype=np.int64)
    return tuple(np.split(x, ends, dim))


def _part_from(call: Call, output: int, index: Sequence[object]) -> list[Primitive]:
    dim = call.attrs["dim"]
    return [i + builtins.sum(call.attrs["sizes"][:output]) if axis == dim else i for axis, i in enumerate(index)]


@op(
    torch=PerCall(lambda call: TorchCode("{0}.split({sizes}, {dim})", **call.attrs)),
    numpy=_numpy_split,
    view=True,
    cost="cheap",
    laws=[Moves(_part_from)],
    samples=[
        sample(uniform(-1, 1, (5, 3)), sizes=(1, 3, 1), dim=0),
        sample(uniform(-1, 1, (2, 4, 3)), sizes=(3, 0, 1), dim=1),
        sample(uniform(-1, 1, (4,)), sizes=(4,), dim=0),
        sample(uniform(-1, 1, (0, 3)), sizes=(2, 1), dim=1),
    ],
)
def split(x: TensorSpec, *, sizes: tuple[int, ...], dim: int) -> tuple[TensorSpec, ...]:
    """Consecutive parts of these sizes along an axis: the inverse of `cat`.

    Many slices would cost a padded gradient each, as large as x; the gradient of all parts is one `cat`.

    Shapes: x (..., sum(sizes), ...) -> for each size (..., size, ...).  Dtypes: any.
    PyTorch: torch.split with a list.
    """
    front_axis(dim, x.ndim)
    if not sizes or min(sizes) < 0 or sum(sizes) != x.shape[dim]:
        raise shape_fault(
            f"the parts do not make up axis {dim}",
            expected=f"sizes of 0 or more with sum {x.shape[dim]}",
            mend="let the last size take the rest",
        )
    return tuple(x.with_shape((*x.shape[:dim], size, *x.shape[dim + 1 :])) for size in sizes)


@split.gradient
def _(g, y, x, *, sizes, dim):
    present = [(i, part) for i, part in enumerate(g) if part is not None]
    if len(present) == 1:  # the state of one time step, say: zeros around it
        i, part = present[0]
        before, after = sum(sizes[:i]), sum(sizes[i + 1 :])
        around = tuple((before, after) if axis == dim else (0, 0) for axis in range(x.ndim))
        return pad(part, 0.0, padding=around, mode="constant")
    some = present[0][1]
    return cat(*[some.new_full(z.shape, 0.0) if part is None else part for part, z in zip(g, y, strict=True)], dim=dim)


# -- pad --------------------------------------------------------------------------------------------------
_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


def _torch_pad(call: Call) -> Candidate:
    x, padding, mode = call.tensor(0), call.attrs["padding"], call.attrs["mode"]
    if mode == "constant":
        flat = [count for pair in reversed(padding) for count in pair]
        return lambda x, value: torch.constant_pad_nd(x, flat, value)
    picks = []
    for dim, (before, after) in enumerate(padding):
        if before or after:
            positions = np.pad(np.arange(x.shape[dim]), (before, after), mode=mode)
            picks.append((dim, torch.from_numpy(positions).to(x.place)))

    def run(x: torch.Tensor, value: float) -> torch.Tensor:
        for dim, positions in picks:
            x = torch.index_select(x, dim, positions)
        return x if picks else x.clone()

    return run


def _numpy_pad(x: Array, value: float, *, padding: tuple[tuple[int, int], ...], mode: Any) -> Array:
    if mode == "constant":
        return np.pad(x, padding, constant_values=value) if padding else np.array(x)
    return np.pad(x, padding, mode=mode) if padding else np.array(x)


def _padded_parts(call: Call) -> list[tuple[int, list[tuple[Primitive, Primitive]]]] | None:
    """x, and the number around it; None where elements of x are repeated."""
    x, y = call.tensor(0), call.result
    assert isinstance(y, TensorSpec)
    if call.attrs["mode"] != "constant":
        return None
    inside = [(before, size) for (before, _), size in zip(call.attrs["padding"], x.shape, strict=True)]
    return [(0, inside), (1, [(0, size) for size in y.shape])]


@op(
    torch=held(PerCall(_torch_pad), stored=True),
    numpy=held(_numpy_pad, stored=True),
    laws=[Regions(_padded_parts)],
    samples=[
        sample(uniform(-1, 1, (2, 3)), 1.5, padding=((1, 0), (2, 3)), mode="constant"),
        sample(uniform(-1, 1, (0, 3)), 0.0, padding=((1, 1), (0, 0)), mode="constant"),
        sample(uniform(-1, 1, ()), 0.0, padding=(), mode="constant"),
        sample(uniform(-1, 1, (2, 4, 3)), 0.0, padding=((0, 0), (2, 3), (1, 0)), mode="reflect"),
        sample(uniform(-1, 1, (2, 4, 1)), 0.0, padding=((1, 0), (2, 5), (0, 3)), mode="edge"),
        sample(uniform(-1, 1, (3,)), 0.0, padding=((0, 0),), mode="edge"),
    ],
)
def pad(x: TensorSpec, value: Number, *, padding: tuple[tuple[int, int], ...], mode: str) -> TensorSpec:
    """Adds elements before and after each axis.

    mode "constant": the value; "reflect": the tensor mirrored at its first and last element, which are not repeated;
    "edge": the first and last element again.  The value is used by "constant" only and has no gradient.

    Shapes: x (*s) -> (*s + before + after).  Dtypes: any.
    PyTorch: torch.nn.functional.pad, whose "edge" is "replicate" and whose pairs begin at the last axis.
    """
    if mode not in _NUMPY_MODES:
        raise RuleFault(
            ConfigError, f"unknown mode {mode!r}", expected='"constant", "reflect" or "edge"', mend="name one of them"
        )
    faults = []
    if len(padding) != x.ndim:
        faults.append(f"{len(padding)} pairs for {x.ndim} axes")
    for i, (size, (before, after)) in enumerate(zip(x.shape, padding, strict=False)):
        most = max(before, after)
        if min(before, after) < 0:
            faults.append(f"negative padding {(before, after)} on axis {i}")
        elif mode == "reflect" and most and most >= size:
            faults.append(f"reflecting {most} elements on axis {i} of size {size}")
        elif mode == "edge" and most and not size:
            faults.append(f"no edge to repeat on axis {i} of size 0")
    if faults:
        raise shape_fault(
            f"the padding does not fit the tensor: {'; '.join(faults)}",
            expected="one (before, after) of 0 or more an axis"
            + (", each below the size of the axis" if mode == "reflect" else ""),
            mend="slice to cut elements off" if "negative" in "".join(faults) else "pad less, or in another mode",
        )
    if mode == "constant":
        elementwise(x, value, dtypes=ALL)
    return x.with_shape(tuple(size + sum(pair) for size, pair in zip(x.shape, padding, strict=True)))


@pad.gradient
def _(g, y, x, value, *, padding, mode):
    if mode == "constant":
        inner = tuple((before, before + size, 1) for size, (before, _) in zip(x.shape, padding, strict=True))
        return slice(g, ranges=inner), None
    for dim, (before, after) in enumerate(padding):
        if before or after:
            g = _fold_copies(g, dim, x.shape[dim], before, after, mode)
    return g, None


def _fold_copies(g: Value, dim: int, size: int, before: int, after: int, mode: str) -> Value:
    """Adds the gradient of the copies beside an axis to that of their originals.  Without atomics: deterministic."""
    total = narrow(g, dim, before, before + size)
    for copies, length, at_front in (
        (narrow(g, dim, 0, before), before, True),
        (narrow(g, dim, before + size, before + size + after), after, False),
    ):
        if not length:
            continue
        if mode == "reflect":
            folded, first = flip(copies, axes=(dim,)), 1 if at_front else size - 1 - length
        else:
            folded, first = ops.sum(copies, dims=(dim,)), 0 if at_front else size - 1
        last = first + folded.shape[dim]
        around = tuple((first, size - last) if i == dim else (0, 0) for i in range(g.ndim))
        total = total + pad(folded, 0.0, padding=around, mode="constant")
    return total


# -- unfold -----------------------------------------------------------------------------------------------
def _windows(shape: Shape, dim: int, size: int, step: int) -> Shape:
    front_axis(dim, len(shape))
    if size < 1 or step < 1 or size > shape[dim]:
        raise shape_fault(
            f"windows of {size} elements, one every {step}, do not fit an axis of size {shape[dim]}",
            expected=f"1 <= size <= {shape[dim]} and step >= 1",
            mend="pad the axis, or take smaller windows",
        )
    return (*shape[:dim], (shape[dim] - size) // step + 1, *shape[dim + 1 :], size)


def _numpy_unfold(x: Array, *, dim: int, size: int, step: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    return windows[(builtins.slice(None),) * dim + (builtins.slice(None, None, step),)]


_WINDOWS = [((7,), 0, 3, 2), ((2, 5, 3), 1, 2, 1), ((6, 2), 0, 2, 3), ((3, 4), 1, 4, 1), ((0, 4), 1, 2, 1)]


@op(
    torch=PerCall(lambda call: lambda x, a=(call.attrs["dim"], call.attrs["size"], call.attrs["step"]): x.unfold(*a)),
    numpy=_numpy_unfold,
    view=True,
    cost="cheap",
    samples=[sample(uniform(-1, 1, shape), dim=dim, size=size, step=step) for shape, dim, size, step in _WINDOWS],
)
def unfold(x: TensorSpec, *, dim: int, size: int, step: int) -> TensorSpec:
    """Windows of `size` elements along an axis, one every `step`; each is a row of a new last axis.

    Shapes: x (*pre, n, *post) -> (*pre, windows, *post, size), windows = (n - size) // step + 1.  Dtypes: any.
    PyTorch: torch.Tensor.unfold.
    """
    return x.with_shape(_windows(x.shape, dim, size, step))


@unfold.gradient
def _(g, y, x, *, dim, size, step):
    return unfold_backward(g, shape=x.shape, dim=dim, size=size, step=step)


def _numpy_unfold_backward(g: Array, *, shape: Shape, dim: int, size: int, step: int) -> Array:
    x = np.zeros(shape, g.dtype)
    count = g.shape[dim]
    for i in range(size):  # the windows' i-th elements lie `step` apart: no two of them meet
        reach = builtins.slice(i, i + step * (count - 1) + 1, step)
        x[(builtins.slice(None),) * dim + (reach,)] += g[..., i]
    return x


@op(
    torch=lambda g, *, shape, dim, size, step: torch.ops.aten.unfold_backward(g, shape, dim, size, step),
    numpy=_numpy_unfold_backward,
    samples=[
        sample(uniform(-1, 1, _windows(shape, dim, size, step)), shape=shape, dim=dim, size=size, step=step)
        for shape, dim, size, step in _WINDOWS
    ],
)
def unfold_backward(g: TensorSpec, *, shape: Shape, dim: int, size: int, step: int) -> TensorSpec:
    """The transpose of `unfold`: adds each element of a window to the place it was taken from.

    Shapes: g as unfold of shape -> shape.  Dtypes: float in, the same float out.  Each sum is made by one thread, in
    the order of the windows: deterministic.
    """
    g.require(FLOAT)
    windows = _windows(shape, dim, size, step)
    if g.shape != windows:
        raise shape_fault(
            f"the windows do not come from a tensor {shape}",
            expected=f"g {windows}, {math.prod(windows)} elements",
            mend="give the shape that was unfolded",
        )
    return g.with_shape(shape)


@unfold_backward.gradient
def _(h, z, g, *, shape, dim, size, step):
    return unfold(h, dim=dim, size=size, step=step)
