"""Rows of segments: runs of neighbouring entries of an axis, whose ends are data.

Offsets (groups + 1,) cut the first axis: segment g has the entries from offsets[g] to offsets[g + 1] - 1.  They never
fall, and lie in [0, n]; equal ones make an empty segment, and entries before the first or from the last on belong to
none.  On the host wrong offsets are a BoundsError.  On a GPU, which is not waited for, they are held within [0, n].
"""

from __future__ import annotations

import math
from typing import Final, TypeVar

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT, NUMERIC, DType
from burn_torch.core.errors import BoundsError, ConfigError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.bounds import require_indices
from burn_torch.ops.faults import RuleFault, shape_fault
from burn_torch.ops.functions import exp
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.moments import HALF, like, wide_array, widened
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.samples import Array, Drawer, Sample, distinct, fixed, sample, uniform
from burn_torch.ops.scattering import select_assign
from burn_torch.ops.selection import cast, clamp_min, mask_where
from burn_torch.ops.shapes import reshape
from burn_torch.ops.slicing import narrow, pad
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Value

__all__ = ["check_offsets", "held_offsets", "places_from_0", "reduce_by_ids", "require_offsets"]

V = TypeVar("V", bound=Value)

_UPDATES: Final = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


# -- what the rows share ----------------------------------------------------------------------------------
def require_offsets(offsets: TensorSpec) -> int:
    """The number of segments.  Raises faults for what are no offsets."""
    if require_indices(offsets).ndim != 1 or offsets.shape[0] == 0:
        raise shape_fault(
            f"offsets {offsets.shape} are no list of ends",
            expected="offsets (groups + 1,): where the first segment begins, then where each one ends",
            mend="put a 0 in front of the running sums of the lengths",
        )
    return offsets.shape[0] - 1


def check_offsets(call: Call, offsets: object, length: int) -> None:
    """Raises: BoundsError unless offsets never fall and lie in [0, length]."""
    values = np.asarray(offsets)
    if values[0] >= 0 and values[-1] <= length and bool((values[1:] >= values[:-1]).all()):
        return
    shown = values.tolist() if values.size <= 12 else [*values[:6].tolist(), "...", *values[-3:].tolist()]
    raise at_user_line(
        BoundsError(
            f"{call.op.name}: the offsets are not those of segments",
            given=f"offsets {shown} of an axis of size {length}",
            expected=f"numbers that never fall, from 0 to {length}",
            mend="put a 0 in front of the running sums of the lengths",
        )
    )


def held_offsets(call: Call, offsets: torch.Tensor, length: int) -> torch.Tensor:
    """Offsets in int64, which were checked on the host, and on a GPU cannot lead out of the axis."""
    if call.tensor(0).place == "cpu":
        check_offsets(call, offsets, length)
        return offsets.long()
    return offsets.long().clamp(0, length)


def _require_axis(x: TensorSpec) -> None:
    if x.ndim < 1:
        raise shape_fault("x has no axis to cut", expected="x (n, *features)", mend="x.unsqueeze_dim(0) adds one")


def _lengths(offsets: Value) -> Value:
    groups = offsets.shape[0] - 1
    return narrow(offsets, 0, 1, groups + 1) - narrow(offsets, 0, 0, groups)


def _beside(x: V, like: V) -> V:
    """x (n,) with axes of size 1 for the features of another value."""
    return reshape(x, shape=(x.shape[0], *(1,) * (like.ndim - 1)))


_EMPTY_ONES: Final = fixed([0, 2, 2, 5, 6], np.int64)
_GAPS: Final = fixed([1, 3, 3, 4], np.int64)
_FILLED: Final = fixed([0, 2, 5, 6], np.int64)
_NONE: Final = fixed([0], np.int64)


# -- segment_ids ------------------------------------------------------------------------------------------
def _torch_ids(call: Call) -> Candidate:
    length = call.attrs["length"]

    def run(offsets: torch.Tensor) -> torch.Tensor:
        offsets = held_offsets(call, offsets, length)
        places = torch.arange(length, device=offsets.device)
        return torch.bucketize(places, offsets.contiguous(), right=True).sub_(1)

    return run


