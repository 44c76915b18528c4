"""The axes of reductions, their layout in memory, and the reductions in plain torch."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.spec import Draw, Problem

KINDS = ("sum", "mean", "var", "logsumexp", "amax", "amin", "argmax", "argmin")
FEW = 32
"""Kept or reduced axes shorter than this are not worth programs of their own."""

Axes = int | Sequence[int] | None


# -- layouts -----------------------------------------------------------------------------------------
class Plan(NamedTuple):
    """x as kept axes (outer, inner) by reduced axes (far, length), with strides; results in order of (outer, inner)."""

    x: Tensor
    outer: int
    inner: int
    outer_stride: int
    inner_stride: int
    far: int
    length: int
    far_stride: int
    stride: int


def axes_of(op: str, x: Tensor, dim: Axes) -> tuple[int, ...]:
    """The axes as numbers from 0, in order.  Raises: KernelShapeError for one that x has not, or twice."""
    axes = _axes_among(x.dim(), dim if dim is None or isinstance(dim, int) else tuple(dim))
    if axes is None:
        raise KernelShapeError(
            f"{op}: no such axes",
            given=f"dim {dim} of {describe({'x': x})}",
            expected=f"different axes from {-x.dim()} to {x.dim() - 1}, or None for all",
            mend="count axes from 0, or from the end with -1",
        )
    return axes


@functools.lru_cache(maxsize=1024)
def _axes_among(count: int, dim: int | tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The axes among `count` as numbers from 0, in order; None if there are none of these numbers, or one is twice."""
    numbers = range(count) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [axis + count if axis < 0 else axis for axis in numbers]
    if any(not 0 <= axis < count for axis in axes) or len(set(axes)) < len(axes):
        return None
    return tuple(sorted(axes))


def _join_axes(x: Tensor, axes: Sequence[int]) -> list[tuple[int, int]]:
    """Sizes and strides of these axes, neighbours in memory joined."""
    spans: list[tuple[int, int]] = []
    for axis in axes:
        size, stride = x.shape[axis], x.stride(axis)
        if size == 1:
            continue
        if spans and spans[-1][1] == stride * size:
            spans[-1] = (spans[-1][0] * size, stride)
        else:
            spans.append((size, stride))
    return spans


def plan_of(x: Tensor, axes: tuple[int, ...], *, ordered: bool) -> Plan:
    """How x is read; a copy of it where axes do not join, or elements must come in order (`ordered`)."""
    kept_axes = [axis for axis in range(x.dim()) if axis not in axes]
    kept, reduced = _join_axes(x, kept_axes), _join_axes(x, axes)
    short = len(reduced) == 2 and reduced[1][0] < FEW
    if len(kept) > 2 or len(reduced) > (1 if ordered else 2) or short:
        x = x.permute(*kept_axes, *axes).contiguous()
        kept, reduced = _join_axes(x, range(len(kept_axes))), _join_axes(x, range(len(kept_axes), x.dim()))
    (outer, outer_stride), (inner, inner_stride) = ([(1, 0)] * 2 + kept)[-2:]
    (far, far_stride), (length, stride) = ([(1, 0)] * (2 - len(reduced)) + reduced)[-2:]
    return Plan(x, outer, inner, outer_stride, inner_stride, far, length, far_stride, stride)


def count_of(x: Tensor, axes: tuple[int, ...]) -> int:
    """Elements that a result is made of."""
    return math.prod(x.shape[axis] for axis in axes)


