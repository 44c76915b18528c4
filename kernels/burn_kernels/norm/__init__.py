"""Layer norm and RMS norm over the last axis of (rows, cols).

    layer_norm:  n = (x - mean(x)) * rstd      rstd = 1 / sqrt(mean((x - mean(x))^2) + eps)      y = n * w + b
    rms_norm:    n = x * rstd                  rstd = 1 / sqrt(mean(x^2) + eps)                  y = n * w

    g  = dy * w                                dw = sum over rows of dy * n             db = sum over rows of dy
    dx = rstd * (g - n * mean(g * n) - mean(g))          (rms_norm without the last term)

Limit: memory.  Forward moves 2 * rows * cols elements (x in, y out), backward 3 (x and dy in, dx out).
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32; mean and rstd are float32.  Deterministic: dw and db are summed in a fixed order, no atomics.

Forward: rows no wider than `Config.block` are held in registers and read once; wider ones are read twice, the second
time from the L2 cache.  The backward is in `norm.launch_backward`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable, row_candidates, row_problems
from burn_kernels.launch import Machine, ceil_div, contiguous, fill, launch, next_power, rows_key, rows_of, wide_type
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.norm.kernels import _forward, _forward_tiles, _forward_wide
from burn_kernels.norm.launch_backward import (
    BackwardConfig,
    backward_candidates,
    backward_default,
    layer_norm_backward,
    rms_norm_backward,
)
from burn_kernels.norm.references import (
    MAX_TILE_COLS,
    PARTS,
    layer_norm_reference,
    layer_norm_reference_backward,
    rms_norm_reference,
    rms_norm_reference_backward,
    weights,
)
from burn_kernels.operators import Operator, like
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

__all__ = [
    "BackwardConfig",
    "Config",
    "backward_candidates",
    "backward_default",
    "candidates",
    "default",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_reference",
    "layer_norm_reference_backward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_reference",
    "rms_norm_reference_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """x read and y written; backward x and dy read, dx written.  Weights and statistics are small beside them."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """Per element some 7 operations forward, 14 backward."""
    return (14 if backward else 7) * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """Forward: `rows` a program at once, `block` columns at once, `warps` of 32 threads.

    With `tiles`, a program holds one row as so many tiles of `block` columns.  `passing`: y is written so that it
    leaves the cache first, and x stays for a backward.  `aside`: x goes past the L1 cache, which keeps w and b.
    """

    rows: int
    block: int
    warps: int
    tiles: int = 0
    passing: int = 0
    aside: int = 0


def default(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> Config:
    """The config of the forward of layer norm, or of RMS norm if not `centred`, that is used without timing."""
    return candidates(cols, itemsize, machine, centred=centred)[0]


def candidates(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> list[Config]:
    """Lists the configs that a tuner may try for the forward, the default first."""
    block = next_power(cols)
    if block > MAX_TILE_COLS:
        configs = [Config(1, 8_192, 16), Config(1, 8_192, 32), Config(1, 4_096, 16)]
        if not centred:  # lighter in registers: two programs of 1024 threads fit a processor
            configs = [configs[1], configs[0], configs[2]]
        elif cols == 32_768 and itemsize == 2 and machine.backend == "cuda":
            # x read once: with w and b, which every row reads, two readings of it are more than the L2 cache gives
            configs.insert(0, Config(1, 4_096, 16, tiles=8))
        return [*configs, Config(1, block, 32)] if block <= 2 * MAX_TILE_COLS else configs
    # below 1024 columns several rows share a program; above, 32 to 64 elements a thread: with 16 the second half of
    # the threads costs more in waiting for each other than it brings
    rows = max(1, 1024 // block)
    warps = min(8, max(4, rows * block // 1024))
    tiled = []
    if 1_024 < cols < block and itemsize == 2 and cols % 1_024 == 0:
        # as tiles of one access a thread no lane is idle, where in a power of two up to half of them are
        tiled = [
            Config(1, 256 * other, other, tiles=cols // (256 * other)) for other in (4, 8) if cols % (256 * other) == 0
        ]
        tiled = [config for config in tiled if config.tiles <= 8]
        tiled = [replace(config, passing=1) for config in tiled[:1]] + tiled
    if cols == 4_096 and itemsize == 2 and machine.backend == "cuda":
        tiled = [Config(2, block, 8, passing=1), Config(1, 1_024, 4, tiles=4, passing=1)]
        tiled = tiled if centred else tiled[::-1]
    elif cols == 16_384 and centred and itemsize == 2 and machine.backend == "cuda":
        tiled = [Config(1, 4_096, 16, tiles=4, aside=1)]  # w and b, 64 KiB, stay in the L1 cache
    configs = [
        Config(rows * factor, block, other)
        for factor in (1, 2)
        for other in (warps, warps // 2, 2 * warps)
        if rows * factor * block <= 2048 * other
    ]
    return [*tiled, *configs] if cols == block else tiled or configs


# -- launchers ---------------------------------------------------------------------------------------
@launcher("layer_norm", "x (*batch, cols), w (cols), b (cols)", reference=layer_norm_reference)
def layer_norm(
    x: Tensor, w: Tensor | None, b: Tensor | None, eps: float = 1e-5, *, config: Config | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm over the last axis: y, mean and rstd.

    Shapes: x (*batch, cols), w, b (cols,) or None -> y as x, mean and rstd (*batch, 1).
    Dtypes: float32, float16, bfloat16, all the same; mean and rstd float32.  On the CPU float64 too.
    """
    mean = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    y, rstd = _run_forward(x, w, b, mean, eps, config)
    return y, mean, rstd


