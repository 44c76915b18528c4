"""Reductions.  Axes named by `dims` are kept with size 1; the Tensor methods squeeze.

With no axes named nothing is reduced.  numpy sums half and single precision in double: it has no cascade along
axes that do not lie last.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import ALL, FLOAT, NUMERIC, DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Expands, Folds, OfEqual, Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import broadcast_shapes, front_axes
from burn_torch.ops.samples import Array, booleans, integers, sample, uniform
from burn_torch.ops.shapes import expand, flip, permute, reshape
from burn_torch.ops.slicing import narrow, pad
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value
from burn_torch.symbolic.sizes import real, same_size


def reduced(x: TensorSpec, dims: tuple[int, ...]) -> Shape:
    """The shape of x with `dims` reduced to size 1."""
    gone = front_axes(dims, x.ndim)
    return tuple(1 if i in gone else size for i, size in enumerate(x.shape))


def accumulated(dtype: np.dtype) -> np.dtype:
    """The type in which numpy adds up: double for floats, the same for integers, which wrap around."""
    return np.dtype(np.float64) if dtype.kind == "f" else dtype


def count_of(x: TensorSpec, dims: tuple[int, ...]) -> int:
    """How many elements go into one result."""
    return math.prod(x.shape[dim] for dim in dims)


def _dims_of(call: Call) -> tuple[TensorSpec, tuple[int, ...]]:
    spec = call.tensor(0)
    return spec, call.attrs["dims"]


def unchanged(x: torch.Tensor) -> torch.Tensor:
    """Computes a reduction over no axes: x itself."""
    return x


def is_input(call: Call) -> bool:
    """Tells if a reduction over `dims` gives its input itself."""
    return not call.attrs["dims"] and call.result is call.specs[0]


_REDUCED = [
    sample(uniform(-1, 1, (3, 4)), dims=(0,)),
    sample(uniform(-1, 1, (2, 3, 4)), dims=(0, 2)),
    sample(uniform(-1, 1, (0, 3)), dims=(1,)),
    sample(uniform(-1, 1, (2, 3)), dims=()),
    sample(uniform(-1, 1, ()), dims=()),
]


# -- sums and means -------------------------------------------------------------------------------------
def _torch_sum(call: Call) -> Primitive:
    spec, dims = _dims_of(call)
    if not dims:  # torch reads an empty list as "all axes"
        return unchanged
    if spec.dtype.is_float:
        return TorchCode("sum({0}, {dims}, True)", sum=torch.sum, dims=dims)
    return partial(torch.sum, dim=dims, keepdim=True, dtype=TO_TORCH[spec.dtype])  # torch widens integers to int64


@op(
    torch=PerCall(_torch_sum),
    numpy=lambda x, *, dims: np.sum(x, axis=dims, keepdims=True, dtype=accumulated(x.dtype)) if dims else x,
    view="same",
    same=is_input,
    laws=[Folds("sum"), OfEqual(lambda value, count: value * count), Unsigned("bits")],
    precision="high",
    samples=[*_REDUCED, sample(uniform(-1, 1, (2, 0)), dims=(1,))],
)
def sum(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Sum over axes; integers keep their type and wrap around; of nothing it is 0.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: numbers in, the same out.
    """
    return x.require(NUMERIC).with_shape(reduced(x, dims))


@sum.gradient
def _(g, y, x, *, dims):
    return expand(g, shape=x.shape)


def _torch_mean(call: Call) -> Primitive:
    _, dims = _dims_of(call)
    return TorchCode("mean({0}, {dims}, True)", mean=torch.mean, dims=dims) if dims else unchanged


def _numpy_mean(x: Array, *, dims: Shape) -> Array | np.float64:
    # not np.mean, which warns of an empty one; a sum over no axes would make 0.0 of -0.0
    if not dims:
        return x
    count = math.prod(x.shape[dim] for dim in dims)
    return np.sum(x, axis=dims, keepdims=True, dtype=np.float64) / np.float64(count)


