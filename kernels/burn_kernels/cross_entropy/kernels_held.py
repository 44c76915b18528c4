"""The loss and the gradient of rows that stay in registers, while the next ones are on their way to shared memory.

A row of 50257 columns is too long for the caches near a processor: its second reading, for the gradient, comes from
the L2 cache, which is then what limits.  Here few programs stride over the rows, each holds one in registers, and reads
it once; the next ones are copied to shared memory meanwhile.  Each thread keeps a maximum and a sum over what it holds;
threads are joined once a row.  What begins and ends a row outside of whole lines of 128 bytes is held apart.

Limit: memory, 2 * rows * cols elements.  Deterministic.
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.launch import Machine, launch
from burn_kernels.prims import LOG2E, edge_columns, joined, row_parts
from burn_kernels.random import held

LEAST = tl.constexpr(-2.3e38)
"""The least maximum, so that its product with log2(e) is finite: logits below count as -inf."""


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


# -- kernel ----------------------------------------------------------------------------------------------
@triton.jit
def cross_entropy_held(
    x_ptr, target_ptr, w_ptr, loss_ptr, lse_ptr, dx_ptr, dloss_ptr, count_ptr, stride, dloss_stride, rows,
    cols, ignored, z, ZLOSS: tl.constexpr, HELD: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr,
    VECTOR: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr, REST: tl.constexpr, STAGES: tl.constexpr,
    NATIVE: tl.constexpr,
):  # fmt: skip
    """The loss and the gradient of every so many-th row, of half types.

    ALIGN    elements to which vectors are aligned; 1 where all rows begin and end with whole ones
    TILES    of one vector a lane, the first WHOLE of which need no masks; then one of REST elements a lane
    NATIVE   whether the machine's own instructions for two halves at once are there
    """
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    EDGES: tl.constexpr = ALIGN > 1
    TILE: tl.constexpr = LANES * VECTOR
    first, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, LANES)[:, None]
    at = lane * VECTOR + tl.arange(0, VECTOR)[None, :]
    rest = TILES * TILE + lane * REST + tl.arange(0, REST)[None, :]
    share = tl.full((), 1.0, tl.float32)
    if count_ptr is not None:
        share = tl.div_rn(share, tl.load(count_ptr).to(tl.float32))
    if ZLOSS:
        z = held(z, HELD)
    # read one row ahead: an address that waits for another reading would hold all threads up
    target_next = tl.load(target_ptr + first)
    # the target's own gradient takes the place of what is written there; one row later, which is after a barrier
    own_ptr, own, owned = dx_ptr + first, tl.full((), 0.0, TYPE), first < 0
    for turn in tl.range(first, rows, programs, num_stages=STAGES):
        row = tl.cast(turn, tl.int64)
        begin = row * stride
        body, lead, size = row_parts(begin, cols, ALIGN)
        x_body, dx_body = x_ptr + body, dx_ptr + body
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
            end, at_ends = edge_columns(lead, size, cols, ALIGN)
            x_ends = tl.load(x_ptr + begin + end, mask=at_ends, other=float("-inf"))
        target = target_next
        target_next = tl.load(target_ptr + tl.minimum(turn + programs, rows - 1))
        # no class, and not to be ignored: NaN, which shows, rather than a read of foreign memory
        legal, live = (target >= 0) & (target < cols), target != ignored
        picked = tl.load(x_ptr + begin + target, mask=legal, other=float("nan")).to(tl.float32)
        top, total = _pair(xs, x_rest, x_ends, EDGES, NATIVE)
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
        tl.store(loss_ptr + row, tl.where(live, loss, 0.0))
        tl.store(lse_ptr + row, lse)
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
                tl.store(dx_ptr + begin + end, dx, mask=at_ends)
        else:  # whatever is in a row that is ignored
            for t in tl.static_range(TILES):
                tl.store(dx_body + t * TILE + at, tl.zeros((LANES, VECTOR), TYPE), mask=t * TILE + at < size)
            tl.store(dx_body + rest, tl.zeros((LANES, REST), TYPE), mask=rest < size)
            if EDGES:
                tl.store(dx_ptr + begin + end, tl.zeros((2 * ALIGN,), TYPE), mask=at_ends)
        own = (tl.exp2(picked * LOG2E + shift) * rise - chosen).to(TYPE)
        own_ptr, owned = dx_ptr + begin + target, legal & live
    tl.debug_barrier()
    tl.store(own_ptr, own, mask=owned)


# -- launcher --------------------------------------------------------------------------------------------
MOST_BYTES = 112_640
"""The most that a row may have: twice as much, and a little, is a Hopper's shared memory."""


def run(
    x: torch.Tensor,
    tensors: tuple[object, ...],
    numbers: tuple[object, ...],
    machine: Machine,
    *,
    warps: int,
    stages: int,
    registers: int,
    programs: int,
    flags: dict[str, Any],
) -> None:
    """Launches the kernel, `programs` a processor, for x (rows, cols) with neighbours along cols.

    tensors: targets, weight, losses, lse, dx, dloss, divisor; numbers: of dloss the stride, ignored, z.
    """
    (rows, cols), stride, vector, lanes = x.shape, x.stride(0), 16 // x.element_size(), 32 * warps
    # whole lines of 128 bytes where rows begin anywhere: a vector that crosses one costs two accesses
    align = 8 * vector if cols % vector or stride % vector else 1
    tiles, left = divmod(cols - 1, lanes * vector)
    rest = next(n for n in (2, 4, 8) if left < n * lanes) if tiles else 2
    tiles = max(tiles, 1)
    sure = cols - 2 * (align - 1)  # is in whole vectors wherever a row begins
    sizes = {"ALIGN": align, "LANES": lanes, "VECTOR": vector, "TILES": tiles, "REST": rest}
    sizes |= {"WHOLE": max(0, min(tiles, sure // (lanes * vector))), "STAGES": stages}
    how = {"warps": warps, "stages": stages, "registers": registers, "NATIVE": machine.backend == "cuda"}
    dloss_stride, ignored, z = numbers
    arguments = (x, *tensors, stride, dloss_stride, rows, cols, ignored, z)
    launch(cross_entropy_held, (min(rows, machine.processors * programs),), x, *arguments, **how, **sizes, **flags)
