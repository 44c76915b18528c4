"""Batch normalisation, with the statistics of the batch or with given ones.

Rows keep no state: `batch_norm` gives the mean and the variance that it used, and the layer updates its running
statistics from them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.functions import rsqrt
from burn_torch.ops.moments import (
    EPS,
    affine_samples,
    alive,
    channels_of,
    check_affine,
    check_statistics,
    in_float32,
    like,
    mean_over,
    numpy_mean,
    scaled_by,
    statistics_of,
    wide_array,
    widened,
)
from burn_torch.ops.op import Call, Candidate, op
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import alike
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import reshape
from burn_torch.ops.signature import Number
from burn_torch.ops.value import Primitive

aten = torch.ops.aten


def _but_channels(x: Primitive) -> tuple[Primitive, ...]:
    return (0, *range(2, x.ndim))


def _beside(x: Primitive) -> tuple[Primitive, ...]:
    return (1, x.shape[1]) + (1,) * (x.ndim - 2)


def _numpy_scaled(y: Array, gamma: Array | None, beta: Array | None) -> Array:
    if gamma is not None:
        y = y * gamma.reshape(_beside(y))
    return y if beta is None else y + beta.reshape(_beside(y))


# -- statistics of the batch --------------------------------------------------------------------------
def _torch_batch_norm(call: Call) -> Candidate:
    spec, channels = call.results[0], call.results[1].numel
    if spec.numel == 0:
        return lambda x, gamma, beta, eps: (
            torch.empty_like(x),
            x.new_zeros(channels, dtype=torch.promote_types(x.dtype, torch.float32)),
            x.new_zeros(channels, dtype=torch.promote_types(x.dtype, torch.float32)),
        )
    update, normalise = torch.batch_norm_update_stats, torch.native_batch_norm

    def run(x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean, var = update(x, None, None, 0.0)
        return normalise(x, gamma, beta, mean, var, False, 0.0, eps)[0], mean, var

    return run


def _numpy_batch_norm(x: Array, gamma: Array | None, beta: Array | None, eps: float) -> tuple[Array, Array, Array]:
    x = wide_array(x)
    if x.size == 0:
        return x.copy(), np.zeros(x.shape[1], x.dtype), np.zeros(x.shape[1], x.dtype)
    mean = numpy_mean(x, _but_channels(x))
    centred = x - mean
    var = numpy_mean(centred * centred, _but_channels(x))
    return _numpy_scaled(centred / np.sqrt(var + eps), gamma, beta), mean.reshape(-1), var.reshape(-1)


@op(
    torch=in_float32(_torch_batch_norm),
    numpy=_numpy_batch_norm,
    precision="high",
    samples=[
        *affine_samples((5, 3), (4, 3, 5), (2, 3, 2, 3), features=1),
        sample(uniform(-1, 1, (0, 3, 2)), None, None, EPS),
    ],
    source="Ioffe, Szegedy 2015, algorithm 1, https://arxiv.org/abs/1502.03167",
)
def batch_norm(
    x: TensorSpec, gamma: TensorSpec | None, beta: TensorSpec | None, eps: Number
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Normalises each channel over the batch and all positions; gives y, the mean, and the biased variance.

        y = (x - mean) / sqrt(var + eps) * gamma + beta

    Shapes: x (batch, channels, *s), gamma, beta (channels,) -> y like x, mean and var (channels,).
    Dtypes: float, all the same; mean and var of half types are float32.
    One element a channel has variance 0 and gives beta; none gives a mean and a variance of 0.
    PyTorch: torch.nn.functional.batch_norm(training=True), which refuses one element a channel.
    """
    channels = channels_of(x)
    check_affine(x, channels, eps, gamma=gamma, beta=beta)
    statistics = statistics_of(x, (channels,))
    return x, statistics, statistics


