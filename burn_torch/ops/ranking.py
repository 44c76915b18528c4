"""Rows that find places among ordered elements: row_ranks, under unique, and searchsorted.  Neither has a gradient."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch.core.dtype import NUMERIC, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, fixed, integers, sample, uniform


def _torch_ranks(x: torch.Tensor) -> torch.Tensor:
    count, columns = x.shape
    if not x.numel():
        return torch.zeros(count, dtype=torch.int64, device=x.device)
    if columns > 1 and not x.isnan().any():
        return torch.unique(x, dim=0, return_inverse=True)[1]
    order = torch.arange(count, device=x.device)
    for column in reversed(range(columns)):  # torch.unique leaves the order of NaN open
        order = order[torch.sort(x[order, column], stable=True)[1]]
    ordered = x[order]
    steps = (ordered[1:] != ordered[:-1]).any(1).cumsum(0)
    return torch.zeros_like(order).scatter_(0, order[1:], steps)


def _numpy_ranks(x: Array) -> Array:
    ranks = np.zeros(len(x), np.int64)
    if x.size:
        order = np.lexsort(x.T[::-1])
        ordered = x[order]
        ranks[order[1:]] = np.cumsum((ordered[1:] != ordered[:-1]).any(1))
    return ranks


@op(
    torch=_torch_ranks,
    numpy=_numpy_ranks,
    nondifferentiable=True,
    laws=[Unsigned("order")],
    samples=[
        sample(integers(0, 3, (6, 2))),
        sample(fixed([[1.0], [np.nan], [-2.0], [np.nan], [1.0], [np.inf]])),
        sample(uniform(-1, 1, (3, 0))),
        sample(uniform(-1, 1, (0, 2))),
    ],
)
def row_ranks(x: TensorSpec) -> TensorSpec:
    """The place of each row among the different rows in order, from 0; rows are compared column by column.

    NaN differs from NaN and comes last, as in torch; of several the first is lower.
    Shapes: x (n, d) -> (n,).  Dtypes: numbers -> i64.  PyTorch: torch.unique(x, dim=0, return_inverse=True)[1].
    """
    if x.require(NUMERIC).ndim != 2:
        raise shape_fault("x is no list of rows", expected="x (n, d)", mend="x.reshape(n, -1) makes rows")
    return x.with_shape(x.shape[:1]).with_dtype(DType.I64)


def _torch_search(call: Call) -> Candidate:
    search = partial(torch.searchsorted, right=call.attrs["right"])
    # torch copies what is not contiguous too, and warns of it
    return lambda line, values: search(line.contiguous(), values.contiguous())


def _numpy_search(line: Array, values: Array, *, right: bool) -> Array:
    # by halves, as torch does, so that NaN ends where it ends there; numpy.searchsorted takes one line
    start, end = np.zeros(values.shape, np.int64), np.full(values.shape, line.shape[-1])
    for _ in range(line.shape[-1].bit_length()):
        middle = (start + end) // 2
        element = np.take_along_axis(line, np.minimum(middle, line.shape[-1] - 1), -1)
        stays = element > values if right else element >= values
        start, end = np.where((start < end) & ~stays, middle + 1, start), np.where(stays, np.minimum(middle, end), end)
    return start


@op(
    torch=PerCall(_torch_search),
    numpy=_numpy_search,
    nondifferentiable=True,
    laws=[Unsigned("order")],
    samples=[
        sample(fixed([-1.0, 0.0, 0.0, 2.0]), fixed([-2.0, 0.0, 1.0, 3.0, np.inf]), right=False),
        sample(fixed([[1, 2, 2], [0, 5, 7]], np.int64), integers(0, 8, (2, 4)), right=True),
        sample(uniform(-1, 1, (0,)), uniform(-1, 1, (2,)), right=True),
    ],
)
def searchsorted(line: TensorSpec, values: TensorSpec, *, right: bool) -> TensorSpec:
    """The number of elements of an ascending line that are below each value, or with `right` not above it.

    Shapes: line (*batch, n), values (*batch, m) -> (*batch, m).  Dtypes: numbers, both the same -> i64.
    PyTorch: torch.searchsorted.
    """
    same_dtype(line.require(NUMERIC), values)
    if not line.ndim or line.shape[:-1] != values.shape[:-1]:
        raise shape_fault(
            "the values do not fit the lines",
            expected="line (*batch, n) and values (*batch, m) with one batch",
            mend="expand one of them over the batch",
        )
    return values.with_dtype(DType.I64)
