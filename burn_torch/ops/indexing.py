"""Rows that read elements at indices: select, gather, gather_nd, mask_select, nonzero, one_hot.

Indices are integers of any type in [0, size); see `bounds.py` for those that are not.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import ALL, BOOL, DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.bounds import check_numpy, checking, indexing, on_host, require_indices, widened
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.held_numbers import held
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import elementwise, front_axis
from burn_torch.ops.samples import Array, booleans, fixed, integers, sample, uniform
from burn_torch.ops.shapes import reshape
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_types import SIGNED, TO_TORCH
from burn_torch.ops.value import Primitive, Value

V = TypeVar("V", bound=Value)


# -- select ---------------------------------------------------------------------------------------------
def _torch_along(function: Callable[..., torch.Tensor]) -> PerCall:
    """A candidate `function(x, dim, indices)` that moves elements of x."""

    def build(call: Call) -> Candidate:
        x, dim = call.tensor(0), call.attrs["dim"]
        return indexing(call, lambda x, indices: function(x, dim, indices), x.shape[dim])

    return PerCall(build)


@op(
    torch=_torch_along(torch.index_select),
    numpy=checking(lambda x, indices, *, dim: np.take(x, indices, axis=dim)),
    laws=[Unsigned("bits", indices=(1,))],
    samples=[
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (5,)), dim=0),
        sample(uniform(-1, 1, (2, 3, 4)), integers(0, 3, (2,)), dim=1),
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (0,)), dim=1),
        sample(uniform(-1, 1, (3, 0)), integers(0, 3, (2,)), dim=0),
        sample(uniform(-1, 1, (4,)), integers(0, 4, (6,)), dim=0),
    ],
)
def select(x: TensorSpec, indices: TensorSpec, *, dim: int) -> TensorSpec:
    """The entries at `indices` along an axis, in that order; an index may occur many times.

    Shapes: x (*pre, size, *post), indices (n,) -> (*pre, n, *post).  Dtypes: x any, indices integers.
    The gradient adds up over equal indices, in a fixed order on every device (see select_assign).
    Raises: BoundsError for an index outside [0, size).  PyTorch: torch.index_select.
    """
    front_axis(dim, x.ndim)
    _list_of_indices(indices)
    return x.with_shape((*x.shape[:dim], indices.shape[0], *x.shape[dim + 1 :]))


def _list_of_indices(indices: TensorSpec) -> None:
    if require_indices(indices).ndim != 1:
        raise shape_fault(
            f"the indices have {indices.ndim} axes",
            expected="indices (n,)",
            mend="flatten them, or use gather for an index of each element",
        )


@select.gradient
def _(g, y, x, indices, *, dim):
    return ops.select_assign(g.new_full(x.shape, 0.0), indices, g, dim=dim, update="add"), None


# -- gather ----------------------------------------------------------------------------------------------
def fits_beside(x: TensorSpec, indices: TensorSpec, dim: int) -> None:
    """Checks that each of `indices` names an element of x by its place and an index along `dim`."""
    front_axis(dim, x.ndim)
    require_indices(indices)
    if indices.ndim != x.ndim or any(
        n > size for i, (n, size) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != dim
    ):
        limits = tuple("n" if i == dim else f"<= {size}" for i, size in enumerate(x.shape))
        raise shape_fault(
            "the indices do not fit the tensor",
            expected=f"indices with {x.ndim} axes: ({', '.join(limits)})",
            mend="expand the indices, or use select for one list of indices",
        )


def along_axis(indices: Array, dim: int) -> tuple[Primitive, ...]:
    """numpy's form of indices along an axis: each element keeps its place on the others."""
    places = np.ogrid[tuple(builtins.slice(n) for n in indices.shape)]
    return tuple(indices if i == dim else place for i, place in enumerate(places))