def shape_of(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """Sizes of the result."""
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def kept_type(kind: str, dtype: torch.dtype) -> torch.dtype:
    """The type of what the gradient takes: lse of float32 is float64, as half of its last place is one of each
    gradient's."""
    wide = wide_type(dtype)
    return torch.float64 if kind == "logsumexp" and dtype == wide else wide


def check_axes(op: str, x: Tensor, dim: Axes = None, **_: object) -> None:
    """Raises KernelShapeError for axes that x has not, KernelArgumentError for an extreme of no elements and for a
    place along several axes."""
    axes = axes_of(op, x, dim)
    several = op.startswith("arg") and dim is not None and not isinstance(dim, int)
    if several or (op in KINDS[4:] and not count_of(x, axes)):
        raise KernelArgumentError(
            f"{op}: {'places along several axes' if several else 'of no elements'}",
            given=f"dim {dim} of {describe({'x': x})}",
            expected="one axis, or None for a place in x read in order" if several else "at least one element",
            mend="flatten the axes first" if several else "leave such tensors out",
        )


def check_saved(
    op: str, dy: Tensor, x: Tensor, saved: Tensor, dim: Axes = None, *, keepdim: bool = False, **_: Any
) -> None:
    """Raises KernelShapeError where dy and what the forward saved are no results for x."""
    shape = shape_of(x, axes_of(op, x, dim), keepdim)
    check(op, {"dy": dy, "x": x, "saved": saved}, {"dy": shape, "saved": shape}, alike=["dy", "x"])


# -- reference ---------------------------------------------------------------------------------------
def reference(
    kind: str, x: Tensor, dim: Axes = None, *, keepdim: bool = False, correction: float = 1.0
) -> tuple[Tensor, Tensor | None]:
    """The reduction `kind`, one of KINDS, in plain torch; and what the gradient of var and logsumexp takes of it."""
    check(kind, {"x": x}, {}, alike=["x"])
    check_axes(kind, x, dim)
    return reduced(kind, x, axes_of(kind, x, dim), keepdim, correction)


def reduced(
    kind: str, x: Tensor, axes: tuple[int, ...], keepdim: bool, correction: float
) -> tuple[Tensor, Tensor | None]:
    """As `reference`, over axes from `axes_of`."""
    wide, shape, count = x.to(wide_type(x.dtype)), shape_of(x, axes, keepdim), count_of(x, axes)
    if not axes:  # torch takes no axes for all axes
        wide = wide.unsqueeze(-1)
    over = axes or (-1,)
    middle = None
    if kind.startswith("arg"):
        flat = wide if len(over) == 1 else wide.flatten()
        return getattr(torch, kind)(flat, over[0] if len(over) == 1 else 0).reshape(shape), None
    if kind in ("amax", "amin"):
        y = getattr(torch, kind)(wide, over)
    elif kind == "logsumexp":
        y = torch.logsumexp(wide, over)
        middle = y.reshape(shape).to(kept_type(kind, x.dtype), copy=True)
    else:
        y = wide.sum(over)
        if kind != "sum":
            y = y / count if count else torch.full_like(y, math.nan)
        if kind == "var":
            middle = y.reshape(shape)
            away = wide - y.reshape(shape_of(x, axes, True) if axes else (*x.shape, 1))
            y = (away * away).sum(over) / builtins.max(count - correction, 0.0)
    return y.reshape(shape).to(x.dtype), middle


def reference_back(kind: str, dy: Tensor, x: Tensor, like: Tensor, axes: tuple[int, ...], correction: float) -> Tensor:
    """The gradient of x through var, logsumexp or an extreme, in plain torch."""
    kept = shape_of(x, axes, True)
    wide, g, known = (t.to(wide_type(t.dtype)) for t in (x, dy.reshape(kept), like.reshape(kept)))
    if kind == "var":
        dx = g * 2 * (wide - known) / builtins.max(count_of(x, axes) - correction, 0.0)
    elif kind == "logsumexp":
        dx = g * torch.exp(wide - known)
    else:
        same = (wide == known).to(wide.dtype)
        dx = g * same / (same.sum(axes, keepdim=True) if axes else same)
    return dx.to(x.dtype)


def plain(kind: str, x: Tensor, dim: Axes = None, **options: Any) -> Any:
    """The results of the launcher of `kind`, in plain torch."""
    y, middle = reference(kind, x, dim, **options)
    return y if middle is None else (y, middle)


def plain_back(
    kind: str, dy: Tensor, x: Tensor, saved: Tensor, dim: Axes = None, *, keepdim: bool = False,
    correction: float = 1.0,
) -> Tensor:  # fmt: skip
    """The gradient of the launcher of `kind`, in plain torch."""
    return reference_back(kind, dy, x, saved, axes_of(kind, x, dim), correction)


# -- registration ------------------------------------------------------------------------------------
def problems(draw: Draw, kind: str) -> Iterator[Problem]:
    """Small inputs that can expose a mistake in this reduction."""
    one = [((5, 7), -1), ((5, 7), 0), ((3, 2049), 1), ((2049, 3), 0), ((4, 33, 40), 1), ((40, 33, 5), 1), ((6,), None)]
    one += [((2, 3, 5000), None), ((7, 20_001), 1), ((20_001, 2), 0)]
    for shape, dim in one:
        yield Problem((draw.normal(*shape, mean=0.5),), {"dim": dim})
    # torch warns of variances that are NaN, and of none at all
    whole = {"correction": 0.0} if kind == "var" else {}
    if kind != "var":
        yield Problem((draw.normal(0, 5),), {"dim": 1})
    yield Problem((draw.normal(1, 1),), {"dim": 1, **whole})
    yield Problem((draw.normal(6, 40)[::2, 3:20],), {"dim": 1, "keepdim": True})
    yield Problem((draw.normal(17, 6, 5).permute(2, 0, 1),), {"dim": 1})
    if kind not in ("argmax", "argmin"):
        for shape, dims in (((3, 4, 50), (0, 2)), ((3, 4, 5, 6), (0, 2, 3)), ((3, 4, 5, 6), (1, 3)), ((3, 2), (0, 1))):
            yield Problem((draw.normal(*shape),), {"dim": dims})
        yield Problem((draw.normal(9, 3, 40),), {"dim": (0, -1), "keepdim": True})
        yield Problem((draw.normal(4, 3),), {"dim": (), **whole})
    if kind in KINDS[:2] or kind == "logsumexp":
        yield Problem((draw.normal(3, 0),), {"dim": 1})
    if kind == "var":
        yield Problem((draw.normal(5, 9, mean=100.0),), {"dim": 1, "correction": 0.0})


def draw_call(kind: str, draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator."""
    x = draw.rows(draw.width() + 1)
    choices: list[Any] = [*range(-x.dim(), x.dim()), None]
    if not kind.startswith("arg"):
        choices = [None if dim is None else [dim] for dim in choices] + [list(range(x.dim())), [0, -1]]
    dim = choices[draw.integer(0, len(choices))]
    if kind == "var" and x.dim() == 2 and x.shape[0] == 1 and isinstance(dim, list) and -1 not in dim:
        dim = [-1]  # of one number there is no variance
    return x, dim, bool(draw.integer(0, 2)), *((float(draw.integer(0, 2)),) if kind == "var" else ())


def twin(kind: str, x: Tensor, dim: Axes = None, keepdim: bool = False, **options: object) -> Tensor:
    """The reduction as torch has it."""
    if dim == ():
        x, dim = x.unsqueeze(-1), -1
    if kind == "logsumexp":
        return torch.logsumexp(x, axes_of(kind, x, dim), keepdim)
    if kind in ("amax", "amin"):
        peak: Tensor = getattr(torch, kind)(x, () if dim is None else dim, keepdim)
        return peak
    call: Callable[..., Tensor] = getattr(torch, kind)
    return call(x, dim, keepdim=keepdim, **options)


def usual_size(kind: str, x: Tensor, dim: Axes = None, **_: object) -> float:
    """How large a sum of so many numbers usually is: one in which all cancels is off by units of that size."""
    axes = axes_of(kind, x, dim)
    if kind not in ("sum", "mean") or not axes or not x.numel():
        return 0.0
    usual = float(x.double().square().sum(axes).max().sqrt())
    return usual / count_of(x, axes) if kind == "mean" else usual