@op(
    torch=PerCall(_torch_mean),
    numpy=_numpy_mean,
    view="same",
    same=is_input,
    laws=[Folds("mean"), OfEqual(lambda value, count: value)],
    precision="high",
    samples=_REDUCED,
)
def mean(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Mean over axes; NaN over an empty one.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT).with_shape(reduced(x, dims))


@mean.gradient
def _(g, y, x, *, dims):
    if not dims:
        return g
    return expand(g / float(count_of(x.spec, dims)), shape=x.shape)


# -- sums that undo broadcasting ---------------------------------------------------------------------------
def _broadcast(x: TensorSpec, shape: Shape) -> tuple[tuple[int, ...], bool]:
    """The axes of x along which `shape` was repeated, and whether all of them are new axes in front."""
    extra = x.ndim - len(shape)
    repeated = (i + extra for i, size in enumerate(shape) if size == 1 != x.shape[i + extra])
    dims = (*range(extra), *repeated)
    return dims, len(dims) == extra


def _torch_sum_to(call: Call) -> Primitive:
    spec, shape = call.tensor(0), call.attrs["shape"]
    dims, in_front = _broadcast(spec, shape)
    if not dims:
        return torch.clone
    dtype = None if spec.dtype.is_float else TO_TORCH[spec.dtype]
    if not in_front:
        return lambda x: torch.sum(x, dims, True, dtype=dtype).reshape(shape)
    if dtype is not None:
        return partial(torch.sum, dim=dims, dtype=dtype)
    return TorchCode("sum({0}, {dims})", sum=torch.sum, dims=dims[0] if len(dims) == 1 else dims)


def _numpy_sum_to(x: Array, *, shape: Shape) -> Array:
    extra = x.ndim - len(shape)
    dims = tuple(i for i in range(x.ndim) if i < extra or shape[i - extra] != x.shape[i])
    return np.sum(x, axis=dims, keepdims=True, dtype=accumulated(x.dtype)).reshape(shape)


def _sum_to(x: Value, *, shape: Shape) -> Value:
    dims, _ = _broadcast(x.spec, shape)
    return reshape(sum(x, dims=tuple(sorted(dims))), shape=shape)


