"""Rows of a table looked up by index, and the sum that undoes it."""

from __future__ import annotations

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.bounds import check_numpy, indexing, require_indices
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Onto
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, integers, sample, uniform
from burn_torch.ops.value import Primitive

aten = torch.ops.aten


def _numpy_embedding(call: Call) -> Candidate:
    rows = call.tensor(0).shape[0]

    def run(weight: Array, indices: Array) -> Array:
        check_numpy(call, indices, rows)
        return weight[indices]

    return run


@op(
    torch=PerCall(lambda call: indexing(call, torch.embedding, call.tensor(0).shape[0])),
    numpy=PerCall(_numpy_embedding),
    samples=[
        sample(uniform(-1, 1, (5, 3)), integers(0, 5, (2, 7))),
        sample(uniform(-1, 1, (5, 3)), integers(0, 5, ())),
        sample(uniform(-1, 1, (5, 3)), integers(0, 5, (0, 4))),
    ],
)
def embedding(weight: TensorSpec, indices: TensorSpec) -> TensorSpec:
    """The row of weight at each index.

    Shapes: weight (rows, d_model), indices (*s) -> (*s, d_model).
    Dtypes: weight float, indices any integer -> that of weight.
    Raises: BoundsError for an index outside [0, rows), where the data is on the host.
    """
    weight.require(FLOAT)
    require_indices(indices)
    if weight.ndim != 2:
        raise shape_fault(
            "the weight is not a table of rows",
            expected="weight (n_embedding, d_model)",
            mend="give a weight of two axes",
        )
    return weight.with_shape((*indices.shape, weight.shape[1]))


@embedding.gradient
def _(g, y, weight, indices):
    return embedding_backward(g, indices, rows=weight.shape[0]), None


def _torch_embedding_backward(call: Call) -> Candidate:
    rows = call.attrs["rows"]
    width = call.results[0].shape[1]
    if call.results[0].place == "cpu":
        backward = aten.embedding_dense_backward.default
        return indexing(call, lambda g, indices: backward(g, indices, rows, -1, False), rows)

    def run(g: Primitive, indices: Primitive) -> Primitive:
        # sorts the indices and sums each row in one order; embedding_dense_backward gave other bits from run to run
        # at 100,000 indices into 50 rows, and took twice as long at 8,192 into 30,000 (H200, torch 2.11)
        y = g.new_zeros((rows, width))
        return y.index_put_((indices.reshape(-1),), g.reshape(indices.numel(), width), accumulate=True)

    return indexing(call, run, rows)


def _add_rows_on_host(y: Array, g: Array, indices: Array) -> Array:
    """Adds rows of g to the rows of y at indices; an index outside of y has no row."""
    indices = indices.reshape(-1)
    known = (indices >= 0) & (indices < len(y))
    np.add.at(y, indices[known], g.reshape(indices.size, g.shape[-1])[known])
    return y


@op(
    torch=PerCall(_torch_embedding_backward),
    numpy=lambda g, indices, *, rows: _add_rows_on_host(
        np.zeros((rows, g.shape[-1]), np.float32 if g.dtype == np.float16 else g.dtype), g, indices
    ),
    precision="high",
    laws=[Onto("embedding_onto_backward")],
    samples=[
        sample(uniform(-1, 1, (2, 7, 3)), integers(0, 5, (2, 7)), rows=5),
        sample(uniform(-1, 1, (3,)), integers(0, 5, ()), rows=5),
        sample(uniform(-1, 1, (0, 4, 3)), integers(0, 5, (0, 4)), rows=5),
    ],
)
def embedding_backward(g: TensorSpec, indices: TensorSpec, *, rows: int) -> TensorSpec:
    """The sum of the rows of g that belong to each index: the gradient of an embedding's weight.

    The same bits each time on every device: equal indices are summed in one order.  The indices are those that
    `embedding` took and checked: one outside [0, rows) has no row, and nothing is written for it.

    Shapes: g (*s, d_model), indices (*s) -> (rows, d_model).  Dtypes: g float, indices any integer -> that of g.
    """
    g.require(FLOAT)
    require_indices(indices)
    if g.ndim < 1 or g.shape[:-1] != indices.shape:
        raise shape_fault(
            "g and the indices do not fit together",
            expected="g (*s, d_model) and indices (*s)",
            mend="pass the gradient of the output of embedding",
        )
    return g.with_shape((rows, g.shape[-1]))


@embedding_backward.gradient
def _(h, z, g, indices, *, rows):
    return embedding(h, indices), None


def _add_rows(call: Call) -> Candidate:
    # index_add_ has atomics on a GPU; see `embedding_backward`
    place = call.results[0].place

    def run(x: torch.Tensor, g: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        indices, g = indices.reshape(-1), g.reshape(indices.numel(), x.shape[1])
        return x.index_add_(0, indices, g) if place == "cpu" else x.index_put_((indices,), g, accumulate=True)

    return indexing(call, run, call.tensor(0).shape[0], position=2)


def _torch_embedding_onto_backward(call: Call) -> Candidate:
    run = _add_rows(call)
    return lambda x, g, indices: run(x.clone(), g, indices)


@op(
    torch=PerCall(_torch_embedding_onto_backward),
    inplace=PerCall(_add_rows),
    numpy=lambda x, g, indices: _add_rows_on_host(np.array(x), g, indices),
    packed="follows",
    precision="high",
    samples=[
        sample(uniform(-1, 1, (5, 3)), uniform(-1, 1, (2, 7, 3)), integers(0, 5, (2, 7))),
        sample(uniform(-1, 1, (5, 3)), uniform(-1, 1, (3,)), integers(0, 5, ())),
    ],
)
def embedding_onto_backward(x: TensorSpec, g: TensorSpec, indices: TensorSpec) -> TensorSpec:
    """x and, added to its rows, the rows of g that belong to each index: the gradient of a table that is used twice.

    Programs write it over x, where nobody else reads that (`fusion/rewrites/tables.py`).

    Shapes: x (rows, d_model), g (*s, d_model), indices (*s) -> (rows, d_model).
    Dtypes: x and g one float type, indices any integer.
    """
    same_dtype(x.require(FLOAT), g)
    require_indices(indices)
    if x.ndim != 2 or g.shape != (*indices.shape, x.shape[1]):
        raise shape_fault(
            "x, g and the indices do not fit together",
            expected="x (rows, d_model), g (*s, d_model) and indices (*s)",
            mend="pass the gradient of the output of embedding",
        )
    return x


@embedding_onto_backward.gradient
def _(h, z, x, g, indices):
    return h, embedding(h, indices), None