def _numpy_ids(call: Call) -> Candidate:
    length = call.attrs["length"]

    def run(offsets: Array) -> Array:
        check_offsets(call, offsets, length)
        return np.searchsorted(offsets.astype(np.int64), np.arange(length), side="right") - 1

    return run


@op(
    torch=PerCall(_torch_ids),
    numpy=PerCall(_numpy_ids),
    nondifferentiable=True,
    samples=[
        sample(_EMPTY_ONES, length=6),
        sample(_GAPS, length=6),
        sample(fixed([0, 0], np.int64), length=0),
        sample(_NONE, length=3),
    ],
)
def segment_ids(offsets: TensorSpec, *, length: int) -> TensorSpec:
    """The segment of each entry: -1 before the first one, `groups` behind the last.

        ids[i] = number of offsets that are at most i, less 1

    Shapes: offsets (groups + 1,) -> (length,).  Dtypes: integers -> i64.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    """
    require_offsets(offsets)
    return offsets.with_shape((length,)).with_dtype(DType.I64)


@segment_ids.decomposes
def _(offsets, *, length):
    places = cast(offsets, dtype=DType.I64)
    begun = select_assign(places.new_full((length + 1,), 0), places, places.new_full(offsets.shape, 1), dim=0,
                          update="add")  # fmt: skip
    return ops.cumsum(narrow(begun, 0, 0, length), dim=0) - 1


