"""Residual add, dropout and norm as operators of PyTorch, with that of their gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from burn_kernels import dropout
from burn_kernels.launch import wide_type
from burn_kernels.launcher import Launcher
from burn_kernels.operators import Operator, like, nothing, numbers_of, present, second

__all__ = ["norm_operators"]


def norm_operators(name: str, back: Launcher[..., Any], norm: Callable[..., torch.Tensor]) -> tuple[Operator, Operator]:
    """The operators of a norm and of its gradient; `norm` is torch's own."""
    centred = norm is torch.nn.functional.layer_norm
    scales, statistics = ("w b", "mean rstd") if centred else ("w", "rstd")
    count, kept = len(scales.split()), f"s {scales} {statistics} eps prob seed"
    optional = ", ".join(f"Tensor? {scale}" for scale in scales.split())
    tensors = ", ".join(f"Tensor {statistic}" for statistic in statistics.split())
    forward = Operator(
        schema=f"{name}(Tensor x, Tensor residual, {optional}, float eps, float prob, Tensor? seed)"
        f" -> (Tensor, Tensor{', Tensor' * count})",
        inputs=f"x residual {scales}",
        fake=lambda x, *_: (like(x), like(x), *(_empty_statistics(x) for _ in range(count))),
        results=f"y s {statistics}",
        carries=2,
        gradients=f"x residual {scales}",
        saved=kept,
        rule=functools.partial(_pass_back, f"{name}_backward", kept.split(), scales.split()),
        far="x residual",
        autocast=("cuda",),
    )
    backward = Operator(
        schema=f"{name}_backward(Tensor dy, Tensor? ds, Tensor s, {optional}, {tensors}, float eps, float prob,"
        f" Tensor? seed) -> (Tensor, Tensor{', Tensor' * count})",
        inputs=f"dy ds s {scales} {statistics}",
        forward=functools.partial(_run_back, name, back),
        reference=functools.partial(_run_back, name, back.reference),
        fake=functools.partial(_fake_back, count),
        results=f"dx dresidual d{scales.replace(' ', ' d')}",
        carries=2 + count,
        gradients=f"dy ds s {scales}",
        saved=f"dy ds s {scales} eps prob seed",
        rule=functools.partial(_pass_back_twice, norm, scales.split()),
    )
    return forward, backward


def _empty_statistics(x: torch.Tensor) -> torch.Tensor:
    return torch.empty((*x.shape[:-1], 1), dtype=wide_type(x.dtype), device=x.device)


def _fake_back(count: int, dy: torch.Tensor, ds: object, s: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    grads = [nothing(s) if w is None else like(w) for w in rest[:count]]
    return like(s) if _drops(*rest[-2:]) else nothing(s), like(s), *grads


def _drops(prob: float, seed: torch.Tensor | None) -> bool:
    return prob != 0.0 and seed is not None


def _run_back(
    name: str, back: Callable[..., Any], *inputs: Any, eps: float, **drop: Any
) -> tuple[torch.Tensor | None, ...]:
    dy, ds, s, w, *rest = inputs
    scales = [w]
    if len(rest) == 3:
        scales.append(rest.pop(0))
        drop["bias"] = scales[1] is not None
    dx, dresidual, *grads = back(dy, ds, s, w, *rest, **drop)
    for number, scale in enumerate(scales):
        grads[number] = present(f"{name} backward", scale, grads[number])
    # without dropout the first two are one tensor, which an operator may not return twice
    return None if dx is dresidual else dx, dresidual, *grads


def _pass_back(
    name: str, kept: list[str], scales: list[str], saved: Mapping[str, Any], *upstream: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    dy, ds, *_ = upstream
    dy = torch.zeros_like(saved["s"]) if dy is None else dy
    dx, dresidual, *grads = getattr(torch.ops.burn_kernels, name)(dy, ds, *map(saved.__getitem__, kept))
    for number, scale in enumerate(scales):
        grads[number] = None if saved[scale] is None else grads[number]
    return dx if _drops(saved["prob"], saved["seed"]) else dresidual, dresidual, *grads


def _pass_back_twice(
    norm: Callable[..., torch.Tensor], scales: list[str], saved: Mapping[str, Any], *upstream: torch.Tensor | None
) -> list[torch.Tensor | None]:
    s, prob, seed = saved["s"], saved["prob"], saved["seed"]
    ux, ur, *others = upstream
    if ux is not None and _drops(prob, seed):  # the gradient of x is that of the residual by the mask
        masked = ux * dropout.mask(prob, *numbers_of("dropout", seed), like=s)
        ur = masked if ur is None else ur + masked

    def twin(s: torch.Tensor, *weights: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return norm(s, s.shape[-1:], *weights, saved["eps"]), s

    inputs = (s, *map(saved.__getitem__, scales))
    return second(twin, (saved["dy"], saved["ds"]), inputs, (ur, *others))
