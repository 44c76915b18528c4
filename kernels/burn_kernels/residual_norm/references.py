"""The numbers of the mask, and residual add and norm in plain torch: forward and backward share them."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from burn_kernels import dropout, norm, random
from burn_kernels.autotune.key import Facts
from burn_kernels.launch import wide_type
from burn_kernels.random import Number


class Dropout(TypedDict, total=False):
    """Options of the dropout, as `dropout.forward` takes them; no dropout without them."""

    prob: float
    key: Number
    stream: Number


Drop = tuple[float, Number, Number]
"""Probability, key and stream."""

Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def numbers(drop: Drop, dtype: torch.dtype) -> tuple[Any, ...]:
    """Key, stream, last word that keeps and scale, as arguments of a kernel."""
    prob, key, stream = drop
    return (*random.numbers(key, stream), *dropout.mask_numbers(prob, dtype)) if prob else (0, 0, 0, 1.0)


def flags(drop: Drop, cols: int) -> dict[str, bool]:
    """The constants of a dropout that kernels are compiled with."""
    prob, key, stream = drop
    held = random.flags(key, stream) if prob else random.flags(0, 0)
    return {"DROP": prob > 0.0, "QUADS": cols % 4 == 0, **held}


def check_dropout(op: str, *_: object, prob: float = 0.0, **__: object) -> None:
    """Raises KernelArgumentError for a probability outside its range."""
    dropout.check_probability(op, prob)


def trial_dropout(facts: Facts) -> dict[str, Any]:
    """The options of dropout in a trial: none if the problem has none."""
    return {"prob": 0.1, "key": 5, "stream": 7} if "drop" in facts.flags.split() else {}


# -- reference ---------------------------------------------------------------------------------------
def layer_norm_reference(
    x: Tensor, residual: Tensor, w: Tensor | None, b: Tensor | None, eps: float = 1e-5, **drop: Unpack[Dropout]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Residual add and layer norm in plain torch: y, s, mean and rstd."""
    s = _sum(x, residual, **drop)
    y, mean, rstd = norm.layer_norm_reference(s, w, b, eps)
    return y, s, mean, rstd


def rms_norm_reference(
    x: Tensor, residual: Tensor, w: Tensor | None, eps: float = 1e-5, **drop: Unpack[Dropout]
) -> tuple[Tensor, Tensor, Tensor]:
    """Residual add and RMS norm in plain torch: y, s and rstd."""
    s = _sum(x, residual, **drop)
    y, rstd = norm.rms_norm_reference(s, w, eps)
    return y, s, rstd


def _sum(x: Tensor, residual: Tensor, prob: float = 0.0, key: Number = 0, stream: Number = 0) -> Tensor:
    s = x.to(wide_type(x.dtype))
    if prob:
        s = s * dropout.mask(prob, key, stream, like=x)
    return (s + residual).to(x.dtype)


def layer_norm_reference_backward(
    dy: Tensor,
    ds: Tensor | None,
    s: Tensor,
    w: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    *,
    bias: bool = True,
    **drop: Unpack[Dropout],
) -> Gradients:
    """The gradients of residual add and layer norm in plain torch; of RMS norm if `mean` is None."""
    # in the wide type to the end: g is rounded once, after ds is added
    wide = wide_type(s.dtype)
    wide_w = None if w is None else w.to(wide)
    g, dw, db = norm.layer_norm_reference_backward(dy.to(wide), s.to(wide), wide_w, mean, rstd, bias=bias)
    if ds is not None:
        g = g + ds
    dr = g.to(s.dtype)
    dx = (g * dropout.mask(**drop, like=s)).to(s.dtype) if drop.get("prob") else dr
    dw, db = (t if t is None else t.to(s.dtype) for t in (dw, db))
    return dx, dr, dw, db


def rms_norm_reference_backward(
    dy: Tensor, ds: Tensor | None, s: Tensor, w: Tensor | None, rstd: Tensor, **drop: Unpack[Dropout]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of residual add and RMS norm in plain torch."""
    return layer_norm_reference_backward(dy, ds, s, w, None, rstd, bias=False, **drop)[:3]
