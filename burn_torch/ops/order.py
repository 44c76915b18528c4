"""Rows that put elements in order along an axis.

NaN counts as the largest value, as in torch: last in ascending order, first in descending order.  All three pass the
gradient to the elements that their indices name.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import NUMERIC, DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import front_axis
from burn_torch.ops.samples import Array, Drawer, distinct, sample


def _line(x: TensorSpec, dim: int) -> int:
    return x.require(NUMERIC).shape[front_axis(dim, x.ndim)]


def _resize(x: TensorSpec, dim: int, size: int) -> tuple[TensorSpec, TensorSpec]:
    y = x.with_shape((*x.shape[:dim], size, *x.shape[dim + 1 :]))
    return y, y.with_dtype(DType.I64)


# -- sort ------------------------------------------------------------------------------------------------
def _numpy_order(x: Array, dim: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    # equal elements keep their order: sort the reversed line upwards, and read it backwards
    return np.flip(x.shape[dim] - 1 - np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


def _numpy_sort(x: Array, *, dim: int, descending: bool) -> tuple[Array, Array]:
    order = _numpy_order(x, dim, descending)
    return np.take_along_axis(x, order, dim), np.ascontiguousarray(order)


@op(
    torch=PerCall(lambda call: partial(torch.sort, stable=True, **call.attrs)),
    numpy=_numpy_sort,
    laws=[Unsigned("order")],
    samples=[
        sample(distinct((3, 4)), dim=0, descending=False),
        sample(distinct((2, 5, 3)), dim=1, descending=True),
        sample(distinct((0, 3)), dim=0, descending=False),
        sample(distinct((1,)), dim=0, descending=True),
    ],
)
def sort_with_indices(x: TensorSpec, *, dim: int, descending: bool) -> tuple[TensorSpec, TensorSpec]:
    """Elements in order along an axis, and where each was.  Equal elements keep their order.

    Shapes: x (*s) -> twice (*s).  Dtypes: numbers -> the same, and i64.  PyTorch: torch.sort with stable=True.
    """
    return _resize(x, dim, _line(x, dim))


# -- topk --------------------------------------------------------------------------------------------------
def _numpy_topk(x: Array, *, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    order = np.take(_numpy_order(x, dim, largest), np.arange(k), axis=dim)
    return np.take_along_axis(x, order, dim), order


def _positive(shape: Shape) -> Drawer:
    """Distinct in unsigned types too: which of equal elements topk takes is not settled."""
    return lambda generator: distinct(shape)(generator) + math.prod(shape)


@op(
    torch=PerCall(lambda call: partial(torch.topk, sorted=True, **call.attrs)),
    numpy=_numpy_topk,
    laws=[Unsigned("order")],
    samples=[
        sample(_positive((5, 4)), k=2, dim=0, largest=True),
        sample(_positive((2, 5, 3)), k=5, dim=1, largest=False),
        sample(_positive((2, 3)), k=0, dim=1, largest=True),
        sample(_positive((0, 3)), k=1, dim=1, largest=True),
    ],
)
def topk_with_indices(x: TensorSpec, *, k: int, dim: int, largest: bool) -> tuple[TensorSpec, TensorSpec]:
    """The k largest (or smallest) elements along an axis, the most extreme first, and where each was.

    Which of equal elements are taken, and in what order, is the leaf's choice; sort_with_indices settles it.

    Shapes: x (*s) -> twice (*s with k on dim).  Dtypes: numbers -> the same, and i64.  PyTorch: torch.topk.
    """
    size = _line(x, dim)
    if not 0 <= k <= size:
        raise shape_fault(
            f"the axis has no {k} elements", expected=f"k from 0 to {size}", mend="take min(k, size), or another axis"
        )
    return _resize(x, dim, k)


# -- median ------------------------------------------------------------------------------------------------
def _torch_median(call: Call) -> Candidate:
    x, dim = call.tensor(0), call.attrs["dim"]
    middle = (x.shape[dim] - 1) // 2

    def run(
        x: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # torch.median leaves open which of equal elements its index names
        values, order = torch.sort(x, dim=dim, stable=True)
        if not x.is_floating_point():
            return values.narrow(dim, middle, 1).clone(), order.narrow(dim, middle, 1).clone()
        absent = torch.isnan(values).sum(dim, keepdim=True)
        place = torch.where(absent > 0, values.shape[dim] - absent, middle)
        return values.gather(dim, place), order.gather(dim, place)

    return run


def _numpy_median(x: Array, *, dim: int) -> tuple[Array, Array]:
    order = _numpy_order(x, dim, descending=False)
    absent = np.sum(x != x, axis=dim, keepdims=True)
    place = np.where(absent > 0, x.shape[dim] - absent, (x.shape[dim] - 1) // 2)
    index = np.take_along_axis(order, place, dim)
    return np.take_along_axis(x, index, dim), index


@op(
    torch=PerCall(_torch_median),
    numpy=_numpy_median,
    laws=[Unsigned("order")],
    samples=[
        sample(distinct((5, 4)), dim=0),
        sample(distinct((2, 4, 3)), dim=1),
        sample(distinct((0, 3)), dim=1),
        sample(distinct((1,)), dim=0),
    ],
)
def median_with_indices(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """The middle element along an axis, the lower one of two, and where it was; the first NaN if there is one.

    The index is that of a stable sort (torch.median leaves it open): the same on every leaf and in every run.

    Shapes: x (*s) -> twice (*s with dim of size 1).  Dtypes: numbers -> the same, and i64.  PyTorch: torch.median.
    """
    if not _line(x, dim):
        raise shape_fault(
            f"axis {dim} is empty",
            expected="at least one element to choose from",
            mend="check for emptiness first, or take another axis",
        )
    return _resize(x, dim, 1)


@sort_with_indices.gradient
@topk_with_indices.gradient
@median_with_indices.gradient
def _(g, y, x, *, dim, **_):
    return ops.scatter_distinct(y[1], g[0], dim=dim, size=x.shape[dim])
