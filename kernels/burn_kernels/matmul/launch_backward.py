"""The backward of a linear layer with an activation: its slope and the bias's gradient in one pass, then two products.

    dz = dout * act'(z)           db = sum over rows of dz            dx = dz w            dw = dz^T x

Limit of the pass: memory.  3 * rows * features elements: dout and what was kept in, dz out.  The products are the
library's.  Layout: dout strided, what was kept packed.  Computes in float32.  Deterministic: each program sums its own
rows of db, and the shares are summed in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burn_kernels import reduce
from burn_kernels._triton import tl, triton
from burn_kernels.activation import KINDS as ACTIVATIONS
from burn_kernels.activation import activate
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable, row_candidates, row_problems
from burn_kernels.launch import Machine, ceil_div, launch, machine_of, next_power, rows_of
from burn_kernels.launcher import launcher
from burn_kernels.matmul import references
from burn_kernels.matmul.references import Gradients
from burn_kernels.reduce.kernels import join_parts, reduce_once

__all__ = ["BackwardConfig", "backward", "backward_candidates", "backward_default", "slope_and_bias"]


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class BackwardConfig:
    """`rows` and `cols` of a tile, `warps` of 32 threads, `programs` of a processor that stride over the rows."""

    rows: int
    cols: int
    warps: int
    programs: int


def backward_default(features: int, itemsize: int, machine: Machine) -> BackwardConfig:
    """The config of `slope_and_bias` that is used without timing."""
    return backward_candidates(features, itemsize, machine)[0]


_TILES = (
    # elements and columns of a tile, warps and programs of a processor
    # H200, 2026-11-22, benchmarks/notes/linear.md: many small programs, narrower ones where the slabs are few
    (2048, 128, 4, 8),
    (1024, 256, 4, 8),
    (1024, 256, 4, 12),
    (1024, 128, 4, 12),
    (2048, 256, 4, 4),
    (2048, 512, 4, 4),
    (4096, 256, 8, 2),
)


def backward_candidates(features: int, itemsize: int, machine: Machine) -> list[BackwardConfig]:
    """The configs of `slope_and_bias` that a tuner may try, the default first."""
    most = max(16, next_power(features))
    first, second, *others = _TILES
    configs = [
        BackwardConfig(max(1, size // min(most, cols)), min(most, cols), warps, programs)
        for size, cols, warps, programs in (*((first, second) if features < 8192 else (second, first)), *others)
    ]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _slope_and_bias(
    dy_ptr, kept_ptr, dz_ptr, db_ptr, dy_row, rows, cols, KIND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    TYPE: tl.constexpr = dz_ptr.dtype.element_ty
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1)):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        inside = (row[:, None] < rows) & (col[None, :] < cols)
        dy = tl.load(dy_ptr + row[:, None] * dy_row + col[None, :], mask=inside, other=0.0).to(tl.float32)
        at = row[:, None] * cols + col[None, :]
        kept = tl.load(kept_ptr + at, mask=inside, other=0.0).to(tl.float32)
        _, slope = activate(kept, KIND, TYPE)
        dz = tl.where(inside, dy * slope, 0.0)
        tl.store(dz_ptr + at, dz.to(TYPE), mask=inside)
        db += dz
    if db_ptr is not None:
        tl.store(db_ptr + tl.program_id(1).to(tl.int64) * cols + col, tl.sum(db, 0), mask=col < cols)


# -- launchers ---------------------------------------------------------------------------------------
@launcher("linear backward", "dy, kept as dy", reference=references.reference_slope, options=references.check_kept)
def slope_and_bias(
    dy: Tensor, kept: Tensor | None, *, kind: str = "none", bias: bool = True, config: BackwardConfig | None = None
) -> tuple[Tensor, Tensor | None]:
    """dz = dy * act'(z) and, if asked for, its sum over rows, in one pass; `kept` as `forward_kept` gives it.

    Shapes: dy, kept (*batch, features) -> dz the same, db (features,).  Without an activation dz is dy itself.
    """
    features = dy.shape[-1]
    flat = rows_of(dy) if dy.numel() else dy.reshape(references.rows_in(dy), features)
    if kind == "none":
        return dy, reduce.sum(flat, 0) if bias else None
    assert kept is not None
    dz = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    if not dz.numel():
        return dz, torch.zeros(features, dtype=dy.dtype, device=dy.device) if bias else None
    rows, z, machine = flat.shape[0], kept.contiguous(), machine_of(dy)

    def run(config: BackwardConfig) -> Tensor | None:
        slabs = ceil_div(features, config.cols)
        count = _shares(config, rows, features, machine)
        shares = torch.empty(count, features, dtype=torch.float32, device=dy.device) if bias else None
        arguments = (flat, z, dz, shares, flat.stride(0), rows, features)
        sizes = {"ROWS": config.rows, "COLS": config.cols}
        launch(_slope_and_bias, (slabs, count), dy, *arguments, warps=config.warps, KIND=kind, **sizes)
        return None if shares is None else reduce.sum(shares, 0).to(dy.dtype)

    strides, address = (flat.stride(0), features), (flat.data_ptr() | z.data_ptr()) & 15
    key = (dy.dtype, rows, features, strides, address, f"{kind}{' bias' if bias else ''}")
    return dz, BACKWARD.run(dy, config, key, run)


@launcher("linear backward", "dy, x, w", reference=references.reference_backward, options=references.check_backward)
def backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    kept: Tensor | None,
    *,
    kind: str = "none",
    bias: bool = True,
    needs: tuple[bool, bool] = (True, True),
    config: BackwardConfig | None = None,
) -> Gradients:
    """The gradients of x, w and bias; those that `needs` (of x and w) and `bias` do not ask for are None.

    The residual's gradient is dy.  The two products are the library's.
    """
    dz, db = slope_and_bias(dy, kept, kind=kind, bias=bias, config=config)
    return *references.multiply_back(dz, x, w, needs), db


def _shares(config: BackwardConfig, rows: int, features: int, machine: Machine) -> int:
    """Programs that stride over the rows, each of which leaves its share of db."""
    slabs = ceil_div(features, config.cols)
    return max(1, min(ceil_div(rows, config.rows), machine.processors * config.programs // slabs))


# -- selection ---------------------------------------------------------------------------------------
def _facts(dtype: torch.dtype, rows: int, cols: int, strides: tuple[int, ...], address: int, flags: str) -> Facts:
    align = alignment(address, *(stride * dtype.itemsize for stride in strides))
    return Facts((rows,), (cols,), dtype, align, "packed" if strides[0] == cols else "strided", flags)


def _work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
    (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
    slabs, shares = ceil_div(cols, config.cols), _shares(config, rows, cols, machine)
    moved = 3 * rows * cols * size + 8 * shares * cols
    steps = ceil_div(ceil_div(rows, config.rows), shares)
    useful = rows * cols / (steps * shares * config.rows * slabs * config.cols)
    return Work(slabs * shares, config.warps, config.rows * config.cols, size, moved, 20 * rows * cols, useful, 4.0)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (rows,), (cols,), words = facts.free, facts.exact, facts.flags.split()
    dy, kept = inputs.rows(facts, rows, cols), inputs.normal(rows, cols, dtype=facts.dtype)
    return Trial.of(slope_and_bias, dy, kept, kind=words[0], bias="bias" in words)


BACKWARD = register_tunable(
    name="linear backward",
    config=BackwardConfig,
    facts=_facts,
    candidates=row_candidates(backward_candidates),
    supports=lambda config, facts: True,
    work=_work,
    trial=_trial,
    kernels=(_slope_and_bias, reduce_once, join_parts),
    problems=row_problems(*(f"{kind} bias" for kind in ACTIVATIONS)),
    shapes=((8192, 3072), (8192, 16_384)),
)
