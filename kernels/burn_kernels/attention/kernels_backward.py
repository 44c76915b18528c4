"""The kernels of attention's backward: one over blocks of queries, one over blocks of keys, one over tiles of a bias.

Each computes the weights of its tiles again from lse, and sums what it owns in registers, in a fixed order: no atomics.

Of float32 two roundings would show.  lse is off by half of its last place, and all weights of a query with it; and
delta, the sum of dy * y, comes in another order than the products that it is taken from, so that what a query gives
which sees one key is not 0.  So the kernel over queries first goes over all keys for the sum of the weights, and for
what delta is off by.  `rest` is what weights want to be multiplied by; the others multiply dy with it, and find delta
corrected and multiplied.  Where lse is another one than that of these scores, it is left as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from burn_kernels._triton import tl, triton
from burn_kernels.attention.scores import (
    Draw,
    Head,
    Place,
    Rule,
    base_of,
    beside,
    block_at,
    drops,
    inverse,
    keys_of,
    placed,
    power,
    queries_of,
    scores,
    sequence,
    slopes_of,
    tile,
)
from burn_kernels.products import add_product, inner_products


class BiasShape(NamedTuple):
    """The numbers of batch entries, of the call and of the bias, and the bias's heads, rows and columns."""

    batches: int
    db_batches: int
    db_heads: int
    db_rows: int
    db_cols: int


class QueryStrides(NamedTuple):
    """The strides of dy, y and dq over batch entries, heads and positions: one flat tuple, which launches fast."""

    dy_batch: int
    dy_head: int
    dy_seq: int
    y_batch: int
    y_head: int
    y_seq: int
    dq_batch: int
    dq_head: int
    dq_seq: int


class KeyStrides(NamedTuple):
    """The strides of dy, dk and dv, as `QueryStrides` has them."""

    dy_batch: int
    dy_head: int
    dy_seq: int
    dk_batch: int
    dk_head: int
    dk_seq: int
    dv_batch: int
    dv_head: int
    dv_seq: int


class Queries(NamedTuple):
    """Pointers to what belongs to the first query of a head; in kernels."""

    q: object
    dy: object
    base: object
    delta: object
    rest: object
    mask: object
    bias: object