@op(
    torch=_torch_along(torch.gather),
    numpy=checking(lambda x, indices, *, dim: x[along_axis(indices, dim)]),
    laws=[Unsigned("bits", indices=(1,))],
    samples=[
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (5, 4)), dim=0),
        sample(uniform(-1, 1, (2, 3, 4)), integers(0, 4, (2, 3, 1)), dim=2),
        sample(uniform(-1, 1, (3, 4)), integers(0, 4, (2, 3)), dim=1),
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (0, 4)), dim=0),
        sample(uniform(-1, 1, (4,)), integers(0, 4, (6,)), dim=0),
    ],
)
def gather(x: TensorSpec, indices: TensorSpec, *, dim: int) -> TensorSpec:
    """The element that each index names along an axis, at its own place on the others.

        y[i][j][k] = x[i][indices[i][j][k]][k]        for dim = 1

    Shapes: x (*s), indices with as many axes, none but `dim` longer than that of x -> as indices.
    Dtypes: x any, indices integers.
    The gradient adds up over equal indices, in a fixed order on every device (see scatter).
    Raises: BoundsError for an index outside [0, size).  PyTorch: torch.gather.
    """
    fits_beside(x, indices, dim)
    return x.with_shape(indices.shape)


@gather.gradient
def _(g, y, x, indices, *, dim):
    return ops.scatter(g.new_full(x.shape, 0.0), indices, g, dim=dim, update="add"), None


# -- indices of several axes ------------------------------------------------------------------------------
_ND = "gather_nd or scatter_nd"  # who asks for a linear index


def _torch_linear_index(call: Call) -> Candidate:
    sizes = call.attrs["sizes"]
    long = widened(call, 0)
    total = math.prod(sizes)
    host = on_host(call)

    def run(indices: torch.Tensor) -> torch.Tensor:
        parts = (indices if long is None else long(indices)).reshape(-1, len(sizes)).unbind(1)
        if host:
            for part, size in zip(parts, sizes, strict=True):
                if part.numel():
                    check_numpy(call, torch.stack(torch.aminmax(part)), size, name=_ND)
        flat = parts[0] * (total // sizes[0] if sizes[0] else 0)
        stride = total // sizes[0] if sizes[0] else 0
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            stride = stride // size if size else 0
            flat = flat + part * stride
        if host:
            return flat
        fits = (parts[0] >= 0) & (parts[0] < sizes[0])
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            fits = fits & (part >= 0) & (part < size)
        return torch.where(fits, flat, total)  # out of range for the kernel that reads it, which says so

    return run


def _numpy_linear_index(call: Call) -> Candidate:
    sizes = call.attrs["sizes"]

    def run(indices: Array) -> Array:
        parts = np.moveaxis(indices.reshape(-1, len(sizes)).astype(np.int64), 1, 0)
        for part, size in zip(parts, sizes, strict=True):
            check_numpy(call, part, size, name=_ND)
        return np.asarray(np.ravel_multi_index(tuple(parts), sizes)) if parts.size else np.zeros(0, np.int64)

    return run


@op(
    torch=PerCall(_torch_linear_index),
    numpy=PerCall(_numpy_linear_index),
    nondifferentiable=True,
    cost="cheap",
    samples=[
        sample(integers(0, 2, (5, 2)), sizes=(3, 2)),
        sample(integers(0, 2, (2, 3, 3)), sizes=(2, 3, 4)),
        sample(integers(0, 3, (4, 1)), sizes=(3,)),
        sample(integers(0, 3, (0, 2)), sizes=(3, 0)),
        sample(integers(0, 3, (2,)), sizes=(3, 4)),
    ],
)
def linear_index(indices: TensorSpec, *, sizes: Shape) -> TensorSpec:
    """The place, in row-major order, of elements that are named by one index an axis.

    Shapes: indices (*batch, axes) with len(sizes) axes -> (batch elements,).  Dtypes: integers -> i64.
    Raises: BoundsError for an index outside its axis; on a GPU the result then points past the end, which the
    kernel that reads it reports.
    """
    require_indices(indices)
    if indices.ndim < 1 or indices.shape[-1] != len(sizes) or not sizes:
        raise shape_fault(
            "the last axis of the indices does not name one place on each axis",
            expected=f"indices (*batch, {len(sizes)})",
            mend="stack one index an axis on the last axis",
        )
    return TensorSpec.of((math.prod(indices.shape[:-1]),), DType.I64, indices.place)


def leading_axes(x: TensorSpec, indices: TensorSpec) -> int:
    """How many axes of x the entries of `indices` (*batch, k) name."""
    require_indices(indices)
    if indices.ndim < 1 or not 1 <= indices.shape[-1] <= x.ndim:
        raise shape_fault(
            "the last axis of the indices does not name leading axes of the tensor",
            expected=f"indices (*batch, k) with k from 1 to {x.ndim}"
            if x.ndim
            else "x with at least one axis, indices (*batch, k)",
            mend="stack one index an axis on the last axis",
        )
    return indices.shape[-1]


@op(
    samples=[
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (5, 2))),
        sample(uniform(-1, 1, (3, 3, 2)), integers(0, 3, (2, 4, 1))),
        sample(uniform(-1, 1, (3, 3, 2)), integers(0, 3, (4, 2))),
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (2,))),
        sample(uniform(-1, 1, (3, 4)), integers(0, 3, (0, 1))),
    ]
)
def gather_nd(x: TensorSpec, indices: TensorSpec) -> TensorSpec:
    """The slices of x that entries of `indices` name on its first k axes.

        y[b] = x[indices[b][0], ..., indices[b][k - 1]]

    Shapes: x (*s), indices (*batch, k) -> (*batch, *s[k:]).  Dtypes: x any, indices integers.
    Raises: BoundsError for an index outside its axis.  Source: ONNX GatherND.
    """
    k = leading_axes(x, indices)
    return x.with_shape((*indices.shape[:-1], *x.shape[k:]))


