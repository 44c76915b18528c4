"""Norms over channels as operators of PyTorch; what holds for all operators is said in `defining`.

Results lie as the input does: channels last where its are, otherwise in order.  The running statistics of a batch norm
come out as new tensors: whoever wants them in place copies them (`functional.batch_norm`).
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels import batch_norm, group_norm
from burn_kernels.channel_norm.layout import PLAIN, room_like, scaled, statistics_type
from burn_kernels.torch.defining import define, differentiate, in_float32, nothing, or_reference, present, second

__all__: list[str] = []


def _laid(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """y as the fake implementation says that it lies."""
    room = room_like(x)
    return y if y.stride() == room.stride() else room.copy_(y)


def _vector(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[1], dtype=statistics_type(x.dtype), device=x.device)


def _like_or_nothing(v: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    return nothing(x) if v is None else torch.empty(v.shape, dtype=v.dtype, device=v.device)


# -- batch norm in training ----------------------------------------------------------------------------
def _batch_norm(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    activation: str,
) -> tuple[torch.Tensor, ...]:
    run = or_reference("batch_norm", batch_norm.forward, batch_norm.reference)
    found = run(x, w, b, running_mean, running_var, momentum=momentum, eps=eps, activation=activation)
    y, mean, rstd, *running = found
    return _laid(y, x), mean, rstd, *(nothing(x) if r is None else r for r in running)


def _batch_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    eps: float,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    name = "batch_norm backward"
    run = or_reference(name, batch_norm.backward, batch_norm.reference_backward)
    dx, dw, db = run(dy, x, w, b, mean, rstd, activation=activation)
    return _laid(dx, x), present(name, w, dw, x), present(name, b, db, x)


BATCH_NORM = define(
    "batch_norm(Tensor x, Tensor? w, Tensor? b, Tensor? running_mean, Tensor? running_var, float momentum, float eps,"
    " str activation) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _batch_norm,
    lambda x, w, b, running_mean, running_var, momentum, eps, activation: (
        room_like(x),
        _vector(x),
        _vector(x),
        _like_or_nothing(running_mean, x),
        _like_or_nothing(running_var, x),
    ),
)
_BATCH_NORM_BACKWARD = define(
    "batch_norm_backward(Tensor dy, Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor rstd, float eps,"
    " str activation) -> (Tensor, Tensor, Tensor)",
    _batch_norm_backward,
    lambda dy, x, w, b, *_: (room_like(x), _like_or_nothing(w, x), _like_or_nothing(b, x)),
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, _, _, _, *ctx.options = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, b, *output[1:3])


def _gradient(ctx: Any, dy: torch.Tensor | None, *_: Any) -> Any:
    x, w, b, mean, rstd = ctx.saved_tensors
    if dy is None:
        return (None,) * 8
    dx, dw, db = _BATCH_NORM_BACKWARD(dy, x, w, b, mean, rstd, *ctx.options)
    return dx, None if w is None else dw, None if b is None else db, *(None,) * 5


def _setup_backward(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.eps, ctx.activation = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, x, w, b, *_ = ctx.saved_tensors
    activate, eps = PLAIN[ctx.activation], ctx.eps

    def twin(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        return activate(torch.nn.functional.batch_norm(x, None, None, scaled(w, b), b, True, 0.0, eps))

    return *second(twin, dy, (x, w, b), upstream), None, None, None, None


differentiate(BATCH_NORM, _setup, _gradient)
differentiate(_BATCH_NORM_BACKWARD, _setup_backward, _second)


# -- batch norm with given statistics ------------------------------------------------------------------
def _batch_norm_eval(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    activation: str,
) -> torch.Tensor:
    run = or_reference("batch_norm_eval", batch_norm.evaluate, batch_norm.evaluate_reference)
    return _laid(run(x, w, b, mean, var, eps=eps, activation=activation), x)


def _batch_norm_eval_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    name = "batch_norm_eval backward"
    run = or_reference(name, batch_norm.evaluate_backward, batch_norm.evaluate_reference_backward)
    dx, dw, db = run(dy, x, w, b, mean, var, eps=eps, activation=activation)
    return _laid(dx, x), present(name, w, dw, x), present(name, b, db, x)


BATCH_NORM_EVAL = define(
    "batch_norm_eval(Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor var, float eps, str activation) -> Tensor",
    _batch_norm_eval,
    lambda x, *_: room_like(x),
)
_BATCH_NORM_EVAL_BACKWARD = define(
    "batch_norm_eval_backward(Tensor dy, Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor var, float eps,"
    " str activation) -> (Tensor, Tensor, Tensor)",
    _batch_norm_eval_backward,
    lambda dy, x, w, b, *_: (room_like(x), _like_or_nothing(w, x), _like_or_nothing(b, x)),
)


def _setup_eval(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.eps, ctx.activation = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _eval_gradient(ctx: Any, dy: torch.Tensor | None) -> Any:
    if dy is None:
        return (None,) * 7
    _, w, b, *_ = ctx.saved_tensors
    dx, dw, db = _BATCH_NORM_EVAL_BACKWARD(dy, *ctx.saved_tensors, ctx.eps, ctx.activation)
    return dx, None if w is None else dw, None if b is None else db, *(None,) * 4


def _eval_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, x, w, b, mean, var = ctx.saved_tensors
    activate, eps = PLAIN[ctx.activation], ctx.eps

    def twin(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        return activate(torch.nn.functional.batch_norm(x, mean, var, scaled(w, b), b, False, 0.0, eps))

    return *second(twin, dy, (x, w, b), upstream), None, None, None, None


differentiate(BATCH_NORM_EVAL, _setup_eval, _eval_gradient)
differentiate(_BATCH_NORM_EVAL_BACKWARD, _setup_backward, _eval_second)


# -- group norm ----------------------------------------------------------------------------------------
def _group_norm(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, groups: int, eps: float, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    run = or_reference("group_norm", group_norm.forward, group_norm.reference)
    y, mean, rstd = run(x, w, b, groups, eps=eps, activation=activation)
    return _laid(y, x), mean, rstd


def _group_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    eps: float,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    name = "group_norm backward"
    run = or_reference(name, group_norm.backward, group_norm.reference_backward)
    dx, dw, db = run(dy, x, w, b, mean, rstd, activation=activation)
    return _laid(dx, x), present(name, w, dw, x), present(name, b, db, x)


def _group_statistics(x: torch.Tensor, groups: int) -> torch.Tensor:
    return torch.empty(x.shape[0], groups, dtype=statistics_type(x.dtype), device=x.device)


GROUP_NORM = define(
    "group_norm(Tensor x, Tensor? w, Tensor? b, int groups, float eps, str activation) -> (Tensor, Tensor, Tensor)",
    _group_norm,
    lambda x, w, b, groups, *_: (room_like(x), _group_statistics(x, groups), _group_statistics(x, groups)),
)
_GROUP_NORM_BACKWARD = define(
    "group_norm_backward(Tensor dy, Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor rstd, float eps,"
    " str activation) -> (Tensor, Tensor, Tensor)",
    _group_norm_backward,
    lambda dy, x, w, b, *_: (room_like(x), _like_or_nothing(w, x), _like_or_nothing(b, x)),
)


def _setup_group(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, _, *ctx.options = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, b, *output[1:])


def _group_gradient(ctx: Any, dy: torch.Tensor | None, *_: Any) -> Any:
    x, w, b, mean, rstd = ctx.saved_tensors
    if dy is None:
        return (None,) * 6
    dx, dw, db = _GROUP_NORM_BACKWARD(dy, x, w, b, mean, rstd, *ctx.options)
    return dx, None if w is None else dw, None if b is None else db, None, None, None


def _group_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, x, w, b, mean, _ = ctx.saved_tensors
    activate, eps, groups = PLAIN[ctx.activation], ctx.eps, mean.shape[1]

    def twin(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        # torch's own has no gradient for a bias without weights
        y = torch.nn.functional.group_norm(x, groups, None, None, eps)
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        y = y if w is None else y * w.reshape(shape)
        return activate(y if b is None else y + b.reshape(shape))

    return *second(twin, dy, (x, w, b), upstream), None, None, None, None


differentiate(GROUP_NORM, _setup_group, _group_gradient)
differentiate(_GROUP_NORM_BACKWARD, _setup_backward, _group_second)
in_float32(GROUP_NORM, "cuda")
