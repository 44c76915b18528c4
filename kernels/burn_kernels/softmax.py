"""Softmax and log-softmax over the last axis of (rows, cols).

    softmax:      y = exp(x - m) / sum(exp(x - m))        dx = y * (dy - sum(y * dy))         m = max(x)
    log_softmax:  y = x - m - log(sum(exp(x - m)))        dx = dy - exp(y) * sum(dy)

Limit: memory.  Forward moves 2 * rows * cols elements (x in, y out), backward 3; floor = bytes / bandwidth.
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32, rows of float32 in float64.  Deterministic.
A row that is -inf everywhere, or has +inf or NaN in it, gives NaN.

Rows no wider than `Config.block` are held in registers and read once.  Wider ones are read twice, the second time from
the L2 cache: as a body of whole 16-byte vectors and two edges of less than one, so that rows may begin anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable, row_candidates, row_problems
from burn_kernels.launch import Machine, ceil_div, launch, next_power, rows_key, rows_of, wide_type
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.operators import Operator, like
from burn_kernels.prims import LOWEST, add_exponentials, edge_columns, exp, exp_for, halves, row_parts, wide
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

MAX_TILE_COLS = 16_384
"""To here a row stays in registers.  Wider, one program fills a processor, and nothing overlaps its waiting."""


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
    return candidates(cols, itemsize, machine, backward=backward)[0]


def candidates(
    cols: int, itemsize: int, machine: Machine, *, backward: bool = False, log: bool = False
) -> list[Config]:
    """Configs that a tuner may try, the default first; all give the same result up to rounding."""
    block = next_power(cols)
    # the backward of the logarithm, of half types, is 1.43 times as fast with twice the elements a thread at 16384
    # columns on an H200, and 1.26 at 32768
    many = not backward or (log and itemsize == 2 and block > 8192)
    if block > MAX_TILE_COLS:
        parts = [Config(1, part, warps) for part, warps in ((16_384, 32), (8_192, 32), (16_384, 16), (8_192, 16))]
        if backward:
            return parts[::-1] if many else parts
        return [*parts, Config(1, block, 32)] if block <= 2 * MAX_TILE_COLS else parts
    # below 1024 columns several rows share a program; above, 32 elements a thread, in the forward 64
    rows = max(1, 1024 // block)
    warps = max(4, rows * block // (2048 if many else 1024))
    configs = [
        Config(rows * factor, block, other)
        for factor in (1, 2)
        for other in (warps, warps // 2, 2 * warps)
        if other <= 32 and rows * factor * block <= 2048 * other
    ]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _forward(x_ptr, y_ptr, x_stride, rows, cols, LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=float("-inf")).to(tl.float32)
    x -= tl.max(x, 1)[:, None]
    e = exp_for(x, TYPE)
    if LOG:  # a unit of the sum is far under one of its logarithm
        total = tl.sum(e, 1)[:, None]
    else:
        total = tl.sum(wide(e, TYPE), 1)[:, None]
    y = _finish(x, e, total, LOG, TYPE)
    tl.store(y_ptr + row * cols + col, y.to(TYPE), mask=inside)


@triton.jit
def _finish(x, e, total, LOG: tl.constexpr, TYPE: tl.constexpr):
    if LOG:
        y = x - tl.log(total.to(tl.float32))
    elif TYPE == tl.float32:  # a product with 1 / total in two parts: as exact as a quotient, in a quarter of its time
        high, low = halves(1.0 / total)
        y = tl.fma(e, high, e * low)
    else:
        y = e * (1.0 / total)
    return y


@triton.jit
def _forward_wide(
    x_ptr, y_ptr, x_stride, y_stride, cols, LOG: tl.constexpr, PACKED: tl.constexpr, EDGES: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    begin = row * x_stride
    body, lead, size = row_parts(begin, cols, VECTOR)
    y_begin, y_body = row * y_stride, row * y_stride + lead
    if PACKED:  # said so that the compiler sees that y is aligned where x is
        y_begin, y_body = begin, body
    at = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    m = tl.full((LANES,), LOWEST, tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        read = tl.load(x_ptr + body + start + at, mask=inside, other=float("-inf"), eviction_policy="evict_last")
        m, total = add_exponentials(m, total, read.to(tl.float32), TYPE)
    top = tl.max(m, 0)
    if EDGES:
        edge, edge_inside = edge_columns(lead, size, cols, VECTOR)
        ends = tl.load(x_ptr + begin + edge, mask=edge_inside, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(ends, 0))
        whole = tl.sum(wide(total * exp_for(m - top, TYPE), TYPE), 0)
        whole += tl.sum(wide(exp_for(ends - top, TYPE), TYPE), 0)
        y_ends = _finish(ends - top, exp_for(ends - top, TYPE), whole, LOG, TYPE)
        tl.store(y_ptr + y_begin + edge, y_ends.to(TYPE), mask=edge_inside)
    else:
        whole = tl.sum(wide(total * exp_for(m - top, TYPE), TYPE), 0)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        x = tl.load(x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = _finish(x - top, exp_for(x - top, TYPE), whole, LOG, TYPE)
        tl.store(y_ptr + y_body + start + at, y.to(TYPE), mask=inside, eviction_policy="evict_first")


@triton.jit
def _backward(
    dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, rows, cols, LOG: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < cols)
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=0.0).to(tl.float32)
    dx = _slope(dy, y, tl.sum(_share(dy, y, LOG, TYPE), 1)[:, None], LOG, TYPE)
    tl.store(dx_ptr + row * cols + col, dx.to(TYPE), mask=inside)


@triton.jit
def _share(dy, y, LOG: tl.constexpr, TYPE: tl.constexpr):
    if LOG:
        share = dy
    else:
        share = y * dy
    return wide(share, TYPE)


@triton.jit
def _slope(dy, y, total, LOG: tl.constexpr, TYPE: tl.constexpr):
    if LOG:
        dx = dy - exp(y) * total.to(tl.float32)
    else:  # rounded once: a difference in float32 would show where y is near 1
        dx = (wide(y, TYPE) * (wide(dy, TYPE) - total)).to(tl.float32)
    return dx


@triton.jit
def _backward_wide(
    dy_ptr, y_ptr, dx_ptr, dy_stride, y_stride, dx_stride, cols, LOG: tl.constexpr, PACKED: tl.constexpr,
    EDGES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    y_begin = row * y_stride
    y_body, lead, size = row_parts(y_begin, cols, VECTOR)
    dy_begin, dx_begin = row * dy_stride, row * dx_stride
    dy_body, dx_body = dy_begin + lead, dx_begin + lead
    if PACKED:  # said so that the compiler sees that all are aligned alike
        dy_begin, dx_begin, dy_body, dx_body = y_begin, y_begin, y_body, y_body
    at = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    partial = wide(tl.zeros((LANES,), tl.float32), TYPE)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        dy = tl.load(dy_ptr + dy_body + start + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + y_body + start + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        partial += tl.sum(_share(dy, y, LOG, TYPE), 1)
    total = tl.sum(partial, 0)
    if EDGES:
        edge, edge_inside = edge_columns(lead, size, cols, VECTOR)
        dy_ends = tl.load(dy_ptr + dy_begin + edge, mask=edge_inside, other=0.0).to(tl.float32)
        y_ends = tl.load(y_ptr + y_begin + edge, mask=edge_inside, other=0.0).to(tl.float32)
        total += tl.sum(_share(dy_ends, y_ends, LOG, TYPE), 0)
        dx_ends = _slope(dy_ends, y_ends, total, LOG, TYPE)
        tl.store(dx_ptr + dx_begin + edge, dx_ends.to(TYPE), mask=edge_inside)
    for start in tl.range(0, size, LANES * VECTOR):
        inside = start + at < size
        g = tl.load(dy_ptr + dy_body + start + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        z = tl.load(y_ptr + y_body + start + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = _slope(g, z, total, LOG, TYPE).to(TYPE)
        tl.store(dx_ptr + dx_body + start + at, dx, mask=inside, eviction_policy="evict_first")


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


# -- launchers ---------------------------------------------------------------------------------------
@launcher("softmax", "x (*batch, cols)", reference=reference)
def forward(x: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """Softmax over the last axis.

    Shapes: x (*batch, cols) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU any float.
    """
    return _run_rows(FORWARD, x, log=False, config=config)


@launcher("log_softmax", "x (*batch, cols)", reference=log_reference)
def log_forward(x: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """Log-softmax over the last axis; shapes and types as `forward`."""
    return _run_rows(LOG_FORWARD, x, log=True, config=config)


@launcher("softmax backward", "dy as y, y (*batch, cols)", reference=reference_backward)
def backward(dy: torch.Tensor, y: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """The gradient of softmax's input from that of its output y."""
    return _run_rows(BACKWARD, dy, y, log=False, config=config)


