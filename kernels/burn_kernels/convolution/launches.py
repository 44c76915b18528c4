"""The launches of direct kernels and of tiles: their grids, the groups of their arguments, their constants."""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels import dropout, random
from burn_kernels.convolution import kernels, tiles
from burn_kernels.convolution.choice import pixels_of
from burn_kernels.convolution.configs import Config, WeightConfig, shares
from burn_kernels.convolution.references import NOTHING, After, Geometry, in_tf32
from burn_kernels.launch import ceil_div, contiguous, launch, machine_of, next_power

__all__ = ["convolve", "join", "spread", "weigh"]


def convolve(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    results: tuple[torch.Tensor, torch.Tensor | None],
    geometry: Geometry,
    config: Config,
    *,
    rest: After = NOTHING,
    back: bool = False,
) -> None:
    """Launches the sums of all pixels of the results, y and `passed`; if `back`, x is dz, and y the data gradient."""
    y, passed = results
    _, sources, outs = pixels_of(geometry, back=back)
    count, blocks = y.shape[0] * y.shape[2] * y.shape[3], ceil_div(outs, config.outs)
    grid = (ceil_div(count, config.pixels), geometry.groups * blocks)
    sides = (geometry.height, geometry.width), (geometry.out_h, geometry.out_w)
    sizes = kernels.Sizes(*sides[back], *sides[not back], sources, outs, geometry.groups)
    steps = geometry.sources * geometry.taps, geometry.taps
    weights = kernels.WeightStrides(geometry.targets * steps[0], steps[back], steps[not back])
    strided, padded = geometry.stride_h * geometry.stride_w > 1, geometry.pad_h + geometry.pad_w > 0
    form = kernels.Form(back, back and strided, back or padded, geometry.kernel_h, geometry.kernel_w)
    groups = (kernels.ImageStrides(*x.stride()), weights, count, sizes, kernels.Steps(*geometry[7:13]))
    cut: dict[str, Any] = {"warps": config.warps, "FORM": form, "OUTS": config.outs, "PIXELS": config.pixels}
    if config.channels:
        launch(tiles.convolve_tiles, grid, y, x, w, b, y, *groups, **cut, **_product_constants(x, geometry, config))
        return
    draw: tuple[Any, ...] = (0, 0, 0, 1.0)
    cut |= random.flags(rest.key, rest.stream) if rest.prob else random.flags(0, 0)
    if rest.prob:
        draw = (*random.numbers(rest.key, rest.stream), *dropout.mask_numbers(rest.prob, y.dtype))
    cut |= {"RELU": rest.relu, "POOL": rest.pool, "WINDOW": rest.window, "DROP": rest.prob > 0.0}
    apart = back and y.dtype == torch.float32 and machine_of(y).backend != "hip"
    launch(kernels.convolve, grid, y, x, w, b, y, passed, *groups, *draw, **cut, APART=apart)


def _product_constants(x: torch.Tensor, geometry: Geometry, config: Config | WeightConfig) -> dict[str, Any]:
    """The constants of tiles: the channels that they read at a time, and how they are multiplied."""
    precision = "tf32" if in_tf32(x.dtype, geometry) else "ieee"
    return {"CHANNELS": config.channels, "PRECISION": precision, "ROUNDED": tiles.rounds(x.dtype, geometry)}


def weigh(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, geometry: Geometry, bias: bool, config: WeightConfig
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Launches the weight gradient's parts and joins them: the gradients of w, and of the bias if there is one."""
    blocks, parts, each = shares(geometry, config, machine_of(x))
    part = torch.empty(parts, w.numel() + geometry.outs, dtype=torch.float32, device=x.device)
    sides = (geometry.height, geometry.width, geometry.out_h, geometry.out_w)
    sizes = kernels.Sizes(*sides, geometry.sources, geometry.targets, geometry.groups)
    steps = kernels.Steps(*geometry[7:13])
    arguments = (dz, x, part, kernels.ImageStrides(*x.stride()), geometry.pixels, each, sizes, steps)
    cut: dict[str, Any] = {"warps": config.warps, "OUTS": config.outs, "PIXELS": config.pixels, "BIAS": bias}
    cut |= {"KERNEL_H": geometry.kernel_h, "KERNEL_W": geometry.kernel_w}
    cut |= {"MASKED": geometry.pad_h + geometry.pad_w > 0}
    cut |= _product_constants(x, geometry, config) if config.channels else {"ROWS": config.rows}
    launch(tiles.weigh_tiles if config.channels else kernels.weigh, (parts, blocks), x, *arguments, **cut)
    return join(part, w, geometry, bias)


def join(
    part: torch.Tensor, w: torch.Tensor, geometry: Geometry, bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Adds the parts of the gradients of w, and of the bias if there is one."""
    dw = torch.empty(w.shape, dtype=w.dtype, device=w.device)
    db = torch.empty(geometry.outs, dtype=w.dtype, device=w.device) if bias else None
    parts, cols = part.shape
    # as many parts at once as registers hold: each step of the loop waits for memory
    at_once = min(1024, max(128, next_power(parts)))
    cut = {"warps": at_once // 128, "PARTS": at_once, "BLOCK": 8}
    launch(kernels.join_weights, (ceil_div(cols, 8),), w, part, dw, db, parts, dw.numel(), cols, **cut)
    return dw, db


def spread(
    dy: torch.Tensor, y: torch.Tensor | None, passed: torch.Tensor | None, geometry: Geometry, rest: After
) -> torch.Tensor:
    """The gradient of the convolution's output, in order, from that of what follows it."""
    dy = dy.contiguous()
    if rest.nothing:
        return dy
    if rest.window == 1 and not rest.relu:
        return dropout.backward(dy, rest.prob, rest.key, rest.stream)
    dz = torch.empty(geometry.batch, geometry.outs, geometry.out_h, geometry.out_w, dtype=dy.dtype, device=dy.device)
    area = geometry.out_h * geometry.out_w
    block = min(1024, next_power(area))
    grid = (geometry.batch * geometry.outs * ceil_div(area, block),)
    arguments = (dy, *contiguous(y, passed), dz, geometry.out_h, geometry.out_w, rest.factor(dy.dtype))
    launch(kernels.spread, grid, dy, *arguments, warps=max(1, block // 256), WINDOW=rest.window, BLOCK=block)
    return dz