@gather_nd.decomposes
def _(x, indices):
    k = indices.shape[-1]
    rows = reshape(x, shape=(math.prod(x.shape[:k]), math.prod(x.shape[k:])))
    picked = select(rows, linear_index(indices, sizes=x.shape[:k]), dim=0)
    return reshape(picked, shape=(*indices.shape[:-1], *x.shape[k:]))


# -- shapes that depend on the data --------------------------------------------------------------------------
@op(
    torch=torch.masked_select,
    numpy=lambda x, mask: x[mask],
    barrier=True,
    nondifferentiable=True,
    laws=[Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1), booleans()),
        sample(uniform(-1, 1, (0, 3)), booleans((0, 3))),
        sample(uniform(-1, 1, ()), booleans(())),
    ],
)
def mask_select(x: TensorSpec, mask: TensorSpec) -> None:
    """The elements where the mask is true, in row-major order.

    Shapes: x (*s), mask (*s) -> (n,), n the number of true entries.  Dtypes: x any, mask bool.
    Carries no gradient, since a gradient is derived for known shapes; `selected_by_mask` does.
    """
    mask.require(BOOL)
    if mask.shape != x.shape:
        raise shape_fault(
            "the mask does not fit the tensor", expected=f"mask {x.shape}", mend="expand the mask to the shape of x"
        )


def selected_by_mask(x: V, mask: V) -> V:
    """`mask_select` on values, with a gradient: the places of true entries are found first, then read."""
    if x.backend.depth == 0:  # a bare leaf records nothing: one kernel does
        return cast(V, mask_select(x, mask))
    mask_select.bind((x.spec, mask.spec), {})  # the same complaints
    count = x.spec.numel
    places = nonzero(reshape(mask, shape=(count,)))
    return cast(V, select(reshape(x, shape=(count,)), reshape(places, shape=(places.shape[0],)), dim=0))


def _torch_nonzero(call: Call) -> Candidate:
    signed = SIGNED.get(call.tensor(0).dtype)
    return torch.nonzero if signed is None else lambda x: torch.nonzero(x.view(TO_TORCH[signed]))


