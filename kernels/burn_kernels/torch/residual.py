"""Residual add, dropout and norm in one as operators and functions of PyTorch; `defining` says what holds for all.

s = residual + dropout(x)            y = layer_norm(s) or rms_norm(s)            results: y, s, statistics
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels import dropout, residual_norm
from burn_kernels.launch import check
from burn_kernels.operators import like, nothing, numbers_of
from burn_kernels.spec import REGISTRY
from burn_kernels.torch.defining import define, differentiate, in_float32, note_fallback, or_reference, present, second
from burn_kernels.torch.shared import last_axes, least_eps, mixed, new_seed

__all__ = ["residual_layer_norm", "residual_rms_norm"]


def _drop(prob: float, seed: torch.Tensor | None) -> dict[str, object]:
    """A launcher's options of the dropout; none where nothing is dropped."""
    if not prob or seed is None:
        return {}
    key, stream = numbers_of("dropout", seed)
    return {"prob": prob, "key": key, "stream": stream}


def _define(name: str, *, centred: bool) -> None:
    # layer norm has w, b and mean, rstd; RMS norm w and rstd
    count = 2 if centred else 1
    scales, saved = ("Tensor? w, Tensor? b", "Tensor mean, Tensor rstd") if centred else ("Tensor? w", "Tensor rstd")
    kernel: Any = residual_norm.layer_norm if centred else residual_norm.rms_norm
    plain: Any = residual_norm.layer_norm_reference if centred else residual_norm.rms_norm_reference
    kernel_back: Any = residual_norm.layer_norm_backward if centred else residual_norm.rms_norm_backward
    plain_back: Any = residual_norm.layer_norm_reference_backward
    if not centred:
        plain_back = residual_norm.rms_norm_reference_backward

    def run(x: torch.Tensor, residual: torch.Tensor, *rest: Any) -> Any:
        *weights, eps, prob, seed = rest
        found = or_reference(name, kernel, plain)(x, residual, *weights, eps, **_drop(prob, seed))
        return tuple(t.contiguous() for t in found)

    def run_back(dy: torch.Tensor, ds: torch.Tensor | None, s: torch.Tensor, *rest: Any) -> Any:
        weights, statistics, (_, prob, seed) = rest[:count], rest[count : 2 * count], rest[2 * count :]
        options = _drop(prob, seed) | ({"bias": weights[1] is not None} if centred else {})
        found = or_reference(f"{name} backward", kernel_back, plain_back)(dy, ds, s, weights[0], *statistics, **options)
        dx, dr, *grads = found
        # without dropout both gradients are one tensor, which an operator may not return twice
        first = nothing(s) if dx is dr else dx.contiguous()
        pairs = zip(weights, grads, strict=True)
        return first, dr.contiguous(), *(present(f"{name} backward", w, grad, s) for w, grad in pairs)

    (operator,) = REGISTRY[name].operators
    op = define(operator.schema, run, operator.fake)

    def fake_back(dy: torch.Tensor, ds: torch.Tensor | None, s: torch.Tensor, *rest: Any) -> object:
        dropped = rest[-2] and rest[-1] is not None
        shown = (nothing(s) if w is None else like(w) for w in rest[:count])
        return like(s) if dropped else nothing(s), like(s), *shown

    back = define(
        f"{name}_backward(Tensor dy, Tensor? ds, Tensor s, {scales}, {saved}, float eps, float prob, Tensor? seed)"
        f" -> (Tensor, Tensor{', Tensor' * count})",
        run_back,
        fake_back,
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, *weights, ctx.eps, ctx.prob, seed = inputs
        _, s, *statistics = output
        ctx.mark_non_differentiable(*statistics)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(s, *weights, *statistics, seed)

    def gradient(ctx: Any, dy: torch.Tensor | None, ds: torch.Tensor | None, *_: object) -> Any:
        s, *saved, seed = ctx.saved_tensors
        if dy is None and ds is None:
            return (None,) * (5 + count)
        dy = torch.zeros_like(s) if dy is None else dy
        dx, dr, *grads = back(dy, ds, s, *saved, ctx.eps, ctx.prob, seed)
        shown = (None if w is None else grad for w, grad in zip(saved[:count], grads, strict=True))
        return dx if ctx.prob and seed is not None else dr, dr, *shown, None, None, None

    def setup_back(ctx: Any, inputs: Any, output: object) -> None:
        dy, ds, s, *rest, ctx.eps, ctx.prob, seed = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, ds, s, *rest[:count], seed)

    def again(ctx: Any, ux: torch.Tensor | None, ur: torch.Tensor | None, *others: torch.Tensor | None) -> Any:
        dy, ds, s, *weights, seed = ctx.saved_tensors
        if ctx.prob and seed is not None and ux is not None:  # dx is dr by the mask
            masked = ux * dropout.mask(ctx.prob, *numbers_of("dropout", seed), like=s)
            ur = masked if ur is None else ur + masked

        def twin(s: torch.Tensor, *weights: Any) -> Any:
            norm: Any = F.layer_norm if centred else F.rms_norm
            return norm(s, s.shape[-1:], *weights, ctx.eps), s

        return *second(twin, (dy, ds), (s, *weights), (ur, *others)), *(None,) * (count + 3)

    differentiate(op, setup, gradient)
    differentiate(back, setup_back, again)
    in_float32(op, "cuda")


_define("residual_layer_norm", centred=True)
_define("residual_rms_norm", centred=False)


# -- functions -----------------------------------------------------------------------------------------
def residual_layer_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    p: float = 0.0,
    training: bool = True,
    seed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """layer_norm(s) and s = residual + dropout(input, p), in one pass; with p 0, or not in training, nothing drops.

    Shapes: input, residual (*batch, *normalized_shape) -> two of the same; weight, bias (*normalized_shape).
    Dtypes: one float type.  `seed` as of `functional.dropout`.
    """
    return _normed("residual_layer_norm", input, residual, normalized_shape, (weight, bias), eps, p, training, seed)


def residual_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    p: float = 0.0,
    training: bool = True,
    seed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm(s) and s = residual + dropout(input, p); as `residual_layer_norm`, `eps` as of `functional.rms_norm`."""
    eps = least_eps(input) if eps is None else eps
    return _normed("residual_rms_norm", input, residual, normalized_shape, (weight,), eps, p, training, seed)


def _normed(
    name: str,
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: Sequence[int],
    weights: tuple[torch.Tensor | None, ...],
    eps: float,
    p: float,
    training: bool,
    seed: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(name, {"input": x, "residual": residual}, {"residual": x.shape}, alike=[])
    flat, *scales = last_axes(name, x, normalized_shape, *weights)
    prob = p if training else 0.0
    seed = new_seed() if prob and seed is None else seed
    if mixed(x, residual, *weights):
        note_fallback(name, "of different element types")
        s = residual + (torch.ops.burn_kernels.dropout(x, prob, seed) if prob else x)
        norm: Any = F.layer_norm if len(weights) == 2 else F.rms_norm
        return norm(s, normalized_shape, *weights, eps), s
    op = getattr(torch.ops.burn_kernels, name)
    y, s, *_ = op(flat, residual.reshape(flat.shape), *scales, eps, prob, seed if prob else None)
    return y.reshape(x.shape), s.reshape(x.shape)
