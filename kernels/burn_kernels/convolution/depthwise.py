"""Depthwise convolutions: launches of the kernels of planes, and the choice between them and torch's convolution."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn import functional

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.convolution.choice import call_of, compared_exactly, digits_of, facts_of, geometry_of, words_of
from burn_kernels.convolution.kernels import join_weights
from burn_kernels.convolution.planes import (
    LIBRARY,
    Config,
    convolve_planes,
    plane_candidates,
    plane_shares,
    turn_planes,
)
from burn_kernels.convolution.references import (
    Geometry,
    Gradients,
    is_plane,
    library_backward,
    reference,
    reference_backward,
)
from burn_kernels.launch import Machine, ceil_div, launch, machine_of, next_power

__all__ = ["LIBRARY", "Config", "backward", "candidates", "default", "forward"]


# -- configs -----------------------------------------------------------------------------------------
def default(made: Geometry, dtype: torch.dtype, machine: Machine, *, back: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(made, dtype, machine, back=back)[0]


def candidates(made: Geometry, dtype: torch.dtype, machine: Machine, *, back: bool = False) -> list[Config]:
    """What a tuner may try, the default first."""
    found = plane_candidates(made.width, made.height, made.taps, dtype.itemsize, machine, back=back)
    # on CDNA 3 so many weights, and the masks of their columns, are more than there are scalar registers
    spills = machine.backend == "hip" and made.taps > 25
    return [LIBRARY, *found] if spills else [*found, LIBRARY]


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, made: Geometry, config: Config | None
) -> torch.Tensor:
    """The convolution of each plane with its own kernel; y in order."""
    machine = machine_of(x)
    x = x.contiguous()
    y = torch.empty(made.batch, made.outs, made.out_h, made.out_w, dtype=x.dtype, device=x.device)
    found = [y]

    def run(config: Config) -> None:
        if config == LIBRARY:
            found.append(functional.conv2d(x, w, b, **made.options).contiguous())
            return
        strips, vecs = ceil_div(made.out_h, config.rows), ceil_div(made.width, config.cols)
        lanes = made.batch * made.channels * strips * vecs
        sizes = (lanes, made.channels, strips, vecs, made.height, made.width, made.out_h, made.out_w)
        grid = (ceil_div(lanes, 32 * config.warps),)
        launch(convolve_planes, grid, x, x, w, b, y, *sizes, warps=config.warps, **_compiled(made, config))
        found.append(y)

    flags = words_of(x.dtype, made, "b" if b is not None else "")
    FORWARD.run(x, config, call_of(made, x, flags, machine), run)
    return found[-1]


def backward(
    dz: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    made: Geometry,
    needs: tuple[bool, bool, bool],
    config: Config | None,
) -> Gradients:
    """The gradients of x, w and b that are needed, from one pass over dz, which lies in order."""
    machine = machine_of(x)
    x, w = x.contiguous(), w.contiguous()
    weighs = needs[1] or needs[2]
    found: list[Gradients] = []

    def run(config: Config) -> None:
        if config == LIBRARY:
            dx, dw, db = library_backward(dz, x, w, made, needs)
            found.append((None if dx is None else dx.contiguous(), None if dw is None else dw.contiguous(), db))
            return
        strips, vecs = ceil_div(made.height, config.rows), ceil_div(made.width, config.cols)
        parts, each = plane_shares(made, config, machine)
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if needs[0] else None
        cols = w.numel() + made.outs
        part = torch.empty(parts, cols, dtype=torch.float32, device=x.device) if weighs else None
        sizes = (made.channels, strips, vecs, made.height, made.width, made.out_h, made.out_w)
        arguments = (dz, x, w, dx, part, made.batch * strips * vecs, each, *sizes)
        launch(
            turn_planes, (made.channels * parts,), x, *arguments, warps=config.warps, BIAS=needs[2],
            **_compiled(made, config),
        )  # fmt: skip
        dw, db = _joined(part, w, made, needs[2]) if part is not None else (None, None)
        found.append((dx, dw if needs[1] else None, db))

    words = ["x"] * needs[0] + ["w"] * weighs + ["b"] * needs[2]
    BACKWARD.run(x, config, call_of(made, dz, words_of(x.dtype, made, *words), machine), run)
    return found[-1]


def _joined(
    part: torch.Tensor, w: torch.Tensor, made: Geometry, bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    dw = torch.empty(w.shape, dtype=w.dtype, device=w.device)
    db = torch.empty(made.outs, dtype=w.dtype, device=w.device) if bias else None
    parts, cols = part.shape
    at_once = min(1024, max(128, next_power(parts)))
    joined = (part, dw, db, parts, dw.numel(), cols)
    launch(join_weights, (ceil_div(cols, 8),), w, *joined, warps=at_once // 128, PARTS=at_once, BLOCK=8)
    return dw, db


def _compiled(made: Geometry, config: Config) -> dict[str, Any]:
    return {
        "PAD_H": made.pad_h,
        "PAD_W": made.pad_w,
        "KERNEL_H": made.kernel_h,
        "KERNEL_W": made.kernel_w,
        "SAME": made.out_w == made.width,
        "EVEN": made.width % config.cols == 0,
        "ROWS": config.rows,
        "COLS": config.cols,
        "LANES": 32 * config.warps,
    }


# -- selection ---------------------------------------------------------------------------------------
def _supports(config: Config, facts: Facts) -> bool:
    made = geometry_of(facts)
    if config == LIBRARY:
        return True
    return is_plane(made) and config.cols in (1, 2, 4, 8) and config.rows > 0


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    made, size = geometry_of(facts), facts.dtype.itemsize
    if config == LIBRARY:  # a guess: the default is ours, and timings decide
        return Work(machine.processors, 8, 4096, size, made.elements * size, 8 * made.flops, 1.0)
    lanes = made.batch * made.channels * ceil_div(made.height, config.rows) * ceil_div(made.width, config.cols)
    useful = made.pixels * made.outs / made.batch / (lanes / made.batch * config.rows * config.cols) / made.outs
    programs = ceil_div(lanes, 32 * config.warps)
    held = 32 * config.warps * config.cols
    live = config.rows + 2.0 * made.kernel_h
    return Work(programs, config.warps, held, size, made.elements * size, made.flops, useful * made.outs, live)


def _operands(facts: Facts, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Geometry]:
    made = geometry_of(facts)
    x = inputs.normal(made.batch, made.channels, made.height, made.width, dtype=facts.dtype)
    w = inputs.normal(made.outs, 1, made.kernel_h, made.kernel_w, dtype=facts.dtype, std=0.3)
    b = inputs.normal(made.outs, dtype=facts.dtype) if "b" in facts.flags.split() else None
    return x, w, b, made


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    x, w, b, made = _operands(facts, inputs)
    trial = Trial(
        (x, w, b),
        lambda given, config: forward(given[0], given[1], given[2], made, config),
        lambda given: reference(*given, **made.options)[0],
    )
    return compared_exactly(trial, facts)


def _backward_trial(facts: Facts, inputs: Inputs) -> Trial:
    x, w, b, made = _operands(facts, inputs)
    dz = inputs.normal(made.batch, made.outs, made.out_h, made.out_w, dtype=facts.dtype)
    words = facts.flags.split()
    needs = ("x" in words, "w" in words, "b" in words)

    def there(found: Gradients) -> list[torch.Tensor]:
        return [g for g in found if g is not None]

    trial = Trial(
        (dz, x, w, b),
        lambda given, config: there(backward(given[0], given[1], given[2], made, needs, config)),
        lambda given: there(reference_backward(*given, needs=needs, **made.options)),
    )
    return compared_exactly(trial, facts)


def _problems(flags: str, rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """3 x 3 kernels over `rows` images of `cols` channels, 56 x 56 and 14 x 14."""
    cols = min(cols, 96)
    return [
        facts_of(dtype, Geometry(rows, cols, side, side, cols, 3, 3, 1, 1, 1, 1, 1, 1, cols), 0, True, flags)
        for side in (56, 14)
    ]


FORWARD = tunable(
    Tunable(
        name="depthwise convolution",
        config=Config,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        candidates=lambda facts, machine: candidates(geometry_of(facts), facts.dtype, machine),
        supports=_supports,
        work=_work,
        trial=_trial,
        kernels=(convolve_planes,),
        problems=functools.partial(_problems, "b"),
        shapes=((64, 96),),
        elements=lambda facts: Geometry(*facts.free, *facts.exact).elements,
        judged_in=digits_of,
    )
)
BACKWARD = tunable(
    Tunable(
        name="depthwise convolution backward",
        config=Config,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        candidates=lambda facts, machine: candidates(geometry_of(facts), facts.dtype, machine, back=True),
        supports=_supports,
        work=_work,
        trial=_backward_trial,
        kernels=(turn_planes, join_weights),
        problems=functools.partial(_problems, "x w b"),
        shapes=((64, 96),),
        elements=lambda facts: Geometry(*facts.free, *facts.exact).elements,
        judged_in=digits_of,
    )
)
