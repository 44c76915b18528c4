"""The kernel of attention's forward: one program a block of queries, which goes over the keys that they see."""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.attention.scores import (
    Draw,
    Head,
    Place,
    Rule,
    beside,
    block_at,
    drops,
    inverse,
    keys_of,
    lse_of,
    placed,
    power,
    scores,
    sequence,
    tile,
)
from burn_kernels.prims import LOG2E
from burn_kernels.products import continue_product, inner_products


@triton.jit
def _attend(
    state, q, at_head, strides, sizes, row, begin, end, rows, cols, rule, draw, number,
    FLAGS: tl.constexpr, COLS: tl.constexpr, EDGE: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    """y, the sums of weights and the largest scores of a block of queries, with the keys [begin, end)."""
    TYPE: tl.constexpr = at_head.v.dtype.element_ty
    PRECISION: tl.constexpr = FLAGS.PRECISION
    y, total, top = state
    for step in tl.range(begin, end, COLS):
        start = step
        if FLAGS.SEEN is not None:
            start = block_at(rule.place, step, FLAGS)
        at = start + tl.arange(0, COLS)
        k = tile(at_head.k, at, strides.k_seq, cols, sizes.dim, FLAGS, EDGE)
        mask, bias = None, None
        if at_head.mask is not None:
            mask = beside(at_head.mask, row[:, None], at[None, :], rows, cols, strides.mask_row, strides.mask_col, PAST)
        if at_head.bias is not None:
            bias = beside(at_head.bias, row[:, None], at[None, :], rows, cols, strides.bias_row, strides.bias_col, PAST)
        s = inner_products(q, k, PRECISION, 0)
        s, _ = scores(s, mask, bias, None, row[:, None], at[None, :], cols, rule, TYPE, FLAGS, EDGE)
        higher = tl.maximum(top, tl.max(s, 1))
        base = higher
        if EDGE or at_head.mask is not None or at_head.bias is not None:  # a row may not have seen a key yet
            base = tl.where(higher == float("-inf"), 0.0, higher)
        p = power(s - base[:, None], TYPE)
        fade = power(top - base, TYPE)
        total = total * fade + tl.sum(p, 1)
        if FLAGS.DROP:
            p *= drops(draw, number, row, start, sizes.seq_k, FLAGS, COLS)
        v = tile(at_head.v, at, strides.v_seq, cols, sizes.dim, FLAGS, EDGE)
        y = continue_product(p.to(TYPE), v, y * fade[:, None], PRECISION)
        top = higher
    return y, total, top


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def attention_forward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, strides, sizes, scale2, scale, softcap, window,
    key, stream, last, kept_scale, lists_ptr, captured, sinks_ptr, y_ptr, lse_ptr, y_steps,
    FLAGS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    """y and lse of a block of queries."""
    DIM: tl.constexpr = FLAGS.DIM
    blocks = tl.cdiv(sizes.seq_q, ROWS)
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    if FLAGS.CAUSAL or FLAGS.SEEN is not None:  # the last queries see most, as a rule: they begin first
        block = blocks - 1 - block
    head, batch = placed(which, sizes.heads, blocks, bias_ptr, strides.bias_batch)
    q_begin, rows = sequence(q_starts_ptr, batch, sizes.seq_q)
    k_begin, cols = sequence(k_starts_ptr, batch, sizes.seq_k)
    first = block * ROWS
    if first >= rows:
        return
    shift = 0
    if FLAGS.BOTTOM:
        shift = cols - rows
    q_ptr += batch * strides.q_batch + head * strides.q_head + q_begin * strides.q_seq
    k_ptr += batch * strides.k_batch + head // sizes.group * strides.k_head + k_begin * strides.k_seq
    v_ptr += batch * strides.v_batch + head // sizes.group * strides.v_head + k_begin * strides.v_seq
    y_ptr += batch * y_steps.batch + head * y_steps.head + q_begin * y_steps.seq
    if mask_ptr is not None:
        mask_ptr += batch * strides.mask_batch + head * strides.mask_head
    if bias_ptr is not None:
        bias_ptr += batch * strides.bias_batch + head * strides.bias_head
    number = batch * sizes.number_batch + head * sizes.number_head + q_begin
    row = first + tl.arange(0, ROWS)
    q = tile(q_ptr, row, strides.q_seq, rows, sizes.dim, FLAGS, True)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    if sinks_ptr is not None:
        UNIT: tl.constexpr = 1.0 if v_ptr.dtype.element_ty == tl.float32 else LOG2E
        top = tl.zeros((ROWS,), tl.float32) + tl.load(sinks_ptr + head).to(tl.float32) * UNIT
        total += 1.0
    y = tl.zeros((ROWS, DIM), tl.float32)
    final = tl.minimum(first + ROWS, rows) - 1
    begin, end, whole, partial = keys_of(first, final, shift, cols, window, FLAGS, COLS)
    at_head = Head(k_ptr, v_ptr, mask_ptr, bias_ptr)
    place = Place(batch, head, captured, lists_ptr, 0)
    rule, draw = Rule(scale2, softcap, window, shift, place), Draw(key, stream, last, kept_scale)
    state = y, total, top
    if FLAGS.SEEN is not None:  # blocks of which the queries see all, then blocks of which they see some
        lists_ptr += batch * strides.list_batch + head * strides.list_head + first // FLAGS.BLOCK * strides.list_line
        full, part = tl.load(lists_ptr), tl.load(lists_ptr + 1)
        rule = Rule(scale2, softcap, window, shift, Place(batch, head, captured, lists_ptr + 2, full))
        state = _attend(
            state, q, at_head, strides, sizes, row, 0, full * FLAGS.BLOCK, rows, cols, rule, draw, number,
            FLAGS, COLS, False, 0,
        )  # fmt: skip
        rule = Rule(scale2, softcap, window, shift, Place(batch, head, captured, lists_ptr + 2 + full, part))
        whole, partial, end = 0, 0, part * FLAGS.BLOCK
    if FLAGS.WINDOW:
        state = _attend(
            state, q, at_head, strides, sizes, row, begin, tl.minimum(whole, end), rows, cols, rule, draw, number,
            FLAGS, COLS, True, PAST,
        )  # fmt: skip
    if FLAGS.SEEN is None:
        state = _attend(
            state, q, at_head, strides, sizes, row, whole, partial, rows, cols, rule, draw, number, FLAGS, COLS,
            False, 0,
        )  # fmt: skip
    y, total, top = _attend(
        state, q, at_head, strides, sizes, row, partial, end, rows, cols, rule, draw, number, FLAGS, COLS, True, PAST
    )
    # a row that saw no key has a total of 0; NaN goes on
    y *= inverse(tl.where(total == 0.0, 1.0, total), v_ptr.dtype.element_ty)[:, None]
    d = tl.arange(0, DIM)[None, :]
    inside = (row < rows)[:, None] & (d < sizes.dim)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * y_steps.seq + d, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + number + row, lse_of(top, total, v_ptr.dtype.element_ty), mask=row < rows)
