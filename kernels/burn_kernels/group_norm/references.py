"""The common part of forward and backward of group norm: cuts and keys of a call, and the reference in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.channel_norm.layout import (
    PLAIN,
    Spread,
    Strides,
    Tiling,
    along_channels,
    before_activation,
    statistics_type,
)
from burn_kernels.errors import KernelShapeError
from burn_kernels.launch import describe, wide_type

Gradients = tuple[Tensor, Tensor | None, Tensor | None]


# -- layouts -----------------------------------------------------------------------------------------
def groups_of(flat: Tensor, last: bool, groups: int) -> Tiling:
    """Groups of images, and what each is reduced over: channels by space, or, channels last, the other way round."""
    batch, channels, space = flat.shape
    per = channels // groups
    return Tiling(batch, groups, space, per) if last else Tiling(batch, groups, per, space)


def channels_of(flat: Tensor, last: bool) -> Tiling:
    """Channels of images, and the space that each is summed over in the backward."""
    batch, channels, space = flat.shape
    return Tiling(batch, channels, space, 1) if last else Tiling(batch, channels, 1, space)


def strides_of(flat: Tensor, last: bool, per: int) -> Strides:
    """The distances between images, between groups of `per` channels, and between rows."""
    at = Spread(*flat.stride())
    return Strides(at.batch, per * at.channel, at.space if last else at.channel)


def sizes_of(flat: Tensor, groups: int) -> tuple[int, ...]:
    """The sizes that a key holds."""
    batch, channels, space = flat.shape
    return batch, channels, groups, space


def check_groups(op: str, x: Tensor, groups: int) -> None:
    """Raises KernelShapeError where the channels cannot be cut into so many groups."""
    if groups < 1 or x.shape[1] % groups:
        raise KernelShapeError(
            f"{op}: the channels cannot be cut into groups",
            given=f"{describe({'x': x})}, groups {groups}",
            expected="x (batch, groups * channels of a group, *space)",
            mend="take a number of groups that divides the channels",
        )


# -- selection ---------------------------------------------------------------------------------------
def facts(
    dtype: torch.dtype,
    batch: int,
    channels: int,
    groups: int,
    space: int,
    strides: tuple[int, ...],
    address: int,
    flags: str,
) -> Facts:
    """The facts of a call, for both directions."""
    align = alignment(address, *(stride * dtype.itemsize for stride in strides if stride != 1))
    return Facts((batch,), (channels, groups, space), dtype, align, flags=flags)


def problems_with(*flags: str) -> Any:
    """(rows, cols, dtype) -> `rows` images of 320 channels in 32 groups and `cols` pixels, channels first and last."""

    def problems(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
        align = alignment(cols * dtype.itemsize)
        planes = [Facts((rows,), (320, 32, cols), dtype, align, flags=f"planes {flag}".strip()) for flag in flags]
        return [*planes, *(Facts((rows,), (320, 32, cols), dtype, 4, flags=f"last {flag}".strip()) for flag in flags)]

    return problems


def elements(facts: Facts) -> int:
    """Numbers in the tensor of a problem."""
    channels, _, space = facts.exact
    return facts.free[0] * channels * space


def draw_images(facts: Facts, inputs: Inputs) -> Tensor:
    """The images of a trial (batch, channels, space), in the layout of the problem."""
    channels, _, space = facts.exact
    x = inputs.normal(facts.free[0], channels, space, dtype=facts.dtype)
    return x.transpose(1, 2).contiguous().transpose(1, 2) if "last" in facts.flags.split() else x


SHAPES = ((8, 4096), (8, 1024), (64, 1024))
"""The shapes that are measured by default: blocks of a diffusion network."""


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: Tensor, w: Tensor | None, b: Tensor | None, groups: int, *, eps: float = 1e-5, activation: str = "none"
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm in plain torch: y, mean, rstd."""
    wide = x.to(wide_type(x.dtype))
    if not x.numel():
        empty = wide.new_full((x.shape[0], groups), torch.nan, dtype=statistics_type(x.dtype))
        return x.clone(), empty, empty.clone()
    split = wide.reshape(x.shape[0], groups, -1)
    mean = split.mean(2)
    away = split - mean[..., None]
    rstd = torch.rsqrt((away * away).mean(2) + eps)
    n = (away * rstd[..., None]).reshape(x.shape)
    y = PLAIN[activation](n * along_channels(w, wide, 1.0) + along_channels(b, wide, 0.0))
    kept = statistics_type(x.dtype)
    return y.to(x.dtype), mean.to(kept), rstd.to(kept)


def reference_backward(
    dy: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor, rstd: Tensor, *, activation: str = "none"
) -> Gradients:
    """The gradients of x, w and b in plain torch."""
    wide = wide_type(x.dtype)
    split = (x.shape[0], mean.shape[1], -1 if x.numel() else 0)
    n = ((x.to(wide).reshape(split) - mean[..., None]) * rstd[..., None]).reshape(x.shape).to(wide)
    g, scale, dw, db = before_activation(dy, n, w, b, activation)
    if not x.numel():
        return x.clone(), dw, db
    flat_g, flat_n = (g * scale).reshape(split), n.reshape(split)
    along, offset = ((t).mean(2, keepdim=True) for t in (flat_g * flat_n, flat_g))
    dx = (flat_g - offset - flat_n * along) * rstd[..., None].to(wide)
    return dx.reshape(x.shape).to(x.dtype), dw, db
