"""Residual add and norm in one pass over (rows, cols): what begins each block of a transformer, dropout included.

    s = residual + x * mask                    mask: that of `dropout` with (prob, key, stream), or 1
    y = layer_norm(s) or rms_norm(s)           as in `norm`

    g  = ds + the gradient of s through the norm                 dw, db as in `norm`
    dresidual = g                              dx = g * mask

Limit: memory.  Forward moves 4 * rows * cols elements (x, residual in, s, y out), backward 4 (dy, ds, s in, g out),
with dropout 5.  The mask is drawn again in the backward, never saved; without dropout dx and dresidual are one tensor.
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32; mean and rstd are float32, of s as it is rounded to its type.  Deterministic: dw and db are
summed in a fixed order, no atomics.

Forward: rows no wider than `Config.block` stay in registers; of wider ones s is written first, and read again from the
L2 cache.  The backward is in `residual_norm.launch_backward`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from burn_kernels import dropout, random
from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable, row_candidates, row_problems
from burn_kernels.launch import Machine, ceil_div, contiguous, fill, launch, next_power, rows_key, rows_of
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.norm import Config
from burn_kernels.norm.kernels import _scale
from burn_kernels.norm.launch_backward import BackwardConfig
from burn_kernels.norm.references import MAX_TILE_COLS, PARTS, weights
from burn_kernels.prims import inverse_root, quotient
from burn_kernels.random import Number
from burn_kernels.residual_norm.launch_backward import (
    backward_candidates,
    backward_default,
    layer_norm_backward,
    rms_norm_backward,
)
from burn_kernels.residual_norm.operators import norm_operators
from burn_kernels.residual_norm.references import (
    Drop,
    check_dropout,
    flags,
    layer_norm_reference,
    layer_norm_reference_backward,
    numbers,
    rms_norm_reference,
    rms_norm_reference_backward,
    trial_dropout,
)
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
def bytes_moved(x: torch.Tensor, *others: object, prob: float = 0.0, backward: bool = False, **_: object) -> int:
    """x and residual read, s and y written; backward dy, ds, s read, dresidual and with dropout dx written."""
    return (5 if backward and prob else 4) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: object, prob: float = 0.0, backward: bool = False, **_: object) -> int:
    """Per element some 9 operations forward, 16 backward, and 26 for a word where there is dropout."""
    return ((16 if backward else 9) + (26 if prob else 0)) * x.numel()


# -- configs -----------------------------------------------------------------------------------------
def default(cols: int, itemsize: int, machine: Machine) -> Config:
    """The config of the forward that is used without timing."""
    return candidates(cols, itemsize, machine)[0]


def candidates(cols: int, itemsize: int, machine: Machine) -> list[Config]:
    """Lists the configs that a tuner may try for the forward, the default first."""
    block = next_power(cols)
    if block > MAX_TILE_COLS:
        configs = [Config(1, 4_096, 16), Config(1, 8_192, 16), Config(1, 8_192, 32)]
        # on machines with warps of 64, half as many threads share the elements
        return [Config(1, 2_048, 16), *configs] if machine.lanes == 64 else configs
    # 32 elements a thread, 16 where they are wide or come one by one, with an address each
    rows = max(1, 1024 // block)
    most = 32 if machine.arch == 80 and itemsize > 2 else 16  # 32 elements a thread spill two registers there
    warps = min(most, max(4, rows * block // (512 if itemsize > 2 or cols * itemsize % 16 else 1024)))
    return [
        Config(rows * factor, block, other)
        for factor in (1, 2)
        for other in (warps, 2 * warps, warps // 2)
        if rows * factor * block <= 1024 * other and other <= 32
    ]


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit(do_not_specialize=["key", "stream", "last"])
def _forward(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, x_stride, r_stride, rows, cols, eps,
    key, stream, last, scale, CENTRED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    valid = row < rows
    inside = valid[:, None] & (col < cols)
    s = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(r_ptr + row[:, None] * r_stride + col, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        s *= tl.where(
            random.kept(random.held(key, KEY), random.held(stream, STREAM), last, row, 0, cols, QUADS, BLOCK),
            scale,
            0.0,
        )
    rounded = (s + residual).to(TYPE)
    tl.store(s_ptr + row[:, None] * cols + col, rounded, mask=inside)
    s = rounded.to(tl.float32)
    if CENTRED:
        mean = quotient(tl.sum(s, 1), tl.cast(cols, tl.float32), TYPE)
        s = tl.where(col < cols, s - mean[:, None], 0.0)
        tl.store(mean_ptr + row, mean, mask=valid)
    rstd = inverse_root(quotient(tl.sum(s * s, 1), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd, mask=valid)
    y = _scale(s * rstd[:, None], w_ptr, b_ptr, col, col < cols)
    tl.store(y_ptr + row[:, None] * cols + col, y.to(TYPE), mask=inside)


@triton.jit(do_not_specialize=["key", "stream", "last"])
def _forward_wide(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, x_stride, r_stride, cols, eps,
    key, stream, last, scale, CENTRED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    # VECTOR divides cols, so a lane is inside with its whole vector or not at all
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    at = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # each lane: how many numbers it saw, their mean, and the sum of their squared distances from it
    seen = tl.zeros((LANES,), tl.float32)
    means = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    for start in tl.range(0, cols, LANES * VECTOR):
        inside = start + at < cols
        x = tl.load(x_ptr + row * x_stride + start + at, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(r_ptr + row * r_stride + start + at, mask=inside, other=0.0).to(tl.float32)
        if DROP:
            rows = row + tl.arange(0, 1).to(tl.int64)
            held = tl.reshape(
                random.kept(
                    random.held(key, KEY), random.held(stream, STREAM), last, rows, start, cols, QUADS, LANES * VECTOR
                ),
                (LANES, VECTOR),
            )
            x *= tl.where(held, scale, 0.0)
        rounded = (x + residual).to(TYPE)
        tl.store(s_ptr + row * cols + start + at, rounded, mask=inside, eviction_policy="evict_last")
        s = tl.where(inside, rounded.to(tl.float32), 0.0)
        if CENTRED:
            added = tl.where(start + lane * VECTOR < cols, VECTOR, 0).to(tl.float32)
            mean = tl.sum(s, 1) / VECTOR
            away = s - mean[:, None]
            gap = mean - means
            share = added / tl.maximum(seen + added, 1.0)
            squares += tl.where(added > 0.0, tl.sum(away * away, 1) + gap * gap * seen * share, 0.0)
            means += gap * share
            seen += added
        else:
            squares += tl.sum(s * s, 1)
    middle = 0.0
    if CENTRED:
        middle = quotient(tl.sum(means * seen, 0), tl.cast(cols, tl.float32), TYPE)
        squares += seen * (means - middle) * (means - middle)
        tl.store(mean_ptr + row, middle)
    rstd = inverse_root(quotient(tl.sum(squares, 0), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd)
    tl.debug_barrier()  # what other threads wrote of s is there now
    for start in tl.range(0, cols, LANES * VECTOR):
        inside = start + at < cols
        s = tl.load(s_ptr + row * cols + start + at, mask=inside, other=0.0).to(tl.float32)
        y = _scale((s - middle) * rstd, w_ptr, b_ptr, start + at, inside)
        tl.store(y_ptr + row * cols + start + at, y.to(TYPE), mask=inside, eviction_policy="evict_first")


# -- launchers ---------------------------------------------------------------------------------------
@launcher(
    "residual_layer_norm",
    "x (*batch, cols), residual as x, w (cols), b (cols)",
    reference=layer_norm_reference,
    options=check_dropout,
)
def layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layer norm of s = residual + dropout(x): y, s, mean and rstd.

    `key` and `stream` as `dropout.forward` takes them.

    Shapes: x, residual (*batch, cols), w, b (cols,) or None -> y, s as x, mean and rstd (*batch, 1).
    Dtypes: float32, float16, bfloat16, all the same; mean and rstd float32.  On the CPU float64 too.
    """
    mean = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    y, s, rstd = _run_forward((x, residual), (w, b), mean, eps, (prob, key, stream), config)
    return y, s, mean, rstd


