"""The norms in plain torch, and the words of a key for weights: forward and backward share them."""

from __future__ import annotations

import torch
from torch import Tensor

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.launch import wide_type

MAX_TILE_COLS = 16_384
"""To here a row stays in registers.  Wider, one program fills a processor, and nothing overlaps its waiting."""

Gradients = tuple[Tensor, Tensor | None, Tensor | None]


# -- reference ---------------------------------------------------------------------------------------
def layer_norm_reference(
    x: Tensor, w: Tensor | None, b: Tensor | None, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm in plain torch: y, mean and rstd."""
    wide = x.to(wide_type(x.dtype))
    mean = wide.mean(-1, keepdim=True)
    y, rstd = _scale(wide - mean, w, b, eps)
    return y.to(x.dtype), mean, rstd


def rms_norm_reference(x: Tensor, w: Tensor | None, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """RMS norm in plain torch: y and rstd."""
    y, rstd = _scale(x.to(wide_type(x.dtype)), w, None, eps)
    return y.to(x.dtype), rstd


def _scale(n: Tensor, w: Tensor | None, b: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    rstd = torch.rsqrt((n * n).mean(-1, keepdim=True) + eps)
    y = n * rstd
    if w is not None:
        y = y * w
    if b is not None:
        y = y + b
    return y, rstd


def layer_norm_reference_backward(
    dy: Tensor, x: Tensor, w: Tensor | None, mean: Tensor | None, rstd: Tensor, *, bias: bool = True
) -> Gradients:
    """The gradients of layer norm in plain torch; of RMS norm if `mean` is None."""
    wide = wide_type(x.dtype)
    g, n = dy.to(wide), x.to(wide)
    n = (n if mean is None else n - mean) * rstd
    # as rows: a sum over no axes would be one over all
    dw = None if w is None else (g * n).unsqueeze(0).flatten(0, -2).sum(0).to(w.dtype)
    db = g.unsqueeze(0).flatten(0, -2).sum(0).to(x.dtype) if bias else None
    if w is not None:
        g = g * w
    dx = g - n * (g * n).mean(-1, keepdim=True)
    if mean is not None:
        dx = dx - g.mean(-1, keepdim=True)
    return (dx * rstd).to(x.dtype), dw, db


def rms_norm_reference_backward(dy: Tensor, x: Tensor, w: Tensor | None, rstd: Tensor) -> tuple[Tensor, Tensor | None]:
    """The gradients of RMS norm in plain torch."""
    return layer_norm_reference_backward(dy, x, w, None, rstd, bias=False)[:2]


# -- selection ---------------------------------------------------------------------------------------
PARTS = {(True, True): "w b", (True, False): "w", (False, True): "b", (False, False): ""}
"""Flags of a key by whether there are weights, and biases."""


def weights(facts: Facts, inputs: Inputs) -> tuple[Tensor | None, Tensor | None]:
    """Weights and biases for a trial; None where the problem has none."""
    parts = facts.flags.split()
    w, b = (inputs.normal(facts.exact[0], dtype=facts.dtype) if part in parts else None for part in ("w", "b"))
    return w, b
