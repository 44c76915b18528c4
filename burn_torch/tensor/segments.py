"""Segments of the first axis: reductions, softmax and products of runs of entries whose lengths are data.

    offsets = segments.offsets(lengths)             # 0, then the running sums
    totals = segments.sum(x, offsets)               # (groups, *features)
    weights = segments.softmax(scores, offsets)     # as scores
    totals = segments.sum(x, ids=ids, count=5)      # entries of a group need not stand together

Segment g has the entries from offsets[g] to offsets[g + 1] - 1; entries outside of all belong to none.  With `ids`
entry i belongs to group ids[i] of `count`.
"""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.core.wording import described
from burn_torch.tensor._arguments import integer
from burn_torch.tensor.apply import HALVES, apply_one, require_tensor, unary
from burn_torch.tensor.tensor import Tensor

__all__ = ["expand", "ids", "matmul", "max", "mean", "min", "offsets", "outer", "prod", "softmax", "sum"]


# -- offsets ----------------------------------------------------------------------------------------------
def offsets(lengths: Tensor) -> Tensor:
    """The offsets of segments of these lengths: 0, then the running sums.

    Shapes: lengths (groups,) -> (groups + 1,).  Dtypes: integers -> i64.
    """
    require_tensor(lengths, "lengths")
    if lengths.ndim != 1:
        raise told(
            ShapeError,
            "lengths have one axis",
            given=f"lengths {lengths.spec}",
            expected="lengths (groups,), one for each segment",
            mend="lengths.flatten(0, -1)",
        )
    wide = lengths.cast(DType.I64)
    return unary(ops.cumsum, Tensor.cat([wide.zeros_like()[:1] if lengths.shape[0] else _zero(wide), wide], 0), 0)


def _zero(like: Tensor) -> Tensor:
    return Tensor.from_ints([0], like.device).cast(like.dtype)


def ids(offsets: Tensor, length: int) -> Tensor:
    """The segment of each of `length` entries: -1 before the first, the number of segments behind the last.

    Shapes: offsets (groups + 1,) -> (length,).  Dtypes: integers -> i64.
    """
    return apply_one(ops.segment_ids, (offsets,), _size(length, "length"))


def expand(x: Tensor, offsets: Tensor, length: int) -> Tensor:
    """The entry of x for its segment at each of `length` places, 0 outside of all segments.

    Shapes: x (groups, *features), offsets (groups + 1,) -> (length, *features).
    PyTorch: torch.repeat_interleave along axis 0.
    """
    return apply_one(ops.segment_expand, (x, offsets), _size(length, "length"))


# -- reductions -------------------------------------------------------------------------------------------
def sum(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """The sum of each segment, 0 of nothing.  Shapes: x (n, *features) -> (groups, *features)."""
    return _reduce(x, offsets, ids, count, "sum")


def mean(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """The mean of each segment, 0 of nothing.  Shapes: x (n, *features) -> (groups, *features).  Dtypes: float."""
    return _reduce(x, offsets, ids, count, "mean")


def prod(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """The product of each segment, 1 of nothing.  Shapes: x (n, *features) -> (groups, *features)."""
    return _reduce(x, offsets, ids, count, "prod")


def max(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """The largest entry of each segment, -inf of nothing, of integers the least number of their type.

    Equal winners share a gradient.  Shapes: x (n, *features) -> (groups, *features).
    """
    return _reduce(x, offsets, ids, count, "max")


def min(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """The least entry of each segment, inf of nothing, of integers the largest number of their type.

    Equal winners share a gradient.  Shapes: x (n, *features) -> (groups, *features).
    """
    return _reduce(x, offsets, ids, count, "min")


def softmax(x: Tensor, offsets: Tensor | None = None, *, ids: Tensor | None = None, count: int | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) over each segment, 0 outside of all.

    Shapes: x (n, *features) -> as x.  Dtypes: float; half types compute in float32.
    """
    by_ids = _by_ids(x, offsets, ids, count)
    if by_ids is None:
        return apply_one(ops.segment_softmax, (x, offsets))
    places, groups = by_ids
    wide = x.cast(DType.F32) if x.dtype in HALVES else x
    e = (wide - max(wide, ids=places, count=groups).select(0, places)).exp()
    return (e / sum(e, ids=places, count=groups).select(0, places)).cast(x.dtype)


def _reduce(x: Tensor, offsets: Tensor | None, ids: Tensor | None, count: int | None, reduction: str) -> Tensor:
    by_ids = _by_ids(x, offsets, ids, count)
    if by_ids is None:
        return apply_one(ops.segment_reduce, (x, offsets), reduction)
    places, groups = by_ids
    from burn_torch.ops.segments import reduce_by_ids  # a first tensor needs few families of rows

    return reduce_by_ids(x, places, groups, reduction)


def _by_ids(x: Tensor, offsets: Tensor | None, ids: Tensor | None, count: int | None) -> tuple[Tensor, int] | None:
    """The groups of entries and their number; None where offsets say them."""
    require_tensor(x)
    if (offsets is None) == (ids is None) or (ids is None) != (count is None):
        raise told(
            ArgumentError,
            "segments are said in one of two ways",
            given=", ".join(f"{n}={'a tensor' if isinstance(v, Tensor) else described(v)}"
                            for n, v in (("offsets", offsets), ("ids", ids), ("count", count)) if v is not None)
            or "neither offsets nor ids",
            expected="offsets, or ids with count",
            mend="segments.sum(x, offsets), or segments.sum(x, ids=ids, count=5)",
        )  # fmt: skip
    if ids is None:
        return None
    require_tensor(ids, "ids")
    return ids, _size(count, "count")


def _size(value: object, name: str) -> int:
    size = integer(value, name)
    if size < 0:
        raise told(
            ArgumentError, f"{name} is below 0", given=f"{name} {size}", expected="0 or more", mend="count entries"
        )
    return size


# -- products ---------------------------------------------------------------------------------------------
def matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Each segment of rows times a matrix of its own, 0 in rows outside of all.

    Shapes: x (rows, d_in), weight (groups, d_in, d_out), offsets (groups + 1,) -> (rows, d_out).
    Dtypes: x and weight one float type.
    PyTorch: torch.nn.functional.grouped_mm.
    """
    return apply_one(ops.grouped_matmul, (x, weight, offsets))


def outer(x: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """x^T @ y of each segment of rows.

    Shapes: x (rows, d_in), y (rows, d_out), offsets (groups + 1,) -> (groups, d_in, d_out).
    """
    return apply_one(ops.grouped_outer, (x, y, offsets))


word_functions(globals())
