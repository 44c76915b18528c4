"""How a call of batch norm is checked, cut and keyed, and batch norm in plain torch: both directions share them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.channel_norm.layout import (
    PLAIN,
    Spread,
    Strides,
    Tiling,
    along_channels,
    before_activation,
    check_norm,
    statistics_type,
)
from burn_kernels.launch import wide_type

Outputs = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
Gradients = tuple[Tensor, Tensor | None, Tensor | None]


# -- checks ------------------------------------------------------------------------------------------
def check_given(
    op: str, x: Tensor, w: Any, b: Any, mean: Any, var: Any, *, activation: str = "none", **_: object
) -> None:
    """Checks the activation, and the types of vectors, of a norm whose statistics are given."""
    check_norm(op, x, {"w": w, "b": b, "mean": mean, "var": var}, activation)


# -- layouts -----------------------------------------------------------------------------------------
def tiling_of(flat: Tensor, last: bool) -> Tiling:
    """Channels, and what each is reduced over: (batch, space), or all places as rows where channels are last."""
    batch, channels, space = flat.shape
    return Tiling(1, channels, batch * space, 1) if last else Tiling(1, channels, batch, space)


def strides_of(flat: Tensor, last: bool) -> Strides:
    """The distance between channels, and between rows."""
    at = Spread(*flat.stride())
    return Strides(0, at.channel, at.space if last and flat.shape[2] > 1 else at.batch)


# -- selection ---------------------------------------------------------------------------------------
def facts(
    dtype: torch.dtype, channels: int, rows: int, cols: int, strides: tuple[int, ...], address: int, flags: str
) -> Facts:
    """The facts of a call, for both directions."""
    align = alignment(address, *(stride * dtype.itemsize for stride in strides if stride != 1))
    return Facts((rows,), (channels, cols), dtype, align, flags=flags)


def tiling_of_facts(facts: Facts) -> Tiling:
    """The tiling of a problem."""
    (rows,), (channels, cols) = facts.free, facts.exact
    return Tiling(1, channels, rows, cols)


def problems_with(*flags: str) -> Any:
    """(rows, cols, dtype) -> 64 channels of `rows` images of `cols` pixels, and as many pixels with channels last."""

    def problems(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
        align = alignment(cols * dtype.itemsize)
        planes = [Facts((rows,), (64, cols), dtype, align, flags=f"planes {flag}".strip()) for flag in flags]
        return [*planes, *(Facts((rows * cols,), (64, 1), dtype, flags=f"last {flag}".strip()) for flag in flags)]

    return problems


SHAPES = ((256, 3136), (256, 784), (256, 49))
"""The shapes that are measured by default: the layers of a residual network, 64 channels of them."""


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str = "none",
) -> Outputs:
    """Batch norm in plain torch: y, mean, rstd, and the running statistics moved on."""
    wide = x.to(wide_type(x.dtype))
    count = x.shape[0] * wide[:1, :1].numel()
    if not x.numel():
        empty = wide.new_full(x.shape[1:2], torch.nan, dtype=statistics_type(x.dtype))
        kept = (None if r is None else r.clone() for r in (running_mean, running_var))
        return (x.clone(), empty, empty.clone(), *kept)  # type: ignore[return-value]  # two of them
    axes = (0, *range(2, x.dim()))
    mean = wide.mean(axes)
    away = wide - along_channels(mean, wide, 0.0)
    variance = (away * away).mean(axes)
    rstd = torch.rsqrt(variance + eps)
    y = _apply(away, rstd, w, b, activation).to(x.dtype)
    new_mean, new_var = (
        None if old is None else ((1 - momentum) * old + momentum * new).to(old.dtype)
        for old, new in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1))))
    )
    wider = statistics_type(x.dtype)
    return y, mean.to(wider), rstd.to(wider), new_mean, new_var


def evaluate_reference(
    x: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    mean: Tensor,
    var: Tensor,
    *,
    eps: float = 1e-5,
    activation: str = "none",
) -> Tensor:
    """Batch norm with given statistics, in plain torch."""
    wide = x.to(wide_type(x.dtype))
    away = wide - along_channels(mean, wide, 0.0)
    return _apply(away, torch.rsqrt(var.to(wide.dtype) + eps), w, b, activation).to(x.dtype)


def _apply(away: Tensor, rstd: Tensor, w: Tensor | None, b: Tensor | None, activation: str) -> Tensor:
    n = away * along_channels(rstd, away, 1.0)
    return PLAIN[activation](n * along_channels(w, away, 1.0) + along_channels(b, away, 0.0))


def reference_backward(
    dy: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor, rstd: Tensor, *, activation: str = "none"
) -> Gradients:
    """The gradients of x, w and b in plain torch."""
    g, n, scale, dw, db = _parts(dy, x, w, b, mean, rstd, activation)
    axes, count = (0, *range(2, x.dim())), max(x.shape[0] * x[:1, :1].numel(), 1)
    along, offset = ((t.sum(axes, keepdim=True)) / count for t in (g * n, g))
    return ((g - offset - n * along) * scale).to(x.dtype), dw, db


def evaluate_reference_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    mean: Tensor,
    var: Tensor,
    *,
    eps: float = 1e-5,
    activation: str = "none",
) -> Gradients:
    """The gradients of x, w and b with given statistics, in plain torch."""
    rstd = torch.rsqrt(var.to(wide_type(x.dtype)) + eps)
    g, _, scale, dw, db = _parts(dy, x, w, b, mean, rstd, activation)
    return (g * scale).to(x.dtype), dw, db


def _parts(
    dy: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor, rstd: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradient before the activation, the normalized x, rstd * w, dw and db."""
    n = (x.to(wide_type(x.dtype)) - along_channels(mean, x, 0.0)) * along_channels(rstd, x, 1.0)
    g, scale, dw, db = before_activation(dy, n, w, b, activation)
    rate = along_channels(rstd, x, 1.0) * scale
    assert isinstance(rate, Tensor)
    return g, n, rate, dw, db
