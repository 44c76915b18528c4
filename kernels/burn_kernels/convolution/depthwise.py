"""Depthwise convolutions: launches of the kernels of planes, and the choice between them and torch's convolution."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.convolution import choice, references
from burn_kernels.convolution.kernels import join_weights
from burn_kernels.convolution.launches import join
from burn_kernels.convolution.planes import (
    LIBRARY,
    Config,
    convolve_planes,
    plane_candidates,
    plane_shares,
    turn_planes,
)
from burn_kernels.convolution.references import Geometry, Gradients
from burn_kernels.launch import Machine, ceil_div, launch, machine_of

__all__ = ["LIBRARY", "Config", "backward", "candidates", "default", "forward"]


# -- configs -----------------------------------------------------------------------------------------
def default(geometry: Geometry, dtype: torch.dtype, machine: Machine, *, back: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(geometry, dtype, machine, back=back)[0]


def candidates(geometry: Geometry, dtype: torch.dtype, machine: Machine, *, back: bool = False) -> list[Config]:
    """The configs that a tuner may try, the default first."""
    configs = plane_candidates(geometry.width, geometry.height, geometry.taps, dtype.itemsize, machine, back=back)
    # on CDNA 3 so many weights, and the masks of their columns, are more than there are scalar registers
    spills = machine.backend == "hip" and geometry.taps > 25
    return [LIBRARY, *configs] if spills else [*configs, LIBRARY]


# -- launchers ---------------------------------------------------------------------------------------
def forward(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, config: Config | None) -> Tensor:
    """The convolution of each plane with its own kernel; y in order."""
    x = x.contiguous()

    def run(config: Config) -> Tensor:
        if config == LIBRARY:
            return functional.conv2d(x, w, b, **geometry.options).contiguous()
        y = torch.empty(geometry.batch, geometry.outs, geometry.out_h, geometry.out_w, dtype=x.dtype, device=x.device)
        strips, vecs = ceil_div(geometry.out_h, config.rows), ceil_div(geometry.width, config.cols)
        lanes = geometry.batch * geometry.channels * strips * vecs
        sides = (geometry.height, geometry.width, geometry.out_h, geometry.out_w)
        sizes = (lanes, geometry.channels, strips, vecs, *sides)
        grid = (ceil_div(lanes, 32 * config.warps),)
        launch(convolve_planes, grid, x, x, w, b, y, *sizes, warps=config.warps, **_constants(geometry, config))
        return y

    return FORWARD.run(
        x, config, choice.key_of(geometry, x, choice.words_of(x.dtype, geometry, "b" if b is not None else "")), run
    )


def backward(
    dz: Tensor, x: Tensor, w: Tensor, geometry: Geometry, needs: tuple[bool, bool, bool], config: Config | None
) -> Gradients:
    """The gradients of x, w and b that are needed, from one pass over dz, which lies in order."""
    x, w = x.contiguous(), w.contiguous()
    weighs = needs[1] or needs[2]

    def run(config: Config) -> Gradients:
        if config == LIBRARY:
            dx, dw, db = references.library_backward(dz, x, w, geometry, needs)
            return None if dx is None else dx.contiguous(), None if dw is None else dw.contiguous(), db
        strips, vecs = ceil_div(geometry.height, config.rows), ceil_div(geometry.width, config.cols)
        parts, each = plane_shares(geometry, config, machine_of(x))
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if needs[0] else None
        shape = parts, w.numel() + geometry.outs
        part = torch.empty(shape, dtype=torch.float32, device=x.device) if weighs else None
        sides = (geometry.height, geometry.width, geometry.out_h, geometry.out_w)
        sizes = (geometry.batch * strips * vecs, each, geometry.channels, strips, vecs, *sides)
        cut: dict[str, Any] = {"warps": config.warps, "BIAS": needs[2], **_constants(geometry, config)}
        launch(turn_planes, (geometry.channels * parts,), x, dz, x, w, dx, part, *sizes, **cut)
        dw, db = (None, None) if part is None else join(part, w, geometry, needs[2])
        return dx, dw if needs[1] else None, db

    words = ["x"] * needs[0] + ["w"] * weighs + ["b"] * needs[2]
    return BACKWARD.run(x, config, choice.key_of(geometry, dz, choice.words_of(x.dtype, geometry, *words)), run)


def _constants(geometry: Geometry, config: Config) -> dict[str, Any]:
    return {
        "PAD_H": geometry.pad_h,
        "PAD_W": geometry.pad_w,
        "KERNEL_H": geometry.kernel_h,
        "KERNEL_W": geometry.kernel_w,
        "SAME": geometry.out_w == geometry.width,
        "EVEN": geometry.width % config.cols == 0,
        "ROWS": config.rows,
        "COLS": config.cols,
        "LANES": 32 * config.warps,
    }


# -- selection ---------------------------------------------------------------------------------------
def _supports(config: Config, facts: Facts) -> bool:
    geometry = choice.geometry_of(facts)
    if config == LIBRARY:
        return True
    return references.is_plane(geometry) and config.cols in (1, 2, 4, 8) and config.rows > 0


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    if config == LIBRARY:
        return choice.work_of_library(facts, machine, factor=8)
    geometry, size = choice.geometry_of(facts), facts.dtype.itemsize
    strips = ceil_div(geometry.height, config.rows) * ceil_div(geometry.width, config.cols)
    lanes = geometry.batch * geometry.channels * strips
    each = lanes / geometry.batch * config.rows * config.cols
    useful = geometry.pixels * geometry.outs / geometry.batch / each / geometry.outs * geometry.outs
    programs = ceil_div(lanes, 32 * config.warps)
    held = 32 * config.warps * config.cols
    live = config.rows + 2.0 * geometry.kernel_h
    return Work(programs, config.warps, held, size, geometry.elements * size, geometry.flops, useful, live)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    geometry = choice.geometry_of(facts)

    def run(x: Tensor, w: Tensor, *rest: Any) -> list[Tensor]:
        *bias, config = rest
        return [forward(x, w, bias[0] if bias else None, geometry, config)]

    def plain(*operands: Tensor) -> tuple[object, ...]:
        return references.reference(*operands, **geometry.options)

    return choice.trial_of("x w b" if "b" in facts.flags.split() else "x w", facts, inputs, run, plain)


def _backward_trial(facts: Facts, inputs: Inputs) -> Trial:
    geometry, words = choice.geometry_of(facts), facts.flags.split()
    needs = ("x" in words, "w" in words, "b" in words)

    def run(dz: Tensor, x: Tensor, w: Tensor, config: Config) -> Gradients:
        return backward(dz, x, w, geometry, needs, config)

    def plain(dz: Tensor, x: Tensor, w: Tensor) -> Gradients:
        return references.reference_backward(
            dz, x, w, w[:, 0, 0, 0] if needs[2] else None, needs=needs, **geometry.options
        )

    return choice.trial_of("dz x w", facts, inputs, run, plain)


def _problems(flags: str, rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """3 x 3 kernels over `rows` images of `cols` channels, 56 x 56 and 14 x 14."""
    cols = min(cols, 96)
    return [
        choice.facts_of(dtype, Geometry(rows, cols, side, side, cols, 3, 3, 1, 1, 1, 1, 1, 1, cols), 0, True, flags)
        for side in (56, 14)
    ]


FORWARD = choice.convolution_tunable(
    "depthwise convolution",
    config=Config,
    candidates=lambda facts, machine: candidates(choice.geometry_of(facts), facts.dtype, machine),
    supports=_supports,
    work=_work,
    trial=_trial,
    kernels=(convolve_planes,),
    problems=functools.partial(_problems, "b"),
    shapes=((64, 96),),
)
BACKWARD = choice.convolution_tunable(
    "depthwise convolution backward",
    config=Config,
    candidates=lambda facts, machine: candidates(choice.geometry_of(facts), facts.dtype, machine, back=True),
    supports=_supports,
    work=_work,
    trial=_backward_trial,
    kernels=(turn_planes, join_weights),
    problems=functools.partial(_problems, "x w b"),
    shapes=((64, 96),),
)
