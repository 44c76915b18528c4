"""Layer norm and RMS norm over the last axis of (rows, cols).

    layer_norm:  n = (x - mean(x)) * rstd      rstd = 1 / sqrt(mean((x - mean(x))^2) + eps)      y = n * w + b
    rms_norm:    n = x * rstd                  rstd = 1 / sqrt(mean(x^2) + eps)                  y = n * w

    g  = dy * w                                dw = sum over rows of dy * n             db = sum over rows of dy
    dx = rstd * (g - n * mean(g * n) - mean(g))          (rms_norm without the last term)

Limit: memory.  Forward moves 2 * rows * cols elements (x in, y out), backward 3 (x and dy in, dx out).
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32; mean and rstd are float32.  Deterministic: dw and db are summed in a fixed order, no atomics.

Forward: rows no wider than `Config.block` are held in registers and read once; wider ones are read twice, the second
time from the L2 cache.  Backward: a fixed number of programs stride over
the rows and keep their share of dw and db in registers; a second, small kernel adds the shares.  Where a row with its
shares does not fit the registers, one kernel takes the two means of every row, and another goes over slabs of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, row_problems, tunable
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
from burn_kernels.prims import edge_columns, row_parts
from burn_kernels.spec import Draw, KernelSpec, Problem, register

MAX_TILE_COLS = 16_384
"""To here a row stays in registers.  Wider, one program fills a processor, and nothing overlaps its waiting."""

Gradients = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *others: Any, backward: bool = False, **_: Any) -> int:
    """x read and y written; backward x and dy read, dx written.  Weights and statistics are small beside them."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: Any, backward: bool = False, **_: Any) -> int:
    """Per element some 7 operations forward, 14 backward."""
    return (14 if backward else 7) * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """Forward: `rows` a program at once, `block` columns at once, `warps` of 32 threads."""

    rows: int
    block: int
    warps: int


@dataclass(frozen=True)
class BackwardConfig:
    """Backward: `programs` a processor stride over tiles of `rows` rows and `block` columns, `stages` loads ahead.

    A block that holds all columns is the one-kernel form; a smaller one cuts the row into slabs.
    """

    rows: int
    block: int
    warps: int
    programs: int
    stages: int


