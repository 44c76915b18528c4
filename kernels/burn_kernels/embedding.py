"""The gradient of an embedding table: rows of dy, added up by index.

    dw[v] = sum over tokens t with indices[t] = v of dy[t]           (divided by their number, on request)

Limit: memory.  dy is read once, dw written once, zeros for rows that no token names.
Layout: any; the last axis of dy is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32.  Deterministic: tokens are sorted by index, stably, and added in that order; no atomics.

Sorted tokens are cut into chunks of equal length, however long a segment of one index is, so a token that fills half
the batch costs no more than others.  A segment inside one chunk is written at once; of one that crosses, each chunk
leaves its share, and a second kernel adds the shares.  Nothing waits for the device: the sort's sizes are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment, row_facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.errors import KernelArgumentError, KernelDTypeError
from burn_kernels.launch import Machine, ceil_div, describe, launch, next_power, rows_of, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(dy: Tensor, indices: Tensor, *, rows: int, backward: bool = False, **_: object) -> int:
    """dy and indices read, dw written."""
    return (dy.numel() + rows * dy.shape[-1]) * dy.element_size() + indices.numel() * indices.element_size()


def flops(dy: Tensor, *_: object, backward: bool = False, **__: object) -> int:
    """A sum an element; the sort is some passes over the indices."""
    return dy.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`chunk` sorted tokens and `block` columns a program, `warps` of 32 threads."""

    chunk: int
    block: int
    warps: int


def default(cols: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine)[0]


