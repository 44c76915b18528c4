"""Attention whose scores functions change and hide, which become part of its kernels; see `call.Body`.

    lists = block_lists(seen, captured, (batch, heads, seq_q, seq_k), 128, like=q)
    body = Body(score, slope, seen, captured, *lists, 128)
    y, lse = forward_modified(q, k, v, sinks, body, scale=scale)

A line of a list has the number of blocks of which all pairs are seen, the number of those of which some are, and then
the first, the second, and all others.  A loop over listed blocks asks nothing where all is seen.

Limit: arithmetic, as of `attention`, of the blocks that are listed; the lists take 4 bytes for each pair of blocks.
Sinks are logits of keys whose values are 0, one a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from burn_kernels._triton import tl, triton
from burn_kernels.attention import references
from burn_kernels.attention.call import Body, lines, room_like
from burn_kernels.attention.call import Call as AttentionCall
from burn_kernels.attention.configs import BackwardConfig, Config, default
from burn_kernels.attention.kernels import attention_forward
from burn_kernels.attention.launch_backward import Outputs, run_backward
from burn_kernels.attention.references import Rule
from burn_kernels.launch import ceil_div, launch, machine_of, next_power

__all__ = ["Body", "backward_modified", "block_lists", "forward_modified"]


# -- lists ---------------------------------------------------------------------------------------------
@triton.jit
def kinds_of_blocks(
    kinds_ptr, captured, seq_q, seq_k, heads, lines, columns, SEEN: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """For a pair of blocks 0 if all is seen, 1 if some is, 2 if nothing is; ROWS queries at once."""
    column, line, which = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    col = column * BLOCK + tl.arange(0, BLOCK)[None, :]
    some, all = 0, 1
    for first in tl.range(0, BLOCK, ROWS):
        row = line * BLOCK + first + tl.arange(0, ROWS)[:, None]
        seen = SEEN(which // heads, which % heads, row, col, captured) & (col < seq_k)
        seen = seen & (row >= 0)  # a function of one index alone gives a line
        some = tl.maximum(some, tl.max(tl.max((seen & (row < seq_q)).to(tl.int32), 1), 0))
        all = tl.minimum(all, tl.min(tl.min((seen | (row >= seq_q)).to(tl.int32), 1), 0))
    kind = tl.where(some == 0, 2, 1 - all)
    tl.store(kinds_ptr + (which.to(tl.int64) * lines + line) * columns + column, kind)


@triton.jit
def lists_of_kinds(kinds_ptr, lists_ptr, lines, columns, line_step, column_step, WIDE: tl.constexpr):
    """A line of a list: numbers of blocks of either kind, and the blocks in their order."""
    line, which = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at = tl.arange(0, WIDE)
    kinds_ptr += which * lines * columns + line * line_step
    kind = tl.load(kinds_ptr + at * column_step, mask=at < columns, other=3)
    lists_ptr += (which * lines + line) * (columns + 2)
    before = 0
    for n in tl.static_range(3):
        own = (kind == n).to(tl.int32)
        place = before + tl.cumsum(own, 0) - own
        tl.store(lists_ptr + 2 + place, at, mask=kind == n)
        count = tl.sum(own, 0)
        if n < 2:
            tl.store(lists_ptr + n, count)
        before += count


def block_lists(
    seen: object, captured: tuple[Tensor | int, ...], sizes: tuple[int, int, int, int], block: int, *, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The lists of blocks of keys that blocks of queries see, and of blocks of queries that see blocks of keys.

    Shapes: sizes (batch, heads, seq_q, seq_k), 1 where `seen` depends on neither -> (batch, heads, query blocks, key
    blocks + 2), (batch, heads, key blocks, query blocks + 2), int32 on the device of `like`.
    """
    batch, heads, seq_q, seq_k = sizes
    across, down = ceil_div(seq_k, block), ceil_div(seq_q, block)
    kinds = torch.empty(batch, heads, down, across, dtype=torch.int32, device=like.device)
    lists = torch.empty(batch, heads, down, across + 2, dtype=torch.int32, device=like.device)
    turned = torch.empty(batch, heads, across, down + 2, dtype=torch.int32, device=like.device)
    if not (batch and heads and across and down):
        return lists.zero_(), turned.zero_()
    grid = (across, down, batch * heads)
    launch(kinds_of_blocks, grid, like, kinds, captured or None, seq_q, seq_k, heads, down, across, warps=4,
           SEEN=seen, BLOCK=block, ROWS=min(block, 32))  # fmt: skip
    for out, count, others, steps in ((lists, down, across, (across, 1)), (turned, across, down, (1, across))):
        wide = next_power(others)
        launch(lists_of_kinds, (count, batch * heads), like, kinds, out, count, others, *steps, warps=1, WIDE=wide)
    return lists, turned


# -- launchers -----------------------------------------------------------------------------------------
def _call(q: Tensor, k: Tensor, v: Tensor, body: Body, scale: float) -> AttentionCall:
    q, k, v = (lines(x) for x in (q, k, v))
    rule = Rule(q.shape[-1], scale=scale)
    return AttentionCall(q, k, v, None, None, None, None, q.shape[0], q.shape[2], k.shape[2], rule, body)


def forward_modified(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, body: Body, *, scale: float, config: Config | None = None
) -> tuple[Tensor, Tensor]:
    """y and lse, as of `attention.forward`; lse counts the sinks.  Shapes: sinks (heads,)."""
    references.check_dense("attention with functions", q, k, v, None, None)
    references.check_dim("attention with functions", q)
    call = _call(q, k, v, body, scale)
    q = call.q
    chosen = config or default(q.shape[3], q.element_size(), machine_of(q), extras=call.extras, kind=body.kind)
    y, lse = room_like(q), call.statistics()
    grid = (ceil_div(call.seq_q, chosen.rows) * call.batch * call.heads,)
    launch(
        attention_forward, grid, q, *call.arguments(), sinks, y, lse, call.steps(y), warps=chosen.warps,
        stages=chosen.stages, FLAGS=call.flags(), ROWS=chosen.rows, COLS=chosen.cols, PAST=0,
    )  # fmt: skip
    return y, lse


def backward_modified(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, body: Body, *, scale: float,
    config: BackwardConfig | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v; lse as `forward_modified` gives it."""
    call = _call(q, k, v, body, scale)
    outputs = Outputs(lines(dy), lines(y), lse.contiguous())
    return run_backward("attention with functions backward", call, outputs, None, True, config)[:3]
