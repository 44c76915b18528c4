"""Products of groups of rows, each with a matrix of its own: the layers of experts.

    y[i] = x[i] w[g]        for offsets[g] <= i < offsets[g + 1], 0 in rows of no group
    dx[i] = dy[i] w[g]^T    dw[g] = sum over the rows i of g of x[i]^T dy[i]

Limit: arithmetic, 2 rows d_in d_out forward and twice that backward; at few rows a group memory, each weight read once.
Layout: the last axis of x and of dy in order, rows may be strided; the weight in any, so a transpose costs nothing.
Accumulates in float32.  Deterministic.

Nothing waits for the device to learn the sizes of groups: as many programs are launched as there could be tiles, and
each one looks for its group in the offsets.  Tiles of one group that share columns of the weight are neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import Machine, ceil_div, describe, launch, next_power, rows_of, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.matmul.configs import tiles
from burn_kernels.matmul.ways import in_tf32
from burn_kernels.products import add_product
from burn_kernels.spec import Draw, Problem, register_kernel


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: Tensor, other: Tensor, offsets: Tensor, *, backward: bool = False) -> int:
    """x, the weight or dy, and the result, each once; backward twice."""
    groups = offsets.numel() - 1
    result = groups * x.shape[1] * other.shape[1] if other.ndim == 2 else x.shape[0] * other.shape[2]
    return (x.numel() + other.numel() + result) * x.element_size() * (1 + backward)


def flops(x: Tensor, other: Tensor, *_: object, backward: bool = False) -> int:
    """A product and a sum for each row, and element of its matrix; backward twice as many."""
    return 2 * x.numel() * other.shape[-1] * (1 + backward)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A tile of `rows` by `features`, of dw of `rows` by `features` of the weight; `inner` summed at a time."""

    rows: int
    features: int
    inner: int
    warps: int
    stages: int


