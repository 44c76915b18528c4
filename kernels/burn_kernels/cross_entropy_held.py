"""The loss and the gradient of rows that stay in registers, while the next ones are on their way to shared memory.

A row of 50257 or more columns is too long for the caches: its second reading, for the gradient, would come from the L2
cache or from memory.  Here few programs stride over the rows, and a program holds a row, or `PARTS` programs a part of
it each: they read it once.  The next rows are copied to shared memory meanwhile.  Each thread keeps a maximum and a sum
over what it holds; threads are joined once a row, and so are the parts: each leaves its pair in a slot of 64 bits and
waits for the others' (`norm_backward_shared`), so the whole grid is launched together, or not at all.

What begins and ends a row outside of whole vectors belongs to the first part.
Limit: memory, 2 * rows * cols elements.  Deterministic: every program joins the parts of a row in the same order.
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.launch import Machine, ceil_div, launch
from burn_kernels.norm_backward_shared import (
    PARTS_TO_WAIT_FOR,
    _first,
    _packed,
    _second,
    _wait_for_four,
    _wait_for_two,
)
from burn_kernels.prims import LOG2E, edge_columns, joined, row_parts
from burn_kernels.random import held

LEAST = tl.constexpr(-2.3e38)
"""Of maxima, so that their product with log2(e) is finite: logits below count as -inf."""


# -- a row's pair ----------------------------------------------------------------------------------------
@triton.jit
def _greater(a, b, NATIVE: tl.constexpr):
    """The maximum of halves, two at once; NaN only where NATIVE."""
    if not NATIVE:
        c = tl.maximum(a, b)
    elif a.dtype == tl.bfloat16:
        c = tl.inline_asm_elementwise(
            "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        c = tl.inline_asm_elementwise(
            "max.NaN.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.float16, is_pure=True, pack=2
        )
    return c


@triton.jit
def _again(x, NATIVE: tl.constexpr):
    """x in float32 by other words than `.to`: so the compiler keeps the halves, not what it made of them."""
    if not NATIVE:
        y = x.to(tl.float32)
    elif x.dtype == tl.bfloat16:
        y = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], dtype=tl.float32, is_pure=True, pack=2
        )
    else:
        y = tl.inline_asm_elementwise(
            """{
                .reg .b32 a, b;
                shl.b32 a, $2, 16;
                shr.s32 a, a, 3;
                shr.s32 b, $2, 3;
                and.b32 a, a, 0x8fffe000;
                and.b32 b, b, 0x8fffe000;
                mul.f32 $0, a, 0f77800000;
                mul.f32 $1, b, 0f77800000;
            }""",
            "=r,=r,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )
    return y


@triton.jit
def _both(m, total, m2, total2):
    """Two maxima, and sums of exponentials below them, as one pair."""
    top = tl.maximum(m, m2)
    return top, total * tl.exp2((m - top) * LOG2E) + total2 * tl.exp2((m2 - top) * LOG2E)


@triton.jit
def _pair(xs, x_rest, x_ends, EDGES: tl.constexpr, NATIVE: tl.constexpr):
    """The maximum, and the sum of exponentials below it, of what a program holds."""
    peaks = xs[0]
    for t in tl.static_range(1, len(xs)):
        peaks = _greater(peaks, xs[t], NATIVE)
    m = tl.maximum(tl.max(peaks, 1).to(tl.float32), tl.max(x_rest, 1).to(tl.float32))
    m = tl.maximum(m, LEAST)
    shift = m[:, None] * -LOG2E
    sums = tl.exp2(xs[0].to(tl.float32) * LOG2E + shift)
    for t in tl.static_range(1, len(xs)):
        sums += tl.exp2(xs[t].to(tl.float32) * LOG2E + shift)
    total = tl.sum(sums, 1) + tl.sum(tl.exp2(x_rest.to(tl.float32) * LOG2E + shift), 1)
    top, total = tl.reduce((m, total), 0, _both)
    if EDGES:
        ends = x_ends.to(tl.float32)
        m = tl.maximum(tl.max(ends, 0), LEAST)
        top, total = _both(top, total, m, tl.sum(tl.exp2((ends - m) * LOG2E), 0))
    return top, total


@triton.jit
def _told(slots_ptr, PARTS: tl.constexpr, WAIT: tl.constexpr):
    """The pair of a row from its slots."""
    if WAIT:
        if PARTS == 2:
            words = _wait_for_two(slots_ptr)
        else:
            words = _wait_for_four(slots_ptr)
    else:
        words = ()
        for part in tl.static_range(PARTS):
            words = joined(words, (tl.load(slots_ptr + part),))
    top, total = _first(words[0]), _second(words[0])
    for part in tl.static_range(1, PARTS):
        top, total = _both(top, total, _first(words[part]), _second(words[part]))
    return top, total


# -- kernel ----------------------------------------------------------------------------------------------
@triton.jit
def cross_entropy_held(
    x_ptr, target_ptr, w_ptr, loss_ptr, lse_ptr, dx_ptr, dloss_ptr, count_ptr, slots_ptr, stride, dloss_stride, rows,
    cols, ignored, z, ZLOSS: tl.constexpr, HELD: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr,
    VECTOR: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr, REST: tl.constexpr, PARTS: tl.constexpr,
    STAGES: tl.constexpr, TELL: tl.constexpr, FINISH: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """The loss and the gradient of a part of every so many-th row, of half types.

    ALIGN    elements to which vectors are aligned; 1 where all rows begin and end with whole ones
    TILES    of one vector a lane that a part has, the first WHOLE of which need no masks; one of REST elements a lane
    TELL     fills the slots of each row
    FINISH   takes them, and writes; both in one launch where all programs run at once, else in one after the other
    """
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    EDGES: tl.constexpr = ALIGN > 1
    TILE: tl.constexpr = LANES * VECTOR
    SPAN: tl.constexpr = TILES * TILE + LANES * REST
    part, group = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    groups = tl.num_programs(0) // PARTS
    lane = tl.arange(0, LANES)[:, None]
    at = lane * VECTOR + tl.arange(0, VECTOR)[None, :]
    rest = TILES * TILE + lane * REST + tl.arange(0, REST)[None, :]
    low = part * SPAN
    share = tl.full((), 1.0, tl.float32)
    if count_ptr is not None:
        share = tl.div_rn(share, tl.load(count_ptr).to(tl.float32))
    if ZLOSS:
        z = held(z, HELD)
    # read one row ahead: an address that waits for another reading would hold all threads up
    target_next = tl.load(target_ptr + group)
    # the target's own gradient takes the place of what is written there; one row later, which is after a barrier
    own_ptr, own, owned = dx_ptr + group, tl.full((), 0.0, TYPE), group < 0
    for turn in tl.range(group, rows, groups, num_stages=STAGES):
        row = tl.cast(turn, tl.int64)
        begin = row * stride
        body, lead, length = row_parts(begin, cols, ALIGN)
        size = tl.minimum(length - low, SPAN)
        x_body, dx_body = x_ptr + body + low, dx_ptr + body + low
        xs = ()
        for t in tl.static_range(TILES):
            if t < WHOLE:
                x = tl.load(x_body + t * TILE + at, eviction_policy="evict_first")
            else:
                inside = t * TILE + at < size
                x = tl.load(x_body + t * TILE + at, mask=inside, other=float("-inf"), eviction_policy="evict_first")
            xs = joined(xs, (x,))
        x_rest = tl.load(x_body + rest, mask=rest < size, other=float("-inf"), eviction_policy="evict_first")
        x_ends = target_next
        if EDGES:
            end, at_ends = edge_columns(lead, length, cols, ALIGN)
            x_ends = tl.load(x_ptr + begin + end, mask=at_ends & (part == 0), other=float("-inf"))
        target = target_next
        target_next = tl.load(target_ptr + tl.minimum(turn + groups, rows - 1))
        # no class, and not to be ignored: NaN, which shows, rather than a read of foreign memory
        legal = (target >= 0) & (target < cols)
        place = target - lead
        owner = tl.where((place >= 0) & (place < length), place // SPAN, 0) == part
        picked = tl.load(x_ptr + begin + target, mask=legal & owner, other=float("nan")).to(tl.float32)
        if TELL:
            top, total = _pair(xs, x_rest, x_ends, EDGES, NATIVE)
            if PARTS > 1:
                tl.store(slots_ptr + row * PARTS + part, _packed(top, total))
        if FINISH:
            if PARTS > 1:
                top, total = _told(slots_ptr + row * PARTS, PARTS, TELL)
            tl.store(own_ptr, own, mask=owned)
            log_total = tl.log(total)
            lse = top + log_total
            loss = log_total + (top - picked)
            scale = share
            if dloss_ptr is not None:
                scale *= tl.load(dloss_ptr + row * dloss_stride).to(tl.float32)
            rise, chosen = scale, scale
            if w_ptr is not None:
                weight = tl.load(w_ptr + target, mask=legal, other=float("nan")).to(tl.float32)
                loss, rise, chosen = loss * weight, rise * weight, chosen * weight
            if ZLOSS:
                loss += z * lse * lse
                rise += scale * 2.0 * z * lse
            live = target != ignored
            tl.store(loss_ptr + row, tl.where(live, loss, 0.0), mask=owner)
            tl.store(lse_ptr + row, lse, mask=owner)
            shift = lse * -LOG2E
            if live:
                for t in tl.static_range(TILES):
                    dx = (tl.exp2(_again(xs[t], NATIVE) * LOG2E + shift) * rise).to(TYPE)
                    if t < WHOLE:
                        tl.store(dx_body + t * TILE + at, dx, eviction_policy="evict_first")
                    else:
                        inside = t * TILE + at < size
                        tl.store(dx_body + t * TILE + at, dx, mask=inside, eviction_policy="evict_first")
                dx = (tl.exp2(_again(x_rest, NATIVE) * LOG2E + shift) * rise).to(TYPE)
                tl.store(dx_body + rest, dx, mask=rest < size, eviction_policy="evict_first")
                if EDGES:
                    dx = (tl.exp2(x_ends.to(tl.float32) * LOG2E + shift) * rise).to(TYPE)
                    tl.store(dx_ptr + begin + end, dx, mask=at_ends & (part == 0))
            else:  # whatever is in a row that is ignored
                nothing = tl.zeros((LANES, VECTOR), TYPE)
                for t in tl.static_range(TILES):
                    tl.store(dx_body + t * TILE + at, nothing, mask=t * TILE + at < size)
                tl.store(dx_body + rest, tl.zeros((LANES, REST), TYPE), mask=rest < size)
                if EDGES:
                    tl.store(dx_ptr + begin + end, tl.zeros((2 * ALIGN,), TYPE), mask=at_ends & (part == 0))
            own = (tl.exp2(picked * LOG2E + shift) * rise - chosen).to(TYPE)
            own_ptr, owned = dx_ptr + begin + target, legal & owner & live
    if FINISH:
        tl.debug_barrier()
        tl.store(own_ptr, own, mask=owned)


# -- launcher --------------------------------------------------------------------------------------------
PARTS = (1, *PARTS_TO_WAIT_FOR)
MOST_BYTES = 112_640
"""Of a part of a row: twice as much, and a little, is a Hopper's shared memory."""