@batch_norm.gradient
def _(g, y, x, gamma, beta, eps):
    if g[0] is None or g[1] is not None or g[2] is not None:
        return NotImplemented
    dx, dgamma, dbeta = batch_norm_backward(g[0], x, y[1], y[2], gamma, eps)
    return dx, None if gamma is None else dgamma, None if beta is None else dbeta, None


@batch_norm.decomposes
def _(x, gamma, beta, eps):
    dims, channels = _but_channels(x), (x.shape[1],)
    wide = widened(x)
    mean = mean_over(wide, dims)
    centred = wide - mean
    var = mean_over(centred * centred, dims)
    y = scaled_by(centred * rsqrt(var + eps), gamma, beta, _beside(x))
    return like(x, y), reshape(mean, shape=channels), reshape(var, shape=channels)


def _torch_batch_norm_backward(call: Call) -> Candidate:
    live, spec = call.attrs["live"], call.tensor(1)
    if spec.numel == 0:
        channels = spec.shape[1]
        return lambda g, x, mean, var, gamma, eps: tuple(
            x.new_zeros(shape) if used else None
            for shape, used in zip((x.shape, channels, channels), live, strict=True)
        )
    backward = aten.native_batch_norm_backward.default

    def run(g: Tensor, x: Tensor, mean: Tensor, var: Tensor, gamma: Tensor | None, eps: float) -> tuple[Primitive, ...]:
        # beside a contiguous x torch reads these three as if they were contiguous too
        rstd = torch.rsqrt(var + eps).contiguous()
        if gamma is not None:
            gamma = gamma.contiguous()
        elif live[1] or live[2]:  # torch computes the sums only beside a gamma
            gamma = x.new_ones(x.shape[1])
        return backward(g, x, gamma, None, None, mean.contiguous(), rstd, True, eps, live)

    return run


