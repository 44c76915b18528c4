"""The largest and the smallest elements over axes, and where they are.

Axes named by `dims` or `dim` are kept with size 1; with no axes named nothing is reduced.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import NUMERIC, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Folds, OfEqual, Unsigned
from burn_torch.ops.op import Candidate, PerCall, op
from burn_torch.ops.reductions import is_input, reduced, sum, unchanged
from burn_torch.ops.rules import front_axis
from burn_torch.ops.samples import Array, distinct, sample


def _extreme(x: TensorSpec, dims: tuple[int, ...]) -> TensorSpec:
    shape = reduced(x.require(NUMERIC), dims)
    _not_empty(x, dims)
    return x.with_shape(shape)


def _not_empty(x: TensorSpec, dims: tuple[int, ...]) -> None:
    empty = [dim for dim in dims if x.shape[dim] == 0]
    if empty:
        raise shape_fault(
            f"axis {empty[0]} is empty",
            expected="at least one element to choose from",
            mend="check for emptiness first, or reduce over another axis",
        )


_CHOSEN = [
    sample(distinct((3, 4)), dims=(0,)),
    sample(distinct((2, 3, 4)), dims=(0, 2)),
    sample(distinct((0, 3)), dims=(1,)),
    sample(distinct((2, 3)), dims=()),
]


@op(
    torch=PerCall(lambda call: partial(torch.amax, dim=d, keepdim=True) if (d := call.attrs["dims"]) else unchanged),
    numpy=lambda x, *, dims: np.max(x, axis=dims, keepdims=True) if dims else x,
    view="same",
    same=is_input,
    laws=[Folds("max"), OfEqual(lambda value, count: value), Unsigned("order")],
    samples=_CHOSEN,
)
def amax(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Largest element over axes; NaN if one of them is NaN.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: numbers in, the same out.
    The gradient is shared evenly by equal maxima, and is NaN where the result is.
    """
    return _extreme(x, dims)


@op(
    torch=PerCall(lambda call: partial(torch.amin, dim=d, keepdim=True) if (d := call.attrs["dims"]) else unchanged),
    numpy=lambda x, *, dims: np.min(x, axis=dims, keepdims=True) if dims else x,
    view="same",
    same=is_input,
    laws=[Folds("min"), OfEqual(lambda value, count: value), Unsigned("order")],
    samples=_CHOSEN,
)
def amin(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Smallest element over axes; NaN if one of them is NaN.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: numbers in, the same out.
    The gradient is shared evenly by equal minima, and is NaN where the result is.
    """
    return _extreme(x, dims)


@amax.gradient
@amin.gradient
def _(g, y, x, *, dims):
    if not dims:
        return g
    chosen = ops.cast(ops.equal(x, y), dtype=g.dtype)
    return chosen * (g / sum(chosen, dims=dims))


def _along(x: TensorSpec, dim: int) -> TensorSpec:
    front_axis(dim, x.require(NUMERIC).ndim)
    _not_empty(x, (dim,))
    return x.with_shape(tuple(1 if i == dim else size for i, size in enumerate(x.shape)))


_LINES = [
    sample(distinct((3, 4)), dim=0),
    sample(distinct((2, 3, 4)), dim=2),
    sample(distinct((2, 3, 4)), dim=1),
    sample(distinct((0, 3)), dim=1),
    sample(distinct((1,)), dim=0),
]


@op(
    torch=PerCall(lambda call: partial(torch.argmax, dim=call.attrs["dim"], keepdim=True)),
    numpy=lambda x, *, dim: np.argmax(x, axis=dim, keepdims=True),
    nondifferentiable=True,
    laws=[Unsigned("order")],
    samples=_LINES,
)
def argmax(x: TensorSpec, *, dim: int) -> TensorSpec:
    """Index of the largest element along an axis: the first of equal ones, the first NaN if there is one.

    Shapes: x (*s) -> (*s with dim of size 1).  Dtypes: numbers -> i64.
    """
    return _along(x, dim).with_dtype(DType.I64)


@op(
    torch=PerCall(lambda call: partial(torch.argmin, dim=call.attrs["dim"], keepdim=True)),
    numpy=lambda x, *, dim: np.argmin(x, axis=dim, keepdims=True),
    nondifferentiable=True,
    laws=[Unsigned("order")],
    samples=_LINES,
)
def argmin(x: TensorSpec, *, dim: int) -> TensorSpec:
    """Index of the smallest element along an axis: the first of equal ones, the first NaN if there is one.

    Shapes: x (*s) -> (*s with dim of size 1).  Dtypes: numbers -> i64.
    """
    return _along(x, dim).with_dtype(DType.I64)


def _numpy_chosen(choose: Candidate) -> Candidate:
    def run(x: Array, *, dim: int) -> tuple[Array, Array]:
        indices = choose(x, axis=dim, keepdims=True)
        return np.take_along_axis(x, indices, dim), indices

    return run


@op(
    torch=PerCall(lambda call: partial(torch.max, dim=call.attrs["dim"], keepdim=True)),
    numpy=_numpy_chosen(np.argmax),
    laws=[Unsigned("order")],
    samples=_LINES,
)
def max_with_indices(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """Largest element along an axis and its index: the first of equal ones, the first NaN if there is one.

    Shapes: x (*s) -> twice (*s with dim of size 1).  Dtypes: numbers -> the same, and i64.
    The gradient goes to the element at the index.  PyTorch: torch.max with dim; amax shares it among equal ones.
    """
    y = _along(x, dim)
    return y, y.with_dtype(DType.I64)


@op(
    torch=PerCall(lambda call: partial(torch.min, dim=call.attrs["dim"], keepdim=True)),
    numpy=_numpy_chosen(np.argmin),
    laws=[Unsigned("order")],
    samples=_LINES,
)
def min_with_indices(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """Smallest element along an axis and its index: the first of equal ones, the first NaN if there is one.

    Shapes: x (*s) -> twice (*s with dim of size 1).  Dtypes: numbers -> the same, and i64.
    The gradient goes to the element at the index.  PyTorch: torch.min with dim; amin shares it among equal ones.
    """
    y = _along(x, dim)
    return y, y.with_dtype(DType.I64)


@max_with_indices.gradient
@min_with_indices.gradient
def _(g, y, x, *, dim):
    return ops.scatter_distinct(y[1], g[0], dim=dim, size=x.shape[dim])
