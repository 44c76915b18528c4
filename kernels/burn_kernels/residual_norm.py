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
L2 cache.  Backward as in `norm`, whose sums over rows and row means serve here too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from burn_kernels import dropout, norm, random
from burn_kernels._triton import tl, triton
from burn_kernels.launch import (
    FLOATS,
    Machine,
    ceil_div,
    check,
    launch,
    machine_of,
    next_power,
    require_axis,
    rows_of,
    runs_kernel,
    wide_type,
)
from burn_kernels.norm import Config, _scale
from burn_kernels.norm_backward import BackwardConfig, _add_shares, _row_means
from burn_kernels.norm_parts import MAX_TILE_COLS
from burn_kernels.random import Number
from burn_kernels.spec import Draw, KernelSpec, Problem, register

STAGED_BYTES = 98_304
"""Most that loads ahead may hold in shared memory: two programs fit an H200, one an A100."""

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *others: Any, prob: float = 0.0, backward: bool = False, **_: Any) -> int:
    """x and residual read, s and y written; backward dy, ds, s read, dresidual and with dropout dx written."""
    return (5 if backward and prob else 4) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: Any, prob: float = 0.0, backward: bool = False, **_: Any) -> int:
    """Per element some 9 operations forward, 16 backward, and 26 for a word where there is dropout."""
    return ((16 if backward else 9) + (26 if prob else 0)) * x.numel()


# -- configs -----------------------------------------------------------------------------------------
def default(cols: int, itemsize: int, machine: Machine) -> Config:
    """The config of the forward that is used without timing."""
    return candidates(cols, itemsize, machine)[0]


