"""Normalisation: layer, group, batch, and root mean square.

    y = (x - mean) * rstd * gamma + beta        rstd = 1 / sqrt(var + eps), var is the biased variance

Statistics of half types are float32.  mean, rstd and var are outputs like any other: they carry gradients.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.arithmetic import mul
from burn_torch.ops.faults import shape_fault
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
    statistics_dtype,
    statistics_of,
    wide_array,
    widened,
)
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import alike
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import reshape
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value

aten = torch.ops.aten


# -- layer norm --------------------------------------------------------------------------------------
def _torch_layer_norm(call: Call) -> Candidate:
    shape = call.tensor(0).shape[-1:]
    return lambda x, gamma, beta, eps: torch.native_layer_norm(x, shape, gamma, beta, eps)


def _numpy_layer_norm(x: Array, gamma: Array | None, beta: Array | None, eps: float) -> tuple[Array, Array, Array]:
    x = wide_array(x)
    mean = numpy_mean(x, -1)
    centred = x - mean
    rstd = 1 / np.sqrt(numpy_mean(centred * centred, -1) + eps)
    y = centred * rstd
    if gamma is not None:
        y = y * gamma
    return y if beta is None else y + beta, mean, rstd


@op(
    torch=in_float32(_torch_layer_norm),
    numpy=_numpy_layer_norm,
    precision="high",
    samples=affine_samples((3, 5), (2, 3, 4), (4,), (0, 3)),
    source="Ba, Kiros, Hinton 2016, section 3, https://arxiv.org/abs/1607.06450",
)
def layer_norm(
    x: TensorSpec, gamma: TensorSpec | None, beta: TensorSpec | None, eps: Number
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Normalises over the last axis; gives y, mean and rstd.

    Shapes: x (*batch, d_model), gamma, beta (d_model,) -> y (*batch, d_model), mean and rstd (*batch, 1).
    Dtypes: float, all the same; mean and rstd of half types are float32.
    PyTorch: torch.nn.functional.layer_norm over the last axis.
    """
    if x.ndim < 1:
        raise shape_fault(
            "the input has no axis", expected="x (*batch, d_model)", mend="insert an axis with unsqueeze_dim"
        )
    check_affine(x, x.shape[-1], eps, gamma=gamma, beta=beta)
    statistics = statistics_of(x, (*x.shape[:-1], 1))
    return x, statistics, statistics


@layer_norm.gradient
def _(g, y, x, gamma, beta, eps):
    if g[0] is None or g[1] is not None or g[2] is not None:
        return NotImplemented
    dx, dgamma, dbeta = layer_norm_backward(g[0], x, y[1], y[2], gamma)
    return dx, None if gamma is None else dgamma, None if beta is None else dbeta, None


@layer_norm.decomposes
def _(x, gamma, beta, eps):
    dims, shape = (x.ndim - 1,), (1,) * (x.ndim - 1) + x.shape[-1:]
    wide = widened(x)
    mean = mean_over(wide, dims)
    centred = wide - mean
    rstd = rsqrt(mean_over(centred * centred, dims) + eps)
    return like(x, scaled_by(centred * rstd, gamma, beta, shape)), mean, rstd


def _torch_layer_norm_backward(call: Call) -> Candidate:
    live = call.attrs["live"]
    shape = call.tensor(1).shape[-1:]
    backward = aten.native_layer_norm_backward.default

    def run(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor | None) -> tuple[Primitive, ...]:
        if gamma is None and (live[1] or live[2]):  # torch sizes the sums by it
            gamma = x.new_ones(shape)
        # torch reads its inputs as if they lay in order
        g, x, mean, rstd = g.contiguous(), x.contiguous(), mean.contiguous(), rstd.contiguous()
        return backward(g, x, shape, mean, rstd, gamma, gamma, live)

    return run