@launcher("rms_norm", "x (*batch, cols), w (cols)", reference=rms_norm_reference)
def rms_norm(x: Tensor, w: Tensor | None, eps: float = 1e-5, *, config: Config | None = None) -> tuple[Tensor, Tensor]:
    """RMS norm over the last axis: y and rstd; shapes, types and limits as `layer_norm`."""
    return _run_forward(x, w, None, None, eps, config)


def _run_forward(
    x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor | None, eps: float, config: Config | None
) -> tuple[Tensor, Tensor]:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    shape = (*x.shape[:-1], 1)
    rstd = torch.empty(shape, dtype=torch.float32, device=x.device) if mean is None else torch.empty_like(mean)
    if not x.numel():
        fill(math.nan, mean, rstd)
        return y, rstd
    flat = rows_of(x)
    (rows, cols), stride = flat.shape, flat.stride(0)
    before, after = (flat, *contiguous(w, b), y, mean, rstd, stride), (cols, eps)

    def run(config: Config) -> None:
        how: dict[str, Any] = {"warps": config.warps, "CENTRED": mean is not None, "ASIDE": config.aside}
        if config.tiles:
            how |= {"BLOCK": config.block, "TILES": config.tiles, "PASSING": config.passing}
            launch(_forward_tiles, (rows,), x, *before, *after, **how, EVEN=config.block * config.tiles == cols)
        elif config.block >= cols:
            how |= {"ROWS": config.rows, "BLOCK": config.block, "PASSING": config.passing}
            launch(_forward, (ceil_div(rows, config.rows),), x, *before, rows, *after, **how)
        else:
            vector = 16 // x.element_size()
            how |= {"EDGES": bool(cols % vector or stride % vector), "PACKED": stride == cols}
            launch(_forward_wide, (rows,), x, *before, *after, **how, LANES=config.block // vector, VECTOR=vector)

    choice = RMS_FORWARD if mean is None else LAYER_FORWARD
    choice.run(x, config, rows_key(flat, flags=PARTS[w is not None, b is not None]), run)
    return y, rstd


# -- selection ---------------------------------------------------------------------------------------
def _tunable(run: Launcher[..., Any], *, centred: bool) -> Tunable:
    """The forward's place of choice."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        programs, tiles = ceil_div(rows, config.rows), ceil_div(cols, config.block)
        useful = rows * cols / (programs * config.rows * tiles * config.block)
        held, passes = config.rows * config.block * max(1, config.tiles), 1 if config.tiles else min(tiles, 2)
        return Work(programs, config.warps, held, size, 2 * rows * cols * size, 7 * rows * cols, useful, passes=passes)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        x, (w, b) = inputs.rows(facts, facts.free[0], facts.exact[0]), weights(facts, inputs)
        return Trial.of(run, x, w, b) if centred else Trial.of(run, x, w)

    return register_tunable(
        name=run.op,
        config=Config,
        candidates=row_candidates(candidates, centred=centred),
        supports=lambda config, facts: config.block * max(1, config.tiles) >= facts.exact[0] or config.rows == 1,
        work=work,
        trial=trial,
        kernels=(_forward, _forward_tiles, _forward_wide),
        problems=row_problems("w b" if centred else "w"),
    )


LAYER_FORWARD, RMS_FORWARD = _tunable(layer_norm, centred=True), _tunable(rms_norm, centred=False)


# -- registration ------------------------------------------------------------------------------------
_SHAPES = ((5, 7), (3, 64), (2, 3, 33), (4, 3), (130,), (9, 1025), (67, 16), (0, 5), (3, 0))


def _layer_norm_problems(draw: Draw) -> Iterator[Problem]:
    for shape in _SHAPES:
        w, b = draw.normal(shape[-1], mean=1.0, std=0.3), draw.normal(shape[-1])
        yield Problem((draw.normal(*shape, mean=0.5), w, b))
    w, b = draw.normal(17, mean=1.0, std=0.3), draw.normal(17)
    yield Problem((draw.normal(6, 40)[::2, 3:20], w, b))
    yield Problem((draw.normal(17, 6).T, w, None), {"eps": 1e-3})
    yield Problem((draw.normal(4, 17), None, b), {"eps": 0.1})
    yield Problem((draw.normal(4, 17), None, None))
    yield Problem((draw.normal(3, 16_401), draw.normal(16_401), draw.normal(16_401)))


def _rms_norm_problems(draw: Draw) -> Iterator[Problem]:
    for problem in _layer_norm_problems(draw):
        x, w, _ = problem.inputs
        yield Problem((x, w), problem.options)


def _large(count: int, draw: Draw, x: Tensor) -> Iterator[Problem]:
    yield Problem((x, *(draw.normal(x.shape[1], mean=mean) for mean in (1.0, 0.0)[:count])))


def _draw_call(count: int, draw: Draw) -> tuple[Any, ...]:
    cols = draw.width()
    vectors = draw.vectors(cols, count)
    return draw.rows(cols), *vectors, 1e-5


def _statistics(x: Tensor) -> Tensor:
    return torch.empty((*x.shape[:-1], 1), dtype=wide_type(x.dtype), device=x.device)


SPEC = register_kernel(
    layer_norm,
    layer_norm_backward,
    gradient=lambda back, dy, inputs, outputs, eps=1e-5: back(
        dy, *inputs[:2], *outputs[1:], bias=inputs[2] is not None
    ),
    twin=lambda x, w, b, eps=1e-5: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps),
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_layer_norm_problems,
    large=large_rows(functools.partial(_large, 2)),
    draw_call=functools.partial(_draw_call, 2),
    operators=[
        Operator(
            schema="layer_norm(Tensor x, Tensor? w, Tensor? b, float eps) -> (Tensor, Tensor, Tensor)",
            inputs="x w b",
            fake=lambda x, w, b, eps: (like(x), _statistics(x), _statistics(x)),
            results="y mean rstd",
            gradients="x w b",
            saved="x w b mean rstd eps",
            far="x",
            autocast=("cuda",),
        )
    ],
)
RMS_SPEC = register_kernel(
    rms_norm,
    rms_norm_backward,
    gradient=lambda back, dy, inputs, outputs, eps=1e-5: back(dy, *inputs, outputs[1]),
    twin=lambda x, w, eps=1e-5: torch.nn.functional.rms_norm(x, x.shape[-1:], w, eps),
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_rms_norm_problems,
    large=large_rows(functools.partial(_large, 1)),
    draw_call=functools.partial(_draw_call, 1),
    operators=[
        Operator(
            schema="rms_norm(Tensor x, Tensor? w, float eps) -> (Tensor, Tensor)",
            inputs="x w",
            fake=lambda x, w, eps: (like(x), _statistics(x)),
            results="y rstd",
            gradients="x w",
            saved="x w rstd eps",
            far="x",
            autocast=("cuda",),
        )
    ],
)
