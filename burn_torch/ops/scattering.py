"""Rows that write values at indices: select_assign, scatter, scatter_nd, scatter_distinct.

If several values meet at one place, `update` says what becomes of them:

    "assign"  the last of them along the axis wins        "add"  all are added to what was there
    "mul"     all are multiplied onto what was there      "min", "max"  the smallest, largest of all

The result is the same in every run, on the GPU too: sums are sorted by index there (torch's index_put_, where
scatter_add_ and index_add_ use atomics) and the last writer is found with integer maxima.  The one exception is
"mul" of floats on a GPU, which multiplies with atomics: with three or more factors at a place its last bit may vary.
"""

from __future__ import annotations

import builtins
import math

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import NUMERIC, STORED, DType, DTypeClass
from burn_torch.core.errors import ConfigError
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.bounds import checking, indexing, on_host, require_indices
from burn_torch.ops.faults import RuleFault, shape_fault
from burn_torch.ops.indexing import along_axis, fits_beside, gather, leading_axes, linear_index, select
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import front_axis, same_dtype
from burn_torch.ops.samples import Array, fixed, integers, sample, uniform
from burn_torch.ops.shapes import expand, flip, reshape
from burn_torch.ops.slicing import narrow, pad
from burn_torch.ops.value import Primitive, Value

_ACCEPTS: dict[str, DTypeClass] = {"assign": STORED, "add": NUMERIC, "mul": NUMERIC, "min": NUMERIC, "max": NUMERIC}
_TORCH_REDUCTION = {"mul": "prod", "min": "amin", "max": "amax"}
_NUMPY_AT = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _check_update(x: TensorSpec, values: TensorSpec, update: str, shape: Shape) -> TensorSpec:
    """Checks what all these rows share."""
    accepts = _ACCEPTS.get(update)
    if accepts is None:
        raise RuleFault(
            ConfigError,
            f"unknown update {update!r}",
            expected=", ".join(f'"{name}"' for name in _ACCEPTS),
            mend="name one of them",
        )
    same_dtype(x.require(accepts), values)
    if values.shape != shape:
        raise shape_fault(
            "the values do not fit the indices",
            expected=f"values {shape}",
            mend="expand the values first; they are not broadcast in silence",
        )
    return x


def _by_update(call: Call) -> str:
    return "order" if call.attrs["update"] in ("min", "max") else "bits"


def _numpy_write(y: Array, places: tuple[Primitive, ...], values: Array, update: str) -> Array:
    if update == "assign":
        y[places] = values  # numpy writes in order: the last of equal places wins
    else:
        _NUMPY_AT[update].at(y, places, values)
    return y


# -- scatter ---------------------------------------------------------------------------------------------
def _whole_but(shape: Shape, dim: int) -> Primitive:
    """The part of a tensor that indices of `shape` can reach: all of `dim`, their sizes on the other axes."""
    return tuple(builtins.slice(None) if i == dim else builtins.slice(n) for i, n in enumerate(shape))


