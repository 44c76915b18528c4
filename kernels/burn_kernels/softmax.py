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

from collections.abc import Iterator
from dataclasses import dataclass

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
    next_power,
    require_axis,
    rows_of,
    runs_kernel,
    wide_type,
)
from burn_kernels.operators import Operator, like
from burn_kernels.prims import LOWEST, add_exponentials, edge_columns, exp, exp_for, halves, row_parts, wide
from burn_kernels.spec import Draw, KernelSpec, Problem, register

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
    return next(_choices(cols, itemsize, backward=backward))


def candidates(
    cols: int, itemsize: int, machine: Machine, *, backward: bool = False, log: bool = False
) -> list[Config]:
    """What a tuner may try, the default first; all give the same result up to rounding."""
    return list(dict.fromkeys(_choices(cols, itemsize, backward=backward, log=log)))


def _choices(cols: int, itemsize: int, *, backward: bool, log: bool = False) -> Iterator[Config]:
    block = next_power(cols)
    # the backward of the logarithm, of half types, is 1.43 times as fast with twice the elements a thread at 16384
    # columns on an H200, and 1.26 at 32768
    many = not backward or (log and itemsize == 2 and block > 8192)
    if block <= MAX_TILE_COLS:
        # below 1024 columns several rows share a program; above, 32 elements a thread, in the forward 64
        rows = max(1, 1024 // block)
        warps = max(4, rows * block // (2048 if many else 1024))
        for factor in (1, 2):
            for other in (warps, warps // 2, 2 * warps):
                if other <= 32 and rows * factor * block <= 2048 * other:
                    yield Config(rows * factor, block, other)
        return
    found = ((16_384, 32), (8_192, 32), (16_384, 16), (8_192, 16))
    for part, warps in reversed(found) if backward and many else found:
        yield Config(1, part, warps)
    if block <= 2 * MAX_TILE_COLS and not backward:
        yield Config(1, block, 32)


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
    stride = flat.stride(0)

    def run(config: Config) -> None:
        if config.block >= cols:
            sizes = {"ROWS": config.rows, "BLOCK": config.block}
            grid = (ceil_div(rows, config.rows),)
            launch(_forward, grid, x, flat, out, stride, rows, cols, warps=config.warps, LOG=log, **sizes)
        else:
            sizes = _vector_sizes(config, x.element_size(), cols, (stride, cols))
            launch(_forward_wide, (rows,), x, flat, out, stride, cols, cols, warps=config.warps, LOG=log, **sizes)

    chosen = LOG_FORWARD if log else FORWARD
    chosen.run(x, config, (x.dtype, rows, cols, (stride,), flat.data_ptr() & 15), run)
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

    def run(config: Config) -> None:
        if config.block >= cols:
            sizes = {"ROWS": config.rows, "BLOCK": config.block}
            grid = (ceil_div(rows, config.rows),)
            launch(_backward, grid, y, flat_dy, flat_y, out, *strides, rows, cols, warps=config.warps, LOG=log, **sizes)
        else:
            sizes = _vector_sizes(config, y.element_size(), cols, (*strides, cols))
            arguments = (flat_dy, flat_y, out, *strides, cols, cols)
            launch(_backward_wide, (rows,), y, *arguments, warps=config.warps, LOG=log, **sizes)

    chosen = LOG_BACKWARD if log else BACKWARD
    address = (flat_dy.data_ptr() | flat_y.data_ptr()) & 15
    chosen.run(y, config, (y.dtype, rows, cols, strides, address), run)
    return out


def _vector_sizes(config: Config, itemsize: int, cols: int, strides: tuple[int, ...]) -> dict[str, int | bool]:
    vector = 16 // itemsize
    edges = bool(cols % vector or any(stride % vector for stride in strides))
    packed = len(set(strides)) == 1
    return {"LANES": config.block // vector, "VECTOR": vector, "EDGES": edges, "PACKED": packed}


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


# -- selection ---------------------------------------------------------------------------------------
def _supports(config: Config, facts: Facts) -> bool:
    """Rows of more than one block are cut into whole vectors by programs of one row each."""
    return config.block >= facts.exact[0] or config.rows == 1


def _tunable(name: str, *, log: bool, back: bool) -> Tunable:
    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        programs, tiles = ceil_div(rows, config.rows), ceil_div(cols, config.block)
        moved = (3 if back else 2) * rows * cols * size
        lanes = programs * config.rows * tiles * config.block
        held, live = config.rows * config.block, 2.0 if back else 1.0
        return Work(
            programs, config.warps, held, size, moved, 4 * rows * cols, rows * cols / lanes, live, min(tiles, 2)
        )

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        x = inputs.rows(facts, facts.free[0], facts.exact[0], std=3.0)
        if not back:
            call, plain = (log_forward, log_reference) if log else (forward, reference)
            return Trial((x,), lambda given, config: call(*given, config=config), lambda given: plain(*given))
        y = x.copy_(log_reference(x) if log else reference(x))
        dy = inputs.rows(facts, facts.free[0], facts.exact[0])
        calls = (log_backward, log_reference_backward) if log else (backward, reference_backward)
        return Trial((dy, y), lambda given, config: calls[0](*given, config=config), lambda given: calls[1](*given))

    return tunable(
        Tunable(
            name=name,
            config=Config,
            free=("rows",),
            exact=("cols",),
            candidates=lambda facts, machine: candidates(
                facts.exact[0], facts.dtype.itemsize, machine, backward=back, log=log
            ),
            supports=_supports,
            work=work,
            trial=trial,
            kernels=(_backward, _backward_wide) if back else (_forward, _forward_wide),
            problems=row_problems(),
        )
    )


FORWARD = _tunable("softmax", log=False, back=False)
BACKWARD = _tunable("softmax backward", log=False, back=True)
LOG_FORWARD = _tunable("log_softmax", log=True, back=False)
LOG_BACKWARD = _tunable("log_softmax backward", log=True, back=True)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (1, 1), (4, 1), (130,), (3, 2049), (0, 5), (3, 0)):
        yield Problem((draw.normal(*shape, std=3.0),))
    yield Problem((draw.normal(6, 40)[::2, 3:20],))  # strided rows
    yield Problem((draw.normal(17, 6).T,))  # cols not neighbours
    yield Problem((draw.normal(2, 50_257, std=3.0),))  # wide, unaligned


LIMITS = "none in size; float64 on a GPU"


def _operator(name: str) -> Operator:
    return Operator(
        schema=f"{name}(Tensor x) -> Tensor",
        inputs="x",
        fake=like,
        gradients="x",
        saved="y",
        by_reference=True,
        autocast=("cuda",),
    )


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
        operators=(_operator("softmax"),),
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
        operators=(_operator("log_softmax"),),
    )
)
