"""The backward of norms of wide rows: several programs share a row, and tell each other their part of its two means.

A row of x and dy with float32 sums for dw and db does not fit one program's registers, and reading it twice costs as
much as the whole limit.  Here `parts` programs hold a slab of columns each, of one row after another.  A program adds
its slab's part of the two means, leaves it in a slot of 64 bits, and finishes the row before, whose slots the others
have filled meanwhile; so it hardly waits.  The whole grid is launched together, or not at all: programs that wait for
programs that do not run would wait for ever.

Limit: memory, 3 * rows * cols elements.  Deterministic: every program adds the parts of a row in the same order.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.norm_backward_kernels import add_both
from burn_kernels.prims import joined, tile

PARTS_TO_WAIT_FOR = (2, 4)
"""Programs a row that the kernel knows how to wait for."""


# -- slots of 64 bits ------------------------------------------------------------------------------------
@triton.jit
def _packed(a, b):
    """Two float32 as one word; never the word of an empty slot, all of whose bits are set."""
    high = a.to(tl.int32, bitcast=True).to(tl.int64) << 32
    word = high | (b.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)
    return tl.where(word == -1, 0x7FC000007FC00000, word)


@triton.jit
def _first(word):
    return (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _second(word):
    return word.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _wait_for_two(slots_ptr):
    """The words of two slots, once both are filled.  In the assembler's words, so that loads still run ahead of it."""
    return tl.inline_asm_elementwise(
        """{
            .reg .pred p, q;
            again: ld.volatile.global.v2.b64 {$0, $1}, [$2];
            setp.eq.s64 p, $0, -1;
            setp.eq.s64 q, $1, -1;
            or.pred p, p, q;
            @p bra again;
        }""",
        "=l,=l,l",
        [slots_ptr],
        dtype=(tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _wait_for_four(slots_ptr):
    return tl.inline_asm_elementwise(
        """{
            .reg .pred p, q;
            again: ld.volatile.global.v2.b64 {$0, $1}, [$4];
            ld.volatile.global.v2.b64 {$2, $3}, [$4 + 16];
            setp.eq.s64 p, $0, -1;
            setp.eq.s64 q, $1, -1;
            or.pred p, p, q;
            setp.eq.s64 q, $2, -1;
            or.pred p, p, q;
            setp.eq.s64 q, $3, -1;
            or.pred p, p, q;
            @p bra again;
        }""",
        "=l,=l,=l,=l,l",
        [slots_ptr],
        dtype=(tl.int64, tl.int64, tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _sums(slots_ptr, PARTS: tl.constexpr, WAIT: tl.constexpr):
    """The two sums of a row over its parts."""
    if WAIT:
        if PARTS == 2:
            words = _wait_for_two(slots_ptr)
        else:
            words = _wait_for_four(slots_ptr)
    else:
        words = ()
        for part in tl.static_range(PARTS):
            words = joined(words, (tl.load(slots_ptr + part),))
    along, offset = _first(words[0]), _second(words[0])
    for part in tl.static_range(1, PARTS):
        along += _first(words[part])
        offset += _second(words[part])
    return along, offset


@triton.jit
def _zeros(TILES: tl.constexpr, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    zeros = ()
    for _ in tl.static_range(TILES):
        zeros = joined(zeros, (tl.zeros((BLOCK,), TYPE),))
    return zeros


# -- kernel ----------------------------------------------------------------------------------------------
@triton.jit
def backward_shared(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, slots_ptr, ready_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, x_stride, rows,
    cols, CENTRED: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, PARTS: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr, TELL: tl.constexpr, FINISH: tl.constexpr,
):  # fmt: skip
    """The gradients of one slab of every so many-th row.

    ready_ptr   slots that are filled, with zeros: those of the row before the first
    TELL        fills the slots of each row
    FINISH      takes them; both in one launch where all programs run at once, else in one after the other
    """
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    LATE: tl.constexpr = CENTRED and TYPE != tl.float32  # as in `norm_backward`
    part, group = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    groups = tl.num_programs(0) // PARTS
    base = part * (TILES * BLOCK) + tl.arange(0, BLOCK)
    dw, db = _zeros(TILES, BLOCK, tl.float32), _zeros(TILES, BLOCK, tl.float32)
    xs_before, dys_before = _zeros(TILES, BLOCK, TYPE), _zeros(TILES, BLOCK, TYPE)
    weights = ()
    if w_ptr is not None:
        for t in tl.static_range(TILES):
            weights = joined(weights, (tile(w_ptr, base + t * BLOCK, cols, EVEN),))
    mean_before, rstd_before = tl.full((), 0.0, tl.float32), tl.full((), 0.0, tl.float32)
    for turn in tl.range(group, rows + groups, groups, num_stages=STAGES):
        there, first = turn < rows, turn == group
        row = tl.where(there, rows - 1 - turn, 0).to(tl.int64)  # from the last row on, as in `norm_backward`
        rstd = tl.load(rstd_ptr + row)
        mean = 0.0
        if CENTRED:
            mean = tl.load(mean_ptr + row)
        along = tl.zeros((BLOCK,), tl.float32)
        offset = tl.zeros((BLOCK,), tl.float32)
        xs, dys = (), ()
        for t in tl.static_range(TILES):
            col = base + t * BLOCK
            inside = there & (col < cols)
            x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0)
            dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0)
            xs, dys = joined(xs, (x,)), joined(dys, (dy,))
            g = dy.to(tl.float32)
            if w_ptr is not None:
                g *= weights[t].to(tl.float32)
            along += g * (x.to(tl.float32) - (0.0 if LATE else mean))
            offset += g
        if TELL:
            total, totals = tl.reduce((along, offset), 0, add_both)
            if LATE:
                total -= mean * totals
            tl.store(slots_ptr + row * PARTS + part, _packed(total, totals), mask=there)
        if FINISH:
            row_before = tl.where(first, 0, rows - 1 - (turn - groups)).to(tl.int64)
            slots = tl.where(first, ready_ptr, slots_ptr + row_before * PARTS)
            # asked for as late as can be: earlier, it is not there yet, and is asked for twice
            # (layer norm of 16384 columns on an H200: 0.40 ms for both passes, 0.36 so)
            total, totals = _sums(slots, PARTS, TELL)
            away = -mean_before * rstd_before
            shift = 0.0
            if CENTRED:
                shift = -totals * rstd_before / cols
            slope = -total * rstd_before * rstd_before / cols
            new_dw, new_db = (), ()
            for t in tl.static_range(TILES):
                col = base + t * BLOCK
                g = dys_before[t].to(tl.float32)
                if LATE:
                    n = xs_before[t].to(tl.float32) * rstd_before + away
                else:
                    n = (xs_before[t].to(tl.float32) - mean_before) * rstd_before
                if dw_ptr is not None:
                    new_dw = joined(new_dw, (dw[t] + g * n,))
                if db_ptr is not None:
                    new_db = joined(new_db, (db[t] + g,))
                if w_ptr is not None:
                    g *= weights[t].to(tl.float32)
                dx = (g * rstd_before + (n * slope + shift)).to(TYPE)
                tl.store(dx_ptr + row_before * cols + col, dx, mask=(col < cols) & (turn > group))
            if dw_ptr is not None:
                dw = new_dw
            if db_ptr is not None:
                db = new_db
            xs_before, dys_before, rstd_before = xs, dys, rstd
            if CENTRED:
                mean_before = mean
    if FINISH:
        share = group.to(tl.int64) * cols
        for t in tl.static_range(TILES):
            col = base + t * BLOCK
            if dw_ptr is not None:
                tl.store(dw_ptr + share + col, dw[t], mask=col < cols)
            if db_ptr is not None:
                tl.store(db_ptr + share + col, db[t], mask=col < cols)