def _last_positions(indices: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """For each place, the position along `dim` of the last index that names it, or -1.  Deterministic anywhere."""
    shape = [1] * indices.ndim
    shape[dim] = indices.shape[dim]
    positions = torch.arange(indices.shape[dim], device=indices.device).reshape(shape).expand(indices.shape)
    named = torch.full(
        (*indices.shape[:dim], size, *indices.shape[dim + 1 :]), -1, dtype=torch.int64, device=indices.device
    )
    return named.scatter_reduce_(dim, indices, positions, "amax")


def _torch_scatter(call: Call) -> Candidate:
    x, dim, update = call.tensor(0), call.attrs["dim"], call.attrs["update"]
    size = x.shape[dim]
    if update in _TORCH_REDUCTION:
        reduction = _TORCH_REDUCTION[update]
        return indexing(call, lambda x, i, v: x.clone().scatter_reduce_(dim, i, v, reduction), size)
    if on_host(call):  # torch walks each line along `dim` in order there
        write = torch.Tensor.scatter_add_ if update == "add" else torch.Tensor.scatter_
        return indexing(call, lambda x, i, v: write(x.clone(), dim, i, v), size)
    return indexing(call, _device_add(dim) if update == "add" else _device_assign(dim), size)


def _device_add(dim: int) -> Primitive:
    def run(x: Primitive, indices: Primitive, values: Primitive) -> Primitive:
        places = [
            indices if i == dim else torch.arange(n, device=x.device).reshape(-1, *[1] * (x.ndim - 1 - i))
            for i, n in enumerate(indices.shape)
        ]
        return x.clone().index_put_(tuple(places), values, accumulate=True)

    return run


def _device_assign(dim: int) -> Primitive:
    def run(x: Primitive, indices: Primitive, values: Primitive) -> Primitive:
        y = x.clone()
        if indices.numel():
            last = _last_positions(indices, dim, x.shape[dim])
            part = y[_whole_but(indices.shape, dim)]
            part.copy_(torch.where(last >= 0, torch.gather(values, dim, last.clamp(min=0)), part))
        return y

    return run


def _numpy_scatter(x: Array, indices: Array, values: Array, *, dim: int, update: str) -> Array:
    return _numpy_write(np.array(x), along_axis(indices, dim), values, update)


# "assign" has distinct indices here, since torch gives gradients to values that were overwritten; equal ones are in
# tests/ops/test_indexing.py
_AT = fixed(np.array([[2, 0, 1, 2], [0, 0, 2, 2]]), np.int64)  # two places are named twice
_ONCE = fixed(np.array([[2, 0, 1, 2], [0, 1, 2, 1]]), np.int64)
_X = fixed(np.array([[0.5, -1.0, 2.0, 0.25], [1.5, -0.25, 0.75, -1.5], [1.25, 1.75, -0.75, -0.5]]))
_V = fixed(np.array([[1.0, 0.0, -1.25, 2.5], [-2.0, -3.0, 3.0, -1.75]]))
_SCATTERED = [
    sample(uniform(0.5, 2, (3, 4)), _ONCE, uniform(0.5, 2, (2, 4)), dim=0, update="assign"),
    *(sample(uniform(0.5, 2, (3, 4)), _AT, uniform(0.5, 2, (2, 4)), dim=0, update=u) for u in ("add", "mul")),
    *(sample(_X, _AT, _V, dim=0, update=u) for u in ("min", "max")),
    sample(uniform(-1, 1, (2, 3, 4)), integers(0, 3, (2, 5, 4)), uniform(-1, 1, (2, 5, 4)), dim=1, update="add"),
    sample(uniform(-1, 1, (3, 4)), fixed([[3, 1], [0, 1]], np.int64), uniform(-1, 1, (2, 2)), dim=1, update="assign"),
    sample(uniform(0.5, 2, (3, 4)), integers(0, 4, (2, 6)), uniform(0.5, 2, (2, 6)), dim=1, update="mul"),
    sample(uniform(-1, 1, (3,)), integers(0, 3, (0,)), uniform(-1, 1, (0,)), dim=0, update="mul"),
]


@op(
    torch=PerCall(_torch_scatter),
    numpy=checking(_numpy_scatter),
    laws=[Unsigned(_by_update, indices=(1,))],
    samples=_SCATTERED,
)
def scatter(x: TensorSpec, indices: TensorSpec, values: TensorSpec, *, dim: int, update: str) -> TensorSpec:
    """x updated, at the index that each value has along an axis, at the value's own place on the others.

        y[i][indices[i][j][k]][k]  <-  values[i][j][k]        for dim = 1, as `update` says

    Shapes: x (*s), indices and values alike with as many axes, none but `dim` longer than that of x -> (*s).
    Dtypes: x any ("assign") or numbers, values the same, indices integers.

    Gradients.  "assign": only the value that won gets one.  "mul": the product of all other factors, exact where some
    are 0.  "min", "max": equal winners share it evenly, and it is NaN where the result is.
    Raises: BoundsError for an index outside [0, size).
    PyTorch: torch.scatter, torch.scatter_add, torch.scatter_reduce (prod, amin, amax).
    """
    fits_beside(x, indices, dim)
    return _check_update(x, values, update, indices.shape)


@scatter.gradient
def _(g, y, x, indices, values, *, dim, update):
    if update == "add":
        return g, None, gather(g, indices, dim=dim)
    if update == "assign":
        kept = scatter(g, indices, g.new_full(values.shape, 0.0), dim=dim, update="assign")
        wins = ops.cast(last_writer(indices, dim=dim, size=x.shape[dim]), dtype=g.dtype)
        return kept, None, gather(g, indices, dim=dim) * wins
    if update == "mul":
        factors = scatter(g.new_full(x.shape, 1.0), indices, values, dim=dim, update="mul")
        return g * factors, None, _other_factors(g * x, indices, values, dim)
    won = ops.cast(ops.equal(x, y), dtype=g.dtype)
    tied = ops.cast(ops.equal(values, gather(y, indices, dim=dim)), dtype=g.dtype)
    share = g / scatter(won, indices, tied, dim=dim, update="add")
    return won * share, None, tied * gather(share, indices, dim=dim)


def _other_factors(scale: Value, indices: Value, values: Value, dim: int) -> Value:
    """For each value, `scale` at its place times all other values there.  No division, so zeros are no exception.

    Values are sorted by place, so that the others are those before and after in a run of equal indices; a product that
    starts again with each run is the recurrence y[k] = a[k] * y[k - 1] + b[k] with (a, b) = (0, 1) at a start.
    """
    count = values.shape[dim]
    if not values.spec.numel:
        return scale.new_full(values.shape, 0.0)
    places, order = ops.sort_with_indices(indices, dim=dim, descending=False)
    sorted_values = gather(values, order, dim=dim)
    changes = ops.not_equal(narrow(places, dim, 1, count), narrow(places, dim, 0, count - 1))

    def before(values: Value, changes: Value) -> Value:
        ones = tuple((1, 0) if i == dim else (0, 0) for i in range(values.ndim))
        starts = pad(changes, True, padding=ones, mode="constant")
        previous = pad(narrow(values, dim, 0, count - 1), 1.0, padding=ones, mode="constant")
        return ops.linear_scan(ops.mask_where(previous, starts, 0.0), ops.cast(starts, dtype=values.dtype), dim=dim)

    after = flip(before(flip(sorted_values, axes=(dim,)), flip(changes, axes=(dim,))), axes=(dim,))
    gradient = before(sorted_values, changes) * after * gather(scale, places, dim=dim)
    return scatter_distinct(order, gradient, dim=dim, size=count)


def _torch_last_writer(call: Call) -> Candidate:
    indices, dim, size = call.tensor(0), call.attrs["dim"], call.attrs["size"]
    count = indices.shape[dim]
    positions = [count if i == dim else 1 for i in range(indices.ndim)]

    def run(indices: torch.Tensor) -> torch.Tensor:
        last = _last_positions(indices, dim, size)
        return torch.gather(last, dim, indices) == torch.arange(count, device=indices.device).reshape(positions)

    return indexing(call, run, size, position=0)


def _numpy_last_writer(indices: Array, *, dim: int, size: int) -> Array:
    shape = [1] * indices.ndim
    shape[dim] = indices.shape[dim]
    positions = np.broadcast_to(np.arange(indices.shape[dim]).reshape(shape), indices.shape)
    last = np.full((*indices.shape[:dim], size, *indices.shape[dim + 1 :]), -1)
    places = along_axis(indices, dim)
    np.maximum.at(last, places, positions)
    equal: Array = last[places] == positions
    return equal


@op(
    torch=PerCall(_torch_last_writer),
    numpy=checking(_numpy_last_writer, 0),
    nondifferentiable=True,
    samples=[
        sample(integers(0, 3, (5, 2)), dim=0, size=3),
        sample(integers(0, 2, (2, 3, 4)), dim=1, size=2),
        sample(integers(0, 2, (2, 0)), dim=1, size=2),
    ],
)
def last_writer(indices: TensorSpec, *, dim: int, size: int) -> TensorSpec:
    """True where no later index along `dim` names the same place: its value stays when all are assigned in order.

    Shapes: indices (*s) -> (*s).  Dtypes: integers -> bool.
    """
    front_axis(dim, indices.ndim)
    return require_indices(indices).with_dtype(DType.BOOL)


def _torch_scatter_distinct(call: Call) -> Candidate:
    values, dim, size = call.tensor(1), call.attrs["dim"], call.attrs["size"]
    shape = (*values.shape[:dim], size, *values.shape[dim + 1 :])
    return indexing(
        call, lambda i, v: torch.zeros(shape, dtype=v.dtype, device=v.device).scatter_(dim, i, v), size, position=0
    )


def _numpy_scatter_distinct(indices: Array, values: Array, *, dim: int, size: int) -> Array:
    y = np.zeros((*values.shape[:dim], size, *values.shape[dim + 1 :]), values.dtype)
    y[along_axis(indices, dim)] = values
    return y


@op(
    torch=PerCall(_torch_scatter_distinct),
    numpy=checking(_numpy_scatter_distinct, 0),
    laws=[Unsigned("bits", indices=(0,))],
    samples=[
        sample(fixed(np.array([[2, 0], [0, 1]]), np.int64), uniform(-1, 1, (2, 2)), dim=0, size=3),
        sample(fixed(np.array([[2, 0, 1]]), np.int64), uniform(-1, 1, (1, 3)), dim=1, size=3),
        sample(fixed(np.zeros((0, 2)), np.int64), uniform(-1, 1, (0, 2)), dim=0, size=3),
    ],
)
def scatter_distinct(indices: TensorSpec, values: TensorSpec, *, dim: int, size: int) -> TensorSpec:
    """Zeros with values at indices along an axis that are known to differ: the transpose of taking those elements.

    Gradients of sort, topk, median and max_with_indices use it; no two values meet, so no order of adding matters.

    Shapes: indices, values (*pre, n, *post) -> (*pre, size, *post).  Dtypes: integers, numbers -> as values.
    """
    values.require(NUMERIC)
    front_axis(dim, values.ndim)
    if require_indices(indices).shape != values.shape:
        raise shape_fault(
            "the values do not fit the indices", expected=f"indices {values.shape}", mend="give one index a value"
        )
    return values.with_shape((*values.shape[:dim], size, *values.shape[dim + 1 :]))


@scatter_distinct.gradient
def _(g, y, indices, values, *, dim, size):
    return None, gather(g, indices, dim=dim)


# -- select_assign --------------------------------------------------------------------------------------------
def _torch_select_assign(call: Call) -> Candidate:
    x, dim, update = call.tensor(0), call.attrs["dim"], call.attrs["update"]
    size = x.shape[dim]
    if update in _TORCH_REDUCTION:
        reduction = _TORCH_REDUCTION[update]
        return indexing(call, lambda x, i, v: x.clone().scatter_reduce_(dim, _spread(i, v, dim), v, reduction), size)
    if not on_host(call):
        return indexing(call, _device_entries_add(dim) if update == "add" else _device_entries(dim), size)
    if update == "add":
        return indexing(call, lambda x, i, v: x.clone().index_add_(dim, i, v), size)
    return indexing(call, lambda x, i, v: x.clone().scatter_(dim, _spread(i, v, dim), v), size)


def _device_entries_add(dim: int) -> Primitive:
    whole = [None] * dim
    return lambda x, indices, values: torch.ops.aten.index_put_(x.clone(), [*whole, indices], values, True)


def _device_entries(dim: int) -> Primitive:
    def run(x: Primitive, indices: Primitive, values: Primitive) -> Primitive:
        if not indices.numel():
            return x.clone()
        last = _last_positions(indices, 0, x.shape[dim])
        named = (last >= 0).reshape(-1, *[1] * (x.ndim - 1 - dim))
        return torch.where(named, torch.index_select(values, dim, last.clamp(min=0)), x)

    return run


def _spread(indices: torch.Tensor, values: torch.Tensor, dim: int) -> torch.Tensor:
    return indices.reshape(-1, *[1] * (values.ndim - 1 - dim)).expand(values.shape)


def _numpy_select_assign(x: Array, indices: Array, values: Array, *, dim: int, update: str) -> Array:
    return _numpy_write(np.array(x), (builtins.slice(None),) * dim + (indices,), values, update)


_TWICE = fixed([2, 0, 2], np.int64)
_APART = fixed([2, 0], np.int64)
_V3 = fixed([[1.0, 0.0, -1.25], [-2.0, -3.0, 3.0], [0.125, 1.375, -0.125]])


@op(
    torch=PerCall(_torch_select_assign),
    numpy=checking(_numpy_select_assign),
    laws=[Unsigned(_by_update, indices=(1,))],
    samples=[
        sample(uniform(-1, 1, (3, 4)), _APART, uniform(-1, 1, (2, 4)), dim=0, update="assign"),
        *(sample(uniform(0.5, 2, (3, 4)), _TWICE, uniform(0.5, 2, (3, 4)), dim=0, update=u) for u in ("add", "mul")),
        *(sample(_X, _TWICE, _V3, dim=1, update=u) for u in ("min", "max")),
        sample(uniform(-1, 1, (2, 3, 2)), _TWICE, uniform(-1, 1, (2, 3, 2)), dim=1, update="add"),
        sample(uniform(-1, 1, (2, 3, 2)), _APART, uniform(-1, 1, (2, 2, 2)), dim=1, update="assign"),
        sample(uniform(-1, 1, (4,)), integers(0, 4, (6,)), uniform(-1, 1, (6,)), dim=0, update="add"),
        sample(uniform(-1, 1, (3, 2)), integers(0, 3, (0,)), uniform(-1, 1, (0, 2)), dim=0, update="assign"),
    ],
)
def select_assign(x: TensorSpec, indices: TensorSpec, values: TensorSpec, *, dim: int, update: str) -> TensorSpec:
    """x with its entries at `indices` along an axis updated by values; an index may occur many times.

    Shapes: x (*pre, size, *post), indices (n,), values (*pre, n, *post) -> as x.
    Dtypes: x any ("assign") or numbers, values the same, indices integers.
    Gradients at equal indices and ties: as `scatter`.
    Raises: BoundsError for an index outside [0, size).
    PyTorch: torch.index_copy, torch.index_add, torch.index_reduce (prod, amin, amax).
    """
    front_axis(dim, x.ndim)
    if require_indices(indices).ndim != 1:
        raise shape_fault(
            f"the indices have {indices.ndim} axes",
            expected="indices (n,)",
            mend="flatten them, or use scatter for an index of each value",
        )
    return _check_update(x, values, update, (*x.shape[:dim], indices.shape[0], *x.shape[dim + 1 :]))


@select_assign.decomposes
def _(x, indices, values, *, dim, update):
    return scatter(x, _repeat_indices(indices, values, dim), values, dim=dim, update=update)


def _repeat_indices(indices: Value, values: Value, dim: int) -> Value:
    line = reshape(indices, shape=tuple(indices.shape[0] if i == dim else 1 for i in range(values.ndim)))
    return expand(line, shape=values.shape)


@select_assign.gradient
def _(g, y, x, indices, values, *, dim, update):
    if update == "add":
        return g, None, select(g, indices, dim=dim)
    if update == "assign":
        kept = select_assign(g, indices, g.new_full(values.shape, 0.0), dim=dim, update="assign")
        wins = ops.cast(last_writer(indices, dim=0, size=x.shape[dim]), dtype=g.dtype)
        return kept, None, select(g, indices, dim=dim) * _repeat_indices(wins, values, dim)
    return NotImplemented


# -- scatter_nd -------------------------------------------------------------------------------------------------
_ENTRIES = fixed([[2, 0], [0, 1], [2, 0]], np.int64)
_ROWS_APART = fixed([[2], [0]], np.int64)
_ROWS = fixed([[2], [0], [2]], np.int64)
_V4 = fixed([[1.0, 0.0, -1.25, 2.5], [-2.0, -3.0, 3.0, -1.75], [0.125, 1.375, -0.125, -0.625]])


@op(
    samples=[
        sample(uniform(-1, 1, (3, 2)), _ROWS_APART, uniform(-1, 1, (2, 2)), update="assign"),
        *(sample(uniform(0.5, 2, (3, 2)), _ENTRIES, uniform(0.5, 2, (3,)), update=u) for u in ("add", "mul")),
        *(sample(_X, _ROWS, _V4, update=u) for u in ("min", "max")),
        sample(uniform(-1, 1, (3, 2)), integers(0, 3, (2, 2, 1)), uniform(-1, 1, (2, 2, 2)), update="add"),
        sample(uniform(-1, 1, (3, 2)), integers(0, 3, (0, 1)), uniform(-1, 1, (0, 2)), update="assign"),
    ]
)
def scatter_nd(x: TensorSpec, indices: TensorSpec, values: TensorSpec, *, update: str) -> TensorSpec:
    """x with the slices that entries of `indices` name on its first k axes updated by values.

        y[indices[b][0], ..., indices[b][k - 1]]  <-  values[b]        as `update` says

    Shapes: x (*s), indices (*batch, k), values (*batch, *s[k:]) -> (*s).
    Dtypes: x any ("assign") or numbers, values the same, indices integers.
    Gradients at equal entries and ties: as `scatter`, "last" in row-major order of the batch axes.
    Raises: BoundsError for an index outside its axis.  Source: ONNX ScatterND.
    """
    k = leading_axes(x, indices)
    return _check_update(x, values, update, (*indices.shape[:-1], *x.shape[k:]))


@scatter_nd.decomposes
def _(x, indices, values, *, update):
    k = indices.shape[-1]
    cols = math.prod(x.shape[k:])
    written = select_assign(
        reshape(x, shape=(math.prod(x.shape[:k]), cols)),
        linear_index(indices, sizes=x.shape[:k]),
        reshape(values, shape=(math.prod(indices.shape[:-1]), cols)),
        dim=0,
        update=update,
    )
    return reshape(written, shape=x.shape)
