"""Residual add, dropout and norm in one as functions of PyTorch.

s = residual + dropout(x)            y = layer_norm(s) or rms_norm(s)            results: y, s, statistics
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels.launch import check
from burn_kernels.torch.defining import note_fallback
from burn_kernels.torch.shared import last_axes, least_eps, mixed, new_seed

__all__ = ["residual_layer_norm", "residual_rms_norm"]


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
    return _normalize("residual_layer_norm", input, residual, normalized_shape, (weight, bias), eps, p, training, seed)


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
    return _normalize("residual_rms_norm", input, residual, normalized_shape, (weight,), eps, p, training, seed)


def _normalize(
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