def candidates(cols: int, itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first."""
    most = next_power(cols)
    configs = [
        Config(chunk, min(most, block), max(1, min(warps, most // 32)))
        for chunk, block, warps in ((16, 1024, 4), (32, 1024, 4), (8, 1024, 4), (16, 512, 2), (16, 2048, 8))
    ]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _write(dw_ptr, total, v, count_ptr, i, col, cols, rows, padding):
    # no row of the table, or padding: nothing, rather than a write to foreign memory
    legal = (v >= 0) & (v < rows) & (v != padding)
    if count_ptr is not None:
        total = total / tl.load(count_ptr + i).to(tl.float32)
    tl.store(dw_ptr + v * cols + col, total.to(dw_ptr.dtype.element_ty), mask=(col < cols) & legal)


@triton.jit
def _chunks(
    dy_ptr, index_ptr, order_ptr, count_ptr, dw_ptr, head_ptr, tail_ptr, dy_stride, tokens, cols, rows, padding,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0).to(tl.int64)
    begin = chunk * CHUNK
    end = tl.minimum(begin + CHUNK, tokens)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # whether the segment began in an earlier chunk
    first = tl.load(index_ptr + begin)
    earlier = tl.load(index_ptr + begin - 1, mask=begin > 0, other=0)
    open = (begin > 0) & (earlier == first)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.range(begin, end):
        v = tl.load(index_ptr + i).to(tl.int64)
        token = tl.load(order_ptr + i)
        total += tl.load(dy_ptr + token * dy_stride + col, mask=col < cols, other=0.0).to(tl.float32)
        following = tl.load(index_ptr + i + 1, mask=i + 1 < tokens, other=0).to(tl.int64)
        ended = (i + 1 >= tokens) | (following != v)
        if ended | (i + 1 >= end):
            if open:
                tl.store(head_ptr + chunk * cols + col, total, mask=col < cols)
            elif ended:
                _write(dw_ptr, total, v, count_ptr, i, col, cols, rows, padding)
            else:
                tl.store(tail_ptr + chunk * cols + col, total, mask=col < cols)
            total = tl.zeros((BLOCK,), tl.float32)
            open = open & False


@triton.jit
def _crossing(
    index_ptr, stop_ptr, count_ptr, dw_ptr, head_ptr, tail_ptr, tokens, cols, rows, padding,
    CHUNK: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0).to(tl.int64)
    begin = chunk * CHUNK
    last = tl.minimum(begin + CHUNK, tokens) - 1
    v = tl.load(index_ptr + last).to(tl.int64)
    stop = tl.load(stop_ptr + chunk)  # behind the segment of this chunk's last token
    earlier = tl.load(index_ptr + begin - 1, mask=begin > 0, other=0).to(tl.int64)
    if (stop > last + 1) & ((begin == 0) | (earlier != v)):  # it goes on, and began here
        col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.load(tail_ptr + chunk * cols + col, mask=col < cols, other=0.0)
        shares = tl.zeros((PARTS, BLOCK), tl.float32)
        behind = (stop + CHUNK - 1) // CHUNK
        for at in tl.range(chunk + 1, behind, PARTS):
            part = at + tl.arange(0, PARTS)[:, None]
            inside = (part < behind) & (col < cols)[None, :]
            shares += tl.load(head_ptr + part * cols + col[None, :], mask=inside, other=0.0)
        _write(dw_ptr, total + tl.sum(shares, 0), v, count_ptr, last, col, cols, rows, padding)


# -- reference ---------------------------------------------------------------------------------------
def reference(
    dy: Tensor, indices: Tensor, *, rows: int, padding_idx: int | None = None, scale_by_frequency: bool = False
) -> Tensor:
    """The gradient of the table in plain torch."""
    keys = indices.reshape(-1).to(torch.int64)
    _check_rows(keys, rows)
    flat = dy.reshape(keys.numel(), dy.shape[-1]).to(wide_type(dy.dtype))
    dw = torch.zeros(rows, dy.shape[-1], dtype=flat.dtype, device=dy.device).index_add(0, keys, flat)
    if scale_by_frequency:
        count = torch.zeros(rows, dtype=flat.dtype, device=dy.device)
        dw = dw / count.index_add(0, keys, torch.ones_like(keys, dtype=flat.dtype)).clamp(min=1.0)[:, None]
    if padding_idx is not None:
        dw[padding_idx] = 0.0
    return dw.to(dy.dtype)


def _check_rows(keys: Tensor, rows: int) -> None:
    if keys.device.type != "cpu":
        return  # reading the values would wait for the device
    wrong = keys[(keys < 0) | (keys >= rows)]
    if wrong.numel():
        raise KernelArgumentError(
            "embedding backward: indices outside the table",
            given=f"{wrong.numel()} indices, the first {int(wrong[0])}",
            expected=f"from 0 to {rows - 1}",
            mend="pass rows, the height of the table, as it is",
        )


# -- launchers ---------------------------------------------------------------------------------------
def _check(op: str, dy: Tensor, indices: Tensor, *, rows: int, **options: Any) -> None:
    if indices.dtype.is_floating_point or indices.dtype.is_complex or indices.dtype == torch.bool:
        raise KernelDTypeError(
            f"{op}: indices are row numbers",
            given=describe({"indices": indices}),
            expected="integers",
            mend="indices.to(torch.int64)",
        )
    padding_idx = options.get("padding_idx")
    if rows < 0 or (padding_idx is not None and not 0 <= padding_idx < rows):
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=f"rows {rows}, padding_idx {padding_idx}",
            expected="rows from 0; padding_idx from 0 to rows - 1, or None",
            mend="count padding_idx from the front of the table",
        )


@launcher("embedding backward", "dy (*batch, cols); indices (*batch)", reference=reference, options=_check)
def backward(
    dy: Tensor,
    indices: Tensor,
    *,
    rows: int,
    padding_idx: int | None = None,
    scale_by_frequency: bool = False,
    config: Config | None = None,
) -> Tensor:
    """The gradient of a table (rows, cols) from that of the rows that `indices` took from it.

    Shapes: dy (*batch, cols), indices (*batch) integers -> (rows, cols).
    Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    Tokens with `padding_idx` add nothing.  `scale_by_frequency` divides each row by how many tokens name it.
    An index outside the table raises on the CPU; on a GPU, which is not waited for, it adds nothing.
    """
    cols = dy.shape[-1]
    dw = torch.zeros(rows, cols, dtype=dy.dtype, device=dy.device)
    if not dy.numel() or not rows:
        return dw
    flat, tokens = rows_of(dy), indices.numel()
    keys = indices.reshape(-1)
    if rows < 2**31 and keys.dtype == torch.int64:
        # half the sort's passes; what does not fit stays outside the table
        keys = keys.clamp(-1, rows).to(torch.int32)
    keys, order = torch.sort(keys, stable=True)
    count = None
    if scale_by_frequency:
        count = torch.searchsorted(keys, keys, right=True) - torch.searchsorted(keys, keys)
    padding = -1 if padding_idx is None else padding_idx

    def run(config: Config) -> None:
        chunks = ceil_div(tokens, config.chunk)
        grid = (chunks, ceil_div(cols, config.block))
        ends = torch.arange(1, chunks + 1, device=dy.device).mul_(config.chunk).sub_(1).clamp_(max=tokens - 1)
        stop = torch.searchsorted(keys, keys[ends], right=True)
        head, tail = (torch.empty(chunks, cols, dtype=torch.float32, device=dy.device) for _ in range(2))
        arguments = (flat, keys, order, count, dw, head, tail, flat.stride(0), tokens, cols, rows, padding)
        sizes = {"CHUNK": config.chunk, "BLOCK": config.block}
        launch(_chunks, grid, dy, *arguments, warps=config.warps, **sizes)
        if chunks > 1:
            rest = (keys, stop, count, dw, head, tail, tokens, cols, rows, padding)
            launch(_crossing, grid, dy, *rest, warps=config.warps, PARTS=4, **sizes)

    call = (dy.dtype, tokens, rows, cols, flat.stride(0), flat.data_ptr() & 15, scale_by_frequency)
    CHOICE.run(dy, config, call, run)
    return dw


# -- selection ---------------------------------------------------------------------------------------
def _facts(dtype: torch.dtype, tokens: int, rows: int, cols: int, stride: int, address: int, scaled: bool) -> Facts:
    flags = "scaled" if scaled else ""
    return row_facts(dtype, tokens, cols, (stride,), address, flags)._replace(free=(tokens, rows))


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (tokens, rows), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
    blocks, chunks = ceil_div(cols, config.block), ceil_div(tokens, config.chunk)
    useful = tokens * cols / (chunks * config.chunk * blocks * config.block)
    # a row at a time, each asked for when the one before has come
    moved, passes = (tokens + rows) * cols * size, float(config.chunk)
    return Work(chunks * blocks, config.warps, config.block, size, moved, tokens * cols, useful, 2.0, passes=passes)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    tokens, rows = facts.free
    dy, indices = inputs.rows(facts, tokens, facts.exact[0]), inputs.integers(0, rows, tokens)
    return Trial.of(backward, dy, indices, rows=rows, scale_by_frequency="scaled" in facts.flags)


CHOICE = register_tunable(
    name="embedding backward",
    config=Config,
    facts=_facts,
    free=("tokens", "rows"),
    exact=("cols",),
    candidates=lambda facts, machine: candidates(facts.exact[0], facts.dtype.itemsize, machine),
    supports=lambda config, facts: config.block >= 32 or config.warps == 1,
    work=_work,
    trial=_trial,
    kernels=(_chunks, _crossing),
    problems=lambda rows, cols, dtype: [Facts((rows, 8 * rows), (cols,), dtype, alignment(cols * dtype.itemsize))],
    shapes=((16_384, 768), (16_384, 4096)),
    elements=lambda facts: sum(facts.free) * facts.exact[0],
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape, rows in (((7, 5), 4), ((2, 33, 8), 50), ((1, 3), 1), ((200, 17), 3), ((100, 1030), 90), ((0, 4), 6)):
        dy, indices = draw.normal(*shape), draw.integers(0, rows, *shape[:-1])
        yield Problem((dy, indices), {"rows": rows})
        yield Problem((dy, indices), {"rows": rows, "padding_idx": rows - 1, "scale_by_frequency": True})
    yield Problem((draw.normal(150, 9), torch.full((150,), 2)), {"rows": 5})  # one segment over many chunks
    yield Problem((draw.normal(6, 40)[::2, 3:20], draw.integers(0, 4, 3)), {"rows": 4})
    yield Problem((draw.normal(17, 6).T, draw.integers(0, 4, 6)), {"rows": 4})
    yield Problem((draw.normal(5), draw.integers(0, 4, 1)[0]), {"rows": 4})


def _twin(
    dy: Tensor, indices: Tensor, *, rows: int, padding_idx: int | None = None, scale_by_frequency: bool = False
) -> Tensor:
    padding = -1 if padding_idx is None else padding_idx
    if not indices.numel():  # torch's kernel of a GPU is launched for none of them, which CUDA refuses
        return dy.new_zeros(rows, dy.shape[-1])
    dw: Tensor = torch.ops.aten.embedding_dense_backward(dy, indices, rows, padding, scale_by_frequency)
    return dw


def _gather(indices: Tensor, weight: Tensor, **_: object) -> Tensor:
    # torch has it in one kernel; its gradient is what is ours
    return torch.nn.functional.embedding(indices, weight)


def _gather_back(saved: Any, upstream: Tensor) -> tuple[Tensor]:
    """The gradient of `embedding_backward`: the rows of the upstream gradient, scaled as it scales."""
    indices, rows = saved["indices"], torch.nn.functional.embedding(saved["indices"], upstream)
    if saved["scale_by_frequency"]:
        ones = torch.ones_like(indices, dtype=upstream.dtype)
        count = torch.zeros(upstream.shape[0], dtype=upstream.dtype, device=upstream.device)
        rows = rows / count.index_add(0, indices.reshape(-1).long(), ones.reshape(-1))[indices.long()].unsqueeze(-1)
    return (torch.where((indices == saved["padding_idx"]).unsqueeze(-1), 0.0, rows),)


_SAVED = "indices padding_idx scale_by_frequency"
EMBEDDING = Operator(
    schema="embedding(Tensor indices, Tensor weight, int padding_idx, bool scale_by_frequency) -> Tensor",
    inputs="indices weight",
    fake=lambda indices, weight, *_: weight.new_empty((*indices.shape, weight.shape[1])),
    forward=_gather,
    reference=_gather,
    gradients="weight",
    saved=_SAVED,
    twin=lambda indices, weight, *, padding_idx, scale_by_frequency: torch.nn.functional.embedding(
        indices, weight, padding_idx if padding_idx >= 0 else None, scale_grad_by_freq=scale_by_frequency
    ),
    facts=lambda indices, weight, *_: weight.shape[0],
    rule=lambda saved, dy: (
        torch.ops.burn_kernels.embedding_backward(
            dy, saved["indices"], saved["facts"], saved["padding_idx"], saved["scale_by_frequency"]
        ),
    ),
)
EMBEDDING_BACKWARD = Operator(
    schema="embedding_backward(Tensor dy, Tensor indices, SymInt rows, int padding_idx, bool scale_by_frequency)"
    " -> Tensor",
    inputs="dy indices",
    options=lambda known: known | {"padding_idx": known["padding_idx"] if known["padding_idx"] >= 0 else None},
    fake=lambda dy, indices, rows, *_: dy.new_empty((rows, dy.shape[-1])),
    gradients="dy",
    saved=_SAVED,
    rule=_gather_back,
)


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    rows, cols = draw.integer(1, 50), draw.width()
    indices = draw.integers(0, rows, *((draw.integer(1, 90),) if draw.integer(0, 2) else (3, 7)))
    padding = draw.integer(0, rows) if draw.one_in(3) else -1
    return indices, draw.normal(rows, cols), padding, bool(draw.integer(0, 2))


SPEC = register_kernel(
    backward,
    name="embedding_backward",
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    large=large_rows(lambda draw, x: [Problem((x, draw.integers(0, 40, 64)), {"rows": 50})]),
    draw_call=_draw_call,
    operators=[EMBEDDING, EMBEDDING_BACKWARD],
)
