"""How batch norm and group norm launch the kernels over tiles: one for whole results, or three where they are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from burn_kernels.channel_norm.configs import Config, grid, sizes_of
from burn_kernels.channel_norm.kernels import (
    forward_whole,
    join_moments,
    join_sums,
    moments_of_parts,
    normalize,
    slopes_of_parts,
    sums_of_parts,
)
from burn_kernels.channel_norm.layout import Strides, Tiling
from burn_kernels.launch import ceil_div, launch, machine_of

Vectors = Sequence[torch.Tensor | None]


def launch_training(
    tensors: Vectors,
    statistics: Vectors,
    strides: tuple[Strides, Strides],
    numbers: tuple[float, float],
    tiling: Tiling,
    config: Config,
    *,
    activation: str,
    place: str,
    width: int = 8,
) -> None:
    """Computes statistics and the output.

    tensors     x, weights, biases, y
    statistics  mean and rstd, the old running mean and variance, the new ones
    strides     of x and y
    numbers     momentum and eps
    place       the axis that weights and biases follow: "kept", "row" or "col"
    width       the number of results that a program joins from their parts
    """
    x = tensors[0]
    mean, rstd, *_ = statistics
    assert x is not None
    assert mean is not None
    blocks, parts, steps = grid(tiling, config, machine_of(x))
    sizes, tile = sizes_of(tiling, config), config.tile
    compiled: dict[str, Any] = {"warps": config.warps, "KIND": activation, "PLACE": place, "TILE": tile}
    if parts == 1:
        launch(forward_whole, (blocks,), x, *tensors, *statistics, *strides, sizes, *numbers, **compiled)
        return
    count = torch.empty(parts, dtype=torch.float32, device=x.device)
    means, squares = (torch.empty(parts, tiling.kept, dtype=t, device=x.device) for t in (mean.dtype, torch.float32))
    moments = (x, count, means, squares, strides[0], sizes, steps)
    launch(moments_of_parts, (blocks, parts), x, *moments, warps=config.warps, TILE=tile)
    joined = (count, means, squares, *statistics, tiling.kept, parts, *numbers)
    at_once = (512 if mean.dtype == torch.float64 else 1024) // width
    launch(join_moments, (ceil_div(tiling.kept, width),), x, *joined, warps=4, PARTS=at_once, KEPT=width)
    applied = (*tensors, mean, rstd, *strides, sizes, steps, numbers[1])
    launch(normalize, (blocks, parts), x, *applied, VARIANCE=False, **compiled)


def launch_slopes(
    inputs: Vectors,
    dx: torch.Tensor,
    strides: tuple[Strides, Strides, Strides],
    tiling: Tiling,
    config: Config,
    join: Callable[[torch.Tensor, torch.Tensor, int], Sequence[torch.Tensor]],
    *,
    per: int = 1,
    eps: float = 0.0,
    **compiled: Any,
) -> None:
    """Computes the gradients by parts.

    inputs   dy, x, weights, biases, mean, rstd
    strides  of dy, x and dx
    join     (sums of g * n, sums of g, number of parts) -> the means that dx takes
    per      the number of channels that share statistics
    """
    blocks, parts, steps = grid(tiling, config, machine_of(dx))
    rest = (sizes_of(tiling, config), steps, per, eps)
    compiled |= {"warps": config.warps, "TILE": config.tile}
    along, offset = (torch.empty(parts, tiling.kept, dtype=torch.float32, device=dx.device) for _ in range(2))
    launch(sums_of_parts, (blocks, parts), dx, *inputs, along, offset, *strides[:2], *rest, **compiled)
    means = join(along, offset, parts)
    launch(slopes_of_parts, (blocks, parts), dx, *inputs, *means, dx, *strides, *rest, **compiled)


def launch_join(sums: Vectors, means: Vectors, gradients: Vectors, kept: int, parts: int, count: float = 1.0) -> None:
    """Adds the sums of parts (of g * n, of g; weights beside them) to gradients, and to means over `count` elements."""
    along, width = sums[0], 32 if kept > 1024 else 8
    assert along is not None
    numbers = (kept, parts, count)
    launch(join_sums, (ceil_div(kept, width),), along, *sums, *means, *gradients, *numbers, warps=4,
           PARTS=1024 // width, KEPT=width)  # fmt: skip
