"""The kernel of attention's forward: one program a block of queries, which goes over the keys that they see."""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.attention.scores import (
    beside,
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
from burn_kernels.products import continue_product, inner_products


@triton.jit
def _attend(
    y, total, top, q, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col, bias_row, bias_col, row,
    begin, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream, last, kept_scale, number,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr, KEY: tl.constexpr,
    STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
    EDGE: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = v_ptr.dtype.element_ty
    for start in tl.range(begin, end, COLS):
        at = start + tl.arange(0, COLS)
        k = tile(k_ptr, at, k_seq, cols, dim, DIM, EVEN, EDGE)
        mask, bias = None, None
        if mask_ptr is not None:
            mask = beside(mask_ptr, row[:, None], at[None, :], rows, cols, mask_row, mask_col, PAST)
        if bias_ptr is not None:
            bias = beside(bias_ptr, row[:, None], at[None, :], rows, cols, bias_row, bias_col, PAST)
        s = inner_products(q, k, PRECISION, 0)
        s, _ = scores(
            s, mask, bias, None, row[:, None], at[None, :], cols, scale2, softcap, shift, window, TYPE, CAUSAL, WINDOW,
            EDGE,
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(s, 1))
        base = higher
        if EDGE or mask_ptr is not None or bias_ptr is not None:  # a row may not have seen a key yet
            base = tl.where(higher == float("-inf"), 0.0, higher)
        p = power(s - base[:, None], TYPE)
        fade = power(top - base, TYPE)
        total = total * fade + tl.sum(p, 1)
        if DROP:
            p *= drops(key, stream, last, kept_scale, number, row, start, seq_k, KEY, STREAM, QUADS, COLS)
        v = tile(v_ptr, at, v_seq, cols, dim, DIM, EVEN, EDGE)
        y = continue_product(p.to(TYPE), v, y * fade[:, None], PRECISION)
        top = higher
    return y, total, top


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def attention_forward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, q_batch, q_head, q_seq, k_batch, k_head, k_seq,
    v_batch, v_head, v_seq, mask_batch, mask_head, mask_row, mask_col, bias_batch, bias_head, bias_row, bias_col, heads,
    group, seq_q, seq_k, dim, number_batch, number_head, scale2, scale, softcap, window, key, stream, last, kept_scale,
    y_ptr, lse_ptr, y_batch, y_head, y_seq,
    CAUSAL: tl.constexpr, BOTTOM: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    """y and lse of a block of queries."""
    blocks = tl.cdiv(seq_q, ROWS)
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    if CAUSAL:  # the last queries see most: they begin first
        block = blocks - 1 - block
    head, batch = placed(which, heads, blocks, bias_ptr, bias_batch)
    q_begin, rows = sequence(q_starts_ptr, batch, seq_q)
    k_begin, cols = sequence(k_starts_ptr, batch, seq_k)
    first = block * ROWS
    if first >= rows:
        return
    shift = 0
    if BOTTOM:
        shift = cols - rows
    q_ptr += batch * q_batch + head * q_head + q_begin * q_seq
    k_ptr += batch * k_batch + head // group * k_head + k_begin * k_seq
    v_ptr += batch * v_batch + head // group * v_head + k_begin * v_seq
    y_ptr += batch * y_batch + head * y_head + q_begin * y_seq
    if mask_ptr is not None:
        mask_ptr += batch * mask_batch + head * mask_head
    if bias_ptr is not None:
        bias_ptr += batch * bias_batch + head * bias_head
    number = batch * number_batch + head * number_head + q_begin
    row = first + tl.arange(0, ROWS)
    q = tile(q_ptr, row, q_seq, rows, dim, DIM, EVEN, True)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    y = tl.zeros((ROWS, DIM), tl.float32)
    final = tl.minimum(first + ROWS, rows) - 1
    begin, end, whole, partial = keys_of(first, final, shift, cols, window, CAUSAL, WINDOW, COLS)
    if WINDOW:
        y, total, top = _attend(
            y, total, top, q, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col, bias_row, bias_col,
            row, begin, tl.minimum(whole, end), rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream,
            last, kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS, True, PAST,
        )  # fmt: skip
    y, total, top = _attend(
        y, total, top, q, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col, bias_row, bias_col,
        row, whole, partial, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream,
        last, kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS, False, 0,
    )  # fmt: skip
    y, total, top = _attend(
        y, total, top, q, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col, bias_row, bias_col,
        row, partial, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream,
        last, kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS, True, PAST,
    )  # fmt: skip
    # a row that saw no key has a total of 0; NaN goes on
    y *= inverse(tl.where(total == 0.0, 1.0, total), v_ptr.dtype.element_ty)[:, None]
    d = tl.arange(0, DIM)[None, :]
    inside = (row < rows)[:, None] & (d < dim)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * y_seq + d, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + number + row, lse_of(top, total, v_ptr.dtype.element_ty), mask=row < rows)
