"""Products of groups of rows, each with a matrix of its own: layers of experts.

Offsets (groups + 1,) cut the rows, as in `segments.py`.  The two rows are closed under differentiation:

    grouped_matmul   y_g = x_g w_g          dx = grouped_matmul(g, w^T)     dw = grouped_outer(x, g)
    grouped_outer    w_g = x_g^T y_g        dx = grouped_matmul(y, g^T)     dy = grouped_matmul(x, g)
"""

from __future__ import annotations

import builtins
import itertools
from typing import Final

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, fixed, sample, uniform
from burn_torch.ops.segments import check_offsets, places_from_0, require_offsets, segment_ids
from burn_torch.ops.selection import mask_where
from burn_torch.ops.shapes import expand, reshape

_EMPTY_ONES: Final = fixed([0, 2, 2, 5, 6], np.int64)
_GAPS: Final = fixed([1, 3, 3, 4], np.int64)
_ALL_TO_ONE: Final = fixed([0, 0, 6, 6], np.int64)


def _require_rows(x: TensorSpec, name: str) -> None:
    if x.ndim != 2:
        raise shape_fault(
            f"{name} {x.shape} are no rows",
            expected=f"{name} (rows, features)",
            mend="flatten the axes in front of the features into one",
        )


def _ends(call: Call, offsets: torch.Tensor, rows: int) -> list[tuple[int, int, int]]:
    """Group, begin and end of each group that has rows; waits for a GPU, whose kernels need no such list."""
    values = offsets.cpu()
    check_offsets(call, values, rows)
    ends = values.tolist()
    return [(g, a, b) for g, (a, b) in enumerate(itertools.pairwise(ends)) if a < b]


