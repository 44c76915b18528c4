"""The backward of norms of wide rows: several programs share a row, and tell each other their part of its two means.

A row of x and dy with float32 sums for dw and db does not fit one program's registers, and reading it twice costs as
much as the whole limit.  Here `parts` programs hold a slab of columns each, of one row after another.  A program adds
its slab's part of the two means, leaves it in a slot of 64 bits, and finishes the row before, whose slots the others
have filled meanwhile; so it hardly waits.  The whole grid is launched together, or not at all: programs that wait for
programs that do not run would wait for ever.

Rows of half types, two numbers a word of 32 bits: a row that is held takes half the registers, and a word is taken
apart by one instruction a number.

Limit: memory, 3 * rows * cols elements.  Deterministic: every program adds the parts of a row in the same order.
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels._triton import let_next_begin, tl, triton
from burn_kernels.errors import KernelLimitError
from burn_kernels.launch import describe
from burn_kernels.norm.kernels_backward import add_both
from burn_kernels.prims import joined, tile

PARTS_TO_WAIT_FOR = (2, 4, 8)
"""Programs a row that the kernel knows how to wait for."""


# -- words of two numbers --------------------------------------------------------------------------------
def words_of(x: torch.Tensor) -> torch.Tensor:
    """x, of a half type and an even number of columns, as words; a copy where they do not begin at whole words."""
    whole = not (x.data_ptr() % 4 or x.storage_offset() % 2 or any(step % 2 for step in x.stride()[:-1]))
    return (x if whole else x.clone(memory_format=torch.contiguous_format)).view(torch.int32)


def check_words(op: str, x: torch.Tensor) -> None:
    """Raises KernelLimitError where rows of x are not whole words."""
    if x.element_size() != 2 or x.shape[-1] % 2:
        raise KernelLimitError(
            f"{op}: programs that share a row take two numbers at a time",
            given=describe({"x": x}),
            expected="float16 or bfloat16, and an even number of columns",
            mend="pass a config without `parts`, or none",
        )


def triton_type(dtype: torch.dtype) -> Any:
    """Triton's name for a half type."""
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float16


@triton.jit
def _low(words, TYPE: tl.constexpr):
    if TYPE == tl.bfloat16:
        x = (words << 16).to(tl.float32, bitcast=True)
    else:
        x = words.to(tl.int16).to(TYPE, bitcast=True).to(tl.float32)
    return x


@triton.jit
def _high(words, TYPE: tl.constexpr):
    if TYPE == tl.bfloat16:
        x = (words & -65536).to(tl.float32, bitcast=True)
    else:
        x = (words >> 16).to(tl.int16).to(TYPE, bitcast=True).to(tl.float32)
    return x


