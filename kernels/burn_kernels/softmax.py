"""Softmax and log-softmax over the last axis of (rows, cols).

    m  = max(x)                             softmax:      y = exp(x - m) / sum(exp(x - m))     dx = y * (dy - sum(y * dy))
                                            log_softmax:  y = x - m - log(sum(exp(x - m)))     dx = dy - exp(y) * sum(dy)

Limit: memory.  Forward moves 2 * rows * cols elements (x in, y out), backward 3; floor = bytes / bandwidth.
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32.  Deterministic.  A row that is -inf everywhere, or has +inf or NaN in it, gives NaN.

Up to `Config.block` columns a program holds its rows in registers and reads them once.  Wider rows are read twice: the
second time from the L2 cache, where a row of 256 KiB still is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

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
from burn_kernels.prims import exp, exp_fast
from burn_kernels.spec import Draw, KernelSpec, Problem, register

MAX_TILE_COLS = 32_768  # forward: 32 values a thread at 1024 threads, of the 64 registers that are there
MAX_TILE_COLS_BACKWARD = 16_384  # holds y and dy


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *, backward: bool = False) -> int:
    """x read and y written; backward y and dy read, dx written."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *, backward: bool = False) -> int:
    """Per element a difference, an exponential, a sum and a quotient; backward two products, a sum, a difference."""
    return 4 * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """How the rows are cut: `rows` a program at once, `block` columns at once, `warps` of 32 threads."""

    rows: int
    block: int
    warps: int


def default(cols: int, itemsize: int, machine: Machine, *, backward: bool = False) -> Config:
    """The config that is used without timing."""
    return next(_choices(cols, itemsize, backward=backward))


def candidates(cols: int, itemsize: int, machine: Machine, *, backward: bool = False) -> list[Config]:
    """What a tuner may try, the default first; all give the same result up to rounding."""
    return list(dict.fromkeys(_choices(cols, itemsize, backward=backward)))