# -- queries -----------------------------------------------------------------------------------------
@triton.jit
def _over_keys(
    state, q, dy, base, delta, at_head, strides, sizes, row, begin, end, rows, cols, rule, draw, number,
    FLAGS: tl.constexpr, COLS: tl.constexpr, EDGE: tl.constexpr, PAST: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    # SUMS: the sums of the weights, and of what delta is off by, in place of dq
    TYPE: tl.constexpr = at_head.k.dtype.element_ty
    PRECISION: tl.constexpr = FLAGS.PRECISION
    dq, total, off = state
    for step in tl.range(begin, end, COLS):
        start = step
        if FLAGS.SEEN is not None:
            start = block_at(rule.place, step, FLAGS)
        at = start + tl.arange(0, COLS)
        k = tile(at_head.k, at, strides.k_seq, cols, sizes.dim, FLAGS, EDGE)
        v = tile(at_head.v, at, strides.v_seq, cols, sizes.dim, FLAGS, EDGE)
        mask, bias = None, None
        if at_head.mask is not None:
            mask = beside(at_head.mask, row[:, None], at[None, :], rows, cols, strides.mask_row, strides.mask_col, PAST)
        if at_head.bias is not None:
            bias = beside(at_head.bias, row[:, None], at[None, :], rows, cols, strides.bias_row, strides.bias_col, PAST)
        s = inner_products(q, k, PRECISION, 0)
        s, turned = scores(s, mask, bias, base[:, None], row[:, None], at[None, :], cols, rule, TYPE, FLAGS, EDGE)
        p = power(s, TYPE)
        rise = inner_products(dy, v, PRECISION, 0)
        if FLAGS.DROP:
            rise *= drops(draw, number, row, start, sizes.seq_k, FLAGS, COLS)
        slope = p * (rise - delta[:, None])
        if SUMS:
            total += tl.sum(p, 1)
            off += tl.sum(slope, 1)
        else:
            slope = slopes_of(slope, turned, rule, FLAGS)
            dq = add_product(slope.to(TYPE), k, dq, PRECISION)
    return dq, total, off


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def queries_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, strides, sizes, scale2, scale, softcap, window,
    key, stream, last, kept_scale, lists_ptr, captured, dy_ptr, y_ptr, lse_ptr, base_ptr, delta_ptr, rest_ptr, dq_ptr,
    spans, FLAGS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SPLIT: tl.constexpr, PAST: tl.constexpr,
):  # fmt: skip
    """dq and delta of a block of queries, and the base that the other kernels count weights from."""
    DIM: tl.constexpr = FLAGS.DIM
    blocks = tl.cdiv(sizes.seq_q, ROWS)
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    if FLAGS.CAUSAL or FLAGS.SEEN is not None:
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
    dy_ptr += batch * spans.dy_batch + head * spans.dy_head + q_begin * spans.dy_seq
    y_ptr += batch * spans.y_batch + head * spans.y_head + q_begin * spans.y_seq
    if mask_ptr is not None:
        mask_ptr += batch * strides.mask_batch + head * strides.mask_head
    if bias_ptr is not None:
        bias_ptr += batch * strides.bias_batch + head * strides.bias_head
    number = batch * sizes.number_batch + head * sizes.number_head + q_begin
    row = first + tl.arange(0, ROWS)
    q = tile(q_ptr, row, strides.q_seq, rows, sizes.dim, FLAGS, True)
    dy = tile(dy_ptr, row, spans.dy_seq, rows, sizes.dim, FLAGS, True)
    y = tile(y_ptr, row, spans.y_seq, rows, sizes.dim, FLAGS, True)
    delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
    base = base_of(tl.load(lse_ptr + number + row, mask=row < rows, other=float("-inf")), k_ptr.dtype.element_ty)
    tl.store(base_ptr + number + row, base, mask=row < rows)
    dq = tl.zeros((ROWS, DIM), tl.float32)
    final = tl.minimum(first + ROWS, rows) - 1
    begin, end, whole, partial = keys_of(first, final, shift, cols, window, FLAGS, COLS)
    total, off = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    at_head = Head(k_ptr, v_ptr, mask_ptr, bias_ptr)
    full = 0
    if FLAGS.SEEN is not None:  # of float32 all blocks are taken for such as are seen in part
        lists_ptr += batch * strides.list_batch + head * strides.list_head + first // FLAGS.BLOCK * strides.list_line
        full, part = tl.load(lists_ptr), tl.load(lists_ptr + 1)
        begin, whole, partial, end = 0, 0, full * FLAGS.BLOCK, (full + part) * FLAGS.BLOCK
        lists_ptr += 2
        place = Place(batch, head, captured, lists_ptr, full + part)
    else:
        place = Place(batch, head, captured, lists_ptr, 0)
    rule, draw = Rule(scale2, softcap, window, shift, place), Draw(key, stream, last, kept_scale)
    if rest_ptr is not None:
        dq, total, off = _over_keys(
            (dq, total, off), q, dy, base, delta, at_head, strides, sizes, row, begin, end, rows, cols, rule, draw,
            number, FLAGS, COLS, True, PAST, True,
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
            (dq, total, off), q, dy, base, delta, at_head, strides, sizes, row, whole, partial, rows, cols, rule, draw,
            number, FLAGS, COLS, False, 0, False,
        )  # fmt: skip
        begin = partial  # lists go on behind the blocks that are seen whole
    dq, _, _ = _over_keys(
        (dq, total, off), q, dy, base, delta, at_head, strides, sizes, row, begin, end, rows, cols, rule, draw, number,
        FLAGS, COLS, True, PAST, False,
    )  # fmt: skip
    if rest_ptr is not None:
        dq *= total[:, None]
    d = tl.arange(0, DIM)[None, :]
    inside = (row < rows)[:, None] & (d < sizes.dim)
    dq_ptr += batch * spans.dq_batch + head * spans.dq_head + q_begin * spans.dq_seq
    dq = (dq * scale).to(dq_ptr.dtype.element_ty)
    tl.store(dq_ptr + row.to(tl.int64)[:, None] * spans.dq_seq + d, dq, mask=inside)


