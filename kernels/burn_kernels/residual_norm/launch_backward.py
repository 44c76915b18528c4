"""The backward of residual add and norm: the formulas are in `residual_norm`.

As in `norm.launch_backward`, programs stride over the rows and keep their share of dw and db, or two kernels go over
slabs of columns; the sums over shares, the row means and the gradient of a row are the same code.
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels import norm, random
from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable, row_candidates, row_problems
from burn_kernels.launch import Machine, ceil_div, contiguous, fill, launch, machine_of, next_power, rows_key, rows_of
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.norm.kernels_backward import add_shares, normalised, row_gradient, row_means
from burn_kernels.norm.launch_backward import (
    BackwardConfig,
    means_of_rows,
    room_for_shares,
    room_for_sums,
    shares_of,
    sum_of_shares,
)
from burn_kernels.norm.references import MAX_TILE_COLS, PARTS, weights
from burn_kernels.random import Number
from burn_kernels.residual_norm.references import (
    Drop,
    Gradients,
    check_dropout,
    flags,
    layer_norm_reference_backward,
    numbers,
    rms_norm_reference_backward,
    trial_dropout,
)

STAGED_BYTES = 98_304
"""Most that loads ahead may hold in shared memory: two programs fit an H200, one an A100."""


# -- configs -----------------------------------------------------------------------------------------
def backward_default(cols: int, itemsize: int, machine: Machine) -> BackwardConfig:
    """The config of the backward that is used without timing."""
    return backward_candidates(cols, itemsize, machine)[0]


def backward_candidates(cols: int, itemsize: int, machine: Machine) -> list[BackwardConfig]:
    """Lists the configs that a tuner may try for the backward, the default first."""
    block, odd = next_power(cols), cols * itemsize % 16
    slabs = [BackwardConfig(4, 1_024, 8, 4, 1), BackwardConfig(1, 1_024, 4, 8, 1)]
    wide = machine.lanes == 64  # half as many threads share the elements, and loads ahead are held in registers
    if odd:  # element by element: addresses take the registers that two of the rows would need
        slabs = [BackwardConfig(2, 1_024, 4, 8, 1), BackwardConfig(1, 1_024, 4, 8, 1)]
        slabs = [BackwardConfig(1, 512, 4, 8, 1), *slabs] if wide else slabs
    if block > (4_096 if odd else 8_192):
        return slabs
    rows = max(1, 1024 // block)
    warps = min(16, max(4 if wide else 2, rows * block // (256 if odd or wide else 512)))
    programs = max(1, min(4, 16 // warps))
    staged = 3 * rows * block * itemsize * programs
    ahead = [] if odd or wide else [stages for stages in (3, 4) if (stages - 1) * staged <= STAGED_BYTES]
    configs = [BackwardConfig(rows, block, warps, programs, stages) for stages in (*ahead, 1)]
    configs += [BackwardConfig(rows, block, max(2, warps // 2), programs, 1), *slabs[:1]]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
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
        n, rstd = normalised(n, mean_ptr, rstd_ptr, row, valid, CENTRED)
        if dw_ptr is not None:
            dw += dy * n
        if db_ptr is not None:
            db += dy
        g = dy
        if w_ptr is not None:
            g *= w
        dr = row_gradient(n, g, rstd, along_ptr, offset_ptr, row, valid, cols, CENTRED)
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
@launcher(
    "residual_layer_norm backward",
    "dy as s, ds as s, s (*batch, cols), w (cols); mean (*batch, 1), rstd (*batch, 1)",
    reference=layer_norm_reference_backward,
    options=check_dropout,
)
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
    return _run_backward(dy, ds, s, (w, mean, rstd), (prob, key, stream), bias=bias, config=config)


@launcher(
    "residual_rms_norm backward",
    "dy as s, ds as s, s (*batch, cols), w (cols); rstd (*batch, 1)",
    reference=rms_norm_reference_backward,
    options=check_dropout,
)
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
    return _run_backward(dy, ds, s, (w, None, rstd), (prob, key, stream), bias=False, config=config)[:3]


def _run_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    s: torch.Tensor,
    vectors: tuple[torch.Tensor | None, ...],
    drop: Drop,
    *,
    bias: bool,
    config: BackwardConfig | None,
) -> Gradients:
    dropped, centred, has_w = drop[0] > 0.0, vectors[1] is not None, vectors[0] is not None
    dr, (dw, db) = torch.empty(s.shape, dtype=s.dtype, device=s.device), room_for_sums(s, vectors[0], bias)
    dx = torch.empty_like(dr) if dropped else dr
    if not s.numel():
        fill(0.0, dw, db)
        return dx, dr, dw, db
    machine = machine_of(s)
    flat_dy, flat_s, flat_ds = rows_of(dy), rows_of(s), None if ds is None else rows_of(ds)
    flats = [flat for flat in (flat_dy, flat_ds, flat_s) if flat is not None]
    rows, cols = flat_s.shape
    vectors = contiguous(*vectors)
    strides = (flat_dy.stride(0), 0 if flat_ds is None else flat_ds.stride(0), flat_s.stride(0))
    compiled = {"CENTRED": centred, **flags(drop, cols)}

    def run(config: BackwardConfig) -> None:
        slabs, shares = ceil_div(cols, config.block), shares_of(config, rows, cols, machine)
        sums = room_for_shares(shares, dw, db)
        means = means_of_rows(flat_dy, flat_s, *vectors) if slabs > 1 else (None, None)
        inputs = (flat_dy, flat_ds, flat_s, *vectors, *means, dx if dropped else None, dr)
        arguments = (*inputs, *sums, *strides, rows, cols, *numbers(drop, s.dtype))
        sizes = {"ROWS": config.rows, "BLOCK": config.block, "STAGES": config.stages}
        launch(_backward, (slabs, shares), s, *arguments, warps=config.warps, stages=config.stages, **compiled, **sizes)
        sum_of_shares(s, sums, (dw, db))

    words = f"{PARTS[has_w, bias]}{' drop' if dropped else ''}{' alone' if ds is None else ''}".strip()
    (LAYER_BACKWARD if centred else RMS_BACKWARD).run(s, config, rows_key(*flats, flags=words), run)
    return dx, dr, dw, db


# -- selection ---------------------------------------------------------------------------------------
def _backward_tunable(run: Launcher[..., Any], *, centred: bool) -> Tunable:
    """The backward's place of choice."""

    def work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size, words = facts.free, facts.exact, facts.dtype.itemsize, facts.flags.split()
        slabs, shares = ceil_div(cols, config.block), shares_of(config, rows, cols, machine)
        tensors = 4 + ("drop" in words) - ("alone" in words) + (2 if slabs > 1 else 0)
        sums = len({"w", "b"} & set(words))
        moved = tensors * rows * cols * size + 8 * shares * cols * sums
        steps = ceil_div(ceil_div(rows, config.rows), shares)
        useful = rows * cols / (steps * shares * config.rows * slabs * config.block)
        held, live = config.rows * config.block, 4.0 + sums / config.rows
        operations = (42 if "drop" in words else 16) * rows * cols
        return Work(slabs * shares, config.warps, held, size, moved, operations, useful, live, ahead=config.stages)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        rows, cols, words = facts.free[0], facts.exact[0], facts.flags.split()
        s, dy = (inputs.rows(facts, rows, cols) for _ in range(2))
        ds = None if "alone" in words else inputs.rows(facts, rows, cols)
        w, _ = weights(facts, inputs)
        if centred:
            _, mean, rstd = norm.layer_norm_reference(s, w, None)
            return Trial.of(run, dy, ds, s, w, mean, rstd, bias="b" in words, **trial_dropout(facts))
        return Trial.of(run, dy, ds, s, w, norm.rms_norm_reference(s, w)[1], **trial_dropout(facts))

    every = "w b" if centred else "w"
    return register_tunable(
        name=run.op,
        config=BackwardConfig,
        candidates=row_candidates(backward_candidates),
        supports=lambda config, facts: config.rows * config.block <= 2 * MAX_TILE_COLS,
        work=work,
        trial=trial,
        kernels=(_backward, row_means, add_shares),
        problems=row_problems(every, f"{every} drop"),
    )


LAYER_BACKWARD = _backward_tunable(layer_norm_backward, centred=True)
RMS_BACKWARD = _backward_tunable(rms_norm_backward, centred=False)