def _numpy_batch_norm_backward(
    g: Array, x: Array, mean: Array, var: Array, gamma: Array | None, eps: float, *, live: tuple[bool, ...]
) -> tuple[Primitive, ...]:
    g, x = wide_array(g), wide_array(x)
    over = _but_channels(x)
    rstd = (1 / np.sqrt(var + eps)).reshape(_beside(x))
    normal = (x - mean.reshape(_beside(x))) * rstd
    dgamma = np.sum(g * normal, axis=over, keepdims=True)
    dbeta = np.sum(g, axis=over, keepdims=True)
    count = max(x.size // max(x.shape[1], 1), 1)
    scale = rstd if gamma is None else rstd * gamma.reshape(_beside(x))
    dx = scale * (g - dbeta / count - normal * (dgamma / count))
    return (dx if live[0] else None, dgamma.reshape(-1) if live[1] else None, dbeta.reshape(-1) if live[2] else None)


@op(
    torch=in_float32(_torch_batch_norm_backward),
    numpy=_numpy_batch_norm_backward,
    precision="high",
    samples=[
        sample(
            uniform(-1, 1, shape),
            uniform(-2, 2, shape),
            uniform(-1, 1, shape[1:2]),
            uniform(0.5, 1, shape[1:2]),
            gamma,
            EPS,
        )
        for shape in ((5, 3), (2, 3, 2, 3))
        for gamma in (uniform(0.5, 1.5, (3,)), None)
    ],
)
def batch_norm_backward(
    g: TensorSpec,
    x: TensorSpec,
    mean: TensorSpec,
    var: TensorSpec,
    gamma: TensorSpec | None,
    eps: Number,
    *,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of x, gamma and beta from that of y; only those that `live` names are computed.

        n = (x - mean) / sqrt(var + eps)      dx = gamma / sqrt(var + eps) * (g - mean(g) - n * mean(g n))
        dgamma = sum(g * n)                   dbeta = sum(g)

    Shapes: g, x (batch, channels, *s), mean, var, gamma (channels,) -> like x, two (channels,).
    Dtypes: float, all the same; mean and var of half types are float32.
    """
    channels = channels_of(x)
    check_affine(alike(g, x), channels, eps, gamma=gamma)
    check_statistics(x, (channels,), mean, var)
    features = x.with_shape((channels,))
    return alive(live, x, features, features)


@batch_norm_backward.decomposes
def _(g, x, mean, var, gamma, eps, *, live):
    over, beside, features = _but_channels(x), _beside(x), (x.shape[1],)
    wide = widened(g)
    rstd = reshape(rsqrt(var + eps), shape=beside)
    normal = (widened(x) - reshape(mean, shape=beside)) * rstd
    dx = None
    if live[0]:
        scaled = scaled_by(wide, gamma, None, beside)
        dx = like(x, rstd * (scaled - mean_over(scaled, over) - normal * mean_over(scaled * normal, over)))
    dgamma = reshape(sum(wide * normal, dims=over), shape=features) if live[1] else None
    dbeta = reshape(sum(wide, dims=over), shape=features) if live[2] else None
    return dx, like(x, dgamma), like(x, dbeta)


# -- given statistics -----------------------------------------------------------------------------------
def _torch_batch_norm_inference(call: Call) -> Candidate:
    if call.results[0].numel == 0:
        return lambda x, gamma, beta, mean, var, eps: torch.empty_like(x)
    cudnn = torch.backends.cudnn.enabled
    return lambda x, gamma, beta, mean, var, eps: torch.batch_norm(x, gamma, beta, mean, var, False, 0.0, eps, cudnn)


def _numpy_batch_norm_inference(
    x: Array, gamma: Array | None, beta: Array | None, mean: Array, var: Array, eps: float
) -> Array:
    x = wide_array(x)
    rstd = 1 / np.sqrt(wide_array(var) + eps)
    return _numpy_scaled((x - mean.reshape(_beside(x))) * rstd.reshape(_beside(x)), gamma, beta)


@op(
    torch=in_float32(_torch_batch_norm_inference),
    numpy=_numpy_batch_norm_inference,
    precision="high",
    samples=[
        sample(uniform(-2, 2, shape), *affine, uniform(-1, 1, (3,)), uniform(0.5, 2, (3,)), EPS)
        for shape in ((5, 3), (2, 3, 4), (2, 3, 2, 3), (0, 3, 2))
        for affine in ((uniform(0.5, 1.5, (3,)), uniform(-1, 1, (3,))), (None, None))
    ],
    source="Ioffe, Szegedy 2015, algorithm 2, https://arxiv.org/abs/1502.03167",
)
def batch_norm_inference(
    x: TensorSpec, gamma: TensorSpec | None, beta: TensorSpec | None, mean: TensorSpec, var: TensorSpec, eps: Number
) -> TensorSpec:
    """(x - mean) / sqrt(var + eps) * gamma + beta for each channel, with given statistics.

    Shapes: x (batch, channels, *s), the others (channels,) -> like x.  Dtypes: float, all the same; mean and var of
    half types may be float32 instead.
    PyTorch: torch.nn.functional.batch_norm(training=False).
    """
    channels = channels_of(x)
    check_affine(x, channels, eps, gamma=gamma, beta=beta)
    if mean is not var or mean.shape != (channels,):
        raise shape_fault(
            "the statistics do not fit the input",
            expected=f"mean and var ({channels},) of one element type",
            mend=f"make the layer for {channels} features",
        )
    if mean.dtype not in (x.dtype, statistics_of(x, ()).dtype):
        raise dtype_fault(
            "the element types differ",
            expected=f"mean and var of type {x.dtype}",
            mend="cast one side, for example with .cast(DType.F32)",
        )
    return x


@batch_norm_inference.decomposes
def _(x, gamma, beta, mean, var, eps):
    beside = _beside(x)
    rstd = reshape(rsqrt(widened(var) + eps), shape=beside)
    centred = widened(x) - reshape(widened(mean), shape=beside)
    return like(x, scaled_by(centred * rstd, gamma, beta, beside))
