"""Scans along an axis: each result depends on the elements up to its own."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT, NUMERIC, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import accumulated, narrow_to, product_before, widen_factors
from burn_torch.ops.rules import front_axis, same_dtype
from burn_torch.ops.samples import Array, distinct, sample, uniform
from burn_torch.ops.shapes import flip
from burn_torch.ops.slicing import narrow, pad
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Value


def _check_scan(x: TensorSpec, dim: int) -> TensorSpec:
    front_axis(dim, x.require(NUMERIC).ndim)
    return x


def _torch_scan(scan: Candidate) -> PerCall:
    def build(call: Call) -> Candidate:
        spec, dim = call.tensor(0), call.attrs["dim"]
        if spec.dtype.is_float:
            return partial(scan, dim=dim)
        return partial(scan, dim=dim, dtype=TO_TORCH[spec.dtype])  # torch widens integers to int64

    return PerCall(build)


_SHAPES = (((3, 4), 0), ((2, 3, 4), 1), ((5,), 0), ((0, 3), 1), ((3, 0), 1))


# -- sum -------------------------------------------------------------------------------------------------
@op(
    torch=_torch_scan(torch.cumsum),
    numpy=lambda x, *, dim: np.cumsum(x, axis=dim, dtype=accumulated(x.dtype)),
    precision="high",
    laws=[Unsigned("bits")],
    samples=[sample(uniform(-1, 1, shape), dim=dim) for shape, dim in _SHAPES],
)
def cumsum(x: TensorSpec, *, dim: int) -> TensorSpec:
    """Sums of the elements up to each one; integers keep their type and wrap around.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    """
    return _check_scan(x, dim)


@cumsum.gradient
def _(g, y, x, *, dim):
    return flip(cumsum(flip(g, axes=(dim,)), dim=dim), axes=(dim,))


# -- product -----------------------------------------------------------------------------------------------
@op(
    torch=_torch_scan(torch.cumprod),
    numpy=lambda x, *, dim: np.cumprod(x, axis=dim, dtype=accumulated(x.dtype)),
    precision="high",
    laws=[Unsigned("bits")],
    samples=[sample(uniform(0.5, 2, shape), dim=dim) for shape, dim in _SHAPES],
)
def cumprod(x: TensorSpec, *, dim: int) -> TensorSpec:
    """Products of the elements up to each one; integers keep their type and wrap around.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.

    The gradient has no division, so that zeros are no exception, at any order:

        dx[k] = x[0] ... x[k - 1] * s[k],   s[k] = g[k] + x[k + 1] * s[k + 1]
    """
    return _check_scan(x, dim)


@cumprod.gradient
def _(g, y, x, *, dim):
    if not x.spec.numel:
        return g
    wide = widen_factors(x)
    return narrow_to(x, product_before(wide, dim) * _sums_behind(widen_factors(g), wide, dim))


def _sums_behind(g: Value, factors: Value, dim: int) -> Value:
    """s[k] = g[k] + factors[k + 1] * s[k + 1]: the transpose of `linear_scan` in its second input."""
    gone = tuple((0, 1) if i == dim else (0, 0) for i in range(g.ndim))
    ahead = pad(narrow(factors, dim, 1, factors.shape[dim]), 0.0, padding=gone, mode="constant")
    return flip(linear_scan(flip(ahead, axes=(dim,)), flip(g, axes=(dim,)), dim=dim), axes=(dim,))


# -- linear recurrence ---------------------------------------------------------------------------------------
def _torch_linear_scan(call: Call) -> Candidate:
    """Doubling (Hillis and Steele 1986): after step j each element has taken in the 2^j before it."""
    a, dim = call.tensor(0), call.attrs["dim"]
    count, dtype = a.shape[dim], TO_TORCH[a.dtype]
    # products of many factors leave the range of single precision before the results do; MPS has no double
    wide = torch.float32 if a.place == "mps" else torch.float64

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.to(wide), b.to(wide)
        reach = 1
        while reach < count:
            rest = count - reach
            far_a, far_b = a.narrow(dim, 0, rest), b.narrow(dim, 0, rest)
            near_a, near_b = a.narrow(dim, reach, rest), b.narrow(dim, reach, rest)
            b = torch.cat((b.narrow(dim, 0, reach), torch.addcmul(near_b, near_a, far_b)), dim)
            a = torch.cat((a.narrow(dim, 0, reach), near_a * far_a), dim)
            reach *= 2
        return b.to(dtype) if b.dtype is not dtype else b.clone()

    return run


def _numpy_linear_scan(a: Array, b: Array, *, dim: int) -> Array:
    y = b.astype(np.float64)
    lines = np.moveaxis(y, dim, 0)
    factors = np.moveaxis(a, dim, 0)
    for k in range(1, lines.shape[0]):
        lines[k] += factors[k] * lines[k - 1]
    return y


@op(
    torch=PerCall(_torch_linear_scan),
    numpy=_numpy_linear_scan,
    precision="high",
    samples=[sample(uniform(-1.5, 1.5, shape), uniform(-1, 1, shape), dim=dim) for shape, dim in _SHAPES],
    source="Blelloch 1990, Prefix sums and their applications, section 1.4",
)
def linear_scan(a: TensorSpec, b: TensorSpec, *, dim: int) -> TensorSpec:
    """The linear recurrence y[k] = a[k] * y[k - 1] + b[k] along an axis, with nothing before y[0] = b[0].

    Shapes: a, b (*s) -> (*s).  Dtypes: float in, the same float out; computed in float64.
    Deterministic; log2(n) steps over all elements on LibTorch, where products of infinite factors and terms of other
    signs may be NaN beside an infinite y.
    """
    same_dtype(a.require(FLOAT), b)
    front_axis(dim, a.ndim)
    if a.shape != b.shape:
        raise shape_fault(
            "the factors and the terms differ in shape", expected="a and b of one shape", mend="expand one of them"
        )
    return a


@linear_scan.gradient
def _(g, y, a, b, *, dim):
    if not a.spec.numel:
        return g, g
    behind = _sums_behind(g, a, dim)
    first = tuple((1, 0) if i == dim else (0, 0) for i in range(a.ndim))
    previous = pad(narrow(y, dim, 0, y.shape[dim] - 1), 0.0, padding=first, mode="constant")
    return behind * previous, behind


# -- extremes --------------------------------------------------------------------------------------------------
def _numpy_running(extreme: np.ufunc) -> Candidate:
    def run(x: Array, *, dim: int) -> tuple[Array, Array]:
        y = extreme.accumulate(x, axis=dim)
        shape = [1] * x.ndim
        shape[dim] = x.shape[dim]
        sets = (x == y) | (x != x)  # also each NaN
        return y, np.maximum.accumulate(np.where(sets, np.arange(x.shape[dim]).reshape(shape), 0), axis=dim)

    return run


def _running(x: TensorSpec, dim: int) -> tuple[TensorSpec, TensorSpec]:
    _check_scan(x, dim)
    return x, x.with_dtype(DType.I64)


_DISTINCT = [sample(distinct(shape), dim=dim) for shape, dim in _SHAPES]


@op(
    torch=PerCall(lambda call: partial(torch.cummax, dim=call.attrs["dim"])),
    numpy=_numpy_running(np.maximum),
    laws=[Unsigned("order")],
    samples=_DISTINCT,
)
def cummax_with_indices(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """The largest element up to each one, and its index: the latest of equal ones; NaN from the first NaN on.

    Shapes: x (*s) -> twice (*s).  Dtypes: numbers -> the same, and i64.
    The gradient goes to the elements at the indices.  PyTorch: torch.cummax.
    """
    return _running(x, dim)


@op(
    torch=PerCall(lambda call: partial(torch.cummin, dim=call.attrs["dim"])),
    numpy=_numpy_running(np.minimum),
    laws=[Unsigned("order")],
    samples=_DISTINCT,
)
def cummin_with_indices(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """The smallest element up to each one, and its index: the latest of equal ones; NaN from the first NaN on.

    Shapes: x (*s) -> twice (*s).  Dtypes: numbers -> the same, and i64.
    The gradient goes to the elements at the indices.  PyTorch: torch.cummin.
    """
    return _running(x, dim)


@cummax_with_indices.gradient
@cummin_with_indices.gradient
def _(g, y, x, *, dim):
    return ops.scatter(g[0].new_full(x.shape, 0.0), y[1], g[0], dim=dim, update="add")


@op(
    torch=PerCall(lambda call: lambda x, dim=call.attrs["dim"]: torch.cummax(x, dim)[0]),
    numpy=lambda x, *, dim: np.maximum.accumulate(x, axis=dim),
    laws=[Unsigned("order")],
    samples=_DISTINCT,
)
def cummax(x: TensorSpec, *, dim: int) -> TensorSpec:
    """The largest element up to each one; NaN from the first NaN on.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    The gradient goes to the latest of equal maxima, as `cummax_with_indices`.
    """
    return _check_scan(x, dim)


@cummax.decomposes
def _(x, *, dim):
    return cummax_with_indices(x, dim=dim)[0]


@op(
    torch=PerCall(lambda call: lambda x, dim=call.attrs["dim"]: torch.cummin(x, dim)[0]),
    numpy=lambda x, *, dim: np.minimum.accumulate(x, axis=dim),
    laws=[Unsigned("order")],
    samples=_DISTINCT,
)
def cummin(x: TensorSpec, *, dim: int) -> TensorSpec:
    """The smallest element up to each one; NaN from the first NaN on.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    The gradient goes to the latest of equal minima, as `cummin_with_indices`.
    """
    return _check_scan(x, dim)


@cummin.decomposes
def _(x, *, dim):
    return cummin_with_indices(x, dim=dim)[0]
