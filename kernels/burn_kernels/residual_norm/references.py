"""What forward and backward of residual add and norm share: the mask's numbers, and the reference in plain torch."""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels import dropout, norm, random
from burn_kernels.launch import wide_type
from burn_kernels.random import Number

Drop = tuple[float, Number, Number]
"""Probability, key and stream."""

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def numbers(drop: Drop, dtype: torch.dtype) -> tuple[Any, ...]:
    """Key, stream, last word that keeps and scale, as arguments of a kernel."""
    prob, key, stream = drop
    return (*random.numbers(key, stream), *dropout.mask_numbers(prob, dtype)) if prob else (0, 0, 0, 1.0)


def flags(drop: Drop, cols: int) -> dict[str, bool]:
    """What of a dropout is compiled in."""
    prob, key, stream = drop
    held = random.flags(key, stream) if prob else random.flags(0, 0)
    return {"DROP": prob > 0.0, "QUADS": cols % 4 == 0, **held}


# -- reference ---------------------------------------------------------------------------------------
def layer_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Residual add and layer norm in plain torch."""
    y, s, mean, rstd = reference(x, residual, w, b, eps, (prob, key, stream), centred=True)
    assert mean is not None
    return y, s, mean, rstd


def rms_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Residual add and RMS norm in plain torch."""
    y, s, _, rstd = reference(x, residual, w, None, eps, (prob, key, stream), centred=False)
    return y, s, rstd


def layer_norm_reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> Gradients:
    """The gradients of residual add and layer norm in plain torch."""
    return reference_backward(dy, ds, s, w, mean, rstd, bias, (prob, key, stream))


def rms_norm_reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients of residual add and RMS norm in plain torch."""
    return reference_backward(dy, ds, s, w, None, rstd, False, (prob, key, stream))[:3]


def reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    drop: Drop,
    *,
    centred: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Residual add and layer norm, or RMS norm if not `centred`: y, s, the mean if `centred`, rstd."""
    s = x.to(wide_type(x.dtype))
    if drop[0]:
        s = s * dropout.mask(*drop, like=x)
    s = (s + residual).to(x.dtype)
    if centred:
        y, mean, rstd = norm.layer_norm_reference(s, w, b, eps)
        return y, s, mean, rstd
    y, rstd = norm.rms_norm_reference(s, w, eps)
    return y, s, None, rstd


def reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
    drop: Drop,
) -> Gradients:
    """The gradients of x, residual, w and b; of RMS norm where `mean` is None."""
    # in the wide type to the end: g is rounded once, after ds is added
    wide = wide_type(s.dtype)
    parts = (t if t is None else t.to(wide) for t in (dy, s, w))
    wide_dy, wide_s, wide_w = parts
    assert wide_dy is not None
    assert wide_s is not None
    if mean is not None:
        g, dw, db = norm.layer_norm_reference_backward(wide_dy, wide_s, wide_w, mean, rstd, bias=bias)
    else:
        (g, dw), db = norm.rms_norm_reference_backward(wide_dy, wide_s, wide_w, rstd), None
    if ds is not None:
        g = g + ds
    dr = g.to(s.dtype)
    dx = (g * dropout.mask(*drop, like=s)).to(s.dtype) if drop[0] else dr
    dw, db = (t if t is None else t.to(s.dtype) for t in (dw, db))
    return dx, dr, dw, db