# -- grouped_matmul ---------------------------------------------------------------------------------------
def _torch_grouped(call: Call) -> Candidate:
    rows, shape = call.tensor(0).shape[0], call.result.shape

    def run(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        ends = _ends(call, offsets, rows)
        whole = bool(ends) and builtins.sum(b - a for _, a, b in ends) == rows
        y = x.new_empty(shape) if whole else x.new_zeros(shape)
        for g, a, b in ends:
            torch.mm(x[a:b], weight[g], out=y[a:b])
        return y

    return run


def _numpy_grouped(call: Call) -> Candidate:
    def run(x: Array, weight: Array, offsets: Array) -> Array:
        check_offsets(call, offsets, len(x))
        y = np.zeros(call.result.shape, x.dtype)
        for g, (a, b) in enumerate(itertools.pairwise(offsets.tolist())):
            y[a:b] = x[a:b] @ weight[g]
        return y

    return run


@op(
    torch=PerCall(_torch_grouped),
    numpy=PerCall(_numpy_grouped),
    precision="low",
    samples=[
        sample(uniform(-1, 1, (6, 3)), uniform(-1, 1, (4, 3, 5)), _EMPTY_ONES),
        sample(uniform(-1, 1, (6, 3)), uniform(-1, 1, (3, 3, 2)), _GAPS),
        sample(uniform(-1, 1, (6, 2)), uniform(-1, 1, (3, 2, 4)), _ALL_TO_ONE),
        sample(uniform(-1, 1, (0, 3)), uniform(-1, 1, (2, 3, 2)), fixed([0, 0, 0], np.int64)),
        sample(uniform(-1, 1, (2, 0)), uniform(-1, 1, (1, 0, 2)), fixed([0, 2], np.int64)),
    ],
)
def grouped_matmul(x: TensorSpec, weight: TensorSpec, offsets: TensorSpec) -> TensorSpec:
    """Each group of rows times the matrix of its group; 0 in rows that belong to none.

        y[i] = x[i] @ weight[g]        for offsets[g] <= i < offsets[g + 1]

    Shapes: x (rows, d_in), weight (groups, d_in, d_out), offsets (groups + 1,) -> (rows, d_out).
    Dtypes: x and weight one float type, offsets integers.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    PyTorch: torch.nn.functional.grouped_mm, which takes the ends of groups alone.
    """
    same_dtype(x.require(FLOAT), weight)
    _require_rows(x, "x")
    groups = require_offsets(offsets)
    if weight.ndim != 3 or weight.shape[:2] != (groups, x.shape[1]):
        raise shape_fault(
            "the weight does not fit rows and offsets",
            expected=f"weight ({groups}, {x.shape[1]}, d_out): a matrix for each group",
            mend="there is one offset more than groups; transpose a weight (groups, d_out, d_in)",
        )
    return x.with_shape((x.shape[0], weight.shape[2]))


@grouped_matmul.decomposes
def _(x, weight, offsets):
    groups, rows, width = weight.shape[0], x.shape[0], weight.shape[2]
    if not groups:
        return x.new_full((rows, width), 0.0)
    products = matmul(reshape(x, shape=(1, *x.shape)), weight)
    ids = reshape(segment_ids(offsets, length=rows), shape=(1, rows, 1))
    group = reshape(places_from_0(ids, groups), shape=(groups, 1, 1))
    elsewhere = expand(ops.not_equal(ids, group), shape=products.shape)
    return reshape(sum(mask_where(products, elsewhere, 0.0), dims=(0,)), shape=(rows, width))


@grouped_matmul.gradient
def _(g, y, x, weight, offsets):
    return grouped_matmul(g, transposed(weight), offsets), grouped_outer(x, g, offsets), None


# -- grouped_outer ----------------------------------------------------------------------------------------
def _torch_outer(call: Call) -> Candidate:
    rows, shape = call.tensor(0).shape[0], call.result.shape

    def run(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        ends = _ends(call, offsets, rows)
        weight = x.new_empty(shape) if len(ends) == shape[0] else x.new_zeros(shape)
        for g, a, b in ends:
            torch.mm(x[a:b].t(), y[a:b], out=weight[g])
        return weight

    return run


def _numpy_outer(call: Call) -> Candidate:
    def run(x: Array, y: Array, offsets: Array) -> Array:
        check_offsets(call, offsets, len(x))
        weight = np.zeros(call.result.shape, x.dtype)
        for g, (a, b) in enumerate(itertools.pairwise(offsets.tolist())):
            weight[g] = x[a:b].T @ y[a:b]
        return weight

    return run


@op(
    torch=PerCall(_torch_outer),
    numpy=PerCall(_numpy_outer),
    precision="low",
    samples=[
        sample(uniform(-1, 1, (6, 3)), uniform(-1, 1, (6, 5)), _EMPTY_ONES),
        sample(uniform(-1, 1, (6, 3)), uniform(-1, 1, (6, 2)), _ALL_TO_ONE),
        sample(uniform(-1, 1, (0, 3)), uniform(-1, 1, (0, 2)), fixed([0, 0, 0], np.int64)),
    ],
)
def grouped_outer(x: TensorSpec, y: TensorSpec, offsets: TensorSpec) -> TensorSpec:
    """The product x_g^T y_g of each group of rows: the gradient of the weight of `grouped_matmul`.

        w[g] = sum over i with offsets[g] <= i < offsets[g + 1] of the outer product of x[i] and y[i]

    Shapes: x (rows, d_in), y (rows, d_out), offsets (groups + 1,) -> (groups, d_in, d_out).
    Dtypes: x and y one float type, offsets integers.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    """
    same_dtype(x.require(FLOAT), y)
    _require_rows(x, "x")
    _require_rows(y, "y")
    if x.shape[0] != y.shape[0]:
        raise shape_fault(
            "x and y have different numbers of rows",
            expected="x (rows, d_in) and y (rows, d_out)",
            mend="pass the gradient of the output of grouped_matmul",
        )
    return x.with_shape((require_offsets(offsets), x.shape[1], y.shape[1]))


@grouped_outer.decomposes
def _(x, y, offsets):
    groups, rows = offsets.shape[0] - 1, x.shape[0]
    if not groups:
        return x.new_full((0, x.shape[1], y.shape[1]), 0.0)
    ids = reshape(segment_ids(offsets, length=rows), shape=(1, 1, rows))
    group = reshape(places_from_0(ids, groups), shape=(groups, 1, 1))
    shape = (groups, x.shape[1], rows)
    across = expand(reshape(transposed(x), shape=(1, x.shape[1], rows)), shape=shape)
    return matmul(mask_where(across, expand(ops.not_equal(ids, group), shape=shape), 0.0), y)


@grouped_outer.gradient
def _(g, w, x, y, offsets):
    return grouped_matmul(y, transposed(g), offsets), grouped_matmul(x, g, offsets), None
