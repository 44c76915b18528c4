"""Rows that read and write the diagonal of two axes: diagonal, diagonal_assign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch

from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Moves
from burn_torch.ops.op import Call, PerCall, op
from burn_torch.ops.rules import front_axis, same_dtype
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.value import Primitive, Value

Pair = tuple[int, int]
_FURTHEST: Final = (1 << 63) - 1


def _first(offset: int) -> Pair:
    """The row and the column at which a diagonal begins."""
    return max(-offset, 0), max(offset, 0)


def _diagonal_shape(x: TensorSpec, offset: int, dims: tuple[int, ...]) -> Shape:
    if len(dims) != 2 or len({front_axis(dim, x.ndim) for dim in dims}) < 2:
        raise shape_fault(
            f"dims {dims} are no two axes",
            expected="an axis of rows and another one of columns",
            mend="name two axes, for example 0 and 1",
        )
    lengths = [x.shape[dim] - start for dim, start in zip(dims, _first(offset), strict=True)]
    return (*(size for i, size in enumerate(x.shape) if i not in dims), max(min(lengths), 0))


def _diagonal_from(call: Call, output: int, index: Sequence[Primitive]) -> list[Primitive]:
    *others, along = index
    source = list(others)
    at = dict(zip(call.attrs["dims"], (along + start for start in _first(call.attrs["offset"])), strict=True))
    for dim in sorted(at):
        source.insert(dim, at[dim])
    return source


def _torch_diagonal(call: Call) -> Callable[..., torch.Tensor]:
    offset, dims = _clamp_offset(call.attrs["offset"]), call.attrs["dims"]
    return lambda x: torch.diagonal(x, offset, *dims)


def _clamp_offset(offset: int) -> int:
    """An offset that torch can hold; further ones are beyond every matrix too."""
    return max(-_FURTHEST, min(offset, _FURTHEST))


def _torch_diagonal_assign(call: Call) -> Callable[..., torch.Tensor]:
    offset, dims = _clamp_offset(call.attrs["offset"]), call.attrs["dims"]

    def run(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        y = x.clone()  # torch.diagonal_scatter would keep the gaps between the elements of x
        torch.diagonal(y, offset, *dims).copy_(values)
        return y

    return run


def _numpy_diagonal(x: Array, *, offset: int, dims: tuple[int, ...]) -> Array:
    rows, columns = (x.shape[dim] for dim in dims)
    return np.diagonal(x, max(-rows, min(offset, columns)), *dims)


def _numpy_diagonal_assign(x: Array, values: Array, *, offset: int, dims: tuple[int, ...]) -> Array:
    y = np.array(x)
    if not values.size:
        return y
    rows, columns = (start + np.arange(values.shape[-1]) for start in _first(offset))
    np.moveaxis(y, dims, (-2, -1))[..., rows, columns] = values
    return y


@op(
    torch=PerCall(_torch_diagonal),
    numpy=_numpy_diagonal,
    view=True,
    cost="cheap",
    laws=[Moves(_diagonal_from)],
    samples=[
        sample(uniform(-1, 1, (3, 4)), offset=0, dims=(0, 1)),
        sample(uniform(-1, 1, (2, 4, 3)), offset=1, dims=(1, 2)),
        sample(uniform(-1, 1, (4, 2, 3)), offset=-2, dims=(2, 0)),
        sample(uniform(-1, 1, (4, 2, 3)), offset=-1, dims=(0, 2)),
        sample(uniform(-1, 1, (2, 3)), offset=5, dims=(0, 1)),
        sample(uniform(-1, 1, (0, 3, 2)), offset=0, dims=(2, 1)),
    ],
)
def diagonal(x: TensorSpec, *, offset: int, dims: tuple[int, ...]) -> TensorSpec:
    """The elements whose column is their row plus `offset`, on a new last axis; dims are those of rows and columns.

        y[b][i] = x[b][i][i + offset]                 for x (batch, rows, cols), dims (1, 2), offset >= 0

    Shapes: x (*s) -> (*s without dims, n), n what the diagonal has inside of x, 0 beyond it.  Dtypes: any.
    PyTorch: torch.diagonal; numpy.diagonal.
    """
    return x.with_shape(_diagonal_shape(x, offset, dims))


@diagonal.gradient
def _(g, y, x, *, offset, dims):
    return diagonal_assign(g.new_full(x.shape, 0.0), g, offset=offset, dims=dims)


@op(
    torch=PerCall(_torch_diagonal_assign),
    numpy=_numpy_diagonal_assign,
    samples=[
        sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (3,)), offset=0, dims=(0, 1)),
        sample(uniform(-1, 1, (2, 4, 3)), uniform(-1, 1, (2, 2)), offset=1, dims=(1, 2)),
        sample(uniform(-1, 1, (4, 2, 3)), uniform(-1, 1, (2, 1)), offset=-2, dims=(2, 0)),
        sample(uniform(-1, 1, (2, 3)), uniform(-1, 1, (0,)), offset=5, dims=(0, 1)),
    ],
)
def diagonal_assign(x: TensorSpec, values: TensorSpec, *, offset: int, dims: tuple[int, ...]) -> TensorSpec:
    """x with other values on a diagonal; see `diagonal`.

    Shapes: x (*s), values as diagonal(x) -> (*s).  Dtypes: any, both the same.  PyTorch: torch.diagonal_scatter.
    """
    same_dtype(x, values)
    shape = _diagonal_shape(x, offset, dims)
    if values.shape != shape:
        raise shape_fault(
            "the values do not fill the diagonal",
            expected=f"values {shape}, the shape of the diagonal",
            mend="expand the values first; they are not broadcast in silence",
        )
    return x


@diagonal_assign.gradient
def _(g, y, x, values, *, offset, dims):
    kept = diagonal_assign(g, g.new_full(values.shape, 0.0), offset=offset, dims=dims)
    return kept, diagonal(g, offset=offset, dims=dims)


# -- matrices ---------------------------------------------------------------------------------------------
def diagonal_of(x: Value) -> Value:
    """The diagonal of the last two axes, as a last axis."""
    return diagonal(x, offset=0, dims=(x.ndim - 2, x.ndim - 1))


def diagonal_matrix(values: Value) -> Value:
    """The matrix with these values on its diagonal and zeros elsewhere."""
    zeros = values.new_full((*values.shape, values.shape[-1]), 0.0)
    return diagonal_assign(zeros, values, offset=0, dims=(values.ndim - 1, values.ndim))