@launcher("log_softmax backward", "dy as y, y (*batch, cols)", reference=log_reference_backward)
def log_backward(dy: torch.Tensor, y: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """The gradient of log-softmax's input from that of its output y."""
    return _run_rows(LOG_BACKWARD, dy, y, log=True, config=config)


def _run_rows(choice: Tunable, *tensors: torch.Tensor, log: bool, config: Config | None) -> torch.Tensor:
    """Launches the kernels of a choice over the rows of x, or of dy and y."""
    x, (whole, parts) = tensors[-1], choice.kernels
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return out
    flats = [rows_of(t) for t in tensors]
    (rows, cols), strides = flats[-1].shape, [flat.stride(0) for flat in flats]

    def run(config: Config) -> None:
        how: dict[str, Any] = {"warps": config.warps, "LOG": log}
        if config.block >= cols:
            grid, how["ROWS"], how["BLOCK"] = (ceil_div(rows, config.rows),), config.rows, config.block
            launch(whole, grid, x, *flats, out, *strides, rows, cols, **how)
        else:
            how |= _vector_sizes(config, x.element_size(), cols, (*strides, cols))
            launch(parts, (rows,), x, *flats, out, *strides, cols, cols, **how)

    choice.run(x, config, rows_key(*flats), run)
    return out


def _vector_sizes(config: Config, itemsize: int, cols: int, strides: tuple[int, ...]) -> dict[str, int | bool]:
    vector = 16 // itemsize
    edges = bool(cols % vector or any(stride % vector for stride in strides))
    packed = len(set(strides)) == 1
    return {"LANES": config.block // vector, "VECTOR": vector, "EDGES": edges, "PACKED": packed}


# -- selection ---------------------------------------------------------------------------------------
def _work(config: Config, facts: Facts, machine: Machine, *, back: bool) -> Work:
    (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
    programs, tiles = ceil_div(rows, config.rows), ceil_div(cols, config.block)
    lanes, held = programs * config.rows * tiles * config.block, config.rows * config.block
    moved, live = (3 if back else 2) * rows * cols * size, 2.0 if back else 1.0
    return Work(programs, config.warps, held, size, moved, 4 * rows * cols, rows * cols / lanes, live, min(tiles, 2))


def _tunable(run: Launcher[..., Any], before: Launcher[..., Any] | None = None, *, log: bool) -> Tunable:
    """The place of choice of a forward, or of the backward of the one `before`."""

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        (rows,), (cols,) = facts.free, facts.exact
        x = inputs.rows(facts, rows, cols, std=3.0)
        if before is None:
            return Trial.of(run, x)
        y = x.copy_(before.reference(x))
        return Trial.of(run, inputs.rows(facts, rows, cols), y)

    back = before is not None
    return register_tunable(
        name=run.op,
        config=Config,
        candidates=row_candidates(candidates, backward=back, log=log),
        supports=_supports,
        work=functools.partial(_work, back=back),
        trial=trial,
        kernels=(_backward, _backward_wide) if back else (_forward, _forward_wide),
        problems=row_problems(),
    )


def _supports(config: Config, facts: Facts) -> bool:
    """Rows of more than one block are cut into whole vectors by programs of one row each."""
    return config.block >= facts.exact[0] or config.rows == 1


FORWARD, BACKWARD = _tunable(forward, log=False), _tunable(backward, forward, log=False)
LOG_FORWARD, LOG_BACKWARD = _tunable(log_forward, log=True), _tunable(log_backward, log_forward, log=True)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (1, 1), (4, 1), (130,), (3, 2049), (0, 5), (3, 0)):
        yield Problem((draw.normal(*shape, std=3.0),))
    yield Problem((draw.normal(6, 40)[::2, 3:20],))  # strided rows
    yield Problem((draw.normal(17, 6).T,))  # cols not neighbours
    yield Problem((draw.normal(2, 50_257, std=3.0),))  # wide, unaligned


for _run, _back, _twin in ((forward, backward, torch.softmax), (log_forward, log_backward, torch.log_softmax)):
    register_kernel(
        _run,
        _back,
        gradient=lambda back, dy, inputs, outputs: (back(dy, outputs[0]),),
        twin=functools.partial(_twin, dim=-1),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        large=large_rows(lambda draw, x: [Problem((x,))]),
        draw_call=lambda draw: (draw.rows(draw.width()),),
        operators=[
            Operator(
                schema=f"{_run.op}(Tensor x) -> Tensor",
                inputs="x",
                fake=like,
                gradients="x",
                saved="y",
                by_reference=True,
                far="x",
                autocast=("cuda",),
            )
        ],
    )
