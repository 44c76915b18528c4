"""Softmax and its relatives over one axis; the largest element is subtracted first, so nothing overflows.

The Jacobian of softmax and of quiet_softmax is diag(y) - y y^T, so they share a backward row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.extremes import amax
from burn_torch.ops.functions import exp, log
from burn_torch.ops.laws import Expands
from burn_torch.ops.moments import wide_array
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import alike, front_axis
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.selection import cast
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Value
from burn_torch.symbolic.sizes import same_size

_SAMPLES = [
    sample(uniform(-3, 3), dim=1),
    sample(uniform(-3, 3, (2, 5, 3)), dim=1),
    sample(uniform(-3, 3, (4,)), dim=0),
    sample(uniform(-3, 3, (0, 3)), dim=1),
    sample(uniform(-3, 3, (3, 0)), dim=1),
]
_BACKWARD_SAMPLES = [
    sample(uniform(-1, 1), uniform(0.1, 0.4), dim=1),
    sample(uniform(-1, 1, (2, 5, 3)), uniform(0.1, 0.4, (2, 5, 3)), dim=1),
    sample(uniform(-1, 1, (0, 3)), uniform(0.1, 0.4, (0, 3)), dim=1),
]


def _along(x: TensorSpec, dim: int) -> TensorSpec:
    front_axis(dim, x.ndim)
    return x.require(FLOAT)


def _backward_along(g: TensorSpec, y: TensorSpec, dim: int) -> TensorSpec:
    return _along(alike(g, y), dim)


def _largest(x: Array, dim: int) -> Array:
    return np.max(x, axis=dim, keepdims=True, initial=-np.inf)


def _numpy_softmax(x: Array, *, dim: int) -> Array:
    x = wide_array(x)
    e = np.exp(x - _largest(x, dim))
    return e / np.sum(e, axis=dim, keepdims=True)


def _numpy_softmax_backward(g: Array, y: Array, *, dim: int) -> Array:
    g, y = wide_array(g), wide_array(y)
    return y * (g - np.sum(g * y, axis=dim, keepdims=True))


def _by_dim(function: Any) -> PerCall:
    def build(call: Call) -> Candidate:
        dim, dtype = call.attrs["dim"], TO_TORCH[call.results[0].dtype]
        return lambda g, y: function(g, y, dim, dtype)

    return PerCall(build)


# -- what they are made of, for fusion -------------------------------------------------------------------
def _wide(x: Value) -> Value:
    return cast(x, dtype=DType.F32) if x.spec.dtype in (DType.F16, DType.BF16) else x


def _exponentials(x: Value, dim: int) -> tuple[Value, Value]:
    wide = _wide(x)
    shifted = wide if same_size(x.shape[dim], 0) else wide - amax(wide, dims=(dim,))  # nothing has no largest element
    return shifted, exp(shifted)


def _softmax(x: Value, *, dim: int) -> Value:
    _, e = _exponentials(x, dim)
    return cast(e / sum(e, dims=(dim,)), dtype=x.spec.dtype)


def _softmax_backward(g: Value, y: Value, *, dim: int) -> Value:
    g, y, dtype = _wide(g), _wide(y), y.spec.dtype
    return cast(y * (g - sum(g * y, dims=(dim,))), dtype=dtype)


def _log_softmax(x: Value, *, dim: int) -> Value:
    shifted, e = _exponentials(x, dim)
    return cast(shifted - log(sum(e, dims=(dim,))), dtype=x.spec.dtype)


def _log_softmax_backward(g: Value, y: Value, *, dim: int) -> Value:
    g, y, dtype = _wide(g), _wide(y), y.spec.dtype
    return cast(g - exp(y) * sum(g, dims=(dim,)), dtype=dtype)


# -- softmax -------------------------------------------------------------------------------------------
@op(torch=torch.softmax, numpy=_numpy_softmax, precision="high", laws=[Expands(_softmax)], samples=_SAMPLES)
def softmax(x: TensorSpec, *, dim: int) -> TensorSpec:
    """exp(x) / sum(exp(x)) over one axis.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    A line that is -inf everywhere, or has +inf or NaN in it, gives NaN, as in PyTorch.
    """
    return _along(x, dim)


@softmax.gradient
def _(g, y, x, *, dim):
    return softmax_backward(g, y, dim=dim)


@op(
    torch=_by_dim(torch._softmax_backward_data),
    numpy=_numpy_softmax_backward,
    precision="high",
    laws=[Expands(_softmax_backward)],
    samples=_BACKWARD_SAMPLES,
)
def softmax_backward(g: TensorSpec, y: TensorSpec, *, dim: int) -> TensorSpec:
    """y * (g - sum(g * y)), where y is the output of softmax or of quiet_softmax.

    Shapes: g, y (*s) -> (*s).  Dtypes: float, both the same.
    """
    return _backward_along(g, y, dim)


@softmax_backward.gradient
def _(h, z, g, y, *, dim):
    return softmax_backward(h, y, dim=dim), h * (g - sum(g * y, dims=(dim,))) - g * sum(h * y, dims=(dim,))


# -- log_softmax ------------------------------------------------------------------------------------------
def _numpy_log_softmax(x: Array, *, dim: int) -> Array:
    x = wide_array(x)
    shifted = x - _largest(x, dim)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def _numpy_log_softmax_backward(g: Array, y: Array, *, dim: int) -> Array:
    g, y = wide_array(g), wide_array(y)
    return g - np.exp(y) * np.sum(g, axis=dim, keepdims=True)


@op(torch=torch.log_softmax, numpy=_numpy_log_softmax, precision="high", laws=[Expands(_log_softmax)], samples=_SAMPLES)
def log_softmax(x: TensorSpec, *, dim: int) -> TensorSpec:
    """x - log(sum(exp(x))) over one axis.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    A line that is -inf everywhere, or has +inf or NaN in it, gives NaN, as in PyTorch.
    """
    return _along(x, dim)


@log_softmax.gradient
def _(g, y, x, *, dim):
    return log_softmax_backward(g, y, dim=dim)


@op(
    torch=_by_dim(torch._log_softmax_backward_data),
    numpy=_numpy_log_softmax_backward,
    precision="high",
    laws=[Expands(_log_softmax_backward)],
    samples=_BACKWARD_SAMPLES,
)
def log_softmax_backward(g: TensorSpec, y: TensorSpec, *, dim: int) -> TensorSpec:
    """g - exp(y) * sum(g), where y is the output of log_softmax.

    Shapes: g, y (*s) -> (*s).  Dtypes: float, both the same.
    """
    return _backward_along(g, y, dim)


@log_softmax_backward.gradient
def _(h, z, g, y, *, dim):
    p = exp(y)
    return h - sum(h * p, dims=(dim,)), -(h * p * sum(g, dims=(dim,)))


# -- quiet_softmax ------------------------------------------------------------------------------------------
def _torch_quiet_softmax(call: Call) -> Candidate:
    dim, spec = call.attrs["dim"], call.results[0]
    if spec.numel == 0:
        return torch.clone
    dtype = TO_TORCH[spec.dtype]
    wide = torch.float64 if spec.dtype is DType.F64 else torch.float32

    def quiet(x: torch.Tensor) -> torch.Tensor:
        x = x.to(wide)
        largest = x.amax(dim, keepdim=True).clamp_(min=0)
        e = (x - largest).exp_()
        return e.div_(e.sum(dim, keepdim=True).add_((-largest).exp_())).to(dtype)

    return quiet


def _numpy_quiet_softmax(x: Array, *, dim: int) -> Array:
    x = wide_array(x)
    largest = np.maximum(_largest(x, dim), 0)
    e = np.exp(x - largest)
    return e / (np.sum(e, axis=dim, keepdims=True) + np.exp(-largest))


@op(
    torch=PerCall(_torch_quiet_softmax),
    numpy=_numpy_quiet_softmax,
    precision="high",
    samples=_SAMPLES,
    source="Miller 2023, https://www.evanmiller.org/attention-is-off-by-one.html",
)
def quiet_softmax(x: TensorSpec, *, dim: int) -> TensorSpec:
    """exp(x) / (1 + sum(exp(x))) over one axis: softmax with one more element, 0, that is left out.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out; half types compute in float32.
    A line that is -inf everywhere gives zeros; one that has +inf or NaN in it gives NaN.
    """
    return _along(x, dim)


@quiet_softmax.gradient
def _(g, y, x, *, dim):
    return softmax_backward(g, y, dim=dim)