def _choices(cols: int, itemsize: int, *, backward: bool) -> Iterator[Config]:
    block = next_power(cols)
    if block > (MAX_TILE_COLS_BACKWARD if backward else MAX_TILE_COLS):
        for wide, warps in ((16_384, 32), (8_192, 16), (8_192, 32), (4_096, 8), (4_096, 16)):
            yield Config(1, wide, warps)
        return
    # 16 elements a thread keep two 16-byte loads of a half type in flight; below 1024 columns several rows share a program
    rows = max(1, 1024 // block)
    warps = min(32, max(4 if block * rows >= 1024 else 1, rows * block // 512))
    yield Config(rows, block, warps)
    for factor in (1, 2):
        for other in (warps // 2, warps, 2 * warps):
            if 1 <= other <= 32 and rows * factor * block <= 1024 * other:
                yield Config(rows * factor, block, other)


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _forward(x_ptr, y_ptr, x_stride, rows, cols, LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=float("-inf")).to(tl.float32)
    x -= tl.max(x, 1)[:, None]
    if x_ptr.dtype.element_ty == tl.float32:
        e = exp(x)
    else:
        e = exp_fast(x)
    if LOG:
        y = x - tl.log(tl.sum(e, 1))[:, None]
    else:
        y = e * (1.0 / tl.sum(e, 1))[:, None]
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _forward_wide(x_ptr, y_ptr, x_stride, cols, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * cols
    col = tl.arange(0, BLOCK)
    m = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        x = tl.load(x_ptr + start + col, mask=inside, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        peak = tl.maximum(m, tl.max(x, 0))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # -inf so far: exp(-inf - -inf) would be NaN
        total = total * exp(m - base) + tl.sum(exp(x - base), 0)
        m = peak
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        x = tl.load(x_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32) - m
        if LOG:
            y = x - tl.log(total)
        else:
            y = exp(x) * (1.0 / total)
        tl.store(y_ptr + start + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, rows, cols, LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < cols)
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=0.0).to(tl.float32)
    if LOG:
        dx = dy - exp(y) * tl.sum(dy, 1)[:, None]
    else:
        dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_wide(dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, cols, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * cols
    col = tl.arange(0, BLOCK)
    partial = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        dy = tl.load(dy_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        if LOG:
            partial += dy
        else:
            y = tl.load(y_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            partial += y * dy
    total = tl.sum(partial, 0)
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        dy = tl.load(dy_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if LOG:
            dx = dy - exp(y) * total
        else:
            dx = y * (dy - total)
        tl.store(dx_ptr + start + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)


# -- launchers ---------------------------------------------------------------------------------------
def forward(x: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """Softmax over the last axis.

    Shapes: x (*batch, cols) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU any float.
    """
    return _run_forward("softmax", x, False, config)


def log_forward(x: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """Log-softmax over the last axis; shapes and types as `forward`."""
    return _run_forward("log_softmax", x, True, config)


def backward(dy: torch.Tensor, y: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """The gradient of softmax's input from that of its output y."""
    return _run_backward("softmax", dy, y, False, config)


def log_backward(dy: torch.Tensor, y: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """The gradient of log-softmax's input from that of its output y."""
    return _run_backward("log_softmax", dy, y, True, config)


def _run_forward(op: str, x: torch.Tensor, log: bool, config: Config | None) -> torch.Tensor:
    require_axis(op, x)
    check(op, {"x": x}, {}, alike=["x"])
    if not runs_kernel(op, x):
        return log_reference(x) if log else reference(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return out
    flat = rows_of(x)
    rows, cols = flat.shape
    config = config or default(cols, x.element_size(), machine_of(x))
    if config.block >= cols:
        sizes = {"ROWS": config.rows, "BLOCK": config.block}
        grid = (ceil_div(rows, config.rows),)
        launch(_forward, grid, x, flat, out, flat.stride(0), rows, cols, warps=config.warps, LOG=log, **sizes)
    else:
        launch(
            _forward_wide, (rows,), x, flat, out, flat.stride(0), cols, warps=config.warps, LOG=log, BLOCK=config.block
        )
    return out


def _run_backward(op: str, dy: torch.Tensor, y: torch.Tensor, log: bool, config: Config | None) -> torch.Tensor:
    op = f"{op} backward"
    require_axis(op, y)
    check(op, {"dy": dy, "y": y}, {"dy": y.shape}, alike=["dy", "y"])
    if not runs_kernel(op, dy, y):
        return log_reference_backward(dy, y) if log else reference_backward(dy, y)
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if not y.numel():
        return out
    flat_dy, flat_y = rows_of(dy), rows_of(y)
    rows, cols = flat_y.shape
    strides = (flat_dy.stride(0), flat_y.stride(0))
    config = config or default(cols, y.element_size(), machine_of(y), backward=True)
    if config.block >= cols:
        sizes = {"ROWS": config.rows, "BLOCK": config.block}
        grid = (ceil_div(rows, config.rows),)
        launch(_backward, grid, y, flat_dy, flat_y, out, *strides, rows, cols, warps=config.warps, LOG=log, **sizes)
    else:
        block = config.block
        launch(
            _backward_wide, (rows,), y, flat_dy, flat_y, out, *strides, cols, warps=config.warps, LOG=log, BLOCK=block
        )
    return out


# -- reference ---------------------------------------------------------------------------------------
def reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax in plain torch."""
    wide = x.to(wide_type(x.dtype))
    if not x.numel():
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def log_reference(x: torch.Tensor) -> torch.Tensor:
    """Log-softmax in plain torch."""
    wide = x.to(wide_type(x.dtype))
    if not x.numel():
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    wide = wide - wide.amax(-1, keepdim=True)
    return (wide - torch.log(torch.exp(wide).sum(-1, keepdim=True))).to(x.dtype)


def reference_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient of softmax in plain torch."""
    wide_dy, wide_y = (t.to(wide_type(t.dtype)) for t in (dy, y))
    return (wide_y * (wide_dy - (wide_y * wide_dy).sum(-1, keepdim=True))).to(y.dtype)


def log_reference_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient of log-softmax in plain torch."""
    wide_dy, wide_y = (t.to(wide_type(t.dtype)) for t in (dy, y))
    return (wide_dy - torch.exp(wide_y) * wide_dy.sum(-1, keepdim=True)).to(y.dtype)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (1, 1), (4, 1), (130,), (3, 2049), (0, 5), (3, 0)):
        yield Problem((draw.normal(*shape, std=3.0),))
    yield Problem((draw.normal(6, 40)[::2, 3:20],))  # strided rows
    yield Problem((draw.normal(17, 6).T,))  # cols not neighbours
    yield Problem((draw.normal(2, 50_257, std=3.0),))  # wide, unaligned


LIMITS = "none in size; float64 on a GPU"

SPEC = register(
    KernelSpec(
        name="softmax",
        forward=forward,
        gradient=lambda dy, inputs, outputs: (backward(dy, outputs[0]),),
        reference=reference,
        reference_gradient=lambda dy, inputs, outputs: (reference_backward(dy, outputs[0]),),
        twin=lambda x: torch.softmax(x, -1),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        dtypes=FLOATS,
        limits=LIMITS,
    )
)
LOG_SPEC = register(
    KernelSpec(
        name="log_softmax",
        forward=log_forward,
        gradient=lambda dy, inputs, outputs: (log_backward(dy, outputs[0]),),
        reference=log_reference,
        reference_gradient=lambda dy, inputs, outputs: (log_reference_backward(dy, outputs[0]),),
        twin=lambda x: torch.log_softmax(x, -1),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        dtypes=FLOATS,
        limits=LIMITS,
    )
)