def default(rows: int, features: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(rows, features, itemsize, machine)[0]


def candidates(rows: int, features: int, itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first: the tiles of products, for the mean number of rows a group."""
    return [Config(c.rows, c.features, c.inner, c.warps, c.stages) for c in tiles(rows, features, itemsize, machine)]


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _rows(
    x_ptr, w_ptr, offset_ptr, y_ptr, rows, d_in, d_out, groups, x_stride, w_group, w_in, w_out,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPANS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # span 0 is before the first group, span groups + 1 behind the last: nothing is summed there
    pid = tl.program_id(0)
    span = tl.arange(0, SPANS)
    begins = tl.load(offset_ptr + span - 1, mask=(span > 0) & (span < groups + 2), other=0).to(tl.int32)
    ends = tl.load(offset_ptr + span, mask=span < groups + 1, other=rows).to(tl.int32)
    begins = tl.minimum(tl.maximum(begins, 0), rows)
    ends = tl.minimum(tl.maximum(ends, begins), rows)
    count = tl.where(span < groups + 2, (ends - begins + BLOCK_M - 1) // BLOCK_M, 0)
    last = tl.cumsum(count * ((d_out + BLOCK_N - 1) // BLOCK_N), 0)
    at = tl.sum((last <= pid).to(tl.int32), 0)
    if at < groups + 2:
        mine = span == at
        begin, end = tl.sum(tl.where(mine, begins, 0), 0), tl.sum(tl.where(mine, ends, 0), 0)
        high = tl.sum(tl.where(mine, count, 0), 0)
        earlier = tl.sum(tl.where(span == at - 1, last, 0), 0)
        tile = pid - earlier
        row = begin + (tile % high) * BLOCK_M + tl.arange(0, BLOCK_M)
        col = (tile // high) * BLOCK_N + tl.arange(0, BLOCK_N)
        inner = tl.arange(0, BLOCK_K)
        group = tl.minimum(tl.maximum(at - 1, 0), groups - 1).to(tl.int64)
        x_at = x_ptr + row.to(tl.int64)[:, None] * x_stride + inner[None, :]
        w_at = w_ptr + group * w_group + inner.to(tl.int64)[:, None] * w_in + col.to(tl.int64)[None, :] * w_out
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        steps = tl.where((at > 0) & (at < groups + 1), d_in, 0)
        for first in tl.range(0, steps, BLOCK_K):
            left = d_in - first
            x = tl.load(x_at, mask=(row < end)[:, None] & (inner < left)[None, :], other=0.0)
            w = tl.load(w_at, mask=(inner < left)[:, None] & (col < d_out)[None, :], other=0.0)
            total = add_product(x, w, total, PRECISION)
            x_at += BLOCK_K
            w_at += BLOCK_K * w_in
        y_at = y_ptr + row.to(tl.int64)[:, None] * d_out + col[None, :]
        tl.store(y_at, total.to(y_ptr.dtype.element_ty), mask=(row < end)[:, None] & (col < d_out)[None, :])


@triton.jit
def _weights(
    x_ptr, dy_ptr, offset_ptr, dw_ptr, rows, d_in, d_out, x_stride, dy_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1).to(tl.int64)
    begin = tl.minimum(tl.maximum(tl.load(offset_ptr + group).to(tl.int32), 0), rows)
    end = tl.minimum(tl.maximum(tl.load(offset_ptr + group + 1).to(tl.int32), begin), rows)
    high = (d_in + BLOCK_M - 1) // BLOCK_M
    feature = (tl.program_id(0) % high) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = (tl.program_id(0) // high) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.range(begin, end, BLOCK_K):
        at = first + row
        place = at.to(tl.int64)
        x = tl.load(
            x_ptr + feature[:, None] + place[None, :] * x_stride,
            mask=(feature < d_in)[:, None] & (at < end)[None, :], other=0.0,
        )  # fmt: skip
        dy = tl.load(
            dy_ptr + place[:, None] * dy_stride + col[None, :],
            mask=(at < end)[:, None] & (col < d_out)[None, :], other=0.0,
        )  # fmt: skip
        total = add_product(x, dy, total, PRECISION)
    dw_at = dw_ptr + (group * d_in + feature[:, None]) * d_out + col[None, :]
    tl.store(dw_at, total.to(dw_ptr.dtype.element_ty), mask=(feature < d_in)[:, None] & (col < d_out)[None, :])


# -- references --------------------------------------------------------------------------------------
def _groups(offsets: Tensor, rows: int) -> list[tuple[int, int, int]]:
    """Group, begin and end of each group; of offsets that lead elsewhere what lies inside."""
    ends = offsets.clamp(0, rows).tolist()
    return [(g, a, max(a, b)) for g, (a, b) in enumerate(itertools.pairwise(ends))]


def reference(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """The products in plain torch, group by group."""
    wide = wide_type(x.dtype)
    parts = [x[a:b].to(wide) @ weight[g].to(wide) for g, a, b in _groups(offsets, x.shape[0])]
    y = torch.zeros(x.shape[0], weight.shape[2], dtype=wide, device=x.device)
    for (_, a, b), part in zip(_groups(offsets, x.shape[0]), parts, strict=True):
        y[a:b] = part
    return y.to(x.dtype)


def reference_outer(x: Tensor, dy: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of the weight in plain torch, group by group."""
    wide = wide_type(x.dtype)
    dw = torch.zeros(offsets.numel() - 1, x.shape[1], dy.shape[1], dtype=wide, device=x.device)
    for g, a, b in _groups(offsets, x.shape[0]):
        dw[g] = x[a:b].to(wide).T @ dy[a:b].to(wide)
    return dw.to(x.dtype)


def reference_backward(dy: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight in plain torch."""
    return reference(dy, weight.transpose(1, 2), offsets), reference_outer(x, dy, offsets)


# -- launchers ---------------------------------------------------------------------------------------
def _refuse(op: str, expected: str, **tensors: Tensor) -> None:
    raise KernelArgumentError(
        f"{op}: rows, matrices and offsets do not fit together",
        given=describe(tensors),
        expected=expected,
        mend="offsets are integers: a 0, then the running sums of the lengths of groups",
    )


def _is_offsets(offsets: Tensor) -> bool:
    return offsets.ndim == 1 and offsets.numel() > 0 and offsets.dtype in (torch.int32, torch.int64)


def _check(op: str, x: Tensor, weight: Tensor, offsets: Tensor, **_: object) -> None:
    if weight.ndim != 3 or not _is_offsets(offsets) or weight.shape[:2] != (offsets.numel() - 1, x.shape[1]):
        expected = "x (rows, d_in), weight (groups, d_in, d_out), offsets (groups + 1,) of int32 or int64"
        _refuse(op, expected, x=x, weight=weight, offsets=offsets)


def _check_outer(op: str, x: Tensor, dy: Tensor, offsets: Tensor, **_: object) -> None:
    if dy.ndim != 2 or dy.shape[0] != x.shape[0] or not _is_offsets(offsets):
        expected = "x (rows, d_in), dy (rows, d_out), offsets (groups + 1,) of int32 or int64"
        _refuse(op, expected, x=x, dy=dy, offsets=offsets)


@launcher("grouped_matmul", "x (rows, d_in), weight; offsets", reference=reference, options=_check)
def forward(x: Tensor, weight: Tensor, offsets: Tensor, *, config: Config | None = None) -> Tensor:
    """Each group of rows times its matrix, 0 in rows of no group.

    Shapes: x (rows, d_in), weight (groups, d_in, d_out), offsets (groups + 1,) integers -> (rows, d_out).
    Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    Offsets that fall or leave the rows give rows that nobody should read; nothing outside is read or written.
    """
    rows, d_in = x.shape
    groups, _, d_out = weight.shape
    y = torch.empty(rows, d_out, dtype=x.dtype, device=x.device)
    if not y.numel() or not groups or not d_in:
        return y.zero_()
    flat, ends = rows_of(x), offsets.contiguous()

    def run(config: Config) -> None:
        tiles = (ceil_div(rows, config.rows) + groups + 2) * ceil_div(d_out, config.features)
        arguments = (flat, weight, ends, y, rows, d_in, d_out, groups, flat.stride(0), *weight.stride())
        launch(
            _rows, (tiles,), x, *arguments, warps=config.warps, stages=config.stages, BLOCK_M=config.rows,
            BLOCK_N=config.features, BLOCK_K=config.inner, SPANS=next_power(groups + 2), PRECISION=_precision(x),
        )  # fmt: skip

    turned = weight.stride(2) != 1
    call = (x.dtype, rows, groups, d_in, d_out, (flat.data_ptr() | weight.data_ptr()) & 15, turned, in_tf32(x))
    CHOICE.run(x, config, call, run)
    return y


@launcher("grouped_outer", "x (rows, d_in), dy; offsets", reference=reference_outer, options=_check_outer)
def outer(x: Tensor, dy: Tensor, offsets: Tensor, *, config: Config | None = None) -> Tensor:
    """x^T dy of each group of rows: the gradient of the weight.

    Shapes: x (rows, d_in), dy (rows, d_out), offsets (groups + 1,) integers -> (groups, d_in, d_out).
    Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    (rows, d_in), d_out, groups = x.shape, dy.shape[1], offsets.numel() - 1
    dw = torch.empty(groups, d_in, d_out, dtype=x.dtype, device=x.device)
    if not dw.numel() or not rows:
        return dw.zero_()
    flat, upstream, ends = rows_of(x), rows_of(dy), offsets.contiguous()

    def run(config: Config) -> None:
        grid = (ceil_div(d_in, config.rows) * ceil_div(d_out, config.features), groups)
        arguments = (flat, upstream, ends, dw, rows, d_in, d_out, flat.stride(0), upstream.stride(0))
        launch(
            _weights, grid, x, *arguments, warps=config.warps, stages=config.stages, BLOCK_M=config.rows,
            BLOCK_N=config.features, BLOCK_K=config.inner, PRECISION=_precision(x),
        )  # fmt: skip

    call = (x.dtype, rows, groups, d_in, d_out, (flat.data_ptr() | upstream.data_ptr()) & 15, False, in_tf32(x))
    OUTER_CHOICE.run(x, config, call, run)
    return dw


@launcher("grouped_matmul backward", "dy (rows, d_out), x, weight; offsets", reference=reference_backward)
def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    offsets: Tensor,
    *,
    config: Config | None = None,
    outer_config: Config | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight of `forward`."""
    return forward(dy, weight.transpose(1, 2), offsets, config=config), outer(x, dy, offsets, config=outer_config)


def _precision(x: Tensor) -> str:
    return "tf32" if in_tf32(x) else "ieee"


# -- selection ---------------------------------------------------------------------------------------
def _facts(
    dtype: torch.dtype, rows: int, groups: int, d_in: int, d_out: int, address: int, turned: bool, tf32: bool
) -> Facts:
    flags = " ".join(word for word, said in (("turned", turned), ("tf32", tf32)) if said)
    return Facts((rows, groups), (d_in, d_out), dtype, alignment(address), "packed", flags)


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (rows, groups), (d_in, d_out), size = facts.free, facts.exact, facts.dtype.itemsize
    high = ceil_div(rows, config.rows) + groups
    programs = high * ceil_div(d_out, config.features)
    useful = rows / (high * config.rows)
    moved = (rows * (d_in + d_out) + groups * d_in * d_out) * size
    return Work(
        programs, config.warps, config.rows * config.features, size, moved, 2 * rows * d_in * d_out, useful, 2.0
    )


def _outer_work(config: Config, facts: Facts, machine: Machine) -> Work:
    (rows, groups), (d_in, d_out), size = facts.free, facts.exact, facts.dtype.itemsize
    programs = groups * ceil_div(d_in, config.rows) * ceil_div(d_out, config.features)
    moved = (rows * (d_in + d_out) + groups * d_in * d_out) * size
    return Work(programs, config.warps, config.rows * config.features, size, moved, 2 * rows * d_in * d_out, 1.0, 2.0)


def _draw(facts: Facts, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (rows, groups), (d_in, d_out) = facts.free, facts.exact
    x, dy = inputs.normal(rows, d_in, dtype=facts.dtype), inputs.normal(rows, d_out, dtype=facts.dtype)
    turned = "turned" in facts.flags.split()
    shape = (groups, d_out, d_in) if turned else (groups, d_in, d_out)
    weight = inputs.normal(*shape, dtype=facts.dtype)
    offsets = torch.arange(groups + 1, device=x.device) * rows // groups
    return x, weight.transpose(1, 2) if turned else weight, dy, offsets


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    x, weight, _, offsets = _draw(facts, inputs)
    return Trial.of(forward, x, weight, offsets)


def _outer_trial(facts: Facts, inputs: Inputs) -> Trial:
    x, _, dy, offsets = _draw(facts, inputs)
    return Trial.of(outer, x, dy, offsets)


def _supports(config: Config, facts: Facts) -> bool:
    return True


def _judged_in(facts: Facts) -> torch.dtype:
    return torch.float16 if "tf32" in facts.flags.split() else facts.dtype


CHOICE = register_tunable(
    name="grouped_matmul",
    config=Config,
    facts=_facts,
    free=("rows", "groups"),
    exact=("d_in", "d_out"),
    candidates=lambda facts, machine: candidates(
        ceil_div(facts.free[0], max(facts.free[1], 1)), facts.exact[1], facts.dtype.itemsize, machine
    ),
    supports=_supports,
    work=_work,
    trial=_trial,
    kernels=(_rows,),
    problems=lambda rows, cols, dtype: [
        Facts((rows, 8), (cols, cols), dtype, 16, "packed", flags) for flags in ("", "turned")
    ],
    shapes=((8192, 1024), (8192, 4096)),
    elements=lambda facts: facts.free[0] * sum(facts.exact) + facts.free[1] * facts.exact[0] * facts.exact[1],
    judged_in=_judged_in,
)
OUTER_CHOICE = register_tunable(
    name="grouped_outer",
    config=Config,
    facts=_facts,
    free=("rows", "groups"),
    exact=("d_in", "d_out"),
    candidates=lambda facts, machine: candidates(facts.exact[0], facts.exact[1], facts.dtype.itemsize, machine),
    supports=_supports,
    work=_outer_work,
    trial=_outer_trial,
    kernels=(_weights,),
    problems=lambda rows, cols, dtype: [Facts((rows, 8), (cols, cols), dtype, 16, "packed", "")],
    shapes=((8192, 1024), (8192, 4096)),
    elements=lambda facts: facts.free[0] * sum(facts.exact) + facts.free[1] * facts.exact[0] * facts.exact[1],
    judged_in=_judged_in,
)


# -- registration ------------------------------------------------------------------------------------
def _draw_offsets(draw: Draw, groups: int, rows: int, kind: str) -> Tensor:
    """Offsets with empty groups and rows of none, or whole, or with all rows in one group."""
    if kind == "one":
        at = draw.integer(0, groups)
        return torch.tensor([0] * (at + 1) + [rows] * (groups - at))
    ends = draw.integers(0, rows + 1, groups + 1).sort().values
    if kind == "whole":
        ends[0], ends[-1] = 0, rows
    return ends


_SIZES = (
    (20, 3, 24, 17, "any"),
    (70, 5, 33, 40, "whole"),
    (40, 4, 16, 16, "one"),
    (1, 1, 7, 5, "whole"),
    (0, 2, 8, 8, "whole"),
)


def _problems(draw: Draw) -> Iterator[Problem]:
    for rows, groups, d_in, d_out, kind in _SIZES:
        offsets = _draw_offsets(draw, groups, rows, kind)
        yield Problem((draw.normal(rows, d_in), draw.normal(groups, d_in, d_out), offsets))
    yield Problem((draw.normal(30, 40)[:, 3:27], draw.normal(2, 9, 24).transpose(1, 2), torch.tensor([0, 11, 30])))


def _outer_problems(draw: Draw) -> Iterator[Problem]:
    for rows, groups, d_in, d_out, kind in _SIZES:
        yield Problem((draw.normal(rows, d_in), draw.normal(rows, d_out), _draw_offsets(draw, groups, rows, kind)))


def _twin(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    ends = offsets.tolist()
    blank = [x.new_zeros(n, weight.shape[2]) for n in (ends[0], x.shape[0] - ends[-1])]
    return torch.cat([blank[0], *(x[a:b] @ w for w, a, b in zip(weight, ends, ends[1:], strict=False)), blank[1]])


def _twin_outer(x: Tensor, dy: Tensor, offsets: Tensor) -> Tensor:
    ends = offsets.tolist()
    return torch.stack([x[a:b].T @ dy[a:b] for a, b in itertools.pairwise(ends)])


SPEC = register_kernel(
    forward,
    backward,
    gradient=lambda run, dy, inputs, outputs: (*run(dy, *inputs), None),
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
)
OUTER_SPEC = register_kernel(
    outer, name="grouped_outer", twin=_twin_outer, bytes_moved=bytes_moved, flops=flops, problems=_outer_problems
)
