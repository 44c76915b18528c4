"""The kernels of attention's backward: one over blocks of queries, one over blocks of keys, one over tiles of a bias.

Each computes the weights of its tiles again from lse, and sums what it owns in registers, in a fixed order: no atomics.

Of float32 two roundings would show.  lse is off by half of its last place, and all weights of a query with it; and
delta, the sum of dy * y, comes in another order than the products that it is taken from, so that what a query gives
which sees one key is not 0.  So the kernel over queries first goes over all keys for the sum of the weights, and for
what delta is off by.  `rest` is what weights want to be multiplied by; the others multiply dy with it, and find delta
corrected and multiplied.  Where lse is another one than that of these scores, it is left as it is.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.attention.scores import (
    base_of,
    beside,
    drops,
    inverse,
    keys_of,
    placed,
    power,
    queries_of,
    scores,
    sequence,
    tile,
)
from burn_kernels.products import add_product, inner_products


# -- queries -----------------------------------------------------------------------------------------
@triton.jit
def _over_keys(
    dq, total, off, q, dy, base, delta, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col, bias_row,
    bias_col, row, begin, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream, last, kept_scale,
    number, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr, KEY: tl.constexpr,
    STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
    EDGE: tl.constexpr, PAST: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    # SUMS: the sums of the weights, and of what delta is off by, in place of dq
    TYPE: tl.constexpr = k_ptr.dtype.element_ty
    for start in tl.range(begin, end, COLS):
        at = start + tl.arange(0, COLS)
        k = tile(k_ptr, at, k_seq, cols, dim, DIM, EVEN, EDGE)
        v = tile(v_ptr, at, v_seq, cols, dim, DIM, EVEN, EDGE)
        mask, bias = None, None
        if mask_ptr is not None:
            mask = beside(mask_ptr, row[:, None], at[None, :], rows, cols, mask_row, mask_col, PAST)
        if bias_ptr is not None:
            bias = beside(bias_ptr, row[:, None], at[None, :], rows, cols, bias_row, bias_col, PAST)
        s = inner_products(q, k, PRECISION, 0)
        s, turned = scores(
            s, mask, bias, base[:, None], row[:, None], at[None, :], cols, scale2, softcap, shift, window, TYPE, CAUSAL,
            WINDOW, EDGE,
        )  # fmt: skip
        p = power(s, TYPE)
        rise = inner_products(dy, v, PRECISION, 0)
        if DROP:
            rise *= drops(key, stream, last, kept_scale, number, row, start, seq_k, KEY, STREAM, QUADS, COLS)
        slope = p * (rise - delta[:, None])
        if SUMS:
            total += tl.sum(p, 1)
            off += tl.sum(slope, 1)
        else:
            if softcap is not None:
                slope *= 1.0 - turned * turned
            dq = add_product(slope.to(TYPE), k, dq, PRECISION)
    return dq, total, off


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def queries_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, q_batch, q_head, q_seq, k_batch, k_head, k_seq,
    v_batch, v_head, v_seq, mask_batch, mask_head, mask_row, mask_col, bias_batch, bias_head, bias_row, bias_col, heads,
    group, seq_q, seq_k, dim, number_batch, number_head, scale2, scale, softcap, window, key, stream, last, kept_scale,
    dy_ptr, y_ptr, lse_ptr, base_ptr, delta_ptr, rest_ptr, dq_ptr, dy_batch, dy_head, dy_seq, y_batch, y_head, y_seq,
    dq_batch, dq_head, dq_seq,
    CAUSAL: tl.constexpr, BOTTOM: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, SPLIT: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    """What the others count weights from, delta and dq of a block of queries."""
    blocks = tl.cdiv(seq_q, ROWS)
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    if CAUSAL:
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
    dy_ptr += batch * dy_batch + head * dy_head + q_begin * dy_seq
    y_ptr += batch * y_batch + head * y_head + q_begin * y_seq
    if mask_ptr is not None:
        mask_ptr += batch * mask_batch + head * mask_head
    if bias_ptr is not None:
        bias_ptr += batch * bias_batch + head * bias_head
    number = batch * number_batch + head * number_head + q_begin
    row = first + tl.arange(0, ROWS)
    q = tile(q_ptr, row, q_seq, rows, dim, DIM, EVEN, True)
    dy = tile(dy_ptr, row, dy_seq, rows, dim, DIM, EVEN, True)
    y = tile(y_ptr, row, y_seq, rows, dim, DIM, EVEN, True)
    delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
    base = base_of(tl.load(lse_ptr + number + row, mask=row < rows, other=float("-inf")), k_ptr.dtype.element_ty)
    tl.store(base_ptr + number + row, base, mask=row < rows)
    dq = tl.zeros((ROWS, DIM), tl.float32)
    final = tl.minimum(first + ROWS, rows) - 1
    begin, end, whole, partial = keys_of(first, final, shift, cols, window, CAUSAL, WINDOW, COLS)
    total, off = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    if rest_ptr is not None:
        dq, total, off = _over_keys(
            dq, total, off, q, dy, base, delta, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col,
            bias_row, bias_col, row, begin, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream,
            last, kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS, True,
            PAST, True,
        )  # fmt: skip
        # where the sum is not 1 but for lse's rounding, the query sees none of these keys, or lse is of more keys than
        # these, and says what the weights are; it is infinite of no keys
        ours = tl.abs(total - 1.0) <= tl.minimum(4.8e-7 * (4.0 + tl.abs(base)), 0.5)
        total = inverse(tl.where(ours, total, 1.0), tl.float32)
        delta += tl.where(ours, off, 0.0) * total
        tl.store(rest_ptr + number + row, total, mask=row < rows)
        tl.store(delta_ptr + number + row, delta * total, mask=row < rows)
    else:
        tl.store(delta_ptr + number + row, delta, mask=row < rows)
    if SPLIT:  # blocks that all queries see need no masks; there is no window then
        dq, _, _ = _over_keys(
            dq, total, off, q, dy, base, delta, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col,
            bias_row, bias_col, row, whole, partial, rows, cols, seq_k, dim, scale2, softcap, window, shift, key,
            stream, last, kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS,
            False, 0, False,
        )  # fmt: skip
        begin = partial
    dq, _, _ = _over_keys(
        dq, total, off, q, dy, base, delta, k_ptr, v_ptr, mask_ptr, bias_ptr, k_seq, v_seq, mask_row, mask_col,
        bias_row, bias_col, row, begin, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream, last,
        kept_scale, number, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, COLS, True, PAST, False,
    )  # fmt: skip
    if rest_ptr is not None:
        dq *= total[:, None]
    d = tl.arange(0, DIM)[None, :]
    inside = (row < rows)[:, None] & (d < dim)
    dq_ptr += batch * dq_batch + head * dq_head + q_begin * dq_seq
    dq = (dq * scale).to(dq_ptr.dtype.element_ty)
    tl.store(dq_ptr + row.to(tl.int64)[:, None] * dq_seq + d, dq, mask=inside)


# -- keys --------------------------------------------------------------------------------------------
@triton.jit
def _over_queries(
    dk, dv, k, v, q_ptr, dy_ptr, base_ptr, delta_ptr, rest_ptr, mask_ptr, bias_ptr, q_seq, dy_seq, mask_row, mask_col,
    bias_row, bias_col, start, col, begin, end, rows, cols, seq_k, dim, scale2, softcap, window, shift, key, stream,
    last, kept_scale, number, steps, q_head, dy_head, mask_head, bias_head, number_head, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr, KEY: tl.constexpr, STREAM: tl.constexpr,
    PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    EDGE: tl.constexpr, PAST: tl.constexpr, FULL: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    # tiles stand as (keys, queries), so that weights go into the next product as they come out of the last one
    TYPE: tl.constexpr = q_ptr.dtype.element_ty
    for first in tl.range(begin, end, ROWS):
        if ONE:  # the next head after so many steps
            step = (first - begin) // ROWS
            member = (step // steps).to(tl.int64)
            first = begin + step % steps * ROWS
            q_at, dy_at, more = q_ptr + member * q_head, dy_ptr + member * dy_head, member * number_head
        else:
            member, q_at, dy_at, more = 0, q_ptr, dy_ptr, 0
        row = first + tl.arange(0, ROWS)
        q = tile(q_at, row, q_seq, rows, dim, DIM, EVEN, not FULL)
        dy = tile(dy_at, row, dy_seq, rows, dim, DIM, EVEN, not FULL)
        if rest_ptr is not None:
            dy *= tl.load(rest_ptr + more + row, mask=row < rows, other=1.0)[:, None]
        if FULL:
            base, delta = tl.load(base_ptr + more + row), tl.load(delta_ptr + more + row)
        else:  # rows that are not there weigh nothing, as those of queries that see nothing
            base = tl.load(base_ptr + more + row, mask=row < rows, other=float("inf"))
            delta = tl.load(delta_ptr + more + row, mask=row < rows, other=0.0)
        mask, bias = None, None
        if mask_ptr is not None:
            mask_at = mask_ptr + member * mask_head
            mask = beside(mask_at, row[None, :], col[:, None], rows, cols, mask_row, mask_col, PAST)
        if bias_ptr is not None:
            bias_at = bias_ptr + member * bias_head
            bias = beside(bias_at, row[None, :], col[:, None], rows, cols, bias_row, bias_col, PAST)
        s = inner_products(k, q, PRECISION, 1)
        s, turned = scores(
            s, mask, bias, base[None, :], row[None, :], col[:, None], cols, scale2, softcap, shift, window, TYPE,
            CAUSAL, WINDOW, EDGE,
        )  # fmt: skip
        p = power(s, TYPE)
        rise = inner_products(v, dy, PRECISION, 1)
        kept = p
        if DROP:
            factor = drops(key, stream, last, kept_scale, number + more, row, start, seq_k, KEY, STREAM, QUADS, COLS)
            factor = tl.trans(factor)
            rise *= factor
            kept = p * factor
        dv = add_product(kept.to(TYPE), dy, dv, PRECISION)
        slope = p * (rise - delta[None, :])
        if softcap is not None:
            slope *= 1.0 - turned * turned
        dk = add_product(slope.to(TYPE), q, dk, PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def keys_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, q_batch, q_head, q_seq, k_batch, k_head, k_seq,
    v_batch, v_head, v_seq, mask_batch, mask_head, mask_row, mask_col, bias_batch, bias_head, bias_row, bias_col, heads,
    group, seq_q, seq_k, dim, number_batch, number_head, scale2, scale, softcap, window, key, stream, last, kept_scale,
    dy_ptr, base_ptr, delta_ptr, rest_ptr, dk_ptr, dv_ptr, dy_batch, dy_head, dy_seq, dk_batch, dk_head, dk_seq,
    dv_batch, dv_head, dv_seq,
    CAUSAL: tl.constexpr, BOTTOM: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, PAST: tl.constexpr, FULL: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """dk and dv of a block of keys; by one loop over heads that share them and queries, if ONE, which takes fewer
    registers and a little longer."""
    blocks = tl.cdiv(seq_k, COLS)  # under a diagonal the first keys are seen most, and begin first
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    kv_heads = heads // group
    kv_head, batch = placed(which, kv_heads, blocks, bias_ptr, bias_batch)
    q_begin, rows = sequence(q_starts_ptr, batch, seq_q)
    k_begin, cols = sequence(k_starts_ptr, batch, seq_k)
    start = block * COLS
    if start >= cols:
        return
    shift = 0
    if BOTTOM:
        shift = cols - rows
    q_ptr += batch * q_batch + q_begin * q_seq
    dy_ptr += batch * dy_batch + q_begin * dy_seq
    k_ptr += batch * k_batch + kv_head * k_head + k_begin * k_seq
    v_ptr += batch * v_batch + kv_head * v_head + k_begin * v_seq
    if mask_ptr is not None:
        mask_ptr += batch * mask_batch
    if bias_ptr is not None:
        bias_ptr += batch * bias_batch
    col = start + tl.arange(0, COLS)
    k = tile(k_ptr, col, k_seq, cols, dim, DIM, EVEN, True)
    v = tile(v_ptr, col, v_seq, cols, dim, DIM, EVEN, True)
    dk = tl.zeros((COLS, DIM), tl.float32)
    dv = tl.zeros((COLS, DIM), tl.float32)
    final = tl.minimum(start + COLS, cols) - 1
    begin, end = queries_of(start, final, shift, rows, window, CAUSAL, WINDOW, ROWS)
    # each loop runs once at least, if only over queries that are not there: a way around it, on which sums begin as
    # zeros, has ptxas wait for each product of sm_90 by itself (C7515), a quarter of the time
    end = tl.maximum(end, begin + 1)
    tl.assume(end > begin)
    # heads that share these keys follow each other: their sum has one order
    members, steps = group, 1
    if ONE:
        members, steps = 1, tl.cdiv(end - begin, ROWS)
        end = begin + group * steps * ROWS
    for member in tl.range(0, members):
        head = kv_head * group + member
        number = batch * number_batch + head * number_head + q_begin
        q_at, dy_at = q_ptr + head * q_head, dy_ptr + head * dy_head
        mask_at, bias_at, rest_at = mask_ptr, bias_ptr, rest_ptr
        if rest_ptr is not None:
            rest_at = rest_ptr + number
        if mask_ptr is not None:
            mask_at = mask_ptr + head * mask_head
        if bias_ptr is not None:
            bias_at = bias_ptr + head * bias_head
        dk, dv = _over_queries(
            dk, dv, k, v, q_at, dy_at, base_ptr + number, delta_ptr + number, rest_at, mask_at, bias_at, q_seq, dy_seq,
            mask_row, mask_col, bias_row, bias_col, start, col, begin, end, rows, cols, seq_k, dim, scale2, softcap,
            window, shift, key, stream, last, kept_scale, number, steps, q_head, dy_head, mask_head, bias_head,
            number_head, CAUSAL, WINDOW, DROP, QUADS, KEY, STREAM, PRECISION, DIM, EVEN, ROWS, COLS, CAUSAL or WINDOW,
            PAST, FULL, ONE,
        )  # fmt: skip
    d = tl.arange(0, DIM)[None, :]
    inside = (col < cols)[:, None] & (d < dim)
    dk_ptr += batch * dk_batch + kv_head * dk_head + k_begin * dk_seq
    dv_ptr += batch * dv_batch + kv_head * dv_head + k_begin * dv_seq
    dk = (dk * scale).to(dk_ptr.dtype.element_ty)
    tl.store(dk_ptr + col.to(tl.int64)[:, None] * dk_seq + d, dk, mask=inside)
    tl.store(dv_ptr + col.to(tl.int64)[:, None] * dv_seq + d, dv.to(dv_ptr.dtype.element_ty), mask=inside)


# -- the bias ----------------------------------------------------------------------------------------
@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def bias_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, q_batch, q_head, q_seq, k_batch, k_head, k_seq,
    v_batch, v_head, v_seq, mask_batch, mask_head, mask_row, mask_col, bias_batch, bias_head, bias_row, bias_col, heads,
    group, seq_q, seq_k, dim, number_batch, number_head, scale2, scale, softcap, window, key, stream, last, kept_scale,
    dy_ptr, base_ptr, delta_ptr, rest_ptr, db_ptr, dy_batch, dy_head, dy_seq, batches, db_batches, db_heads, db_rows,
    db_cols,
    CAUSAL: tl.constexpr, BOTTOM: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, ONE_ROW: tl.constexpr, ONE_COL: tl.constexpr, PAST: tl.constexpr,
    FULL: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """The gradient of EACH tiles of the bias that follow each other."""
    # a program goes over all that share a tile, in order: batch entries, heads, and, where the bias has one row or
    # column, the blocks of queries or keys; one loop over tiles and sharers, so that loads run ahead from tile to tile
    TYPE: tl.constexpr = k_ptr.dtype.element_ty
    row_blocks, col_blocks = tl.cdiv(seq_q, ROWS), tl.cdiv(seq_k, COLS)
    owned_rows, owned_cols = row_blocks, col_blocks
    shared_rows, shared_cols = 1, 1
    if ONE_ROW:
        owned_rows, shared_rows = 1, row_blocks
    if ONE_COL:
        owned_cols, shared_cols = 1, col_blocks
    runs = tl.cdiv(owned_cols, EACH)
    which = tl.program_id(0)
    first_tile, which = which % runs * EACH, which // runs
    own_row, which = which % owned_rows, which // owned_rows
    own_head, own_batch = which % db_heads, which // db_heads
    shared_heads = heads // db_heads
    members = batches // db_batches * shared_heads * shared_rows * shared_cols
    shift = 0
    if BOTTOM:
        shift = seq_k - seq_q
    first_row = own_row * ROWS
    tiles = tl.minimum(EACH, owned_cols - first_tile)
    seen = tiles
    if CAUSAL and not (ONE_ROW or ONE_COL):  # behind the diagonal there is nothing to sum
        seen = tl.maximum(0, tl.minimum(tiles, tl.cdiv(first_row + ROWS + shift, COLS) - first_tile))
    bias_ptr += own_batch.to(tl.int64) * bias_batch + own_head.to(tl.int64) * bias_head
    db_ptr += (own_batch.to(tl.int64) * db_heads + own_head) * db_rows * db_cols
    db = tl.zeros((ROWS, COLS), tl.float32)
    for step in tl.range(0, seen * members):
        own_col, member = first_tile + step // members, step % members
        col_block, rest = member % shared_cols + own_col, member // shared_cols
        row_block, rest = rest % shared_rows + own_row, rest // shared_rows
        head = (rest % shared_heads + own_head).to(tl.int64)
        batch = (rest // shared_heads + own_batch).to(tl.int64)
        row = row_block * ROWS + tl.arange(0, ROWS)
        col = col_block * COLS + tl.arange(0, COLS)
        number = batch * number_batch + head * number_head
        q = tile(q_ptr + batch * q_batch + head * q_head, row, q_seq, seq_q, dim, DIM, EVEN, not FULL)
        dy = tile(dy_ptr + batch * dy_batch + head * dy_head, row, dy_seq, seq_q, dim, DIM, EVEN, not FULL)
        k = tile(k_ptr + batch * k_batch + head // group * k_head, col, k_seq, seq_k, dim, DIM, EVEN, PAST > 0)
        v = tile(v_ptr + batch * v_batch + head // group * v_head, col, v_seq, seq_k, dim, DIM, EVEN, PAST > 0)
        if FULL:
            base, delta = tl.load(base_ptr + number + row), tl.load(delta_ptr + number + row)
        else:
            base = tl.load(base_ptr + number + row, mask=row < seq_q, other=float("inf"))
            delta = tl.load(delta_ptr + number + row, mask=row < seq_q, other=0.0)
        mask = None
        if mask_ptr is not None:
            mask_at = mask_ptr + batch * mask_batch + head * mask_head
            mask = beside(mask_at, row[:, None], col[None, :], seq_q, seq_k, mask_row, mask_col, PAST)
        bias = beside(bias_ptr, row[:, None], col[None, :], seq_q, seq_k, bias_row, bias_col, PAST)
        s = inner_products(q, k, PRECISION, 0)
        s, _ = scores(
            s, mask, bias, base[:, None], row[:, None], col[None, :], seq_k, scale2, softcap, shift, window, TYPE,
            CAUSAL, WINDOW, CAUSAL or WINDOW or PAST > 0,
        )  # fmt: skip
        rise = inner_products(dy, v, PRECISION, 0)
        if DROP:
            start = col_block * COLS
            rise *= drops(key, stream, last, kept_scale, number, row, start, seq_k, KEY, STREAM, QUADS, COLS)
        if rest_ptr is not None:
            rise *= tl.load(rest_ptr + number + row, mask=row < seq_q, other=1.0)[:, None]
        db += power(s, TYPE) * (rise - delta[:, None])
        if member == members - 1:
            _store_bias(db_ptr, db, first_row, own_col * COLS, db_rows, db_cols, ROWS, COLS, ONE_ROW, ONE_COL)
            db = tl.zeros((ROWS, COLS), tl.float32)
    for hidden in tl.range(seen, tiles):
        at_col = (first_tile + hidden) * COLS
        _store_bias(db_ptr, db, first_row, at_col, db_rows, db_cols, ROWS, COLS, ONE_ROW, ONE_COL)


@triton.jit
def _store_bias(
    db_ptr, db, first_row, first_col, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, ONE_ROW: tl.constexpr, ONE_COL: tl.constexpr,
):  # fmt: skip
    if ONE_ROW:
        row = tl.zeros((1,), tl.int64)
        db = tl.sum(db, 0)[None, :]
    else:
        row = first_row.to(tl.int64) + tl.arange(0, ROWS)
    if ONE_COL:
        col = tl.zeros((1,), tl.int64)
        db = tl.sum(db, 1)[:, None]
    else:
        col = first_col.to(tl.int64) + tl.arange(0, COLS)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    tl.store(db_ptr + row[:, None] * cols + col[None, :], db.to(db_ptr.dtype.element_ty), mask=inside)