@launcher(
    "residual_rms_norm",
    "x (*batch, cols), residual as x, w (cols)",
    reference=rms_norm_reference,
    options=check_dropout,
)
def rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMS norm of s = residual + dropout(x): y, s and rstd; shapes, types and limits as `layer_norm`."""
    return _run_forward((x, residual), (w, None), None, eps, (prob, key, stream), config)


def _run_forward(
    inputs: tuple[torch.Tensor, torch.Tensor],
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
    mean: torch.Tensor | None,
    eps: float,
    drop: Drop,
    config: Config | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, residual = inputs
    y, s = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    shape = (*x.shape[:-1], 1)
    rstd = torch.empty(shape, dtype=torch.float32, device=x.device) if mean is None else torch.empty_like(mean)
    if not x.numel():
        fill(math.nan, mean, rstd)
        return y, s, rstd
    flat, flat_r = rows_of(x), rows_of(residual)
    (rows, cols), strides = flat.shape, (flat.stride(0), flat_r.stride(0))
    before = (flat, flat_r, *contiguous(*scales), y, s, mean, rstd, *strides)
    after = (eps, *numbers(drop, x.dtype))
    compiled = {"CENTRED": mean is not None, **flags(drop, cols)}

    def run(config: Config) -> None:
        if config.block >= cols:
            sizes = {"ROWS": config.rows, "BLOCK": config.block}
            grid = (ceil_div(rows, config.rows),)
            launch(_forward, grid, x, *before, rows, cols, *after, warps=config.warps, **compiled, **sizes)
        else:
            vector = math.gcd(16 // x.element_size(), cols, *strides)
            sizes = {"LANES": config.block // vector, "VECTOR": vector}
            launch(_forward_wide, (rows,), x, *before, cols, *after, warps=config.warps, **compiled, **sizes)

    words = f"{PARTS[scales[0] is not None, scales[1] is not None]}{' drop' if drop[0] else ''}".strip()
    choice = RMS_FORWARD if mean is None else LAYER_FORWARD
    choice.run(x, config, rows_key(flat, flat_r, flags=words), run)
    return y, s, rstd


# -- selection ---------------------------------------------------------------------------------------
def _tunable(run: Launcher[..., Any], every: str) -> Tunable:
    """The forward's place of choice; `every` names all weights that the norm may have."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        programs, tiles = ceil_div(rows, config.rows), ceil_div(cols, config.block)
        useful = rows * cols / (programs * config.rows * tiles * config.block)
        held, moved = config.rows * config.block, 4 * rows * cols * size
        operations = (35 if "drop" in facts.flags else 9) * rows * cols
        return Work(programs, config.warps, held, size, moved, operations, useful, 2.0, passes=min(tiles, 2))

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        rows, cols = facts.free[0], facts.exact[0]
        x, residual, scales = inputs.rows(facts, rows, cols), inputs.rows(facts, rows, cols), weights(facts, inputs)
        return Trial.of(run, x, residual, *scales[: len(every.split())], **trial_dropout(facts))

    return register_tunable(
        name=run.op,
        config=Config,
        candidates=row_candidates(candidates),
        supports=lambda config, facts: config.block >= facts.exact[0] or config.rows == 1,
        work=work,
        trial=trial,
        kernels=(_forward, _forward_wide),
        problems=row_problems(every, f"{every} drop"),
    )


