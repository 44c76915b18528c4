"""Optimizer updates of many tensors in one call.

Optimizers call these rows in eager code too, so an eager and a compiled step agree in every bit.  Tensors come as
`*xs`: all parameters, then all gradients, then each kind of state, n of each.  The old values are not written to,
but by a program to which they were donated.

On LibTorch these are torch's fused kernels, one pass over memory.  They write in place, so eager gives them copies:
200 parameters of 32 x 32 take Adam 0.2 ms in place and 1.1 ms with copies, where torch's `_foreach_` functions took
3.3 (one thread of an x86 CPU).  The learning rate and the time may be given as tensors on the device, which these
kernels read there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.moments import HALF, like
from burn_torch.ops.op import REGISTRY, Call, PerCall, op
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_code import Over
from burn_torch.ops.value import Primitive, Value

Tensors = list[torch.Tensor] | tuple[torch.Tensor, ...]


def _groups(xs: tuple[Primitive, ...], kinds: int) -> list[Primitive]:
    """`xs` cut into `kinds` equal runs."""
    n = len(xs) // kinds
    return [list(xs[i * n : (i + 1) * n]) for i in range(kinds)]


def _spec_groups(xs: tuple[TensorSpec, ...], kinds: int) -> list[list[TensorSpec]]:
    if len(xs) % kinds:
        raise shape_fault(
            f"{len(xs)} tensors do not make {kinds} equal runs",
            expected=f"n parameters, n gradients and {kinds - 2} times n states",
            mend="pass one gradient and one state for each parameter",
        )
    groups = _groups(xs, kinds)
    for same in zip(*groups, strict=True):
        same[0].require(FLOAT)
        if not all(_fits(spec, same[0]) or (kind == 1 and _narrow(spec, same[0])) for kind, spec in enumerate(same)):
            raise shape_fault(
                f"a gradient or a state does not fit its parameter {same[0]}: {same[1:]}",
                expected="the parameter's shape and element type; a gradient of float32 may be of a half type",
                mend="compute gradients of the parameters that are updated",
            )
    return groups


def _fits(spec: TensorSpec, parameter: TensorSpec) -> bool:
    """Tells if the two are equal.  Symbolic sizes are asked: n + (512 - n) may be 512."""
    return spec is parameter or (
        (spec.dtype, spec.place) == (parameter.dtype, parameter.place) and spec.shape == parameter.shape
    )


def _narrow(gradient: TensorSpec, parameter: TensorSpec) -> bool:
    """Tells if it is what a product in half precision gives for a float32 parameter."""
    return parameter.dtype is DType.F32 and gradient.dtype in HALF and _fits(gradient.with_dtype(DType.F32), parameter)


def _numpy_groups(xs: tuple[Array, ...], kinds: int) -> list[Primitive]:
    """`xs` in equal runs, gradients in the type of their parameters."""
    params, grads, *states = _groups(xs, kinds)
    return [params, [np.asarray(g, p.dtype) for p, g in zip(params, grads, strict=True)], *states]


def _traced_groups(xs: tuple[Value, ...], kinds: int) -> list[Primitive]:
    """The same of values of a trace."""
    params, grads, *states = _groups(xs, kinds)
    return [params, [like(p, g) for p, g in zip(params, grads, strict=True)], *states]


# -- torch's fused kernels -------------------------------------------------------------------------------
_is_contiguous = torch.Tensor.is_contiguous


def _dense(xs: Tensors) -> Tensors:
    # the kernels read memory in its order, whatever the strides: a transposed gradient would be a wrong one
    return xs if all(map(_is_contiguous, xs)) else [x.contiguous() for x in xs]


def _fused(update: Callable[..., None], numbers: int, kinds: Callable[[Call], int]) -> tuple[PerCall, PerCall]:
    """The candidate and the in-place form of `update(*numbers, params, grads, *states, **attrs)`.

    It writes over parameters and states.  It is called once for each element type, which is all that a kernel takes.
    """

    def runner(call: Call, *, copies: bool) -> Callable[..., Tensors]:
        types: dict[DType, list[int]] = {}
        runs = kinds(call)
        count = (len(call.specs) - numbers) // runs
        for i, spec in enumerate(call.specs[numbers : numbers + count]):
            assert isinstance(spec, TensorSpec)
            types.setdefault(spec.dtype, []).append(i)

        def run(*given: Primitive) -> Tensors:
            params, grads, *states = _groups(given[numbers:], runs)
            if copies:
                params, *states = ([x.clone() for x in group] for group in (params, *states))
            params, grads, *states = map(_dense, (params, grads, *states))
            grads = [g if g.dtype == p.dtype else g.to(p.dtype) for p, g in zip(params, grads, strict=True)]
            for members in types.values():
                groups = (params, grads, *states)
                if len(types) > 1:
                    groups = tuple([group[i] for i in members] for group in groups)
                update(*given[:numbers], *groups, **call.attrs)
            return [x for group in (params, *states) for x in group]

        return run

    def over(call: Call) -> Over:
        runs = kinds(call)
        count = (len(call.specs) - numbers) // runs
        written = [numbers + kind * count + i for kind in range(runs) if kind != 1 for i in range(count)]
        return Over(runner(call, copies=False), tuple(written))

    return PerCall(lambda call: runner(call, copies=True)), PerCall(over)


_WIDE = (torch.float32, torch.float64)
"""The types of `_fused_sgd_`: on the CPU it is wrong for 16 and more elements of a half type (torch 2.13)."""


def _add_penalty(penalty: float, params: Tensors, grads: Tensors) -> Tensors:
    return torch._foreach_add(grads, params, alpha=penalty) if penalty else grads


# -- stochastic gradient descent ----------------------------------------------------------------------
def _torch_sgd(lr: float, penalty: float, params: Tensors, grads: Tensors) -> None:
    if params[0].dtype in _WIDE:
        torch._fused_sgd_(
            params, grads, [], lr=lr, weight_decay=penalty, momentum=0.0, dampening=0.0, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip
    else:
        torch._foreach_add_(params, _add_penalty(penalty, params, grads), alpha=-lr)


_sgd_kernel, _sgd_over = _fused(_torch_sgd, 2, lambda call: 2)


def _numpy_sgd(lr: float, penalty: float, *xs: Array) -> list[Array]:
    params, grads = _numpy_groups(xs, 2)
    return [p - lr * (g + penalty * p if penalty else g) for p, g in zip(params, grads, strict=True)]


@op(
    torch=_sgd_kernel,
    inplace=_sgd_over,
    numpy=_numpy_sgd,
    runs=lambda attrs: (True, False),
    precision="high",
    samples=[
        sample(0.1, 0.0, uniform(-1, 1), uniform(-1, 1)),
        sample(0.1, 0.5, uniform(-1, 1, (2, 3)), uniform(-1, 1, (4,)), uniform(-1, 1, (2, 3)), uniform(-1, 1, (4,))),
    ],
)
def sgd_update(lr: Number, penalty: Number, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
    """Steps down the gradient: p - lr (g + penalty p).

    Shapes: n parameters, n gradients of the same shapes -> n parameters.
    Dtypes: float; gradients of float32 parameters may be of a half type.
    """
    return tuple(_spec_groups(xs, 2)[0])


@sgd_update.decomposes
def _(lr, penalty, *xs):
    params, grads = _traced_groups(xs, 2)
    return tuple(p - (g + p * penalty) * lr for p, g in zip(params, grads, strict=True))


# -- momentum ------------------------------------------------------------------------------------------
def _torch_momentum(
    lr: float,
    penalty: float,
    momentum: float,
    share: float,
    params: Tensors,
    grads: Tensors,
    velocities: Tensors,
    *,
    nesterov: bool,
) -> None:
    if params[0].dtype in _WIDE:
        torch._fused_sgd_(
            params, grads, velocities, lr=lr, weight_decay=penalty, momentum=momentum, dampening=1.0 - share,
            nesterov=nesterov, maximize=False, is_first_step=False,
        )  # fmt: skip
        return
    grads = _add_penalty(penalty, params, grads)
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, grads, alpha=share)
    steps = torch._foreach_add(grads, velocities, alpha=momentum) if nesterov else velocities
    torch._foreach_add_(params, steps, alpha=-lr)


_momentum_kernel, _momentum_over = _fused(_torch_momentum, 4, lambda call: 3)


def _numpy_momentum(
    lr: float, penalty: float, momentum: float, share: float, *xs: Array, nesterov: bool
) -> tuple[Primitive, ...]:
    params, grads, velocities = _numpy_groups(xs, 3)
    if penalty:
        grads = [g + penalty * p for g, p in zip(grads, params, strict=True)]
    new = [momentum * v + share * g for v, g in zip(velocities, grads, strict=True)]
    steps = [g + momentum * v for g, v in zip(grads, new, strict=True)] if nesterov else new
    return (*(p - lr * s for p, s in zip(params, steps, strict=True)), *new)


@op(
    torch=_momentum_kernel,
    inplace=_momentum_over,
    numpy=_numpy_momentum,
    runs=lambda attrs: (True, False, True),
    precision="high",
    samples=[
        sample(0.1, 0.5, 0.9, 0.9, *[uniform(-1, 1)] * 3, nesterov=False),
        sample(0.1, 0.0, 0.9, 1.0, *[uniform(-1, 1, (2,)), uniform(-1, 1, (3, 1))] * 3, nesterov=True),
    ],
)
def momentum_update(
    lr: Number, penalty: Number, momentum: Number, share: Number, *xs: TensorSpec, nesterov: bool
) -> tuple[TensorSpec, ...]:
    """v' = momentum v + share g;  p' = p - lr v', or with nesterov p - lr (g + momentum v').

    g has penalty p added first.  `share` is 1 in the first step and 1 - dampening later, as in Burn.

    Shapes: n parameters, n gradients, n velocities -> n parameters, n velocities.
    Dtypes: float; gradients of float32 parameters may be of a half type.
    Source: Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html.
    """
    params, _, velocities = _spec_groups(xs, 3)
    return (*params, *velocities)


@momentum_update.decomposes
def _(lr, penalty, momentum, share, *xs, nesterov):
    params, grads, velocities = _traced_groups(xs, 3)
    grads = [g + p * penalty for g, p in zip(grads, params, strict=True)]
    new = [v * momentum + g * share for v, g in zip(velocities, grads, strict=True)]
    steps = [g + v * momentum for g, v in zip(grads, new, strict=True)] if nesterov else new
    return (*(p - s * lr for p, s in zip(params, steps, strict=True)), *new)


# -- Lion -------------------------------------------------------------------------------------------------
def _torch_lion(
    lr: float, beta_1: float, beta_2: float, decay: float, params: Tensors, grads: Tensors, means: Tensors
) -> None:
    directions = sign_of_mean(beta_1, grads, means)
    if decay:
        torch._foreach_mul_(params, 1 - lr * decay)
    torch._foreach_add_(params, directions, alpha=-lr)
    torch._foreach_mul_(means, beta_2)
    torch._foreach_add_(means, grads, alpha=1 - beta_2)


def sign_of_mean(beta_1: float, grads: Tensors, means: Tensors) -> Tensors:
    """The signs of `beta_1 mean + (1 - beta_1) gradient`, of torch's tensors; NaN stays NaN.

    Half types are added in float32: a rounding would turn the sign of a small sum.
    """
    narrow = means[0].dtype not in _WIDE
    wide = torch._foreach_mul([m.float() for m in means] if narrow else means, beta_1)
    torch._foreach_add_(wide, [g.float() for g in grads] if narrow else grads, alpha=1 - beta_1)
    signs = torch._foreach_sign(wide)
    torch._foreach_copy_(signs, [torch.where(u.isnan(), u, s) for u, s in zip(wide, signs, strict=True)])
    return [s.to(m.dtype) for s, m in zip(signs, means, strict=True)] if narrow else signs


_lion_kernel, _lion_over = _fused(_torch_lion, 4, lambda call: 3)


def _numpy_lion(lr: float, beta_1: float, beta_2: float, decay: float, *xs: Array) -> tuple[Array, ...]:
    new, means = [], []
    for p, g, m in zip(*_numpy_groups(xs, 3), strict=True):
        wide = np.promote_types(p.dtype, np.float32)
        direction = np.sign(beta_1 * m.astype(wide) + (1 - beta_1) * g.astype(wide)).astype(p.dtype)
        new.append(p * (1 - lr * decay) - lr * direction)
        means.append(beta_2 * m + (1 - beta_2) * g)
    return (*new, *means)


@op(
    torch=_lion_kernel,
    inplace=_lion_over,
    numpy=_numpy_lion,
    runs=lambda attrs: (True, False, True),
    precision="high",
    samples=[
        sample(0.1, 0.9, 0.99, 0.0, uniform(-1, 1), uniform(0.5, 1), uniform(0.5, 1)),
        sample(0.1, 0.8, 0.95, 0.3, *[uniform(-1, 1, (2, 3)), uniform(-1, 1, (4,))],
               *[uniform(0.5, 1, (2, 3)), uniform(-1, -0.5, (4,))] * 2),
    ],
)  # fmt: skip
def lion_update(lr: Number, beta_1: Number, beta_2: Number, decay: Number, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
    """Steps by the sign of a mean: p - lr (sign(beta_1 m + (1 - beta_1) g) + decay p);  m' = beta_2 m + (1 - beta_2) g.

    Shapes: n parameters, n gradients, n means -> n parameters, n means.
    Dtypes: float; gradients of float32 parameters may be of a half type.
    The sign of 0 is 0, of NaN NaN: a fault stays visible.  Its slope is 0.
    Source: Chen et al. 2023, algorithm 2, https://arxiv.org/abs/2302.06675.
    """
    params, _, means = _spec_groups(xs, 3)
    return (*params, *means)


@lion_update.decomposes
def _(lr, beta_1, beta_2, decay, *xs):
    params, grads, means = _traced_groups(xs, 3)
    mixed = [m * beta_1 + g * (1 - beta_1) for m, g in zip(means, grads, strict=True)]
    signs = [REGISTRY["mask_where"](REGISTRY["sign"](u), REGISTRY["is_nan"](u), u) for u in mixed]
    new = [p * (1 - lr * decay) - s * lr for p, s in zip(params, signs, strict=True)]
    return (*new, *(m * beta_2 + g * (1 - beta_2) for m, g in zip(means, grads, strict=True)))


# -- Adam ------------------------------------------------------------------------------------------------
def _torch_adam(
    lr: float, beta_1: float, beta_2: float, epsilon: float, penalty: float, decay: float, time: int | torch.Tensor,
    params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, *largest: Tensors, amsgrad: bool, cautious: bool,
) -> None:  # fmt: skip
    if penalty and decay:  # a kernel knows one of them
        grads = _add_penalty(penalty, params, grads)
        penalty = 0.0
    if decay and cautious:
        _shrink_where_agreeing(lr * decay, beta_1, params, grads, means)
        decay = 0.0
    if not isinstance(time, torch.Tensor):
        time = torch.full((), float(time), device=params[0].device)
    kernel = torch._fused_adamw_ if decay else torch._fused_adam_
    kernel(
        params, grads, means, squares, largest[0] if amsgrad else [], [time] * len(params), lr=lr, beta1=beta_1,
        beta2=beta_2, weight_decay=decay or penalty, eps=epsilon, amsgrad=amsgrad, maximize=False,
    )  # fmt: skip


def _shrink_where_agreeing(share: float, beta_1: float, params: Tensors, grads: Tensors, means: Tensors) -> None:
    means = torch._foreach_mul(means, beta_1)
    torch._foreach_add_(means, grads, alpha=1 - beta_1)
    shrunk = [p * (p * m > 0) for p, m in zip(params, means, strict=True)]
    torch._foreach_sub_(params, torch._foreach_mul(shrunk, share))


_adam_kernel, _adam_over = _fused(_torch_adam, 7, lambda call: 5 if call.attrs["amsgrad"] else 4)


def _numpy_adam(
    lr: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    penalty: float,
    decay: float,
    time: int,
    *xs: Array,
    amsgrad: bool,
    cautious: bool,
) -> tuple[Primitive, ...]:
    groups: list[list[Array]] = [[], [], [], []]
    for p, g, m, v, *largest in zip(*_numpy_groups(xs, 5 if amsgrad else 4), strict=True):
        if penalty:
            g = g + penalty * p
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * (g * g)
        most = np.maximum(largest[0], v) if amsgrad else v
        size = np.sqrt(most) / math.sqrt(1 - beta_2**time) + epsilon
        if decay:
            p = p - (p * (p * m > 0) if cautious else p) * (lr * decay)
        for group, value in zip(groups, (p - m / size * (lr / (1 - beta_1**time)), m, v, most), strict=True):
            group.append(value)
    new, means, squares, most = groups
    return (*new, *means, *squares, *(most if amsgrad else ()))


@op(
    torch=_adam_kernel,
    inplace=_adam_over,
    numpy=_numpy_adam,
    runs=lambda attrs: (True, False, True, True) + (True,) * attrs["amsgrad"],
    precision="high",
    samples=[
        sample(0.1, 0.9, 0.99, 1e-5, 0.3, 0.0, 1, *[uniform(-1, 1)] * 3, uniform(0.5, 1), amsgrad=False,
               cautious=False),
        sample(0.1, 0.9, 0.99, 1e-5, 0.0, 0.1, 7, *[uniform(-1, 1, (3,))] * 3, uniform(0.5, 1, (3,)), amsgrad=False,
               cautious=True),
        sample(0.1, 0.9, 0.99, 1e-5, 0.0, 0.1, 3, *[uniform(-1, 1, (2, 2)), uniform(-1, 1, (5,))] * 3,
               *[uniform(0.5, 1, (2, 2)), uniform(0.5, 1, (5,))] * 2, amsgrad=True, cautious=False),
    ],
)  # fmt: skip
def adam_update(
    lr: Number,
    beta_1: Number,
    beta_2: Number,
    epsilon: Number,
    penalty: Number,
    decay: Number,
    time: Number,
    *xs: TensorSpec,
    amsgrad: bool,
    cautious: bool,
) -> tuple[TensorSpec, ...]:
    """Adam, and AdamW where decay is not 0.

        g = g + penalty p;  m' = beta_1 m + (1 - beta_1) g;  v' = beta_2 v + (1 - beta_2) g^2
        p' = p - lr decay p - lr m' / (1 - beta_1^time) / (sqrt(v' / (1 - beta_2^time)) + epsilon)

    amsgrad: the largest v' so far stands in the root.  cautious: decays only where p and m' agree in sign.

    Shapes: n parameters, n gradients, n first, n second moments (n largest ones) -> the same without gradients.
    Dtypes: float; gradients of float32 parameters may be of a half type.
    Source: Kingma, Ba 2015, algorithm 1; Loshchilov, Hutter 2019, algorithm 2; Chen et al. 2025 (cautious decay).
    """
    params, _, *states = _spec_groups(xs, 5 if amsgrad else 4)
    return (*params, *(spec for group in states for spec in group))


def _root(square: Value) -> Value:
    """The root, whose slope at 0 is finite: where a gradient was 0 so far, that of a step is not 0 times infinity."""
    still = REGISTRY["cast"](REGISTRY["equal"](square, 0.0), dtype=square.dtype)
    return REGISTRY["sqrt"](square + still) - still


@adam_update.decomposes
def _(lr, beta_1, beta_2, epsilon, penalty, decay, time, *xs, amsgrad, cautious):
    groups: list[list[Value]] = [[], [], [], []]
    root = (1 - beta_2**time) ** 0.5
    rate = lr / (1 - beta_1**time)
    for p, g, m, v, *largest in zip(*_traced_groups(xs, 5 if amsgrad else 4), strict=True):
        g = g + p * penalty
        m = m * beta_1 + g * (1 - beta_1)
        v = v * beta_2 + g * g * (1 - beta_2)
        most = REGISTRY["maximum"](largest[0], v) if amsgrad else v
        size = _root(most) / root + epsilon
        shrunk = REGISTRY["mask_where"](p.new_full(p.shape, 0.0), REGISTRY["greater"](p * m, 0.0), p) if cautious else p
        new = p - shrunk * (lr * decay) - m / size * rate
        for group, value in zip(groups, (new, m, v, most), strict=True):
            group.append(value)
    new, means, squares, most = groups
    return (*new, *means, *squares, *(most if amsgrad else ()))