def parts_for(row_bytes: int) -> int:
    """Programs that share a row, as few as can hold it; 0 where it is too long for as many as know of each other."""
    return next((parts for parts in PARTS if row_bytes <= parts * MOST_BYTES), 0)


def run(
    x: torch.Tensor,
    tensors: tuple[Any, ...],
    numbers: tuple[Any, ...],
    machine: Machine,
    *,
    warps: int,
    stages: int,
    registers: int,
    parts: int,
    programs: int,
    flags: dict[str, Any],
) -> None:
    """Launches the kernel for x (rows, cols) with neighbours along cols.

    tensors: targets, weight, losses, lse, dx, dloss, divisor; numbers: of dloss the stride, ignored, z.
    """
    (rows, cols), stride, vector, lanes = x.shape, x.stride(0), 16 // x.element_size(), 32 * warps
    # whole lines of 128 bytes where rows begin anywhere: a vector that crosses one costs two accesses
    align = 8 * vector if cols % vector or stride % vector else 1
    sure = cols - 2 * (align - 1)  # is in whole vectors wherever a row begins
    tiles, left = divmod(ceil_div(cols, parts) - 1, lanes * vector)
    rest = next(n for n in (2, 4, 8) if left < n * lanes) if tiles else 2
    tiles = max(tiles, 1)
    whole = max(0, min(tiles, (sure - (parts - 1) * lanes * (tiles * vector + rest)) // (lanes * vector)))
    groups = min(rows, max(1, machine.processors * programs // parts))
    slots = torch.full((rows * parts,), -1, dtype=torch.int64, device=x.device) if parts > 1 else None
    dloss_stride, ignored, z = numbers
    arguments = (x, *tensors, slots, stride, dloss_stride, rows, cols, ignored, z)
    sizes = {"ALIGN": align, "LANES": lanes, "VECTOR": vector, "TILES": tiles, "WHOLE": whole, "REST": rest}
    how = {"warps": warps, "stages": stages, "registers": registers, "PARTS": parts, "STAGES": stages}
    native = machine.backend == "cuda"
    # in the interpreter one program runs after the other: none can wait
    turns = ((True, True),) if native or parts == 1 else ((True, False), (False, True))
    for tell, finish in turns:
        told = {"TELL": tell, "FINISH": finish, "NATIVE": native}
        launch(
            cross_entropy_held, (groups * parts,), x, *arguments, together=parts > 1, **how, **sizes, **told, **flags
        )