def default(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> Config:
    """The config of the forward of layer norm, or of RMS norm if not `centred`, that is used without timing."""
    return candidates(cols, itemsize, machine, centred=centred)[0]


def candidates(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> list[Config]:
    """What a tuner may try for the forward, the default first."""
    block = next_power(cols)
    if block > MAX_TILE_COLS:
        found = [Config(1, 8_192, 16), Config(1, 8_192, 32), Config(1, 4_096, 16)]
        if not centred:  # lighter in registers: two programs of 1024 threads fit a processor
            found = [found[1], found[0], found[2]]
        return [*found, Config(1, block, 32)] if block <= 2 * MAX_TILE_COLS else found
    # below 1024 columns several rows share a program; above, 32 to 64 elements a thread: with 16 the second half of
    # the threads costs more in waiting for each other than it brings
    rows = max(1, 1024 // block)
    warps = min(8, max(4, rows * block // 1024))
    return [
        Config(rows * factor, block, other)
        for factor in (1, 2)
        for other in (warps, warps // 2, 2 * warps)
        if rows * factor * block <= 2048 * other
    ]


def backward_default(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> BackwardConfig:
    """The config of the backward of layer norm, or of RMS norm if not `centred`, that is used without timing."""
    return backward_candidates(cols, itemsize, machine, centred=centred)[0]


def backward_candidates(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> list[BackwardConfig]:
    """What a tuner may try for the backward, the default first."""
    block = next_power(cols)
    if block <= 8_192:
        # few programs, so that there are few shares to add; loads run 3 or 4 tiles ahead through shared memory
        rows = max(1, 1024 // block)
        warps = min(16, max(2, rows * block // 512))
        programs = max(1, min(4, 16 // warps))
        found = [BackwardConfig(rows, block, warps, programs, stages) for stages in (4, 3)]
        if cols * itemsize % 16:  # element by element, nothing runs ahead; more threads have more loads under way
            found.insert(0, BackwardConfig(rows, block, 2 * warps, programs, 1))
        if block == 4_096:
            found.reverse()
        found += [BackwardConfig(rows, block, warps, 2 * programs, 3)]
        if rows * block < 8_192:
            found += [BackwardConfig(2 * rows, block, other, programs, 3) for other in (warps, 2 * warps)]
        return found
    found = [
        BackwardConfig(4, 1_024, 4, 8, 3),
        BackwardConfig(4, 1_024, 8, 4, 3),
        BackwardConfig(2, 2_048, 8, 4, 3),
        BackwardConfig(8, 1_024, 8, 4, 3),
    ]
    if cols * itemsize % 16:  # element by element: addresses take the registers that two of the rows would need
        found.insert(0, BackwardConfig(2, 1_024, 4, 8, 1))
    elif block <= 16_384 and itemsize == 2:
        # without db the row and its share of dw fit the registers; with it they do not, and reading x and dy a second
        # time costs less than spilling
        whole = BackwardConfig(1, block, 16, 1, 1)
        found = [*found, whole] if centred else [whole, *found]
    return found


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, rows, cols, eps,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    valid = row < rows
    inside = valid[:, None] & (col < cols)
    x = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        mean = tl.sum(x, 1) / cols
        x = tl.where(col < cols, x - mean[:, None], 0.0)
        tl.store(mean_ptr + row, mean, mask=valid)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(x * x, 1) / cols + eps)
    tl.store(rstd_ptr + row, rstd, mask=valid)
    # read here, not before the sums: the registers they would hold cost more programs than the waiting
    # (layer norm at 8192 bf16 columns: 0.073 ms so, 0.096 ms read early; H200, benchmarks/notes/norm.md)
    y = _scale(x * rstd[:, None], w_ptr, b_ptr, col, col < cols)
    tl.store(y_ptr + row[:, None] * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _forward_wide(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    CENTRED: tl.constexpr, PACKED: tl.constexpr, EDGES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    begin = row * x_stride
    body, lead, size = row_parts(begin, cols, VECTOR)
    y_begin, y_body = row * cols, row * cols + lead
    if PACKED:  # said so that the compiler sees that y is aligned where x is
        y_begin, y_body = begin, body
    lane = tl.arange(0, LANES)
    at = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # each lane: how many numbers it saw, their mean, and the sum of their squared distances from it
    seen = tl.zeros((LANES,), tl.float32)
    means = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        read = tl.load(x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy="evict_last")
        x = read.to(tl.float32)
        if CENTRED:
            # a lane is inside with its whole vector or not at all; what it adds is joined by Chan's rule
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
        middle /= cols
        squares += seen * (means - middle) * (means - middle)
        tl.store(mean_ptr + row, middle)
    power = tl.sum(squares, 0)
    if EDGES:
        ends = tl.where(edge_inside, ends - middle, 0.0)
        power += tl.sum(ends * ends, 0)
    rstd = 1.0 / tl.sqrt_rn(power / cols + eps)
    tl.store(rstd_ptr + row, rstd)
    if EDGES:
        y_ends = _scale(ends * rstd, w_ptr, b_ptr, edge, edge_inside)
        tl.store(y_ptr + y_begin + edge, y_ends.to(TYPE), mask=edge_inside)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        again = tl.load(x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy="evict_first")
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


@triton.jit
def _row_means(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dy_stride, x_stride, cols,
    CENTRED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    along = tl.zeros((BLOCK,), tl.float32)
    offset = tl.zeros((BLOCK,), tl.float32)
    mean = 0.0
    if CENTRED:
        mean = tl.load(mean_ptr + row)
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        # the slabs read both again; which rows are still in the L2 cache by then is left to chance
        n = tl.load(x_ptr + row * x_stride + start + col, mask=inside, other=0.0).to(tl.float32) - mean
        g = tl.load(dy_ptr + row * dy_stride + start + col, mask=inside, other=0.0).to(tl.float32)
        if w_ptr is not None:
            g *= tl.load(w_ptr + start + col, mask=inside, other=0.0).to(tl.float32)
        along += g * n
        offset += g
    tl.store(along_ptr + row, tl.sum(along, 0) * tl.load(rstd_ptr + row) / cols)
    if CENTRED:
        tl.store(offset_ptr + row, tl.sum(offset, 0) / cols)


@triton.jit
def _backward(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, x_stride,
    rows, cols, CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = at[None, :]
    # up to 8192 columns the weights stay in registers; beyond, there is no room, and the L1 cache holds them
    KEEP: tl.constexpr = BLOCK <= 8_192
    if w_ptr is not None and KEEP:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    if dw_ptr is not None:
        dw = tl.zeros((ROWS, BLOCK), tl.float32)
    if db_ptr is not None:
        db = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        valid = row < rows
        inside = valid[:, None] & (col < cols)
        n = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0).to(tl.float32)
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
            if not KEEP:
                w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
            g *= w
        # the means over all columns: from this tile where it holds them all
        if along_ptr is None:
            along = tl.sum(g * n, 1) / cols
        else:
            along = tl.load(along_ptr + row, mask=valid, other=0.0)
        dx = g - n * along[:, None]
        if CENTRED:
            if along_ptr is None:
                offset = tl.sum(g, 1) / cols
            else:
                offset = tl.load(offset_ptr + row, mask=valid, other=0.0)
            dx -= offset[:, None]
        dx *= rstd[:, None]
        tl.store(dx_ptr + row[:, None] * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    share = tl.program_id(1).to(tl.int64) * cols + at
    if dw_ptr is not None:
        tl.store(dw_ptr + share, tl.sum(dw, 0), mask=at < cols)
    if db_ptr is not None:
        tl.store(db_ptr + share, tl.sum(db, 0), mask=at < cols)


@triton.jit
def _add_shares(dw_share_ptr, db_share_ptr, dw_ptr, db_ptr, shares, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros((ROWS, BLOCK), tl.float32)
    db = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.range(0, shares, ROWS):
        share = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (share < shares) & (at[None, :] < cols)
        if dw_ptr is not None:
            dw += tl.load(dw_share_ptr + share * cols + at[None, :], mask=inside, other=0.0)
        if db_ptr is not None:
            db += tl.load(db_share_ptr + share * cols + at[None, :], mask=inside, other=0.0)
    if dw_ptr is not None:
        tl.store(dw_ptr + at, tl.sum(dw, 0).to(dw_ptr.dtype.element_ty), mask=at < cols)
    if db_ptr is not None:
        tl.store(db_ptr + at, tl.sum(db, 0).to(db_ptr.dtype.element_ty), mask=at < cols)


# -- launchers ---------------------------------------------------------------------------------------
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
    y, mean, rstd = _run_forward("layer_norm", x, w, b, eps, config, centred=True)
    assert mean is not None
    return y, mean, rstd


def rms_norm(
    x: torch.Tensor, w: torch.Tensor | None, eps: float = 1e-5, *, config: Config | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMS norm over the last axis: y and rstd; shapes, types and limits as `layer_norm`."""
    y, _, rstd = _run_forward("rms_norm", x, w, None, eps, config, centred=False)
    return y, rstd


def layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    config: BackwardConfig | None = None,
) -> Gradients:
    """The gradients of x, w and b; that of w is None where w is, that of b where `bias` is False."""
    return _run_backward("layer_norm", dy, x, w, mean, rstd, bias, config)


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    config: BackwardConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of x and w; that of w is None where w is."""
    return _run_backward("rms_norm", dy, x, w, None, rstd, False, config)[:2]


def _run_forward(
    op: str,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    config: Config | None,
    *,
    centred: bool,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    require_axis(op, x)
    cols = x.shape[-1]
    check(op, {"x": x, "w": w, "b": b}, {"w": (cols,), "b": (cols,)}, alike=["x", "w", "b"])
    if not runs_kernel(op, x):
        return _reference(x, w, b, eps, centred=centred)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    statistics = (*x.shape[:-1], 1)
    mean = torch.empty(statistics, dtype=torch.float32, device=x.device) if centred else None
    rstd = torch.empty(statistics, dtype=torch.float32, device=x.device)
    if not x.numel():
        return y, mean if mean is None else mean.fill_(math.nan), rstd.fill_(math.nan)
    flat = rows_of(x)
    rows = flat.shape[0]
    stride = flat.stride(0)
    w, b = (None if t is None else t.contiguous() for t in (w, b))
    before, after = (flat, w, b, y, mean, rstd, stride), (cols, eps)

    def run(config: Config) -> None:
        if config.block >= cols:
            sizes = {"CENTRED": centred, "ROWS": config.rows, "BLOCK": config.block}
            grid = (ceil_div(rows, config.rows),)
            launch(_forward, grid, x, *before, rows, *after, warps=config.warps, **sizes)
        else:
            vector = 16 // x.element_size()
            edges = bool(cols % vector or stride % vector)
            sizes = {"CENTRED": centred, "LANES": config.block // vector, "VECTOR": vector}
            flags = {"EDGES": edges, "PACKED": stride == cols}
            launch(_forward_wide, (rows,), x, *before, *after, warps=config.warps, **sizes, **flags)

    call = (x.dtype, rows, cols, (stride,), flat.data_ptr() & 15, _PARTS[w is not None, b is not None])
    (LAYER_FORWARD if centred else RMS_FORWARD).run(x, config, call, run)
    return y, mean, rstd


def _run_backward(
    op: str,
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
    config: BackwardConfig | None,
) -> Gradients:
    op = f"{op} backward"
    require_axis(op, x)
    cols, statistics = x.shape[-1], (*x.shape[:-1], 1)
    tensors = {"dy": dy, "x": x, "w": w, "mean": mean, "rstd": rstd}
    shapes = {"dy": x.shape, "w": (cols,), "mean": statistics, "rstd": statistics}
    check(op, tensors, shapes, alike=["dy", "x", "w"])
    if not runs_kernel(op, dy, x):
        return _reference_backward(dy, x, w, mean, rstd, bias)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    dw = torch.empty_like(w, memory_format=torch.contiguous_format) if w is not None else None
    db = torch.empty(cols, dtype=x.dtype, device=x.device) if bias else None
    if not x.numel():
        return dx, dw if dw is None else dw.zero_(), db if db is None else db.zero_()
    machine = machine_of(x)
    flat_dy, flat_x = rows_of(dy), rows_of(x)
    rows = flat_x.shape[0]
    strides = (flat_dy.stride(0), flat_x.stride(0))
    w, mean = (None if t is None else t.contiguous() for t in (w, mean))
    rstd = rstd.contiguous()
    inputs = (flat_dy, flat_x, w, mean, rstd)

    def run(config: BackwardConfig) -> None:
        slabs = ceil_div(cols, config.block)
        shares = _shares(config, rows, cols, machine)
        # one share needs no second kernel, but a float32 result may still need rounding: always the same two steps
        dw_shares = torch.empty(shares, cols, dtype=torch.float32, device=x.device) if dw is not None else None
        db_shares = torch.empty(shares, cols, dtype=torch.float32, device=x.device) if db is not None else None
        sizes = {"CENTRED": mean is not None, "ROWS": config.rows, "BLOCK": config.block, "STAGES": config.stages}
        along = offset = None
        if slabs > 1:
            along = torch.empty(rows, dtype=torch.float32, device=x.device)
            offset = torch.empty_like(along) if mean is not None else None
            means = (*inputs, along, offset, *strides, cols)
            block = 2_048 if cols * x.element_size() % 16 else 4_096
            launch(_row_means, (rows,), x, *means, warps=8, CENTRED=mean is not None, BLOCK=block)
        arguments = (*inputs, along, offset, dx, dw_shares, db_shares, *strides, rows, cols)
        launch(_backward, (slabs, shares), x, *arguments, warps=config.warps, stages=config.stages, **sizes)
        if dw is not None or db is not None:
            sums = (dw_shares, db_shares, dw, db, shares, cols)
            # narrow blocks, so that few columns spread over the machine too; 8 float32 are one sector of 32 bytes
            block = 32 if cols > 8_192 else 8
            launch(_add_shares, (ceil_div(cols, block),), x, *sums, warps=4, ROWS=2048 // block, BLOCK=block)

    address = (flat_dy.data_ptr() | flat_x.data_ptr()) & 15
    call = (x.dtype, rows, cols, strides, address, _PARTS[w is not None, bias])
    (RMS_BACKWARD if mean is None else LAYER_BACKWARD).run(x, config, call, run)
    return dx, dw, db


def _shares(config: BackwardConfig, rows: int, cols: int, machine: Machine) -> int:
    """Programs that stride over the rows, each of which leaves its share of dw and db."""
    slabs = ceil_div(cols, config.block)
    return max(1, min(ceil_div(rows, config.rows), machine.processors * config.programs // slabs))


# -- reference ---------------------------------------------------------------------------------------
def layer_norm_reference(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layer norm in plain torch."""
    y, mean, rstd = _reference(x, w, b, eps, centred=True)
    assert mean is not None
    return y, mean, rstd


def rms_norm_reference(x: torch.Tensor, w: torch.Tensor | None, eps: float = 1e-5) -> tuple[torch.Tensor, torch.Tensor]:
    """RMS norm in plain torch."""
    y, _, rstd = _reference(x, w, None, eps, centred=False)
    return y, rstd


def layer_norm_reference_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
) -> Gradients:
    """The gradients of layer norm in plain torch."""
    return _reference_backward(dy, x, w, mean, rstd, bias)


def rms_norm_reference_backward(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor | None, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of RMS norm in plain torch."""
    return _reference_backward(dy, x, w, None, rstd, False)[:2]


def _reference(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float, *, centred: bool
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    n = x.to(wide_type(x.dtype))
    mean = n.mean(-1, keepdim=True) if centred else None
    if mean is not None:
        n = n - mean
    rstd = torch.rsqrt((n * n).mean(-1, keepdim=True) + eps)
    y = n * rstd
    if w is not None:
        y = y * w
    if b is not None:
        y = y + b
    return y.to(x.dtype), mean, rstd


def _reference_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
) -> Gradients:
    wide = wide_type(x.dtype)
    g, n = dy.to(wide), x.to(wide)
    n = (n if mean is None else n - mean) * rstd
    # as rows: a sum over no axes would be one over all
    dw = None if w is None else (g * n).unsqueeze(0).flatten(0, -2).sum(0).to(w.dtype)
    db = g.unsqueeze(0).flatten(0, -2).sum(0).to(x.dtype) if bias else None
    if w is not None:
        g = g * w
    dx = g - n * (g * n).mean(-1, keepdim=True)
    if mean is not None:
        dx = dx - g.mean(-1, keepdim=True)
    return (dx * rstd).to(x.dtype), dw, db


# -- selection ---------------------------------------------------------------------------------------
_PARTS = {(True, True): "w b", (True, False): "w", (False, True): "b", (False, False): ""}
"""Flags of a key by whether there are weights, and biases."""


def _tunable(name: str, *, centred: bool) -> Tunable:
    """The forward's place of choice."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        programs, tiles = ceil_div(rows, config.rows), ceil_div(cols, config.block)
        useful = rows * cols / (programs * config.rows * tiles * config.block)
        held, passes = config.rows * config.block, min(tiles, 2)
        return Work(programs, config.warps, held, size, 2 * rows * cols * size, 7 * rows * cols, useful, passes=passes)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        (cols,) = facts.exact
        x, w, b = inputs.rows(facts, facts.free[0], cols), *_weights(facts, inputs)
        if centred:
            run, plain = layer_norm, layer_norm_reference
            return Trial((x, w, b), lambda given, config: run(*given, config=config), lambda given: plain(*given))
        return Trial(
            (x, w), lambda given, config: rms_norm(*given, config=config), lambda given: rms_norm_reference(*given)
        )

    return tunable(
        Tunable(
            name=name,
            config=Config,
            free=("rows",),
            exact=("cols",),
            candidates=lambda facts, machine: candidates(
                facts.exact[0], facts.dtype.itemsize, machine, centred=centred
            ),
            supports=lambda config, facts: config.block >= facts.exact[0] or config.rows == 1,
            work=work,
            trial=trial,
            sources=(__name__,),
            problems=row_problems("w b" if centred else "w"),
        )
    )


def _backward_tunable(name: str, *, centred: bool) -> Tunable:
    """The backward's place of choice."""

    def work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        slabs, shares = ceil_div(cols, config.block), _shares(config, rows, cols, machine)
        moved = (3 if slabs == 1 else 5) * rows * cols * size + 8 * shares * cols * len(facts.flags.split())
        steps = ceil_div(ceil_div(rows, config.rows), shares)
        useful = rows * cols / (steps * shares * config.rows * slabs * config.block)
        held, live = config.rows * config.block, 3.0 + len(facts.flags.split()) / config.rows
        return Work(
            slabs * shares, config.warps, held, size, moved, 14 * rows * cols, useful, live, ahead=config.stages
        )

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        rows, cols = facts.free[0], facts.exact[0]
        x, dy, (w, _) = inputs.rows(facts, rows, cols), inputs.rows(facts, rows, cols), _weights(facts, inputs)
        bias = "b" in facts.flags.split()
        if centred:
            _, mean, rstd = layer_norm_reference(x, w, None)
            return Trial(
                (dy, x, w, mean, rstd),
                lambda given, config: layer_norm_backward(*given, bias=bias, config=config),
                lambda given: layer_norm_reference_backward(*given, bias=bias),
            )
        return Trial(
            (dy, x, w, rms_norm_reference(x, w)[1]),
            lambda given, config: rms_norm_backward(*given, config=config),
            lambda given: rms_norm_reference_backward(*given),
        )

    return tunable(
        Tunable(
            name=name,
            config=BackwardConfig,
            free=("rows",),
            exact=("cols",),
            candidates=lambda facts, machine: backward_candidates(
                facts.exact[0], facts.dtype.itemsize, machine, centred=centred
            ),
            supports=lambda config, facts: config.rows * config.block <= 2 * MAX_TILE_COLS,
            work=work,
            trial=trial,
            sources=(__name__,),
            problems=row_problems("w b" if centred else "w"),
        )
    )


def _weights(facts: Facts, inputs: Inputs) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    parts = facts.flags.split()
    w, b = (inputs.normal(facts.exact[0], dtype=facts.dtype) if part in parts else None for part in ("w", "b"))
    return w, b


LAYER_FORWARD = _tunable("layer_norm", centred=True)
RMS_FORWARD = _tunable("rms_norm", centred=False)
LAYER_BACKWARD = _backward_tunable("layer_norm backward", centred=True)
RMS_BACKWARD = _backward_tunable("rms_norm backward", centred=False)


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


def _twin_rms_norm(x: torch.Tensor, w: torch.Tensor | None, eps: float = 1e-5) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], w, eps)


def _twin_layer_norm(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float = 1e-5
) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps)


LIMITS = "none in size; float64 on a GPU"

SPEC = register(
    KernelSpec(
        name="layer_norm",
        forward=layer_norm,
        gradient=lambda dy, inputs, outputs, eps=1e-5: layer_norm_backward(
            dy, *inputs[:2], *outputs[1:], bias=inputs[2] is not None
        ),
        reference=layer_norm_reference,
        reference_gradient=lambda dy, inputs, outputs, eps=1e-5: layer_norm_reference_backward(
            dy, *inputs[:2], *outputs[1:], bias=inputs[2] is not None
        ),
        twin=_twin_layer_norm,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_layer_norm_problems,
        dtypes=FLOATS,
        limits=LIMITS,
    )
)
RMS_SPEC = register(
    KernelSpec(
        name="rms_norm",
        forward=rms_norm,
        gradient=lambda dy, inputs, outputs, eps=1e-5: rms_norm_backward(dy, inputs[0], inputs[1], outputs[1]),
        reference=rms_norm_reference,
        reference_gradient=lambda dy, inputs, outputs, eps=1e-5: rms_norm_reference_backward(
            dy, inputs[0], inputs[1], outputs[1]
        ),
        twin=_twin_rms_norm,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_rms_norm_problems,
        dtypes=FLOATS,
        limits=LIMITS,
    )
)
