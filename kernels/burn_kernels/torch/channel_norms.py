"""Norms over channels as operators of PyTorch; what holds for all operators is said in `defining`.

Results lie as the input does: channels last where its are, otherwise in order.  The running statistics of a batch norm
come out as new tensors: whoever wants them in place copies them (`functional.batch_norm`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from burn_kernels import batch_norm, group_norm
from burn_kernels.channel_norm.layout import PLAIN, room_like, scaled, statistics_type
from burn_kernels.torch.defining import Operator, in_float32, nothing, operator

__all__: list[str] = []


def _vector(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[1], dtype=statistics_type(x.dtype), device=x.device)


def _like_or_nothing(v: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    return nothing(x) if v is None else torch.empty(v.shape, dtype=v.dtype, device=v.device)


# -- batch norm in training ----------------------------------------------------------------------------
def _batch_norm(run: Callable[..., Any], *inputs: Any) -> Any:
    *tensors, momentum, eps, activation = inputs
    return run(*tensors, momentum=momentum, eps=eps, activation=activation)


def _batch_norm_twin(x: Any, w: Any, b: Any, mean: Any, rstd: Any, eps: float, activation: str) -> torch.Tensor:
    return PLAIN[activation](torch.nn.functional.batch_norm(x, None, None, scaled(w, b), b, True, 0.0, eps))


BATCH_NORM = operator(
    Operator(
        schema="batch_norm(Tensor x, Tensor? w, Tensor? b, Tensor? running_mean, Tensor? running_var, float momentum,"
        " float eps, str activation) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        kernel=(batch_norm.forward, batch_norm.reference),
        call=_batch_norm,
        fake=lambda x, w, b, running_mean, running_var, *_: (
            room_like(x),
            _vector(x),
            _vector(x),
            _like_or_nothing(running_mean, x),
            _like_or_nothing(running_var, x),
        ),
        results="y mean rstd new_mean new_var",
        gradients="x w b",
        saved="x w b mean rstd eps activation",
        kernel_backward=(batch_norm.backward, batch_norm.reference_backward),
        call_backward=lambda run, *saved: run(*saved[:-2], activation=saved[-1]),
        twin=_batch_norm_twin,
        room=room_like,
    )
)


# -- batch norm with given statistics ------------------------------------------------------------------
def _evaluate(run: Callable[..., Any], *inputs: Any) -> Any:
    *tensors, eps, activation = inputs
    return run(*tensors, eps=eps, activation=activation)


def _evaluate_twin(x: Any, w: Any, b: Any, mean: Any, var: Any, eps: float, activation: str) -> torch.Tensor:
    return PLAIN[activation](torch.nn.functional.batch_norm(x, mean, var, scaled(w, b), b, False, 0.0, eps))


BATCH_NORM_EVAL = operator(
    Operator(
        schema="batch_norm_eval(Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor var, float eps, str activation)"
        " -> Tensor",
        kernel=(batch_norm.evaluate, batch_norm.evaluate_reference),
        call=_evaluate,
        fake=lambda x, *_: room_like(x),
        gradients="x w b",
        saved="x w b mean var eps activation",
        kernel_backward=(batch_norm.evaluate_backward, batch_norm.evaluate_reference_backward),
        call_backward=_evaluate,
        twin=_evaluate_twin,
        room=room_like,
    )
)


# -- group norm ----------------------------------------------------------------------------------------
def _group_statistics(x: torch.Tensor, groups: int) -> torch.Tensor:
    return torch.empty(x.shape[0], groups, dtype=statistics_type(x.dtype), device=x.device)


def _group_norm_twin(x: Any, w: Any, b: Any, mean: Any, rstd: Any, eps: float, activation: str) -> torch.Tensor:
    # torch's own has no gradient for a bias without weights
    y = torch.nn.functional.group_norm(x, mean.shape[1], None, None, eps)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    y = y if w is None else y * w.reshape(shape)
    return PLAIN[activation](y if b is None else y + b.reshape(shape))


GROUP_NORM = operator(
    Operator(
        schema="group_norm(Tensor x, Tensor? w, Tensor? b, int groups, float eps, str activation)"
        " -> (Tensor, Tensor, Tensor)",
        kernel=(group_norm.forward, group_norm.reference),
        call=_evaluate,
        fake=lambda x, w, b, groups, *_: (room_like(x), _group_statistics(x, groups), _group_statistics(x, groups)),
        results="y mean rstd",
        gradients="x w b",
        saved="x w b mean rstd eps activation",
        kernel_backward=(group_norm.backward, group_norm.reference_backward),
        call_backward=lambda run, *saved: run(*saved[:-2], activation=saved[-1]),
        twin=_group_norm_twin,
        room=room_like,
    )
)
in_float32(GROUP_NORM, "cuda")