LAYER_FORWARD, RMS_FORWARD = _tunable(layer_norm, "w b"), _tunable(rms_norm, "w")


# -- registration ------------------------------------------------------------------------------------
_SHAPES = ((5, 7), (3, 64), (2, 3, 33), (4, 3), (130,), (9, 1025), (67, 16), (0, 5), (3, 0))


def _problems(draw: Draw, *, centred: bool) -> Iterator[Problem]:
    def problem(x: torch.Tensor, residual: torch.Tensor, *, weights: bool = True, **options: object) -> Problem:
        cols = x.shape[-1]
        scales: list[torch.Tensor | None] = [draw.normal(cols, mean=1.0, std=0.3), draw.normal(cols)]
        if not weights:
            scales = [None, None]
        return Problem((x, residual, *scales[: 2 if centred else 1]), options)

    drop: dict[str, Any] = {"prob": 0.3, "key": 2**63 + 5, "stream": 2**62 + 11}
    for index, shape in enumerate(_SHAPES):
        yield problem(draw.normal(*shape, mean=0.5), draw.normal(*shape), **(drop if index % 2 else {}))
    yield problem(draw.normal(3, 33), draw.normal(3, 33), **drop)
    yield problem(draw.normal(3, 64), draw.normal(3, 64), weights=False)
    yield problem(draw.normal(6, 40)[::2, 3:20], draw.normal(17, 3).T, eps=1e-2, **drop)
    yield problem(draw.normal(2, 16_401), draw.normal(2, 16_401), **drop)  # wide, unaligned
    yield problem(draw.normal(2, 20_000), draw.normal(2, 20_000), **drop)


def _twin(norm_of: Callable[..., torch.Tensor], *inputs: Any, eps: float = 1e-5, **options: Any) -> Any:
    x, residual, *scales = inputs
    if options.get("prob"):  # torch draws other words; tests of dropout compare these with another cipher's
        x = x * dropout.mask(**options, like=x)
    s = x + residual
    return norm_of(s, s.shape[-1:], *scales, eps), s


def _large(count: int, draw: Draw, x: torch.Tensor) -> Iterator[Problem]:
    scales = (draw.normal(x.shape[1], mean=1.0), draw.normal(x.shape[1]))[:count]
    for options in ({}, {"prob": 0.1, "key": 5, "stream": 6}):
        yield Problem((x, draw.normal(*x.shape), *scales), options)


def _draw_call(count: int, draw: Draw) -> tuple[Any, ...]:
    cols = draw.width()
    x, vectors, prob = draw.rows(cols), draw.vectors(cols, count), (0.0, 0.3)[draw.integer(0, 2)]
    return x, draw.normal(*x.shape), *vectors, 1e-5, prob, draw.seed() if prob else None


def _gradient(centred: bool, back: Any, dy: Any, inputs: Any, outputs: Any, eps: float = 1e-5, **options: Any) -> Any:
    if centred:
        options["bias"] = inputs[3] is not None
    return back(*dy, outputs[1], inputs[2], *outputs[2:], **options)


for _run, _back, _norm, _centred in (
    (layer_norm, layer_norm_backward, torch.nn.functional.layer_norm, True),
    (rms_norm, rms_norm_backward, torch.nn.functional.rms_norm, False),
):
    register_kernel(
        _run,
        _back,
        gradient=functools.partial(_gradient, _centred),
        twin=functools.partial(_twin, _norm),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=functools.partial(_problems, centred=_centred),
        large=large_rows(functools.partial(_large, 2 if _centred else 1)),
        draw_call=functools.partial(_draw_call, 2 if _centred else 1),
        operators=norm_operators(_run.op, _back, _norm),
    )