# -- keys --------------------------------------------------------------------------------------------
@triton.jit
def _over_queries(
    state, k, v, at_head, strides, spans, sizes, start, col, begin, end, rows, cols, rule, draw, number, steps,
    FLAGS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, EDGE: tl.constexpr, PAST: tl.constexpr,
    FULL: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    # tiles stand as (keys, queries), so that weights go into the next product as they come out of the last one
    TYPE: tl.constexpr = at_head.q.dtype.element_ty
    PRECISION: tl.constexpr = FLAGS.PRECISION
    dk, dv = state
    for first in tl.range(begin, end, ROWS):
        there = True
        if FLAGS.SEEN is not None:
            there = first // FLAGS.BLOCK < rule.place.limit
            first = block_at(rule.place, first, FLAGS)
        if ONE:  # the next head after so many steps
            step = (first - begin) // ROWS
            member = (step // steps).to(tl.int64)
            first = begin + step % steps * ROWS
            q_at, dy_at = at_head.q + member * strides.q_head, at_head.dy + member * spans.dy_head
            more = member * sizes.number_head
        else:
            member, q_at, dy_at, more = 0, at_head.q, at_head.dy, 0
        row = first + tl.arange(0, ROWS)
        q = tile(q_at, row, strides.q_seq, rows, sizes.dim, FLAGS, not FULL)
        dy = tile(dy_at, row, spans.dy_seq, rows, sizes.dim, FLAGS, not FULL)
        if at_head.rest is not None:
            dy *= tl.load(at_head.rest + more + row, mask=row < rows, other=1.0)[:, None]
        if FULL:
            base, delta = tl.load(at_head.base + more + row), tl.load(at_head.delta + more + row)
        else:  # rows that are not there weigh nothing, as those of queries that see nothing
            base = tl.load(at_head.base + more + row, mask=row < rows, other=float("inf"))
            delta = tl.load(at_head.delta + more + row, mask=row < rows, other=0.0)
        if FLAGS.SEEN is not None:  # a loop without a block reads one all the same, of which nothing counts
            base = tl.where(there, base, float("inf"))
        mask, bias = None, None
        if at_head.mask is not None:
            at = at_head.mask + member * strides.mask_head
            mask = beside(at, row[None, :], col[:, None], rows, cols, strides.mask_row, strides.mask_col, PAST)
        if at_head.bias is not None:
            at = at_head.bias + member * strides.bias_head
            bias = beside(at, row[None, :], col[:, None], rows, cols, strides.bias_row, strides.bias_col, PAST)
        s = inner_products(k, q, PRECISION, 1)
        s, turned = scores(s, mask, bias, base[None, :], row[None, :], col[:, None], cols, rule, TYPE, FLAGS, EDGE)
        p = power(s, TYPE)
        rise = inner_products(v, dy, PRECISION, 1)
        kept = p
        if FLAGS.DROP:
            factor = tl.trans(drops(draw, number + more, row, start, sizes.seq_k, FLAGS, COLS))
            rise *= factor
            kept = p * factor
        dv = add_product(kept.to(TYPE), dy, dv, PRECISION)
        slope = p * (rise - delta[None, :])
        slope = slopes_of(slope, turned, rule, FLAGS)
        dk = add_product(slope.to(TYPE), q, dk, PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def keys_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, strides, sizes, scale2, scale, softcap, window,
    key, stream, last, kept_scale, lists_ptr, captured, dy_ptr, base_ptr, delta_ptr, rest_ptr, dk_ptr, dv_ptr,
    spans,
    FLAGS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PAST: tl.constexpr, FULL: tl.constexpr,
    ONE: tl.constexpr,
):  # fmt: skip
    """dk and dv of a block of keys; by one loop over heads that share them and queries, if ONE, which takes fewer
    registers and a little longer."""
    EDGE: tl.constexpr = FLAGS.CAUSAL or FLAGS.WINDOW or FLAGS.SEEN is not None
    DIM: tl.constexpr = FLAGS.DIM
    blocks = tl.cdiv(sizes.seq_k, COLS)  # under a diagonal the first keys are seen most, and begin first
    block, which = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    kv_heads = sizes.heads // sizes.group
    kv_head, batch = placed(which, kv_heads, blocks, bias_ptr, strides.bias_batch)
    q_begin, rows = sequence(q_starts_ptr, batch, sizes.seq_q)
    k_begin, cols = sequence(k_starts_ptr, batch, sizes.seq_k)
    start = block * COLS
    if start >= cols:
        return
    shift = 0
    if FLAGS.BOTTOM:
        shift = cols - rows
    q_ptr += batch * strides.q_batch + q_begin * strides.q_seq
    dy_ptr += batch * spans.dy_batch + q_begin * spans.dy_seq
    k_ptr += batch * strides.k_batch + kv_head * strides.k_head + k_begin * strides.k_seq
    v_ptr += batch * strides.v_batch + kv_head * strides.v_head + k_begin * strides.v_seq
    if mask_ptr is not None:
        mask_ptr += batch * strides.mask_batch
    if bias_ptr is not None:
        bias_ptr += batch * strides.bias_batch
    col = start + tl.arange(0, COLS)
    k = tile(k_ptr, col, strides.k_seq, cols, sizes.dim, FLAGS, True)
    v = tile(v_ptr, col, strides.v_seq, cols, sizes.dim, FLAGS, True)
    dk = tl.zeros((COLS, DIM), tl.float32)
    dv = tl.zeros((COLS, DIM), tl.float32)
    final = tl.minimum(start + COLS, cols) - 1
    begin, end = queries_of(start, final, shift, rows, window, FLAGS, ROWS)
    # each loop runs once at least, if only over queries that are not there: a way around it, on which sums begin as
    # zeros, has ptxas wait for each product of sm_90 by itself (C7515), a quarter of the time
    end = tl.maximum(end, begin + 1)
    tl.assume(end > begin)
    # heads that share these keys follow each other: their sum has one order
    members, steps = sizes.group, 1
    if ONE:
        members, steps = 1, tl.cdiv(end - begin, ROWS)
        end = begin + sizes.group * steps * ROWS
    draw = Draw(key, stream, last, kept_scale)
    for member in tl.range(0, members):
        head = kv_head * sizes.group + member
        number = batch * sizes.number_batch + head * sizes.number_head + q_begin
        q_at, dy_at = q_ptr + head * strides.q_head, dy_ptr + head * spans.dy_head
        mask_at, bias_at, rest_at = mask_ptr, bias_ptr, rest_ptr
        if rest_ptr is not None:
            rest_at = rest_ptr + number
        if mask_ptr is not None:
            mask_at = mask_ptr + head * strides.mask_head
        if bias_ptr is not None:
            bias_at = bias_ptr + head * strides.bias_head
        at_head = Queries(q_at, dy_at, base_ptr + number, delta_ptr + number, rest_at, mask_at, bias_at)
        place = Place(batch, head, captured, lists_ptr, 0)
        if FLAGS.SEEN is not None:
            lines = lists_ptr + batch * strides.list_batch + head * strides.list_head
            lines += start // FLAGS.BLOCK * strides.list_line
            full, part = tl.load(lines), tl.load(lines + 1)
            whole = Rule(scale2, softcap, window, shift, Place(batch, head, captured, lines + 2, full))
            end = tl.maximum(full * FLAGS.BLOCK, 1)
            tl.assume(end > 0)
            dk, dv = _over_queries(
                (dk, dv), k, v, at_head, strides, spans, sizes, start, col, 0, end, rows, cols, whole, draw, number,
                steps, FLAGS, ROWS, COLS, False, PAST=PAST, FULL=FULL, ONE=ONE,
            )  # fmt: skip
            place = Place(batch, head, captured, lines + 2 + full, part)
            end = tl.maximum(part * FLAGS.BLOCK, 1)
            tl.assume(end > 0)
        rule = Rule(scale2, softcap, window, shift, place)
        dk, dv = _over_queries(
            (dk, dv), k, v, at_head, strides, spans, sizes, start, col, begin, end, rows, cols, rule, draw, number,
            steps, FLAGS, ROWS, COLS, EDGE, PAST=PAST, FULL=FULL, ONE=ONE,
        )  # fmt: skip
    d = tl.arange(0, DIM)[None, :]
    inside = (col < cols)[:, None] & (d < sizes.dim)
    dk_ptr += batch * spans.dk_batch + kv_head * spans.dk_head + k_begin * spans.dk_seq
    dv_ptr += batch * spans.dv_batch + kv_head * spans.dv_head + k_begin * spans.dv_seq
    dk = (dk * scale).to(dk_ptr.dtype.element_ty)
    tl.store(dk_ptr + col.to(tl.int64)[:, None] * spans.dk_seq + d, dk, mask=inside)
    tl.store(dv_ptr + col.to(tl.int64)[:, None] * spans.dv_seq + d, dv.to(dv_ptr.dtype.element_ty), mask=inside)


# -- the bias ----------------------------------------------------------------------------------------
@triton.jit(do_not_specialize=["key", "stream", "last", "window"])
def bias_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, bias_ptr, q_starts_ptr, k_starts_ptr, strides, sizes, scale2, scale, softcap, window,
    key, stream, last, kept_scale, dy_ptr, base_ptr, delta_ptr, rest_ptr, db_ptr, dy_steps, shape,
    FLAGS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ONE_ROW: tl.constexpr, ONE_COL: tl.constexpr,
    PAST: tl.constexpr, FULL: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """The gradient of EACH tiles of the bias that follow each other."""
    # a program goes over all that share a tile, in order: batch entries, heads, and, where the bias has one row or
    # column, the blocks of queries or keys; one loop over tiles and sharers, so that loads run ahead from tile to tile
    TYPE: tl.constexpr = k_ptr.dtype.element_ty
    PRECISION: tl.constexpr = FLAGS.PRECISION
    row_blocks, col_blocks = tl.cdiv(sizes.seq_q, ROWS), tl.cdiv(sizes.seq_k, COLS)
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
    own_head, own_batch = which % shape.db_heads, which // shape.db_heads
    shared_heads = sizes.heads // shape.db_heads
    members = shape.batches // shape.db_batches * shared_heads * shared_rows * shared_cols
    shift = 0
    if FLAGS.BOTTOM:
        shift = sizes.seq_k - sizes.seq_q
    first_row = own_row * ROWS
    tiles = tl.minimum(EACH, owned_cols - first_tile)
    seen = tiles
    if FLAGS.CAUSAL and not (ONE_ROW or ONE_COL):  # behind the diagonal there is nothing to sum
        seen = tl.maximum(0, tl.minimum(tiles, tl.cdiv(first_row + ROWS + shift, COLS) - first_tile))
    bias_ptr += own_batch.to(tl.int64) * strides.bias_batch + own_head.to(tl.int64) * strides.bias_head
    db_ptr += (own_batch.to(tl.int64) * shape.db_heads + own_head) * shape.db_rows * shape.db_cols
    rule, draw = Rule(scale2, softcap, window, shift, None), Draw(key, stream, last, kept_scale)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for step in tl.range(0, seen * members):
        own_col, member = first_tile + step // members, step % members
        col_block, rest = member % shared_cols + own_col, member // shared_cols
        row_block, rest = rest % shared_rows + own_row, rest // shared_rows
        head = (rest % shared_heads + own_head).to(tl.int64)
        batch = (rest // shared_heads + own_batch).to(tl.int64)
        row = row_block * ROWS + tl.arange(0, ROWS)
        col = col_block * COLS + tl.arange(0, COLS)
        number = batch * sizes.number_batch + head * sizes.number_head
        q_at = q_ptr + batch * strides.q_batch + head * strides.q_head
        q = tile(q_at, row, strides.q_seq, sizes.seq_q, sizes.dim, FLAGS, not FULL)
        dy_at = dy_ptr + batch * dy_steps.batch + head * dy_steps.head
        dy = tile(dy_at, row, dy_steps.seq, sizes.seq_q, sizes.dim, FLAGS, not FULL)
        k_at = k_ptr + batch * strides.k_batch + head // sizes.group * strides.k_head
        k = tile(k_at, col, strides.k_seq, sizes.seq_k, sizes.dim, FLAGS, PAST > 0)
        v_at = v_ptr + batch * strides.v_batch + head // sizes.group * strides.v_head
        v = tile(v_at, col, strides.v_seq, sizes.seq_k, sizes.dim, FLAGS, PAST > 0)
        if FULL:
            base, delta = tl.load(base_ptr + number + row), tl.load(delta_ptr + number + row)
        else:
            base = tl.load(base_ptr + number + row, mask=row < sizes.seq_q, other=float("inf"))
            delta = tl.load(delta_ptr + number + row, mask=row < sizes.seq_q, other=0.0)
        mask = None
        if mask_ptr is not None:
            at = mask_ptr + batch * strides.mask_batch + head * strides.mask_head
            mask = beside(
                at, row[:, None], col[None, :], sizes.seq_q, sizes.seq_k, strides.mask_row, strides.mask_col, PAST
            )
        bias = beside(
            bias_ptr, row[:, None], col[None, :], sizes.seq_q, sizes.seq_k, strides.bias_row, strides.bias_col, PAST
        )
        s = inner_products(q, k, PRECISION, 0)
        s, _ = scores(
            s, mask, bias, base[:, None], row[:, None], col[None, :], sizes.seq_k, rule, TYPE, FLAGS,
            FLAGS.CAUSAL or FLAGS.WINDOW or PAST > 0,
        )  # fmt: skip
        rise = inner_products(dy, v, PRECISION, 0)
        if FLAGS.DROP:
            rise *= drops(draw, number, row, col_block * COLS, sizes.seq_k, FLAGS, COLS)
        if rest_ptr is not None:
            rise *= tl.load(rest_ptr + number + row, mask=row < sizes.seq_q, other=1.0)[:, None]
        db += power(s, TYPE) * (rise - delta[:, None])
        if member == members - 1:
            _store_bias(db_ptr, db, first_row, own_col * COLS, shape, ROWS, COLS, ONE_ROW, ONE_COL)
            db = tl.zeros((ROWS, COLS), tl.float32)
    for hidden in tl.range(seen, tiles):
        at_col = (first_tile + hidden) * COLS
        _store_bias(db_ptr, db, first_row, at_col, shape, ROWS, COLS, ONE_ROW, ONE_COL)


@triton.jit
def _store_bias(
    db_ptr, db, first_row, first_col, shape,
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
    inside = (row < shape.db_rows)[:, None] & (col < shape.db_cols)[None, :]
    tl.store(db_ptr + row[:, None] * shape.db_cols + col[None, :], db.to(db_ptr.dtype.element_ty), mask=inside)
