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

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, row_candidates, row_problems, tunable
from burn_kernels.launch import Machine, ceil_div, contiguous, fill, launch, next_power, rows_key, rows_of, wide_type
from burn_kernels.launcher import Launcher, launcher
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
from burn_kernels.prims import edge_columns, inverse_root, joined, quotient, row_parts, tile
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
def bytes_moved(x: torch.Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """x read and y written; backward x and dy read, dx written.  Weights and statistics are small beside them."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: object, backward: bool = False, **_: object) -> int:
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


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, rows, cols, eps,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PASSING: tl.constexpr,
    ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    valid = row < rows
    inside = valid[:, None] & (col < cols)
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    x = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0, cache_modifier=MODIFIER).to(tl.float32)
    if CENTRED:
        mean = quotient(tl.sum(x, 1), tl.cast(cols, tl.float32), TYPE)
        x = tl.where(col < cols, x - mean[:, None], 0.0)
        tl.store(mean_ptr + row, mean, mask=valid)
    rstd = inverse_root(quotient(tl.sum(x * x, 1), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd, mask=valid)
    # read here, not before the sums: the registers they would hold cost more programs than the waiting
    # (layer norm at 8192 bf16 columns: 0.073 ms so, 0.096 ms read early; H200, benchmarks/notes/norm.md)
    y = _scale(x * rstd[:, None], w_ptr, b_ptr, col, col < cols).to(y_ptr.dtype.element_ty)
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    tl.store(y_ptr + row[:, None] * cols + col, y, mask=inside, eviction_policy=POLICY)


@triton.jit
def _row_tiles(
    row_ptr, cols, BLOCK: tl.constexpr, TILES: tl.constexpr, EVEN: tl.constexpr, ASIDE: tl.constexpr
):  # fmt: skip
    """A row as a tuple of tiles."""
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    xs = ()
    for t in tl.static_range(TILES):
        col = t * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(row_ptr + col, cache_modifier=MODIFIER)
        else:
            x = tl.load(row_ptr + col, mask=col < cols, other=0.0, cache_modifier=MODIFIER)
        xs = joined(xs, (x,))
    return xs


@triton.jit
def _forward_tiles(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    CENTRED: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, EVEN: tl.constexpr,
    PASSING: tl.constexpr, ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    xs = _row_tiles(x_ptr + row * x_stride, cols, BLOCK, TILES, EVEN, ASIDE)
    mean = 0.0
    if CENTRED:
        total = tl.zeros((BLOCK,), tl.float32)
        for t in tl.static_range(TILES):
            total += xs[t].to(tl.float32)
        mean = quotient(tl.sum(total, 0), tl.cast(cols, tl.float32), TYPE)
        tl.store(mean_ptr + row, mean)
    power = tl.zeros((BLOCK,), tl.float32)
    for t in tl.static_range(TILES):
        away = xs[t].to(tl.float32) - mean
        if not EVEN:
            away = tl.where(t * BLOCK + lane < cols, away, 0.0)
        power += away * away
    rstd = inverse_root(quotient(tl.sum(power, 0), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd)
    for t in tl.static_range(TILES):
        col = t * BLOCK + lane
        y = (xs[t].to(tl.float32) - mean) * rstd
        if w_ptr is not None:
            y *= tile(w_ptr, col, cols, EVEN).to(tl.float32)
        if b_ptr is not None:
            y += tile(b_ptr, col, cols, EVEN).to(tl.float32)
        if EVEN:
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), eviction_policy=POLICY)
        else:
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=col < cols, eviction_policy=POLICY)


@triton.jit
def _forward_wide(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    CENTRED: tl.constexpr, PACKED: tl.constexpr, EDGES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
    ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    KEEP: tl.constexpr = "" if ASIDE else "evict_last"
    DROP: tl.constexpr = "" if ASIDE else "evict_first"
    row = tl.program_id(0).to(tl.int64)
    begin = row * x_stride
    body, lead, size = row_parts(begin, cols, VECTOR)
    y_begin, y_body = row * cols, row * cols + lead
    if PACKED:  # said so that the compiler sees that y is aligned where x is
        y_begin, y_body = begin, body
    lane = tl.arange(0, LANES)
    at = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # each lane: the mean of the numbers it saw, and the sum of their squared distances from it
    means = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    STEP: tl.constexpr = LANES * VECTOR
    steps = size // STEP
    for step in tl.range(0, steps):
        read = tl.load(x_ptr + body + step * STEP + at, eviction_policy=KEEP, cache_modifier=MODIFIER)
        x = read.to(tl.float32)
        if CENTRED:  # the vector's own, joined to the lane's by Chan's rule
            mean = tl.sum(x, 1) / VECTOR
            away = x - mean[:, None]
            gap = mean - means
            means += gap * (1.0 / (step + 1.0))
            squares += tl.sum(away * away, 1) + gap * (mean - means) * VECTOR
        else:
            squares += tl.sum(x * x, 1)
    seen = (steps * VECTOR).to(tl.float32) + tl.zeros((LANES,), tl.float32)
    for start in tl.range(steps * STEP, size, STEP):  # what is no whole step
        inside = start + at < size
        x = tl.load(x_ptr + body + start + at, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            # a lane is inside with its whole vector or not at all
            added = tl.where(start + lane * VECTOR < size, VECTOR, 0).to(tl.float32)
            mean = tl.sum(x, 1) / VECTOR
            away = x - mean[:, None]
            gap = mean - means
            share = added / tl.maximum(seen + added, 1.0)
            squares += tl.where(added > 0.0, tl.sum(away * away, 1) + gap * gap * seen * share, 0.0)
            means += gap * share
            seen += added
        else:
            squares += tl.sum(x * x, 1)
    if EDGES:
        edge, edge_inside = edge_columns(lead, size, cols, VECTOR)
        ends = tl.load(x_ptr + begin + edge, mask=edge_inside, other=0.0).to(tl.float32)
    middle = 0.0
    if CENTRED:
        middle = tl.sum(means * seen, 0)
        if EDGES:
            middle += tl.sum(ends, 0)
        middle = quotient(middle, tl.cast(cols, tl.float32), TYPE)
        squares += seen * (means - middle) * (means - middle)
        tl.store(mean_ptr + row, middle)
    power = tl.sum(squares, 0)
    if EDGES:
        ends = tl.where(edge_inside, ends - middle, 0.0)
        power += tl.sum(ends * ends, 0)
    rstd = inverse_root(quotient(power, tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd)
    if EDGES:
        y_ends = _scale(ends * rstd, w_ptr, b_ptr, edge, edge_inside)
        tl.store(y_ptr + y_begin + edge, y_ends.to(TYPE), mask=edge_inside)
    last = (size - 1) // STEP * STEP
    for back in tl.range(0, size, STEP):
        start = last - back  # what was read last is still near
        inside = start + at < size
        again = tl.load(
            x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy=DROP, cache_modifier=MODIFIER
        )
        col = start + at
        if EDGES:
            col += lead
        y = _scale((again.to(tl.float32) - middle) * rstd, w_ptr, b_ptr, col, inside)
        tl.store(y_ptr + y_body + start + at, y.to(TYPE), mask=inside, eviction_policy="evict_first")


@triton.jit
def _scale(n, w_ptr, b_ptr, col, inside):
    if w_ptr is not None:
        n *= tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
    if b_ptr is not None:
        n += tl.load(b_ptr + col, mask=inside, other=0.0).to(tl.float32)
    return n


# -- launchers ---------------------------------------------------------------------------------------
@launcher("layer_norm", "x (*batch, cols), w (cols), b (cols)", reference=layer_norm_reference)
def layer_norm(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layer norm over the last axis: y, mean and rstd.

    Shapes: x (*batch, cols), w, b (cols,) or None -> y as x, mean and rstd (*batch, 1).
    Dtypes: float32, float16, bfloat16, all the same; mean and rstd float32.  On the CPU float64 too.
    """
    mean = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    y, rstd = _run_forward(x, w, b, mean, eps, config)
    return y, mean, rstd


@launcher("rms_norm", "x (*batch, cols), w (cols)", reference=rms_norm_reference)
def rms_norm(
    x: torch.Tensor, w: torch.Tensor | None, eps: float = 1e-5, *, config: Config | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMS norm over the last axis: y and rstd; shapes, types and limits as `layer_norm`."""
    return _run_forward(x, w, None, None, eps, config)


def _run_forward(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor | None,
    eps: float,
    config: Config | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if mean is not None:
        rstd = torch.empty_like(mean)
    else:
        rstd = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
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

    return tunable(
        Tunable(
            name=run.op,
            config=Config,
            candidates=row_candidates(candidates, centred=centred),
            supports=lambda config, facts: config.block * max(1, config.tiles) >= facts.exact[0] or config.rows == 1,
            work=work,
            trial=trial,
            kernels=(_forward, _forward_tiles, _forward_wide),
            problems=row_problems("w b" if centred else "w"),
        )
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


def _large(count: int, draw: Draw, x: torch.Tensor) -> Iterator[Problem]:
    yield Problem((x, *(draw.normal(x.shape[1], mean=mean) for mean in (1.0, 0.0)[:count])))


def _draw_call(count: int, draw: Draw) -> tuple[Any, ...]:
    cols = draw.width()
    vectors = draw.vectors(cols, count)
    return draw.rows(cols), *vectors, 1e-5


def _statistics(x: torch.Tensor) -> torch.Tensor:
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