@op(
    torch=PerCall(_torch_sum_to),
    numpy=_numpy_sum_to,
    laws=[Expands(_sum_to), Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (3, 4)), shape=(4,)),
        sample(uniform(-1, 1, (2, 3, 4)), shape=(3, 1)),
        sample(uniform(-1, 1, (2, 3, 4)), shape=(1, 3, 1)),
        sample(uniform(-1, 1, (2, 3)), shape=()),
        sample(uniform(-1, 1, (2, 3)), shape=(2, 3)),
        sample(uniform(-1, 1, (0, 3)), shape=(3,)),
        sample(uniform(-1, 1, (2, 0)), shape=(1, 0)),
    ],
)
def sum_to_shape(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    """The sums of what `expand` repeats: undoes broadcasting from `shape`.  The result is no view of x.

    Shapes: x (*s) -> shape, which broadcasts to s.  Dtypes: numbers in, the same out; integers wrap around.
    """
    if broadcast_shapes(x.require(NUMERIC).shape, shape) != x.shape:
        raise shape_fault(
            f"{shape} does not broadcast to {x.shape}",
            expected="axes of x, or of size 1, aligned from the last",
            mend="name the axes to sum with sum_dims instead",
        )
    return x.with_shape(shape)


@sum_to_shape.gradient
def _(g, y, x, *, shape):
    return expand(g, shape=x.shape)


# -- product -----------------------------------------------------------------------------------------------
def _torch_prod(call: Call) -> Candidate:
    spec, dims = _dims_of(call)
    if not dims:
        return unchanged
    dtype = TO_TORCH[spec.dtype]
    if len(dims) == 1:
        return lambda x: torch.prod(x, dims[0], True, dtype=dtype)

    def run(x: torch.Tensor) -> torch.Tensor:
        for dim in dims:
            x = torch.prod(x, dim, True, dtype=dtype)
        return x

    return run


@op(
    torch=PerCall(_torch_prod),
    numpy=lambda x, *, dims: np.prod(x, axis=dims, keepdims=True, dtype=accumulated(x.dtype)) if dims else x,
    view="same",
    same=is_input,
    precision="high",
    laws=[Folds("prod"), Unsigned("bits")],
    samples=[
        sample(uniform(0.5, 2, (3, 4)), dims=(0,)),
        sample(uniform(-2, -0.5, (2, 3, 4)), dims=(0, 2)),
        sample(uniform(0.5, 2, (2, 0)), dims=(1,)),
        sample(uniform(0.5, 2, (0, 2)), dims=(1,)),
        sample(uniform(0.5, 2, (2, 3)), dims=()),
    ],
)
def prod(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Product over axes; integers keep their type and wrap around; of nothing it is 1.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: numbers in, the same out.
    The gradient is the product of all other elements, made without division: exact where some are 0, at any order.
    """
    return x.require(NUMERIC).with_shape(reduced(x, dims))


@prod.gradient
def _(g, y, x, *, dims):
    if not dims:
        return g
    if not x.spec.numel:
        return g.new_full(x.shape, 0.0)
    wide = widen_factors(x)
    if len(dims) == 1:
        others = _others(wide, dims[0])
    else:
        kept = tuple(i for i in range(x.ndim) if i not in dims)
        order = (*kept, *sorted(dims))
        last = permute(wide, axes=order)
        lines = reshape(last, shape=(*(x.shape[i] for i in kept), count_of(x.spec, dims)))
        others = permute(
            reshape(_others(lines, len(kept)), shape=last.shape), axes=tuple(map(order.index, range(x.ndim)))
        )
    return narrow_to(x, widen_factors(g) * others)


def widen_factors(x: Value) -> Value:
    """Halves as float32: the product of some factors leaves their range long before that of all does."""
    return ops.cast(x, dtype=DType.F32) if x.dtype in (DType.F16, DType.BF16) else x


def narrow_to(like: Value, x: Value) -> Value:
    """x in the element type of another value."""
    return x if x.dtype is like.dtype else ops.cast(x, dtype=like.dtype)


def _others(x: Value, dim: int) -> Value:
    """For each element, the product of the other ones along an axis."""
    after = flip(product_before(flip(x, axes=(dim,)), dim), axes=(dim,))
    return product_before(x, dim) * after


def product_before(x: Value, dim: int) -> Value:
    """For each element, the product of those before it along an axis that is not empty."""
    ones = tuple((1, 0) if i == dim else (0, 0) for i in range(x.ndim))
    shifted = pad(narrow(x, dim, 0, x.shape[dim] - 1), 1.0, padding=ones, mode="constant")
    return ops.cumprod(shifted, dim=dim)


# -- truth -----------------------------------------------------------------------------------------------------
_TRUTHS = [
    sample(booleans((3, 4)), dims=(0,)),
    sample(booleans((2, 3, 4)), dims=(0, 2)),
    sample(integers(0, 2, (3, 2)), dims=(1,)),
    sample(booleans((2, 0)), dims=(1,)),
    sample(booleans((2, 3)), dims=()),
]


def _torch_truth(reduce: Candidate) -> PerCall:
    def build(call: Call) -> Candidate:
        spec, dims = _dims_of(call)
        if not dims:
            return torch.Tensor.bool
        if spec.dtype is DType.U8:  # torch answers it with u8
            return lambda x: reduce(x.ne(0), dim=dims, keepdim=True)
        return partial(reduce, dim=dims, keepdim=True)

    return PerCall(build)


def _numpy_truth(reduce: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, *, dims: reduce(x, axis=dims, keepdims=True) if dims or x.dtype != np.bool_ else x


@op(
    torch=_torch_truth(torch.any),
    numpy=_numpy_truth(np.any),
    view="same",
    nondifferentiable=True,
    same=is_input,
    laws=[Folds("any"), Unsigned("bits")],
    samples=_TRUTHS,
)
def any(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """True where any element over axes is true: not zero, so NaN is; of nothing it is false.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: any -> bool.
    """
    return x.require(ALL).with_shape(reduced(x, dims)).with_dtype(DType.BOOL)


@op(
    torch=_torch_truth(torch.all),
    numpy=_numpy_truth(np.all),
    view="same",
    nondifferentiable=True,
    same=is_input,
    laws=[Folds("all"), Unsigned("bits")],
    samples=_TRUTHS,
)
def all(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """True where all elements over axes are true: not zero, so NaN is; of nothing it is true.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: any -> bool.
    """
    return x.require(ALL).with_shape(reduced(x, dims)).with_dtype(DType.BOOL)


# -- variance --------------------------------------------------------------------------------------------------
def _degrees(x: TensorSpec, dims: tuple[int, ...], correction: int) -> int:
    return builtins.max(count_of(x, dims) - correction, 0)


def _torch_var_mean(call: Call) -> Candidate:
    spec, dims = _dims_of(call)
    correction = call.attrs["correction"]
    if dims and spec.numel and _degrees(spec, dims, correction):
        return partial(torch.var_mean, dim=dims, correction=correction, keepdim=True)

    def run(
        x: torch.Tensor,
    ) -> tuple[
        torch.Tensor, torch.Tensor
    ]:  # torch warns of these, or reads no axes as all axes; the numbers are its own
        mean_of_x = x.mean(dims, keepdim=True) if dims else x.clone()
        square = (x - mean_of_x).square()
        return (square.sum(dims, keepdim=True) if dims else square) / _degrees(spec, dims, correction), mean_of_x

    return run


def _torch_var(call: Call) -> Candidate:
    spec, dims = _dims_of(call)
    correction = call.attrs["correction"]
    if dims and spec.numel and _degrees(spec, dims, correction):
        return partial(torch.var, dim=dims, correction=correction, keepdim=True)
    both = _torch_var_mean(call)
    return lambda x: both(x)[0]


def _numpy_var_mean(x: Array, *, dims: Shape, correction: int) -> tuple[Array | np.float64, Array | np.float64]:
    count = math.prod(x.shape[dim] for dim in dims)
    mean_of_x = np.sum(x, axis=dims, keepdims=True, dtype=np.float64) / np.float64(count)
    square = np.square(x - mean_of_x)
    return np.sum(square, axis=dims, keepdims=True) / np.float64(builtins.max(count - correction, 0)), mean_of_x


def _spread(x: Value, dims: tuple[int, ...], correction: int) -> tuple[Value, Value]:
    wide = ops.cast(x, dtype=DType.F32) if x.spec.dtype in (DType.F16, DType.BF16) else x
    middle = mean(wide, dims=dims)
    away = wide - middle
    degrees = _degrees(x.spec, dims, correction)
    spread = sum(away * away, dims=dims) / real(degrees) if degrees else sum(away * away, dims=dims) * math.nan
    return ops.cast(spread, dtype=x.spec.dtype), ops.cast(middle, dtype=x.spec.dtype)


_SPREAD = [
    sample(uniform(-1, 1, (3, 4)), dims=(0,), correction=1),
    sample(uniform(-1, 1, (2, 3, 4)), dims=(0, 2), correction=0),
    sample(uniform(-1, 1, (5, 1)), dims=(0, 1), correction=2),
    sample(uniform(-1, 1, (0, 3)), dims=(1,), correction=1),
]


@op(
    torch=PerCall(_torch_var),
    numpy=lambda x, *, dims, correction: _numpy_var_mean(x, dims=dims, correction=correction)[0],
    precision="high",
    laws=[Expands(lambda x, *, dims, correction: _spread(x, dims, correction)[0])],
    samples=_SPREAD,
)
def var(x: TensorSpec, *, dims: tuple[int, ...], correction: int) -> TensorSpec:
    """Variance over axes.

        sum((x - mean(x))^2) / max(n - correction, 0)        n elements go into one result

    Of n <= correction elements it is NaN where they are all equal, else infinite.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: float in, the same float out.
    PyTorch: torch.var.  Burn: `var` has correction 1, `var_bias` 0.
    """
    return x.require(FLOAT).with_shape(reduced(x, dims))


def _var_gradient(g: Value, x: Value, dims: tuple[int, ...], correction: int) -> Value:
    degrees = _degrees(x.spec, dims, correction)
    return g * (x - mean(x, dims=dims)) * (2.0 / degrees if degrees else math.nan)


@var.gradient
def _(g, y, x, *, dims, correction):
    return _var_gradient(g, x, dims, correction)


@op(
    torch=PerCall(_torch_var_mean),
    numpy=_numpy_var_mean,
    precision="high",
    laws=[Expands(lambda x, *, dims, correction: _spread(x, dims, correction))],
    samples=_SPREAD,
)
def var_mean(x: TensorSpec, *, dims: tuple[int, ...], correction: int) -> tuple[TensorSpec, TensorSpec]:
    """Variance, as `var`, and mean over axes.

    Shapes: x (*s) -> twice (*s with dims of size 1).  Dtypes: float in, the same float out.
    """
    y = x.require(FLOAT).with_shape(reduced(x, dims))
    return y, y


@var_mean.gradient
def _(g, y, x, *, dims, correction):
    through_var = None if g[0] is None else _var_gradient(g[0], x, dims, correction)
    if g[1] is None:
        return (through_var,)
    through_mean = expand(g[1] / float(count_of(x.spec, dims)), shape=x.shape)
    return (through_mean if through_var is None else through_var + through_mean,)


# -- logsumexp -------------------------------------------------------------------------------------------------
def _torch_logsumexp(call: Call) -> Candidate:
    _, dims = _dims_of(call)
    return partial(torch.logsumexp, dim=dims, keepdim=True) if dims else unchanged


def _numpy_logsumexp(x: Array, *, dims: Shape) -> Array:
    if not dims:
        return x
    wide = x.astype(np.float64)
    top = np.max(wide, axis=dims, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.log(np.sum(np.exp(wide - top), axis=dims, keepdims=True)) + top


def _log_of_sum(x: Value, *, dims: tuple[int, ...]) -> Value:
    wide = ops.cast(x, dtype=DType.F32) if x.spec.dtype in (DType.F16, DType.BF16) else x
    if same_size(x.spec.numel, 0):  # no axis, or one without a largest element
        return ops.cast(ops.log(sum(ops.exp(wide), dims=dims)), dtype=x.spec.dtype)
    top = ops.amax(wide, dims=dims)
    finite = ops.mask_where(top, ops.greater_equal(ops.abs(top), math.inf), 0.0)
    return ops.cast(ops.log(sum(ops.exp(wide - finite), dims=dims)) + finite, dtype=x.spec.dtype)


@op(
    torch=PerCall(_torch_logsumexp),
    numpy=_numpy_logsumexp,
    view="same",
    same=is_input,
    precision="high",
    laws=[Expands(_log_of_sum)],
    samples=[*_REDUCED, sample(uniform(-1, 1, (2, 0)), dims=(1,)), sample(uniform(900, 1000, (2, 3)), dims=(1,))],
)
def logsumexp(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """log(sum(exp(x))) over axes, without overflow; -inf over nothing or over -inf only.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: float in, the same float out.
    The gradient is the softmax of x; 0 where the result is -inf (torch gives NaN).
    """
    return x.require(FLOAT).with_shape(reduced(x, dims))


@logsumexp.gradient
def _(g, y, x, *, dims):
    if not dims:
        return g
    return g * ops.exp(x - ops.mask_where(y, ops.equal(y, -math.inf), 0.0))
