"""Reductions: ReduceSum and its kin, ArgMax, CumSum, and what normalises along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import Ints, axes_of, axis_of, full, ints, reshaped, squeezed
from burn_torch.onnx.operators.registry import Entry, Host, Outputs, operator
from burn_torch.tensor import Tensor

__all__ = [
    "argmax", "argmin", "cumprod", "cumsum", "hardmax", "hardmax_1", "log_softmax", "log_softmax_1", "lp_normalization",
    "mean_variance_normalization", "reduce_l1", "reduce_l1_1", "reduce_l2", "reduce_l2_1", "reduce_log_sum",
    "reduce_log_sum_1", "reduce_log_sum_exp", "reduce_log_sum_exp_1", "reduce_max", "reduce_max_1", "reduce_mean",
    "reduce_mean_1", "reduce_min", "reduce_min_1", "reduce_prod", "reduce_prod_1", "reduce_sum", "reduce_sum_1",
    "reduce_sum_square", "reduce_sum_square_1", "softmax", "softmax_1",
]  # fmt: skip

Reduction = Callable[[Tensor, Ints], Any]


def _empty(x: Tensor, dims: Ints) -> bool:
    return any(x.shape[dim] == 0 for dim in dims)


def _kept_shape(x: Tensor, dims: Ints) -> Ints:
    return tuple(1 if i in dims else size for i, size in enumerate(x.shape))


def _extreme(row: Any, truth: Any, largest: bool) -> Reduction:
    def reduce(x: Tensor, dims: Ints) -> Outputs:
        if _empty(x, dims):  # ONNX: the least value that the type holds, for Max
            if x.dtype is DType.BOOL:
                return full(_kept_shape(x, dims), not largest, x)
            if x.dtype.is_float:
                return full(_kept_shape(x, dims), -math.inf if largest else math.inf, x)
            low, high = x.dtype.limits
            return full(_kept_shape(x, dims), low if largest else high, x)
        if x.dtype is DType.BOOL:
            return truth(x, dims=dims)
        return row(x, dims=dims)

    return reduce


def _mean(x: Tensor, dims: Ints) -> Tensor:
    if x.dtype.is_float:
        return ops.mean(x, dims=dims)
    total = ops.sum(x.cast(DType.F64), dims=dims)
    return (total / float(math.prod(x.shape[dim] for dim in dims))).cast(x.dtype)


def _log_sum_exp(x: Tensor, dims: Ints) -> Tensor:
    if _empty(x, dims):
        return full(_kept_shape(x, dims), -math.inf, x)
    y = x if x.dtype.is_float else x.cast(DType.F64)
    return ops.logsumexp(y, dims=dims).cast(x.dtype)


def _in_floats(function: Callable[[Tensor], Tensor], x: Tensor) -> Outputs:
    return function(x) if x.dtype.is_float else function(x.cast(DType.F64)).cast(x.dtype)


def _sum(x: Tensor, dims: Ints) -> Outputs:
    return ops.sum(x, dims=dims)


def _prod(x: Tensor, dims: Ints) -> Tensor:
    y: Tensor = ops.prod(x, dims=dims)
    return y


def _square(x: Tensor) -> Outputs:
    return x * x


def _reduction(
    op: str, name: str, reduce: Reduction, empty: Callable[[Tensor], object] = lambda x: x, *, axes_are_input: int = 18
) -> tuple[Entry, Entry]:
    """Both forms of a reduction: axes as attribute, and from opset `axes_are_input` on as input."""

    def finish(x: Tensor, dims: Ints, keepdims: int) -> Tensor:
        y = reduce(x, dims)
        return y if keepdims else squeezed(y, dims)

    def old(x: Tensor, *, axes: Ints | None = None, keepdims: int = 1) -> Outputs:
        return finish(x, axes_of(range(x.ndim) if axes is None else axes, x.ndim), keepdims)

    def new(x: Tensor, axes: Host | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Outputs:
        chosen = () if axes is None else ints(axes)
        if not chosen and noop_with_empty_axes:
            return empty(x)
        return finish(x, axes_of(chosen or range(x.ndim), x.ndim), keepdims)

    old.__name__, new.__name__ = f"{name}_1", name
    old.__doc__ = f"{op} over the axes that an attribute names; all of them without it."
    new.__doc__ = f"{op} over the axes that an input names; all of them without it."
    return operator(op, 1, axes_are_input - 1)(old), operator(op, axes_are_input)(new)


reduce_sum_1, reduce_sum = _reduction("ReduceSum", "reduce_sum", _sum, axes_are_input=13)
reduce_mean_1, reduce_mean = _reduction("ReduceMean", "reduce_mean", _mean)
reduce_max_1, reduce_max = _reduction("ReduceMax", "reduce_max", _extreme(ops.amax, ops.any, True))
reduce_min_1, reduce_min = _reduction("ReduceMin", "reduce_min", _extreme(ops.amin, ops.all, False))
reduce_prod_1, reduce_prod = _reduction("ReduceProd", "reduce_prod", _prod)
reduce_l1_1, reduce_l1 = _reduction("ReduceL1", "reduce_l1", lambda x, dims: _sum(x.abs(), dims), lambda x: x.abs())
reduce_l2_1, reduce_l2 = _reduction(
    "ReduceL2", "reduce_l2", lambda x, dims: _in_floats(ops.sqrt, _sum(_square(x), dims)), lambda x: x.abs()
)
reduce_sum_square_1, reduce_sum_square = _reduction(
    "ReduceSumSquare", "reduce_sum_square", lambda x, dims: _sum(_square(x), dims), _square
)
reduce_log_sum_1, reduce_log_sum = _reduction(
    "ReduceLogSum", "reduce_log_sum", lambda x, dims: _in_floats(ops.log, _sum(x, dims)), partial(_in_floats, ops.log)
)
reduce_log_sum_exp_1, reduce_log_sum_exp = _reduction("ReduceLogSumExp", "reduce_log_sum_exp", _log_sum_exp)


# -- where the extreme is ------------------------------------------------------------------------------------
def _arg(row: Any, x: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    at = axis_of(axis, x.ndim)
    y: Tensor = x.shape[at] - 1 - row(ops.flip(x, axes=(at,)), dim=at) if last else row(x, dim=at)
    return y if keepdims else squeezed(y, (at,))


@operator("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Returns where the largest element along an axis is; the first of equal ones, or the last."""
    return _arg(ops.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Returns where the smallest element along an axis is; the first of equal ones, or the last."""
    return _arg(ops.argmin, x, axis, keepdims, select_last_index)


# -- running sums and products ---------------------------------------------------------------------------------
def _scan(row: Any, x: Tensor, axis: Host, first: float, exclusive: int, reverse: int) -> Tensor:
    at = axis_of(int(axis.reshape(-1)[0]), x.ndim)
    y: Tensor = ops.flip(x, axes=(at,)) if reverse else x
    if exclusive and y.shape[at]:
        start = full((*y.shape[:at], 1, *y.shape[at + 1 :]), int(first) if y.dtype.is_int else first, y)
        y = Tensor.cat([start, y.narrow(at, 0, y.shape[at] - 1)], at)
    y = row(y, dim=at)
    return ops.flip(y, axes=(at,)) if reverse else y


@operator("CumSum", 11)
def cumsum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running sums along an axis, without the element itself if `exclusive`, from the end if `reverse`."""
    return _scan(ops.cumsum, x, axis, 0.0, exclusive, reverse)


@operator("CumProd", 26)
def cumprod(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running products along an axis, without the element itself if `exclusive`, from the end if `reverse`."""
    return _scan(ops.cumprod, x, axis, 1.0, exclusive, reverse)


# -- normalised along an axis --------------------------------------------------------------------------------------
def _hard(x: Tensor, *, dim: int) -> Tensor:
    largest = squeezed(ops.argmax(x, dim=dim), (dim,))
    return ops.one_hot(largest, 1.0, 0.0, num_classes=x.shape[dim], axis=dim, dtype=x.dtype)


def _along(compute: Callable[..., Any], x: Tensor, axis: int) -> Tensor:
    return x if x.ndim == 0 or not x.num_elements() else compute(x, dim=axis_of(axis, x.ndim))


def _flatten(compute: Callable[..., object], x: Tensor, axis: int) -> Tensor:
    """Before opset 13: the axes from `axis` on count as one."""
    at = axis_of(axis, x.ndim) if axis != x.ndim else axis
    rows = math.prod(x.shape[:at])
    flat = reshaped(x, (rows, math.prod(x.shape[at:])))
    return reshaped(_along(compute, flat, 1), x.shape)


def _normalising(op: str, name: str, compute: Callable[..., object], what: str) -> tuple[Entry, Entry]:
    """Both forms of an operator: along all axes from `axis` on, and from opset 13 on along one axis."""

    def old(x: Tensor, *, axis: int = 1) -> Tensor:
        return _flatten(compute, x, axis)

    def new(x: Tensor, *, axis: int = -1) -> Tensor:
        return _along(compute, x, axis)

    old.__name__, new.__name__ = f"{name}_1", name
    old.__doc__, new.__doc__ = f"{what} along all axes from `axis` on.", f"{what} along an axis."
    return operator(op, 1, 12)(old), operator(op, 13)(new)


softmax_1, softmax = _normalising("Softmax", "softmax", ops.softmax, "exp(x) over its sum")
log_softmax_1, log_softmax = _normalising("LogSoftmax", "log_softmax", ops.log_softmax, "The logarithm of Softmax")
hardmax_1, hardmax = _normalising("Hardmax", "hardmax", _hard, "1 at the largest element, 0 elsewhere,")


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """x over its norm along an axis; 0 where the norm is 0."""
    at = (axis_of(axis, x.ndim),)
    size = ops.sum(x.abs(), dims=at) if p == 1 else ops.sum(x * x, dims=at).sqrt()
    none = size.equal(0.0)
    return (x / size.mask_fill(none, 1.0)).mask_fill(none.expand(x.shape), 0.0)


@operator("MeanVarianceNormalization", 9)
def mean_variance_normalization(x: Tensor, *, axes: Ints = (0, 2, 3)) -> Tensor:
    """(x - mean) / (standard deviation + 1e-9) over some axes."""
    dims = axes_of(axes, x.ndim)
    centre = ops.mean(x, dims=dims)
    spread = (ops.mean(x * x, dims=dims) - centre * centre).sqrt()
    return (x - centre) / (spread + 1e-9)