def candidates(cols: int, itemsize: int, machine: Machine) -> list[Config]:
    """What a tuner may try for the forward, the default first."""
    block = next_power(cols)
    if block > MAX_TILE_COLS:
        return [Config(1, 4_096, 16), Config(1, 8_192, 16), Config(1, 8_192, 32)]
    # 32 elements a thread, 16 where they are wide or come one by one, with an address each
    rows = max(1, 1024 // block)
    warps = min(16, max(4, rows * block // (512 if itemsize > 2 or cols * itemsize % 16 else 1024)))
    return [
        Config(rows * factor, block, other)
        for factor in (1, 2)
        for other in (warps, 2 * warps, warps // 2)
        if rows * factor * block <= 1024 * other and other <= 32
    ]


def backward_default(cols: int, itemsize: int, machine: Machine) -> BackwardConfig:
    """The config of the backward that is used without timing."""
    return backward_candidates(cols, itemsize, machine)[0]


def backward_candidates(cols: int, itemsize: int, machine: Machine) -> list[BackwardConfig]:
    """What a tuner may try for the backward, the default first."""
    block, odd = next_power(cols), cols * itemsize % 16
    slabs = [BackwardConfig(4, 1_024, 8, 4, 1), BackwardConfig(1, 1_024, 4, 8, 1)]
    if odd:  # element by element: addresses take the registers that two of the rows would need
        slabs = [BackwardConfig(2, 1_024, 4, 8, 1), BackwardConfig(1, 1_024, 4, 8, 1)]
    if block > (4_096 if odd else 8_192):
        return slabs
    rows = max(1, 1024 // block)
    warps = min(16, max(2, rows * block // (256 if odd else 512)))
    programs = max(1, min(4, 16 // warps))
    staged = 3 * rows * block * itemsize * programs
    ahead = [] if odd else [stages for stages in (3, 4) if (stages - 1) * staged <= STAGED_BYTES]
    found = [BackwardConfig(rows, block, warps, programs, stages) for stages in (*ahead, 1)]
    found += [BackwardConfig(rows, block, max(2, warps // 2), programs, 1), *slabs[:1]]
    return list(dict.fromkeys(found))


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
        mean = tl.sum(s, 1) / cols
        s = tl.where(col < cols, s - mean[:, None], 0.0)
        tl.store(mean_ptr + row, mean, mask=valid)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(s * s, 1) / cols + eps)
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
        middle = tl.sum(means * seen, 0) / cols
        squares += seen * (means - middle) * (means - middle)
        tl.store(mean_ptr + row, middle)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(squares, 0) / cols + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.debug_barrier()  # what other threads wrote of s is there now
    for start in tl.range(0, cols, LANES * VECTOR):
        inside = start + at < cols
        s = tl.load(s_ptr + row * cols + start + at, mask=inside, other=0.0).to(tl.float32)
        y = _scale((s - middle) * rstd, w_ptr, b_ptr, start + at, inside)
        tl.store(y_ptr + row * cols + start + at, y.to(TYPE), mask=inside, eviction_policy="evict_first")


@triton.jit(do_not_specialize=["key", "stream", "last"])
def _backward(
    dy_ptr, ds_ptr, s_ptr, w_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dx_ptr, dr_ptr, dw_ptr, db_ptr,
    dy_stride, ds_stride, s_stride, rows, cols, key, stream, last, scale, CENTRED: tl.constexpr, DROP: tl.constexpr,
    QUADS: tl.constexpr, KEY: tl.constexpr, STREAM: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    begin = tl.program_id(0) * BLOCK
    at = begin + tl.arange(0, BLOCK)
    col = at[None, :]
    if w_ptr is not None:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    if dw_ptr is not None:
        dw = tl.zeros((ROWS, BLOCK), tl.float32)
    if db_ptr is not None:
        db = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        valid = row < rows
        inside = valid[:, None] & (col < cols)
        n = tl.load(s_ptr + row[:, None] * s_stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=valid, other=0.0)
        if CENTRED:
            n -= tl.load(mean_ptr + row, mask=valid, other=0.0)[:, None]
        n *= rstd[:, None]
        if dw_ptr is not None:
            dw += dy * n
        if db_ptr is not None:
            db += dy
        g = dy
        if w_ptr is not None:
            g *= w
        # the means over all columns: from this tile where it holds them all
        if along_ptr is None:
            along = tl.sum(g * n, 1) / cols
        else:
            along = tl.load(along_ptr + row, mask=valid, other=0.0)
        dr = g - n * along[:, None]
        if CENTRED:
            if along_ptr is None:
                offset = tl.sum(g, 1) / cols
            else:
                offset = tl.load(offset_ptr + row, mask=valid, other=0.0)
            dr -= offset[:, None]
        dr *= rstd[:, None]
        if ds_ptr is not None:
            dr += tl.load(ds_ptr + row[:, None] * ds_stride + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(dr_ptr + row[:, None] * cols + col, dr.to(dr_ptr.dtype.element_ty), mask=inside)
        if DROP:
            dx = dr * tl.where(
                random.kept(random.held(key, KEY), random.held(stream, STREAM), last, row, begin, cols, QUADS, BLOCK),
                scale,
                0.0,
            )
            tl.store(dx_ptr + row[:, None] * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    share = tl.program_id(1).to(tl.int64) * cols + at
    if dw_ptr is not None:
        tl.store(dw_ptr + share, tl.sum(dw, 0), mask=at < cols)
    if db_ptr is not None:
        tl.store(db_ptr + share, tl.sum(db, 0), mask=at < cols)


# -- launchers ---------------------------------------------------------------------------------------
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
    y, s, mean, rstd = _run_forward("residual_layer_norm", x, residual, w, b, eps, (prob, key, stream), config)
    assert mean is not None
    return y, s, mean, rstd


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
    y, s, _, rstd = _run_forward("residual_rms_norm", x, residual, w, None, eps, (prob, key, stream), config)
    return y, s, rstd


def layer_norm_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    config: BackwardConfig | None = None,
) -> Gradients:
    """The gradients of x, residual, w and b from those of y and s; ds is None where s had no other use.

    That of w is None where w is, that of b where `bias` is False.  Without dropout the first two are one tensor.
    """
    return _run_backward("residual_layer_norm", dy, ds, s, w, mean, rstd, bias, (prob, key, stream), config)


def rms_norm_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    config: BackwardConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients of x, residual and w, as `layer_norm_backward`."""
    return _run_backward("residual_rms_norm", dy, ds, s, w, None, rstd, False, (prob, key, stream), config)[:3]


Drop = tuple[float, Number, Number]


def _run_forward(
    op: str,
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    drop: Drop,
    config: Config | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    require_axis(op, x)
    cols, centred = x.shape[-1], op == "residual_layer_norm"
    tensors = {"x": x, "residual": residual, "w": w, "b": b}
    check(op, tensors, {"residual": x.shape, "w": (cols,), "b": (cols,)}, alike=list(tensors))
    dropout.check_probability(op, drop[0])
    if not runs_kernel(op, x):
        return _reference(x, residual, w, b, eps, drop, centred=centred)
    y, s = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    statistics = (*x.shape[:-1], 1)
    mean = torch.empty(statistics, dtype=torch.float32, device=x.device) if centred else None
    rstd = torch.empty(statistics, dtype=torch.float32, device=x.device)
    if not x.numel():
        return y, s, mean if mean is None else mean.fill_(math.nan), rstd.fill_(math.nan)
    flat, flat_r = rows_of(x), rows_of(residual)
    rows, strides = flat.shape[0], (flat.stride(0), flat_r.stride(0))
    w, b = (None if t is None else t.contiguous() for t in (w, b))
    before, after = (flat, flat_r, w, b, y, s, mean, rstd, *strides), (eps, *_numbers(drop, x.dtype))
    flags = {"CENTRED": centred, **_flags(drop, cols)}

    def run(config: Config) -> None:
        if config.block >= cols:
            sizes = {"ROWS": config.rows, "BLOCK": config.block}
            grid = (ceil_div(rows, config.rows),)
            launch(_forward, grid, x, *before, rows, cols, *after, warps=config.warps, **flags, **sizes)
        else:
            vector = math.gcd(16 // x.element_size(), cols, *strides)
            sizes = {"LANES": config.block // vector, "VECTOR": vector}
            launch(_forward_wide, (rows,), x, *before, cols, *after, warps=config.warps, **flags, **sizes)

    run(config or default(cols, x.element_size(), machine_of(x)))
    return y, s, mean, rstd


def _numbers(drop: Drop, dtype: torch.dtype) -> tuple[Any, ...]:
    prob, key, stream = drop
    return (*random.numbers(key, stream), *dropout.mask_numbers(prob, dtype)) if prob else (0, 0, 0, 1.0)


def _flags(drop: Drop, cols: int) -> dict[str, bool]:
    prob, key, stream = drop
    held = random.flags(key, stream) if prob else random.flags(0, 0)
    return {"DROP": prob > 0.0, "QUADS": cols % 4 == 0, **held}


def _run_backward(
    op: str,
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
    drop: Drop,
    config: BackwardConfig | None,
) -> Gradients:
    op = f"{op} backward"
    require_axis(op, s)
    cols, statistics = s.shape[-1], (*s.shape[:-1], 1)
    tensors = {"dy": dy, "ds": ds, "s": s, "w": w, "mean": mean, "rstd": rstd}
    shapes = {"dy": s.shape, "ds": s.shape, "w": (cols,), "mean": statistics, "rstd": statistics}
    check(op, tensors, shapes, alike=["dy", "ds", "s", "w"])
    dropout.check_probability(op, drop[0])
    if not runs_kernel(op, dy, s):
        return _reference_backward(dy, ds, s, w, mean, rstd, bias, drop)
    dropped = drop[0] > 0.0
    dr = torch.empty(s.shape, dtype=s.dtype, device=s.device)
    dx = torch.empty_like(dr) if dropped else dr
    dw = torch.empty_like(w, memory_format=torch.contiguous_format) if w is not None else None
    db = torch.empty(cols, dtype=s.dtype, device=s.device) if bias else None
    if not s.numel():
        return dx, dr, dw if dw is None else dw.zero_(), db if db is None else db.zero_()
    machine = machine_of(s)
    flat_dy, flat_s, flat_ds = rows_of(dy), rows_of(s), None if ds is None else rows_of(ds)
    rows = flat_s.shape[0]
    w, mean = (None if t is None else t.contiguous() for t in (w, mean))
    rstd = rstd.contiguous()
    strides = (flat_dy.stride(0), 0 if flat_ds is None else flat_ds.stride(0), flat_s.stride(0))
    flags = {"CENTRED": mean is not None, **_flags(drop, cols)}

    def run(config: BackwardConfig) -> None:
        slabs, tiles = ceil_div(cols, config.block), ceil_div(rows, config.rows)
        shares = max(1, min(tiles, machine.processors * config.programs // slabs))
        dw_shares = torch.empty(shares, cols, dtype=torch.float32, device=s.device) if dw is not None else None
        db_shares = torch.empty(shares, cols, dtype=torch.float32, device=s.device) if db is not None else None
        along = offset = None
        if slabs > 1:
            along = torch.empty(rows, dtype=torch.float32, device=s.device)
            offset = torch.empty_like(along) if mean is not None else None
            means = (flat_dy, flat_s, w, mean, rstd, along, offset, strides[0], strides[2], cols)
            block = 2_048 if cols * s.element_size() % 16 else 4_096
            launch(_row_means, (rows,), s, *means, warps=8, CENTRED=mean is not None, BLOCK=block)
        inputs = (flat_dy, flat_ds, flat_s, w, mean, rstd, along, offset, dx if dropped else None, dr)
        arguments = (*inputs, dw_shares, db_shares, *strides, rows, cols, *_numbers(drop, s.dtype))
        sizes = {"ROWS": config.rows, "BLOCK": config.block, "STAGES": config.stages}
        launch(_backward, (slabs, shares), s, *arguments, warps=config.warps, stages=config.stages, **flags, **sizes)
        if dw is not None or db is not None:
            sums = (dw_shares, db_shares, dw, db, shares, cols)
            block = 32 if cols > 8_192 else 8  # as in norm
            launch(_add_shares, (ceil_div(cols, block),), s, *sums, warps=4, ROWS=2048 // block, BLOCK=block)

    run(config or backward_default(cols, s.element_size(), machine))
    return dx, dr, dw, db


# -- reference ---------------------------------------------------------------------------------------
def layer_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Residual add and layer norm in plain torch."""
    y, s, mean, rstd = _reference(x, residual, w, b, eps, (prob, key, stream), centred=True)
    assert mean is not None
    return y, s, mean, rstd


def rms_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    eps: float = 1e-5,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Residual add and RMS norm in plain torch."""
    y, s, _, rstd = _reference(x, residual, w, None, eps, (prob, key, stream), centred=False)
    return y, s, rstd


def layer_norm_reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> Gradients:
    """The gradients of residual add and layer norm in plain torch."""
    return _reference_backward(dy, ds, s, w, mean, rstd, bias, (prob, key, stream))


def rms_norm_reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients of residual add and RMS norm in plain torch."""
    return _reference_backward(dy, ds, s, w, None, rstd, False, (prob, key, stream))[:3]


def _reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    drop: Drop,
    *,
    centred: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    s = x.to(wide_type(x.dtype))
    if drop[0]:
        s = s * dropout.mask(*drop, like=x)
    s = (s + residual).to(x.dtype)
    if centred:
        y, mean, rstd = norm.layer_norm_reference(s, w, b, eps)
        return y, s, mean, rstd
    y, rstd = norm.rms_norm_reference(s, w, eps)
    return y, s, None, rstd


def _reference_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
    drop: Drop,
) -> Gradients:
    # in the wide type to the end: g is rounded once, after ds is added
    wide = wide_type(s.dtype)
    parts = (t if t is None else t.to(wide) for t in (dy, s, w))
    wide_dy, wide_s, wide_w = parts
    assert wide_dy is not None
    assert wide_s is not None
    if mean is not None:
        g, dw, db = norm.layer_norm_reference_backward(wide_dy, wide_s, wide_w, mean, rstd, bias=bias)
    else:
        (g, dw), db = norm.rms_norm_reference_backward(wide_dy, wide_s, wide_w, rstd), None
    if ds is not None:
        g = g + ds
    dr = g.to(s.dtype)
    dx = (g * dropout.mask(*drop, like=s)).to(s.dtype) if drop[0] else dr
    dw, db = (t if t is None else t.to(s.dtype) for t in (dw, db))
    return dx, dr, dw, db


# -- registration ------------------------------------------------------------------------------------
_SHAPES = ((5, 7), (3, 64), (2, 3, 33), (4, 3), (130,), (9, 1025), (67, 16), (0, 5), (3, 0))


def _problems(draw: Draw, *, centred: bool) -> Iterator[Problem]:
    def problem(x: torch.Tensor, residual: torch.Tensor, *, weights: bool = True, **options: Any) -> Problem:
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


def _register(name: str, *, centred: bool) -> KernelSpec:
    run, back = (layer_norm, layer_norm_backward) if centred else (rms_norm, rms_norm_backward)
    plain = layer_norm_reference if centred else rms_norm_reference
    plain_back = layer_norm_reference_backward if centred else rms_norm_reference_backward

    def gradient(backward: Any, dy: Any, inputs: Any, outputs: Any, eps: float = 1e-5, **options: Any) -> Any:
        if centred:
            options["bias"] = inputs[3] is not None
        return backward(*dy, outputs[1], inputs[2], *outputs[2:], **options)

    return register(
        KernelSpec(
            name=name,
            forward=run,
            gradient=functools.partial(gradient, back),
            reference=plain,
            reference_gradient=functools.partial(gradient, plain_back),
            twin=functools.partial(_twin, torch.nn.functional.layer_norm if centred else torch.nn.functional.rms_norm),
            bytes_moved=bytes_moved,
            flops=flops,
            problems=functools.partial(_problems, centred=centred),
            dtypes=FLOATS,
            limits="none in size; float64 on a GPU",
        )
    )


SPEC = _register("residual_layer_norm", centred=True)
RMS_SPEC = _register("residual_rms_norm", centred=False)