@triton.jit
def _words(low, high, TYPE: tl.constexpr, ASSEMBLED: tl.constexpr):
    """Two float32 each as a word of TYPE; ASSEMBLED by the one instruction that a GPU has for it."""
    if ASSEMBLED:
        NAME: tl.constexpr = "bf16x2" if TYPE == tl.bfloat16 else "f16x2"
        words = tl.inline_asm_elementwise(
            "cvt.rn." + NAME + ".f32 $0, $2, $1;", "=r,r,r", [low, high], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        words = low.to(TYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        words |= high.to(TYPE).to(tl.int16, bitcast=True).to(tl.int32) << 16
    return words


# -- slots of 64 bits ------------------------------------------------------------------------------------
@triton.jit
def _pack(a, b):
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
    """The words of two slots, once both are filled.  In the assembler's words, so that loads still run ahead of it.

    Not asked for earlier than they are wanted: what is not there yet would be asked for twice (layer norm of 16384
    columns on an H200: 0.40 ms for both passes, 0.36 so).
    """
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
        if PARTS == 8:
            words = joined(words, _wait_for_four(slots_ptr + 4))
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
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, slots_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, x_stride, rows, cols,
    TYPE: tl.constexpr, CENTRED: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, PARTS: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr, TELL: tl.constexpr, FINISH: tl.constexpr,
    LEADS: tl.constexpr,
):  # fmt: skip
    """The gradients of one slab of every so many-th row; rows, weights, their strides, cols and BLOCK are in words.

    TELL        fills the slots of each row
    FINISH      takes them; both in one launch where all programs run at once, else in one after the other
    """
    TOGETHER: tl.constexpr = TELL and FINISH
    part, group = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    groups = tl.num_programs(0) // PARTS
    base = part * (TILES * BLOCK) + tl.arange(0, BLOCK)
    # the sums of first numbers, and of second ones
    dw, dw_high = _zeros(TILES, BLOCK, tl.float32), _zeros(TILES, BLOCK, tl.float32)
    db, db_high = _zeros(TILES, BLOCK, tl.float32), _zeros(TILES, BLOCK, tl.float32)
    xs_before, dys_before = _zeros(TILES, BLOCK, tl.int32), _zeros(TILES, BLOCK, tl.int32)
    weights = ()
    if w_ptr is not None:
        for t in tl.static_range(TILES):
            weights = joined(weights, (tile(w_ptr, base + t * BLOCK, cols, EVEN),))
    mean_before, rstd_before = tl.full((), 0.0, tl.float32), tl.full((), 0.0, tl.float32)
    whole = 0.5 / cols  # a division a row is some 20 instructions
    for turn in tl.range(group, rows + groups, groups, num_stages=STAGES):
        # from the last row on, as in `norm.launch_backward`; the first row once more where none is left
        row = tl.maximum(rows - 1 - turn, 0)
        x_row, dy_row = x_ptr + row.to(tl.int64) * x_stride, dy_ptr + row.to(tl.int64) * dy_stride
        rstd = tl.load(rstd_ptr + row)
        mean = 0.0
        if CENTRED:
            mean = tl.load(mean_ptr + row)
        along = tl.zeros((BLOCK,), tl.float32)
        offset = tl.zeros((BLOCK,), tl.float32)
        xs, dys = (), ()
        for t in tl.static_range(TILES):
            col = base + t * BLOCK
            x, dy = tile(x_row, col, cols, EVEN), tile(dy_row, col, cols, EVEN)
            xs, dys = joined(xs, (x,)), joined(dys, (dy,))
            g, g_high = _low(dy, TYPE), _high(dy, TYPE)
            if w_ptr is not None:
                g *= _low(weights[t], TYPE)
                g_high *= _high(weights[t], TYPE)
            along += g * _low(x, TYPE)
            along += g_high * _high(x, TYPE)
            offset += g
            offset += g_high
        if TELL:
            total, totals = tl.reduce((along, offset), 0, add_both)
            if CENTRED:  # off the sum, not off x: float32 has digits to spare, and nothing waits for the mean to come
                total -= mean * totals
            tl.store(slots_ptr + row.to(tl.int64) * PARTS + part, _pack(total, totals), mask=turn < rows)
        if FINISH:
            # before the first row its own: what comes of it is multiplied by 0
            row_before = tl.where(turn == group, row, rows - 1 - turn + groups).to(tl.int64)
            total, totals = _sums(slots_ptr + row_before * PARTS, PARTS, TOGETHER)
            # n = x * rstd + away, and what dx has beside dy * w * rstd is x * slope + shift
            away = -mean_before * rstd_before
            slope = -total * rstd_before * rstd_before * whole
            shift = away * slope
            if CENTRED:
                shift -= totals * rstd_before * whole
            slope *= rstd_before
            new_dw, new_dw_high, new_db, new_db_high = (), (), (), ()
            for t in tl.static_range(TILES):
                col = base + t * BLOCK
                x, x_high = _low(xs_before[t], TYPE), _high(xs_before[t], TYPE)
                g, g_high = _low(dys_before[t], TYPE), _high(dys_before[t], TYPE)
                if dw_ptr is not None:
                    new_dw = joined(new_dw, (dw[t] + g * (x * rstd_before + away),))
                    new_dw_high = joined(new_dw_high, (dw_high[t] + g_high * (x_high * rstd_before + away),))
                if db_ptr is not None:
                    new_db, new_db_high = joined(new_db, (db[t] + g,)), joined(new_db_high, (db_high[t] + g_high,))
                if w_ptr is not None:
                    g *= _low(weights[t], TYPE)
                    g_high *= _high(weights[t], TYPE)
                dx = g * rstd_before + (x * slope + shift)
                dx_high = g_high * rstd_before + (x_high * slope + shift)
                inside = turn > group if EVEN else (col < cols) & (turn > group)
                tl.store(dx_ptr + row_before * cols + col, _words(dx, dx_high, TYPE, TOGETHER), mask=inside)
            if dw_ptr is not None:
                dw, dw_high = new_dw, new_dw_high
            if db_ptr is not None:
                db, db_high = new_db, new_db_high
            xs_before, dys_before, rstd_before = xs, dys, rstd
            if CENTRED:
                mean_before = mean
    if FINISH:
        if LEADS:
            let_next_begin()
        share = group.to(tl.int64) * 2 * cols
        for t in tl.static_range(TILES):
            col = base + t * BLOCK
            if dw_ptr is not None:
                tl.store(dw_ptr + share + 2 * col, dw[t], mask=col < cols)
                tl.store(dw_ptr + share + 2 * col + 1, dw_high[t], mask=col < cols)
            if db_ptr is not None:
                tl.store(db_ptr + share + 2 * col, db[t], mask=col < cols)
                tl.store(db_ptr + share + 2 * col + 1, db_high[t], mask=col < cols)
