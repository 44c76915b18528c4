"""Rows that put the elements of one tensor into another order or shape, and compute none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Copies, Moves, Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import broadcast_shapes, front_axes, front_axis, sum_to
from burn_torch.ops.samples import sample, uniform
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.value import Primitive


# -- views ------------------------------------------------------------------------------------------
def _torch_reshape(call: Call) -> Primitive:
    shape = call.attrs["shape"]
    return TorchCode("{0}.reshape({*shape})" if shape else "{0}.reshape({shape})", shape=shape)


def _torch_permute(call: Call) -> Primitive:
    axes = call.attrs["axes"]
    n = len(axes)
    if n >= 2 and axes == (*range(n - 2), n - 1, n - 2):
        return TorchCode("{0}.mT")  # 0.6 us, permute((1, 0)) takes 1.3
    return TorchCode("{0}.permute({*axes})" if axes else "{0}.permute({axes})", axes=axes)


def _torch_expand(call: Call) -> Primitive:
    shape = call.attrs["shape"]
    return TorchCode("{0}.expand({*shape})" if shape else "{0}.expand({shape})", shape=shape)


def _merged_reshapes(inner: Call, outer: Call, exact: bool) -> Mapping[str, Any] | None:
    # a reshape that joins axes may copy, and the copy lies in memory as the input does not
    x = inner.tensor(0)
    return outer.attrs if not exact or _only_splits(x.shape, inner.attrs["shape"]) else None


def _only_splits(shape: Shape, parts: Shape) -> bool:
    left = [size for size in parts if size != 1]
    for size in shape:
        while size > 1 and left and size % left[0] == 0:
            size //= left.pop(0)
        if size != 1:
            return False
    return not left


# where an element comes from; see `laws.Moves`
def _reshaped_from(call: Call, output: int, index: Sequence[object]) -> list[Primitive]:
    flat: Primitive = 0
    for i, size in zip(index, call.attrs["shape"], strict=True):
        flat = i + flat * size
    source: list[Primitive] = []
    for size in reversed(call.tensor(0).shape):
        source.append(flat % max(size, 1))
        flat = flat // max(size, 1)
    return source[::-1]


def _permuted_from(call: Call, output: int, index: Sequence[object]) -> list[Primitive]:
    axes = call.attrs["axes"]
    return [index[axes.index(i)] for i in range(len(axes))]


def _expanded_from(call: Call, output: int, index: Sequence[Primitive]) -> list[Primitive]:
    shape = call.tensor(0).shape
    aligned = index[len(index) - len(shape) :]
    return [i if size != 1 else i * 0 for i, size in zip(aligned, shape, strict=True)]


def _flipped_from(call: Call, output: int, index: Sequence[Primitive]) -> list[Primitive]:
    shape, axes = call.tensor(0).shape, front_axes(call.attrs["axes"], len(index))
    return [i * -1 + (shape[axis] - 1) if axis in axes else i for axis, i in enumerate(index)]


def _rolled_from(call: Call, output: int, index: Sequence[object]) -> list[Primitive]:
    source = list(index)
    for shift, dim in zip(call.attrs["shifts"], call.attrs["dims"], strict=True):
        size = max(call.tensor(0).shape[dim], 1)
        source[dim] = (source[dim] + (-shift) % size) % size
    return source


@op(
    torch=PerCall(_torch_reshape),
    numpy=lambda x, *, shape: np.reshape(x, shape),
    view=True,
    cost="cheap",
    same=lambda call: call.result is call.specs[0],
    merge=_merged_reshapes,
    packed="input",
    laws=[Moves(_reshaped_from, tight=True, ordered=True)],
    samples=[
        sample(uniform(-1, 1, (3, 4)), shape=(2, 6)),
        sample(uniform(-1, 1, (0, 4)), shape=(2, 0)),
        sample(uniform(-1, 1, ()), shape=(1, 1)),
    ],
)
def reshape(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    """The same elements in row-major order under another shape, which has no -1 here.

    Shapes: x (*s) -> shape, with as many elements.  Dtypes: any.
    """
    if math.prod(shape) != x.numel or any(size < 0 for size in shape):
        raise shape_fault(
            f"{x.numel} elements do not fill {shape}",
            expected=f"sizes whose product is {x.numel}",
            mend="use -1 for one size to have it worked out",
        )
    return x.with_shape(shape)


@reshape.gradient
def _(g, y, x, *, shape):
    return reshape(g, shape=x.shape)


@op(
    torch=PerCall(_torch_permute),
    numpy=lambda x, *, axes: np.transpose(x, axes),
    view=True,
    cost="cheap",
    same=lambda call: call.attrs["axes"] == tuple(range(len(call.attrs["axes"]))),
    merge=lambda inner, outer, exact: {"axes": tuple(inner.attrs["axes"][i] for i in outer.attrs["axes"])},
    packed="order",
    laws=[Moves(_permuted_from, axes=lambda call: call.attrs["axes"])],
    samples=[
        sample(uniform(-1, 1, (2, 3, 4)), axes=(2, 0, 1)),
        sample(uniform(-1, 1, (2, 0)), axes=(1, 0)),
        sample(uniform(-1, 1, ()), axes=()),
    ],
)
def permute(x: TensorSpec, *, axes: tuple[int, ...]) -> TensorSpec:
    """Axes in another order: axis i of the result is axis axes[i] of x.

    Shapes: x (s0, s1, ...) -> (s[axes[0]], s[axes[1]], ...).  Dtypes: any.
    """
    if sorted(axes) != list(range(x.ndim)):
        raise shape_fault(
            f"axes {axes} are no order of {x.ndim} axes",
            expected=f"each of 0 to {x.ndim - 1} once" if x.ndim else "no axes",
            mend="name every axis once",
        )
    return x.with_shape(tuple(x.shape[i] for i in axes))


@permute.gradient
def _(g, y, x, *, axes):
    return permute(g, axes=tuple(axes.index(i) for i in range(len(axes))))


@op(
    torch=PerCall(_torch_expand),
    numpy=lambda x, *, shape: np.broadcast_to(x, shape),
    view=True,
    cost="cheap",
    same=lambda call: call.result is call.specs[0],
    merge=lambda inner, outer, exact: outer.attrs,
    laws=[Moves(_expanded_from)],
    samples=[
        sample(uniform(-1, 1, (3, 1)), shape=(2, 3, 4)),
        sample(uniform(-1, 1, ()), shape=(2, 0)),
        sample(uniform(-1, 1, (1, 0, 2)), shape=(3, 0, 2)),
        sample(uniform(-1, 1, ()), shape=()),
    ],
)
def expand(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    """Repeats axes of size 1 without copying.

    Shapes: x (*s) -> shape, to which s broadcasts.  Dtypes: any.
    """
    if any(size < 0 for size in shape) or broadcast_shapes(x.shape, shape) != shape:
        raise shape_fault(
            f"{x.shape} does not expand to {shape}",
            expected="axes of size 1 where sizes differ, or new axes in front",
            mend="insert axes with unsqueeze_dim first, or use repeat to copy longer axes",
        )
    return x.with_shape(shape)


@expand.gradient
def _(g, y, x, *, shape):
    return sum_to(g, x)


# -- copies ----------------------------------------------------------------------------------------------
@op(
    torch=torch.clone,
    numpy=partial(np.array, order="K"),
    pointwise="{0}",
    cost="cheap",
    laws=[Copies()],
    samples=[uniform(-1, 1, (2, 3)), uniform(-1, 1, ()), uniform(-1, 1, (0, 2))],
)
def clone(x: TensorSpec) -> TensorSpec:
    """The same values in memory of their own.

    Shapes: x (*s) -> (*s).  Dtypes: any.
    """
    return x


@clone.gradient
def _(g, y, x):
    return g


@op(
    torch=PerCall(lambda call: partial(torch.flip, dims=call.attrs["axes"])),
    numpy=lambda x, *, axes: np.array(np.flip(x, axes)),
    cost="cheap",
    same=lambda call: not call.attrs["axes"],
    merge=lambda inner, outer, exact: {"axes": tuple(sorted(set(inner.attrs["axes"]) ^ set(outer.attrs["axes"])))},
    packed="follows",
    laws=[Moves(_flipped_from, tight=True), Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (2, 3, 4)), axes=(0, 2)),
        sample(uniform(-1, 1, (3, 0)), axes=(1,)),
        sample(uniform(-1, 1, (3,)), axes=()),
        sample(uniform(-1, 1, ()), axes=()),
    ],
)
def flip(x: TensorSpec, *, axes: tuple[int, ...]) -> TensorSpec:
    """Elements in reverse order along some axes.

    Shapes: x (*s) -> (*s).  Dtypes: any.
    """
    front_axes(axes, x.ndim)
    return x


@flip.gradient
def _(g, y, x, *, axes):
    return flip(g, axes=axes)


def _torch_roll(call: Call) -> Candidate:
    shifts, dims = call.attrs["shifts"], call.attrs["dims"]
    if not dims:  # torch reads an empty list as "all elements in one line"
        return torch.clone
    return partial(torch.roll, shifts=shifts, dims=dims)


@op(
    torch=PerCall(_torch_roll),
    numpy=lambda x, *, shifts, dims: np.roll(x, shifts, dims) if dims else np.array(x),
    cost="cheap",
    laws=[Moves(_rolled_from, tight=True), Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (3, 4)), shifts=(1,), dims=(0,)),
        sample(uniform(-1, 1, (2, 3, 4)), shifts=(-2, 7), dims=(2, 1)),
        sample(uniform(-1, 1, (5,)), shifts=(1, 2), dims=(0, 0)),
        sample(uniform(-1, 1, (0, 3)), shifts=(2,), dims=(0,)),
        sample(uniform(-1, 1, ()), shifts=(), dims=()),
    ],
)
def roll(x: TensorSpec, *, shifts: tuple[int, ...], dims: tuple[int, ...]) -> TensorSpec:
    """Moves elements along axes by shifts; what leaves at the end comes in at the start.

        y[i] = x[(i - shift) mod size]        along each of dims; shifts of an axis named twice add up

    Shapes: x (*s) -> (*s).  Dtypes: any.
    """
    for dim in dims:
        front_axis(dim, x.ndim)
    if len(shifts) != len(dims):
        raise shape_fault(
            f"{len(shifts)} shifts for {len(dims)} axes",
            expected="one shift an axis",
            mend="give shifts and dims of one length",
        )
    return x


@roll.gradient
def _(g, y, x, *, shifts, dims):
    return roll(g, shifts=tuple(-shift for shift in shifts), dims=dims)


@op(
    torch=PerCall(lambda call: lambda x, times=call.attrs["times"]: x.repeat(times)),
    numpy=lambda x, *, times: np.tile(x, times),
    cost="cheap",
    laws=[Moves(lambda call, output, index: [i % max(n, 1) for i, n in zip(index, call.tensor(0).shape, strict=True)])],
    samples=[
        sample(uniform(-1, 1, (2, 3)), times=(2, 3)),
        sample(uniform(-1, 1, (2, 1, 3)), times=(1, 4, 1)),
        sample(uniform(-1, 1, (3,)), times=(0,)),
        sample(uniform(-1, 1, (0, 2)), times=(2, 2)),
        sample(uniform(-1, 1, ()), times=()),
    ],
)
def repeat(x: TensorSpec, *, times: tuple[int, ...]) -> TensorSpec:
    """Copies of the whole tensor side by side, times[i] of them along axis i.

    Shapes: x (s0, s1, ...) -> (s0 * times[0], s1 * times[1], ...).  Dtypes: any.
    PyTorch: torch.Tensor.repeat with one count an axis; numpy.tile.
    """
    if len(times) != x.ndim or any(count < 0 for count in times):
        raise shape_fault(
            f"times {times} do not say how often each axis is repeated",
            expected=f"{x.ndim} counts of 0 or more, one an axis",
            mend="insert axes with unsqueeze first; 1 leaves an axis as it is",
        )
    return x.with_shape(tuple(size * count for size, count in zip(x.shape, times, strict=True)))


@repeat.gradient
def _(g, y, x, *, times):
    apart = tuple(size for pair in zip(times, x.shape, strict=True) for size in pair)
    return reshape(ops.sum(reshape(g, shape=apart), dims=tuple(range(0, 2 * x.ndim, 2))), shape=x.shape)


def _triangle(x: TensorSpec) -> TensorSpec:
    if x.ndim < 2:
        raise shape_fault(
            f"x has {x.ndim} axes",
            expected="a matrix or a batch of matrices, (*batch, rows, cols)",
            mend="insert an axis, for example x.unsqueeze_dim(0)",
        )
    return x


_MATRICES = [
    sample(uniform(-1, 1, (3, 4)), diagonal=0),
    sample(uniform(-1, 1, (2, 4, 3)), diagonal=-1),
    sample(uniform(-1, 1, (3, 3)), diagonal=1),
    sample(uniform(-1, 1, (0, 3)), diagonal=0),
]


@op(
    torch=torch.triu,
    numpy=lambda x, *, diagonal: np.triu(x, diagonal),
    cost="cheap",
    laws=[Unsigned("bits")],
    samples=_MATRICES,
)
def triu(x: TensorSpec, *, diagonal: int) -> TensorSpec:
    """The upper triangle of each matrix: x[i, j] where j - i >= diagonal, else 0 (also over NaN).

    Shapes: x (*batch, rows, cols) -> the same.  Dtypes: any.
    """
    return _triangle(x)


@triu.gradient
def _(g, y, x, *, diagonal):
    return triu(g, diagonal=diagonal)


@op(
    torch=torch.tril,
    numpy=lambda x, *, diagonal: np.tril(x, diagonal),
    cost="cheap",
    laws=[Unsigned("bits")],
    samples=_MATRICES,
)
def tril(x: TensorSpec, *, diagonal: int) -> TensorSpec:
    """The lower triangle of each matrix: x[i, j] where j - i <= diagonal, else 0 (also over NaN).

    Shapes: x (*batch, rows, cols) -> the same.  Dtypes: any.
    """
    return _triangle(x)


@tril.gradient
def _(g, y, x, *, diagonal):
    return tril(g, diagonal=diagonal)