# -- segment_expand ---------------------------------------------------------------------------------------
def _torch_expand(call: Call) -> Candidate:
    length = call.attrs["length"]

    def run(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        offsets = held_offsets(call, offsets, length).contiguous()
        ids = torch.bucketize(torch.arange(length, device=x.device), offsets, right=True)
        if x.device.type == "cpu" and int(offsets[0]) == 0 and int(offsets[-1]) == length:
            return torch.index_select(x, 0, ids.sub_(1))
        blank = x.new_zeros((1, *x.shape[1:]))
        return torch.index_select(torch.cat((blank, x, blank)), 0, ids)

    return run


def _numpy_expand(call: Call) -> Candidate:
    ids = _numpy_ids(call)

    def run(x: Array, offsets: Array) -> Array:
        blank = np.zeros((1, *x.shape[1:]), x.dtype)
        return np.concatenate((blank, x, blank))[ids(offsets) + 1]

    return run


@op(
    torch=PerCall(_torch_expand),
    numpy=PerCall(_numpy_expand),
    laws=[Unsigned("bits", indices=(1,))],
    samples=[
        sample(uniform(-1, 1, (4, 3)), _EMPTY_ONES, length=6),
        sample(uniform(-1, 1, (3,)), _GAPS, length=6),
        sample(uniform(-1, 1, (3, 2, 2)), _GAPS, length=4),
        sample(uniform(-1, 1, (0, 2)), _NONE, length=3),
        sample(uniform(-1, 1, (1, 2)), fixed([0, 0], np.int64), length=0),
    ],
)
def segment_expand(x: TensorSpec, offsets: TensorSpec, *, length: int) -> TensorSpec:
    """The entry of its segment at each place, 0 where there is none: what undoes the axis that `segment_reduce` sums.

    Shapes: x (groups, *features), offsets (groups + 1,) -> (length, *features).  Dtypes: x numbers, offsets integers.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    PyTorch: torch.repeat_interleave along axis 0, by lengths.
    """
    x.require(NUMERIC)
    _require_axis(x)
    groups = require_offsets(offsets)
    if x.shape[0] != groups:
        raise shape_fault(
            "x does not fit the offsets",
            expected=f"x ({groups}, *features): an entry for each segment",
            mend="there is one offset more than segments",
        )
    return x.with_shape((length, *x.shape[1:]))


@segment_expand.decomposes
def _(x, offsets, *, length):
    around = pad(x, 0.0 if x.dtype.is_float else 0, padding=((1, 1), *((0, 0),) * (x.ndim - 1)), mode="constant")
    return ops.select(around, segment_ids(offsets, length=length) + 1, dim=0)


@segment_expand.gradient
def _(g, y, x, offsets, *, length):
    return segment_reduce(g, offsets, reduction="sum"), None


# -- segment_reduce ---------------------------------------------------------------------------------------
def _neutral(dtype: DType, reduction: str) -> float | int:
    if reduction in ("sum", "mean", "prod"):
        number = float(reduction == "prod")
        return number if dtype.is_float else int(number)
    if dtype.is_float:
        return -math.inf if reduction == "max" else math.inf
    info = dtype.iinfo()
    return info.min if reduction == "max" else info.max


def _torch_reduce(call: Call) -> Candidate | None:
    x, reduction = call.tensor(0), call.attrs["reduction"]
    if not x.dtype.is_float:
        return None
    length, dtype = x.shape[0], TO_TORCH[x.dtype]
    # torch adds one entry after the other in the type of x: 3,000 times 0.1 in float32 are 300.009
    wide = torch.float64 if x.place == "cpu" else torch.float32 if x.dtype in HALF else dtype
    wide = dtype if reduction in ("max", "min") else wide

    def run(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        offsets = held_offsets(call, offsets, length)
        if not x.numel() or offsets.shape[0] == 1:
            return x.new_full((offsets.shape[0] - 1, *x.shape[1:]), _neutral(call.tensor(0).dtype, reduction))
        y = torch.segment_reduce(x.to(wide).contiguous(), reduction, offsets=offsets.contiguous(), axis=0, unsafe=True)
        return _fill_empty(y, offsets, reduction).to(dtype)

    return run


def _fill_empty(y: torch.Tensor, offsets: torch.Tensor, reduction: str) -> torch.Tensor:
    """Means of nothing, which torch has as NaN, are 0."""
    if reduction != "mean":
        return y
    empty = offsets[1:] <= offsets[:-1]
    return y.masked_fill_(empty.reshape(-1, *(1,) * (y.ndim - 1)), 0.0)


_UFUNCS: Final = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _numpy_reduce(call: Call) -> Candidate:
    spec, reduction = call.tensor(0), call.attrs["reduction"]

    def run(x: Array, offsets: Array) -> Array:
        check_offsets(call, offsets, len(x))
        wide = wide_array(x) if spec.dtype.is_float else x
        ends = offsets.astype(np.int64)
        lengths = ends[1:] - ends[:-1]
        y = np.full((len(lengths), *x.shape[1:]), _neutral(spec.dtype, reduction), wide.dtype)
        inside = slice(int(ends[0]), int(ends[-1]))
        _UFUNCS[reduction].at(y, np.repeat(np.arange(len(lengths)), lengths), wide[inside])
        return y / np.maximum(lengths, 1).reshape(-1, *(1,) * (x.ndim - 1)) if reduction == "mean" else y

    return run


def _reduction(reduction: str, x: Drawer, offsets: Drawer = _EMPTY_ONES) -> Sample:
    return sample(x, offsets, reduction=reduction)


@op(
    torch=PerCall(_torch_reduce),
    numpy=PerCall(_numpy_reduce),
    precision="high",
    samples=[
        *(_reduction(r, uniform(-1, 1, (6, 3))) for r in ("sum", "mean")),
        *(_reduction(r, distinct((6, 3)), _FILLED) for r in ("max", "min")),
        _reduction("prod", uniform(0.5, 2, (6, 3))),
        *(_reduction(r, uniform(0.5, 2, (6,)), _GAPS) for r in ("sum", "mean", "prod")),
        _reduction("max", distinct((6, 2, 2)), fixed([1, 3, 5], np.int64)),
        *(_reduction(r, uniform(-1, 1, (0, 2)), fixed([0, 0, 0], np.int64)) for r in ("sum", "prod")),
        _reduction("mean", uniform(-1, 1, (4, 2)), _NONE),
    ],
)
def segment_reduce(x: TensorSpec, offsets: TensorSpec, *, reduction: str) -> TensorSpec:
    """Each segment of the first axis as one entry: its "sum", "mean", "prod", "max" or "min".

    Nothing has the sum 0, the product 1, the mean 0, and the maximum that is below all others: -inf, of integers the
    least one.  Equal winners share a gradient evenly, which is NaN where the result is.

    Shapes: x (n, *features), offsets (groups + 1,) -> (groups, *features).
    Dtypes: x numbers, for means floats; offsets integers.  Floats are summed in float32 at least, on a CPU in float64.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    PyTorch: torch.segment_reduce, whose mean of nothing is NaN.
    """
    if reduction not in _UPDATES:
        raise RuleFault(
            ConfigError,
            f"unknown reduction {reduction!r}",
            expected=", ".join(f'"{name}"' for name in _UPDATES),
            mend="name one of them",
        )
    x.require(FLOAT if reduction == "mean" else NUMERIC)
    _require_axis(x)
    return x.with_shape((require_offsets(offsets), *x.shape[1:]))


@segment_reduce.decomposes
def _(x, offsets, *, reduction):
    groups = offsets.shape[0] - 1
    y = reduce_by_ids(x, segment_ids(offsets, length=x.shape[0]) + 1, groups + 2, reduction)
    return narrow(y, 0, 1, groups + 1)


def reduce_by_ids(x: V, ids: V, groups: int, reduction: str) -> V:
    """`segment_reduce` of entries that need not stand together: entry i belongs to group ids[i]."""
    wide = x if reduction in ("max", "min") else widened(x)

    def write(values: V, neutral: float) -> V:
        start = values.new_full((groups, *values.shape[1:]), neutral)
        return select_assign(start, ids, values, dim=0, update=_UPDATES[reduction])

    y = write(wide, _neutral(wide.dtype, reduction))
    if reduction == "mean":
        y = y / _beside(clamp_min(write(wide.new_full(ids.shape, 1.0), 0.0), 1.0), y)
    return like(x, y)


def _counts(offsets: Value, y: Value) -> Value:
    """Lengths of segments as divisors: 1 of empty ones."""
    return clamp_min(cast(cast(_lengths(offsets), dtype=DType.I64), dtype=y.dtype), 1.0)


@segment_reduce.gradient
def _(g, y, x, offsets, *, reduction):
    length = x.shape[0]
    if reduction == "prod":
        return NotImplemented
    if reduction == "mean":
        wide = widened(g)
        g = like(g, wide / _beside(_counts(offsets, wide), wide))
    if reduction in ("max", "min"):
        tied = cast(ops.equal(x, segment_expand(y, offsets, length=length)), dtype=g.dtype)
        share = g / clamp_min(segment_reduce(tied, offsets, reduction="sum"), 1.0)
        share = mask_where(share, ops.is_nan(y), math.nan)
        return tied * segment_expand(share, offsets, length=length), None
    return segment_expand(g, offsets, length=length), None


# -- segment_softmax --------------------------------------------------------------------------------------
@op(
    precision="high",
    samples=[
        sample(uniform(-3, 3, (6, 3)), _EMPTY_ONES),
        sample(uniform(-3, 3, (6,)), _GAPS),
        sample(uniform(-3, 3, (0, 2)), fixed([0, 0], np.int64)),
    ],
)
def segment_softmax(x: TensorSpec, offsets: TensorSpec) -> TensorSpec:
    """exp(x) / sum(exp(x)) over each segment of the first axis, 0 at entries that belong to none.

    Shapes: x (n, *features), offsets (groups + 1,) -> as x.  Dtypes: x float, offsets integers; half types compute in
    float32.
    Raises: BoundsError for wrong offsets, where the data is on the host.
    """
    x.require(FLOAT)
    _require_axis(x)
    require_offsets(offsets)
    return x


@segment_softmax.decomposes
def _(x, offsets):
    length, wide = x.shape[0], widened(x)
    largest = segment_expand(segment_reduce(wide, offsets, reduction="max"), offsets, length=length)
    ids = segment_ids(offsets, length=length)
    outside = _beside(ops.bool_or(ops.lower(ids, 0), ops.greater_equal(ids, offsets.shape[0] - 1)), x)
    e = mask_where(exp(wide - largest), outside, 0.0)
    total = segment_expand(segment_reduce(e, offsets, reduction="sum"), offsets, length=length)
    return like(x, e / mask_where(total, outside, 1.0))


@segment_softmax.gradient
def _(g, y, x, offsets):
    wide, upstream = widened(y), widened(g)
    total = segment_reduce(upstream * wide, offsets, reduction="sum")
    return like(y, wide * (upstream - segment_expand(total, offsets, length=x.shape[0]))), None


# -- segment_pad, segment_unpad ---------------------------------------------------------------------------
@op(
    samples=[
        sample(uniform(-1, 1, (6, 3)), _EMPTY_ONES, longest=4),
        sample(uniform(-1, 1, (6,)), _GAPS, longest=2),
        sample(uniform(-1, 1, (6, 2, 2)), _FILLED, longest=2),
        sample(uniform(-1, 1, (3, 2)), _NONE, longest=2),
        sample(uniform(-1, 1, (0, 2)), fixed([0, 0], np.int64), longest=0),
    ],
)
def segment_pad(x: TensorSpec, offsets: TensorSpec, *, longest: int) -> TensorSpec:
    """The segments of the first axis beside each other, with zeros behind each; what is longer is cut.

    Shapes: x (n, *features), offsets (groups + 1,) -> (groups, longest, *features).
    Dtypes: x numbers, offsets integers.
    """
    x.require(NUMERIC)
    _require_axis(x)
    return x.with_shape((require_offsets(offsets), longest, *x.shape[1:]))


@segment_pad.decomposes
def _(x, offsets, *, longest):
    groups, length, features = offsets.shape[0] - 1, x.shape[0], x.shape[1:]
    ends = cast(offsets, dtype=DType.I64)
    place = places_from_0(ends, longest) + reshape(narrow(ends, 0, 0, groups), shape=(groups, 1))
    behind = ops.greater_equal(place, reshape(narrow(ends, 0, 1, groups + 1), shape=(groups, 1)))
    index = reshape(mask_where(place, behind, length), shape=(groups * longest,))
    blank = pad(x, 0.0 if x.dtype.is_float else 0, padding=((0, 1), *((0, 0),) * len(features)), mode="constant")
    return reshape(ops.select(blank, index, dim=0), shape=(groups, longest, *features))


def places_from_0(beside: Value, length: int) -> Value:
    """0, 1, 2, ... (1, length) beside a value, of its type."""
    attrs = {"length": length, "dtype": beside.dtype, "place": beside.place}
    counted = ops.arange.run(beside.backend, type(beside), (0, 1), attrs)
    return reshape(counted, shape=(1, length))


@segment_pad.gradient
def _(g, y, x, offsets, *, longest):
    return segment_unpad(g, offsets, length=x.shape[0]), None


@op(
    samples=[
        sample(uniform(-1, 1, (4, 4, 3)), _EMPTY_ONES, length=6),
        sample(uniform(-1, 1, (3, 2)), _GAPS, length=6),
        sample(uniform(-1, 1, (3, 3, 2, 2)), _FILLED, length=6),
        sample(uniform(-1, 1, (0, 2, 2)), _NONE, length=3),
    ],
)
def segment_unpad(x: TensorSpec, offsets: TensorSpec, *, length: int) -> TensorSpec:
    """The first entries of each line behind each other: what undoes `segment_pad`.  0 outside of all segments.

    Shapes: x (groups, longest, *features), offsets (groups + 1,) -> (length, *features).
    Dtypes: x numbers, offsets integers.
    """
    x.require(NUMERIC)
    groups = require_offsets(offsets)
    if x.ndim < 2 or x.shape[0] != groups:
        raise shape_fault(
            "x does not fit the offsets",
            expected=f"x ({groups}, longest, *features): a line for each segment",
            mend="there is one offset more than segments",
        )
    return x.with_shape((length, *x.shape[2:]))


@segment_unpad.decomposes
def _(x, offsets, *, length):
    groups, longest, *features = x.shape
    ends = cast(offsets, dtype=DType.I64)
    ids = segment_ids(offsets, length=length)
    first = ops.select(pad(ends, 0, padding=((1, 0),), mode="constant"), ids + 1, dim=0)
    place = reshape(places_from_0(ends, length), shape=(length,)) - first
    outside = ops.bool_or(ops.lower(ids, 0), ops.greater_equal(ids, groups))
    outside = ops.bool_or(outside, ops.greater_equal(place, longest))
    index = mask_where(ids * longest + place, outside, groups * longest)
    flat = reshape(x, shape=(groups * longest, *features))
    blank = pad(flat, 0.0 if x.dtype.is_float else 0, padding=((0, 1), *((0, 0),) * len(features)), mode="constant")
    return ops.select(blank, index, dim=0)


@segment_unpad.gradient
def _(g, y, x, offsets, *, length):
    return segment_pad(g, offsets, longest=x.shape[1]), None