def _numpy_layer_norm_backward(
    g: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None, *, live: tuple[bool, ...]
) -> tuple[Primitive, ...]:
    g, x = wide_array(g), wide_array(x)
    rows = tuple(range(x.ndim - 1))
    normal = (x - mean) * rstd
    scaled = g if gamma is None else g * gamma
    offset = numpy_mean(scaled, -1)
    along = numpy_mean(scaled * normal, -1)
    return (
        rstd * (scaled - offset - normal * along) if live[0] else None,
        np.sum(g * normal, axis=rows) if live[1] else None,
        np.sum(g, axis=rows) if live[2] else None,
    )


@op(
    torch=in_float32(_torch_layer_norm_backward),
    numpy=_numpy_layer_norm_backward,
    precision="high",
    samples=[
        sample(*(uniform(-1, 1, shape) for shape in shapes), uniform(0.5, 1, (*shapes[0][:-1], 1)), gamma)
        for shapes in (((3, 5), (3, 5), (3, 1)), ((2, 3, 5), (2, 3, 5), (2, 3, 1)), ((0, 5), (0, 5), (0, 1)))
        for gamma in (uniform(0.5, 1.5, (5,)), None)
        if shapes[0][0] or gamma is None  # no rows give gamma no gradient to check
    ],
)
def layer_norm_backward(
    g: TensorSpec,
    x: TensorSpec,
    mean: TensorSpec,
    rstd: TensorSpec,
    gamma: TensorSpec | None,
    *,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of x, gamma and beta from that of y; only those that `live` names are computed.

        n = (x - mean) * rstd      dx = rstd * (g gamma - mean(g gamma) - n * mean(g gamma n))
        dgamma = sum(g * n)        dbeta = sum(g)

    Shapes: g, x (*batch, d_model), mean, rstd (*batch, 1), gamma (d_model,) -> (*batch, d_model), two (d_model,).
    Dtypes: float, all the same; mean and rstd of half types are float32.
    """
    check_affine(alike(g, x), x.shape[-1], None, gamma=gamma)
    check_statistics(x, (*x.shape[:-1], 1), mean, rstd)
    features = x.with_shape(x.shape[-1:])
    return alive(live, x, features, features)


@layer_norm_backward.decomposes
def _(g, x, mean, rstd, gamma, *, live):
    last, rows = (x.ndim - 1,), tuple(range(x.ndim - 1))
    shape = (1,) * (x.ndim - 1) + x.shape[-1:]
    wide = widened(g)
    normal = (widened(x) - mean) * rstd
    dx = None
    if live[0]:
        scaled = scaled_by(wide, gamma, None, shape)
        dx = like(x, rstd * (scaled - mean_over(scaled, last) - normal * mean_over(scaled * normal, last)))
    dgamma = reshape(sum(wide * normal, dims=rows), shape=x.shape[-1:]) if live[1] else None
    dbeta = reshape(sum(wide, dims=rows), shape=x.shape[-1:]) if live[2] else None
    return dx, like(x, dgamma), like(x, dbeta)


# -- root mean square ------------------------------------------------------------------------------------
def _torch_rms_norm(call: Call) -> Candidate:
    spec = call.results[0]
    dtype, wide = TO_TORCH[spec.dtype], TO_TORCH[statistics_dtype(spec)]
    if dtype is wide:

        def run(x: Tensor, gamma: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
            rstd = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
            y = x * rstd
            return y if gamma is None else y.mul_(gamma), rstd

        return run

    def run_wide(x: Tensor, gamma: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
        x = x.to(wide)
        rstd = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        y = x.mul_(rstd)  # the copy that `to` made
        return (y if gamma is None else y.mul_(gamma)).to(dtype), rstd

    return run_wide


def _numpy_rms_norm(x: Array, gamma: Array | None, eps: float) -> tuple[Array, Array]:
    x = wide_array(x)
    rstd = 1 / np.sqrt(numpy_mean(x * x, -1) + eps)
    y = x * rstd
    return y if gamma is None else y * gamma, rstd


@op(
    torch=PerCall(_torch_rms_norm),
    numpy=_numpy_rms_norm,
    precision="high",
    samples=[
        sample(uniform(-2, 2, shape), gamma, EPS)
        for shape in ((3, 5), (2, 3, 5), (5,), (0, 5))
        for gamma in (uniform(0.5, 1.5, (5,)), None)
    ],
    source="Zhang, Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467",
)
def rms_norm(x: TensorSpec, gamma: TensorSpec | None, eps: Number) -> tuple[TensorSpec, TensorSpec]:
    """x / sqrt(mean(x^2) + eps) * gamma over the last axis; gives y and rstd, what x was multiplied by.

    Shapes: x (*batch, d_model), gamma (d_model,) -> y (*batch, d_model), rstd (*batch, 1).
    Dtypes: float, all the same; half types compute in float32, and rstd is float32.
    """
    if x.ndim < 1:
        raise shape_fault(
            "the input has no axis", expected="x (*batch, d_model)", mend="insert an axis with unsqueeze_dim"
        )
    check_affine(x, x.shape[-1], eps, gamma=gamma)
    return x, statistics_of(x, (*x.shape[:-1], 1))


@rms_norm.gradient
def _(g, y, x, gamma, eps):
    if g[0] is None or g[1] is not None:
        return NotImplemented
    dx, dgamma = rms_norm_backward(g[0], x, y[1], gamma)
    return dx, None if gamma is None else dgamma, None


@rms_norm.decomposes
def _(x, gamma, eps):
    wide = widened(x)
    rstd = rsqrt(mean_over(wide * wide, (x.ndim - 1,)) + eps)
    return like(x, scaled_by(wide * rstd, gamma, None, (1,) * (x.ndim - 1) + x.shape[-1:])), rstd


@op(
    precision="high",
    samples=[
        sample(uniform(-1, 1, shape), uniform(-2, 2, shape), uniform(0.5, 1, (*shape[:-1], 1)), gamma)
        for shape in ((3, 5), (2, 3, 5), (0, 5))
        for gamma in (uniform(0.5, 1.5, (5,)), None)
        if shape[0] or gamma is None  # no rows give gamma no gradient to check
    ],
)
def rms_norm_backward(
    g: TensorSpec, x: TensorSpec, rstd: TensorSpec, gamma: TensorSpec | None, *, live: tuple[bool, ...] = (True, True)
) -> tuple[TensorSpec | None, ...]:
    """The gradients of x and gamma from that of y; only those that `live` names are computed.

        n = x * rstd      dx = rstd * (g gamma - n * mean(g gamma n))      dgamma = sum(g * n)

    Shapes: g, x (*batch, d_model), rstd (*batch, 1), gamma (d_model,) -> (*batch, d_model), (d_model,).
    Dtypes: float, all the same; half types compute in float32, and rstd is float32.
    """
    check_affine(alike(g, x), x.shape[-1], None, gamma=gamma)
    check_statistics(x, (*x.shape[:-1], 1), rstd)
    return alive(live, x, x.with_shape(x.shape[-1:]))


@rms_norm_backward.decomposes
def _(g, x, rstd, gamma, *, live):
    wide = widened(g)
    normal = widened(x) * rstd
    dx = None
    if live[0]:
        scaled = scaled_by(wide, gamma, None, (1,) * (x.ndim - 1) + x.shape[-1:])
        dx = like(x, rstd * (scaled - normal * mean_over(scaled * normal, (x.ndim - 1,))))
    dgamma = None
    if live[1]:
        dgamma = like(x, reshape(sum(wide * normal, dims=tuple(range(x.ndim - 1))), shape=x.shape[-1:]))
    return dx, dgamma


# -- group norm ----------------------------------------------------------------------------------------
def _group_sizes(x: TensorSpec, groups: int) -> tuple[int, int, int]:
    # batch, channels, positions
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


def _check_groups(x: TensorSpec, groups: int) -> None:
    channels = channels_of(x)
    if groups < 1 or channels % groups:
        raise shape_fault(
            f"{channels} channels do not divide into {groups} groups",
            expected=f"groups that divide {channels}",
            mend="choose num_groups among the divisors of the number of channels",
        )


def _torch_group_norm(call: Call) -> Candidate:
    groups = call.attrs["groups"]
    n, c, hw = _group_sizes(call.specs[0], groups)  # type: ignore[arg-type]  # a tensor: the rule ran

    def run(x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        # torch reads its inputs as if they lay in order
        gamma, beta = (None if y is None else y.contiguous() for y in (gamma, beta))
        return torch.native_group_norm(x.contiguous(), gamma, beta, n, c, hw, groups, eps)

    return run


def _grouped_array(x: Array, groups: int) -> Array:
    return wide_array(x).reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)


def _numpy_group_norm(
    x: Array, gamma: Array | None, beta: Array | None, eps: float, *, groups: int
) -> tuple[Array, Array, Array]:
    lines = _grouped_array(x, groups)
    mean = numpy_mean(lines, 2)
    centred = lines - mean
    rstd = 1 / np.sqrt(numpy_mean(centred * centred, 2) + eps)
    y = (centred * rstd).reshape(x.shape)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    if gamma is not None:
        y = y * gamma.reshape(shape)
    return y if beta is None else y + beta.reshape(shape), mean[:, :, 0], rstd[:, :, 0]


@op(
    torch=in_float32(_torch_group_norm, everywhere=True),
    numpy=_numpy_group_norm,
    precision="high",
    samples=[
        *affine_samples((2, 4, 3), (3, 4), (2, 4, 3, 2), (0, 4, 3), features=1, groups=2),
        *affine_samples((2, 3, 5), features=1, groups=3),
    ],
    source="Wu, He 2018, section 3.1, https://arxiv.org/abs/1803.08494",
)
def group_norm(
    x: TensorSpec, gamma: TensorSpec | None, beta: TensorSpec | None, eps: Number, *, groups: int
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Normalises each group of neighbouring channels of each item; gives y, mean and rstd.

    With as many groups as channels it is instance norm.

    Shapes: x (batch, channels, *s), gamma, beta (channels,) -> y like x, mean and rstd (batch, groups).
    Dtypes: float, all the same; mean and rstd of half types are float32.
    """
    _check_groups(x, groups)
    check_affine(x, x.shape[1], eps, gamma=gamma, beta=beta)
    statistics = statistics_of(x, (x.shape[0], groups))
    return x, statistics, statistics


@group_norm.gradient
def _(g, y, x, gamma, beta, eps, *, groups):
    if g[0] is None or g[1] is not None or g[2] is not None:
        return NotImplemented
    dx, dgamma, dbeta = group_norm_backward(g[0], x, y[1], y[2], gamma, groups=groups)
    return dx, None if gamma is None else dgamma, None if beta is None else dbeta, None


def _lines(x: Value, groups: int) -> Value:
    return reshape(widened(x), shape=(x.shape[0], groups, math.prod(x.shape[1:]) // groups))


@group_norm.decomposes
def _(x, gamma, beta, eps, *, groups):
    lines = _lines(x, groups)
    mean = mean_over(lines, (2,))
    centred = lines - mean
    rstd = rsqrt(mean_over(centred * centred, (2,)) + eps)
    y = scaled_by(reshape(centred * rstd, shape=x.shape), gamma, beta, (1, x.shape[1]) + (1,) * (x.ndim - 2))
    statistics = (x.shape[0], groups)
    return like(x, y), reshape(mean, shape=statistics), reshape(rstd, shape=statistics)


def _torch_group_norm_backward(call: Call) -> Candidate:
    live, groups = call.attrs["live"], call.attrs["groups"]
    n, c, hw = _group_sizes(call.specs[1], groups)  # type: ignore[arg-type]  # a tensor: the rule ran
    backward = aten.native_group_norm_backward.default

    def run(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor | None) -> tuple[Primitive, ...]:
        if gamma is None and (live[1] or live[2]):  # torch sizes the sums by it
            gamma = x.new_ones((c,))
        if gamma is not None:
            gamma = gamma.contiguous()
        g, x, mean, rstd = g.contiguous(), x.contiguous(), mean.contiguous(), rstd.contiguous()
        return backward(g, x, mean, rstd, gamma, n, c, hw, groups, live)

    return run


def _numpy_group_norm_backward(
    g: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None, *, groups: int, live: tuple[bool, ...]
) -> tuple[Primitive, ...]:
    g = wide_array(g)
    normal = (_grouped_array(x, groups) - mean[:, :, None]) * rstd[:, :, None]
    scaled = _grouped_array(g if gamma is None else g * gamma.reshape((1, -1) + (1,) * (x.ndim - 2)), groups)
    offset = numpy_mean(scaled, 2)
    along = numpy_mean(scaled * normal, 2)
    dx = rstd[:, :, None] * (scaled - offset - normal * along)
    but_channels = (0, *range(2, x.ndim))
    return (
        dx.reshape(x.shape) if live[0] else None,
        np.sum(g * normal.reshape(x.shape), axis=but_channels) if live[1] else None,
        np.sum(g, axis=but_channels) if live[2] else None,
    )


@op(
    torch=in_float32(_torch_group_norm_backward, everywhere=True),
    numpy=_numpy_group_norm_backward,
    precision="high",
    samples=[
        sample(
            uniform(-1, 1, shape),
            uniform(-2, 2, shape),
            uniform(-1, 1, (shape[0], 2)),
            uniform(0.5, 1, (shape[0], 2)),
            gamma,
            groups=2,
        )
        for shape in ((2, 4, 3), (3, 4), (2, 4, 3, 2), (0, 4, 3))
        for gamma in (uniform(0.5, 1.5, (4,)), None)
        if shape[0] or gamma is None  # no items give gamma no gradient to check
    ],
)
def group_norm_backward(
    g: TensorSpec,
    x: TensorSpec,
    mean: TensorSpec,
    rstd: TensorSpec,
    gamma: TensorSpec | None,
    *,
    groups: int,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of x, gamma and beta from that of y; only those that `live` names are computed.

    As `layer_norm_backward`, with means over a group and sums over all axes but that of channels.

    Shapes: g, x (batch, channels, *s), mean, rstd (batch, groups), gamma (channels,) -> like x, two (channels,).
    Dtypes: float, all the same; mean and rstd of half types are float32.
    """
    _check_groups(x, groups)
    check_affine(alike(g, x), x.shape[1], None, gamma=gamma)
    check_statistics(x, (x.shape[0], groups), mean, rstd)
    features = x.with_shape((x.shape[1],))
    return alive(live, x, features, features)


@group_norm_backward.decomposes
def _(g, x, mean, rstd, gamma, *, groups, live):
    beside, each = (1, x.shape[1]) + (1,) * (x.ndim - 2), (*mean.shape, 1)
    but_channels = (0, *range(2, x.ndim))
    wide = widened(g)
    mean, rstd = reshape(mean, shape=each), reshape(rstd, shape=each)
    normal = (_lines(x, groups) - mean) * rstd
    dx = None
    if live[0]:
        scaled = _lines(scaled_by(wide, gamma, None, beside), groups)
        dx = rstd * (scaled - mean_over(scaled, (2,)) - normal * mean_over(scaled * normal, (2,)))
        dx = like(x, reshape(dx, shape=x.shape))
    dgamma, dbeta = (
        like(x, reshape(sum(y, dims=but_channels), shape=(x.shape[1],))) if used else None
        for y, used in ((mul(wide, reshape(normal, shape=x.shape)), live[1]), (wide, live[2]))
    )
    return dx, dgamma, dbeta