@op(
    torch=PerCall(_torch_nonzero),
    numpy=np.argwhere,
    barrier=True,
    nondifferentiable=True,
    samples=[
        sample(booleans((3, 4))),
        sample(integers(-1, 2, (2, 3, 2))),
        sample(booleans((0, 2))),
        sample(fixed([0.0, -1.5, np.nan])),
        sample(booleans(())),
    ],
)
def nonzero(x: TensorSpec) -> None:
    """The places of elements that are not zero (true, NaN too), one a row, in row-major order.

    Shapes: x (*s) -> (n, axes of x).  Dtypes: any -> i64.  PyTorch: torch.nonzero; Burn: argwhere.
    """
    x.require(ALL)


# -- one_hot ---------------------------------------------------------------------------------------------------
def _torch_one_hot(call: Call) -> Candidate:
    indices, axis, count = call.tensor(0), call.attrs["axis"], call.attrs["num_classes"]
    shape = (*indices.shape[:axis], count, *indices.shape[axis:])
    dtype, device = TO_TORCH[call.attrs["dtype"]], torch.device(indices.place)

    def run(indices: torch.Tensor, on: float, off: float) -> torch.Tensor:
        indices = torch.where(indices < 0, indices + count, indices)
        y = torch.full(shape, off, dtype=dtype, device=device)
        return y.scatter_(axis, indices.unsqueeze(axis), on)

    return indexing(call, run, count, position=0, lowest=-count)


def _numpy_one_hot(call: Call) -> Candidate:
    axis, count, dtype = call.attrs["axis"], call.attrs["num_classes"], call.attrs["dtype"].numpy

    def run(indices: Array, on: float, off: float) -> Array:
        check_numpy(call, indices, count, -count)
        indices = indices.astype(np.int64)
        y = np.full((*indices.shape[:axis], count, *indices.shape[axis:]), off, dtype)
        wide = np.expand_dims(np.where(indices < 0, indices + count, indices), axis)
        y[along_axis(wide, axis)] = on
        return y

    return run


@op(
    torch=held(PerCall(_torch_one_hot), stored=True),
    numpy=held(PerCall(_numpy_one_hot), stored=True),
    nondifferentiable=True,
    laws=[Unsigned("bits", indices=(0,))],
    samples=[
        sample(integers(0, 5, (4,)), 1.0, 0.0, num_classes=5, axis=1, dtype=DType.F32),
        sample(integers(-2, 3, (2, 4)), 5, -1, num_classes=3, axis=1, dtype=DType.I32),
        sample(integers(0, 3, (0,)), True, False, num_classes=3, axis=0, dtype=DType.BOOL),
        sample(integers(0, 3, ()), 2.5, 0.5, num_classes=3, axis=0, dtype=DType.F64),
    ],
)
def one_hot(indices: TensorSpec, on: Number, off: Number, *, num_classes: int, axis: int, dtype: DType) -> TensorSpec:
    """`on` at each index along a new axis, `off` elsewhere.

    An index may count from the end: -1 is the last class.

    Shapes: indices (*s) -> (*s with num_classes inserted at `axis`).  Dtypes: integers -> dtype.
    Raises: BoundsError for an index outside [-num_classes, num_classes).
    Source: ONNX OneHot, which leaves such rows at `off`.  PyTorch: torch.nn.functional.one_hot (on 1, off 0, axis -1).
    """
    require_indices(indices)
    if num_classes < 1 or not 0 <= axis <= indices.ndim:
        raise shape_fault(
            f"{num_classes} classes at axis {axis}",
            expected=f"num_classes of 1 or more, axis from 0 to {indices.ndim}",
            mend="num_classes is the largest index plus one; axis counts in the result",
        )
    y = TensorSpec.of((*indices.shape[:axis], num_classes, *indices.shape[axis:]), dtype, indices.place)
    return elementwise(elementwise(y, on, dtypes=ALL), off, dtypes=ALL)
