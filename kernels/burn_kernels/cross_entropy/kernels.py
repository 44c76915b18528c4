"""The kernels of cross entropy: one program a row, and two small ones for the mean; formulas are in `cross_entropy`.

A row begins wherever cols puts it: with 50257 bf16 columns seven rows of eight do not begin on 16 bytes.  So a row is
cut into what leads to the next 128 bytes, whole steps of `LANES` vectors without masks, and the rest: in one masked
step more, or where that would be mostly idle, element by element.  Each lane keeps its own maximum and sum over what it
reads; lanes are joined once a row.  The second pass goes from the end of the row to its begin: what was read last is
still near.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.prims import LOG2E, LOWEST, add_exponentials, exp, exp_for, halves, joined, quotient, row_parts, wide
from burn_kernels.random import held


# -- exponentials ------------------------------------------------------------------------------------
@triton.jit
def _power(shift, TYPE: tl.constexpr):
    """The parts of a shift that `_exp_of` takes."""
    if TYPE == tl.float32:
        high, low = halves(shift)
    else:
        high, low = shift * -LOG2E, 0.0
    return high, low


@triton.jit
def _exp_of(x, high, low, TYPE: tl.constexpr):
    """exp(x - shift); of half types by one multiply-add and one exp2."""
    if TYPE == tl.float32:
        y = exp(x - high - low)
    else:
        y = tl.exp2(x * LOG2E + high)
    return y


@triton.jit
def _add(m, total, x, TYPE: tl.constexpr):
    """`add_exponentials` with the multiplication by log2(e) and the difference in one step, of half types."""
    if TYPE == tl.float32:
        peak, total = add_exponentials(m, total, x, TYPE)
    else:
        peak = tl.maximum(m, tl.max(x, 1))
        # no lower, so that the product is finite: logits below -2.3e38 count as -inf
        high, low = _power(tl.maximum(peak, -2.3e38, propagate_nan=tl.PropagateNan.ALL), TYPE)
        total = total * exp_for(m - peak, TYPE) + tl.sum(_exp_of(x, high[:, None], low, TYPE), 1)
    return peak, total


@triton.jit
def _again(x):
    """x in float32 by other instructions than `.to`: so the compiler keeps the halves, not what it made of them."""
    if x.dtype == tl.bfloat16:
        y = (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        y = x.to(tl.float32)
    return y


# -- the first pass ----------------------------------------------------------------------------------
@triton.jit
def _take(m, total, sums, x, w_ptr, col, inside, TYPE: tl.constexpr, SMOOTH: tl.constexpr, EACH: tl.constexpr):
    """Takes a tile (lanes, n) into each lane's maximum and sum of exponentials, and for smoothing its plain sum."""
    m, total = _add(m, total, x, TYPE)
    if SMOOTH:
        if EACH:
            x *= tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
        sums += tl.sum(tl.where(inside, x, 0.0), 1)
    return m, total, sums


# -- the second pass ---------------------------------------------------------------------------------
@triton.jit
def _slope(x, w_ptr, col, inside, high, low, rise, others, TYPE: tl.constexpr, EACH: tl.constexpr):
    """The gradient where the target is not."""
    share = others
    if EACH:
        share *= tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
    return (_exp_of(x, high, low, TYPE) * rise - share).to(TYPE)


@triton.jit
def cross_entropy_rows(
    x_ptr, target_ptr, w_ptr, total_ptr, loss_ptr, lse_ptr, dx_ptr, dloss_ptr, count_ptr, stride, dloss_stride, cols,
    ignored, smoothing, z, LOSS: tl.constexpr, GRADIENT: tl.constexpr, SMOOTH: tl.constexpr, EACH: tl.constexpr,
    ZLOSS: tl.constexpr, HELD: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
    WIDE: tl.constexpr, NARROW: tl.constexpr, ONCE: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The loss and, with GRADIENT, the gradient of one row.

    ALIGN    elements to which the whole steps are aligned
    WIDE     what is no whole step goes in masked steps of vectors; NARROW: by single elements, after WIDE the last few
    ONCE     the row is one masked step, and stays in registers
    KEPT     whole steps at the end of the row that stay in registers
    """
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    STEP: tl.constexpr = LANES * VECTOR
    row = tl.program_id(0).to(tl.int64)
    begin = row * stride
    body, lead, size = row_parts(begin, cols, ALIGN)
    lane = tl.arange(0, LANES)
    at = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    one = lane[:, None]
    length = cols - lead  # of what follows `body`
    whole = size // STEP * STEP
    if ONCE:
        whole = size * 0
    streamed = whole - KEPT * STEP
    # where single elements begin
    edge = whole
    if WIDE:
        edge = size
    target = tl.load(target_ptr + row)
    # no class, and not to be ignored: NaN, which shows, rather than a read of foreign memory
    legal = (target >= 0) & (target < cols)
    # read before anything is written: dx may lie over x, and other threads may be ahead
    picked = tl.load(x_ptr + begin + target, mask=legal, other=float("nan")).to(tl.float32)
    if w_ptr is not None:
        weight = wide(tl.load(w_ptr + target, mask=legal, other=float("nan")).to(tl.float32), TYPE)
        mass = weight  # the sum of q
        if EACH:
            everything = wide(tl.load(total_ptr).to(tl.float32), TYPE)
            mass = weight - weight * smoothing + everything * (smoothing / cols)
    if ZLOSS:
        z = held(z, HELD)

    x_body, dx_body = x_ptr + body, dx_ptr + body
    if ONCE:  # the row in registers
        row_held = tl.load(x_body + at, mask=(at < size) & (target != ignored), other=float("-inf"))
    steps_held = ()
    if LOSS:
        m = tl.full((LANES,), LOWEST, tl.float32)
        total = tl.zeros((LANES,), tl.float32)
        sums = tl.zeros((LANES,), tl.float32)
        for start in tl.range(0, streamed, STEP, num_stages=STAGES):
            x = tl.load(x_body + start + at, eviction_policy="evict_last").to(tl.float32)
            m, total, sums = _take(m, total, sums, x, w_ptr, lead + start + at, True, TYPE, SMOOTH, EACH)
        for k in tl.static_range(KEPT):
            step_held = tl.load(x_body + streamed + k * STEP + at)
            steps_held = joined(steps_held, (step_held,))
            x = step_held.to(tl.float32)
            m, total, sums = _take(m, total, sums, x, w_ptr, lead + streamed + k * STEP + at, True, TYPE, SMOOTH, EACH)
        if WIDE:
            for start in tl.range(whole, size, STEP):
                inside = start + at < size
                if ONCE:
                    x = row_held.to(tl.float32)
                else:
                    x = tl.load(x_body + start + at, mask=inside, other=float("-inf")).to(tl.float32)
                m, total, sums = _take(m, total, sums, x, w_ptr, lead + start + at, inside, TYPE, SMOOTH, EACH)
        if NARROW:  # lanes of their own, which lie otherwise in the threads
            m1 = tl.full((LANES,), LOWEST, tl.float32)
            total1 = tl.zeros((LANES,), tl.float32)
            sums1 = tl.zeros((LANES,), tl.float32)
            if ALIGN > VECTOR:
                inside1 = one < lead
                x1 = tl.load(x_ptr + begin + one, mask=inside1, other=float("-inf")).to(tl.float32)
                m1, total1, sums1 = _take(m1, total1, sums1, x1, w_ptr, one, inside1, TYPE, SMOOTH, EACH)
            for start in tl.range(edge, length, LANES):
                inside1 = start + one < length
                x1 = tl.load(x_body + start + one, mask=inside1, other=float("-inf")).to(tl.float32)
                m1, total1, sums1 = _take(m1, total1, sums1, x1, w_ptr, lead + start + one, inside1, TYPE, SMOOTH, EACH)
            peak = tl.maximum(m, m1)
            total = total * exp_for(m - peak, TYPE) + total1 * exp_for(m1 - peak, TYPE)
            m = peak
            sums += sums1
        top = tl.max(m, 0)
        rest = tl.log(tl.sum(wide(total * exp_for(m - top, TYPE), TYPE), 0))
        top = wide(top, TYPE)
        lse = top + rest
        # not lse - picked: of a sure row, whose loss is near 0, that would leave the rounding of lse
        if w_ptr is not None:
            loss = mass * rest + weight * (1.0 - smoothing) * (top - picked)
        else:
            loss = rest + (1.0 - smoothing) * (top - picked)
        if SMOOTH:
            plain = tl.sum(wide(sums, TYPE), 0)
            if EACH:
                loss += smoothing / cols * (everything * top - plain)
            else:
                loss += smoothing * (top - plain / cols)
        if ZLOSS:
            loss += z * lse * lse
        tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, loss))
        tl.store(lse_ptr + row, lse)
    else:
        lse = wide(tl.load(lse_ptr + row), TYPE)

    if GRADIENT:
        scale = tl.full((), 1.0, tl.float32)
        if dloss_ptr is not None:
            scale = tl.load(dloss_ptr + row * dloss_stride).to(tl.float32)
        if count_ptr is not None:
            scale = quotient(scale, tl.load(count_ptr).to(tl.float32), TYPE)
        others, chosen, rise = 0.0, scale, wide(scale, TYPE)
        if SMOOTH:
            others = scale * (smoothing / cols)
            chosen = (wide(scale, TYPE) - wide(scale, TYPE) * smoothing + others).to(tl.float32)
        if w_ptr is not None:
            rise *= mass
            chosen = (chosen * weight).to(tl.float32)
        if ZLOSS:
            rise += wide(scale, TYPE) * 2.0 * z * lse
        rise = rise.to(tl.float32)
        # a row that is ignored is not read: what is nowhere cannot make its zeros NaN
        live = target != ignored
        rise, others = tl.where(live, rise, 0.0), tl.where(live, others, 0.0)
        high, low = _power(tl.where(live, lse, 0.0), TYPE)
        if NARROW:
            last = edge + (length - edge - 1) // LANES * LANES
            for back in tl.range(edge, length, LANES):
                start = last + edge - back
                there1 = start + one < length
                inside1 = there1 & live
                x1 = tl.load(x_body + start + one, mask=inside1, other=0.0).to(tl.float32)
                dx1 = _slope(x1, w_ptr, lead + start + one, inside1, high, low, rise, others, TYPE, EACH)
                tl.store(dx_body + start + one, dx1, mask=there1)
        if WIDE:
            for start in tl.range(whole, size, STEP):
                there = start + at < size
                inside = there & live
                if ONCE:
                    x = _again(row_held)
                else:
                    x = tl.load(x_body + start + at, mask=inside, other=0.0).to(tl.float32)
                dx = _slope(x, w_ptr, lead + start + at, inside, high, low, rise, others, TYPE, EACH)
                tl.store(dx_body + start + at, dx, mask=there, eviction_policy="evict_first")
        for k in tl.static_range(KEPT):
            again = whole - (k + 1) * STEP
            x = tl.where(live, _again(steps_held[KEPT - 1 - k]), 0.0)
            dx = _slope(x, w_ptr, lead + again + at, live, high, low, rise, others, TYPE, EACH)
            tl.store(dx_body + again + at, dx, eviction_policy="evict_first")
        reading = live & (at >= 0)  # one answer for all
        for back in tl.range(0, streamed, STEP, num_stages=STAGES):
            start = streamed - STEP - back
            x = tl.load(x_body + start + at, mask=reading, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = _slope(x, w_ptr, lead + start + at, reading, high, low, rise, others, TYPE, EACH)
            # what is written is not read again: rows that wait for their second reading need the cache more
            tl.store(dx_body + start + at, dx, eviction_policy="evict_first")
        if NARROW and ALIGN > VECTOR:
            there1 = one < lead
            inside1 = there1 & live
            x1 = tl.load(x_ptr + begin + one, mask=inside1, other=0.0).to(tl.float32)
            dx1 = _slope(x1, w_ptr, one, inside1, high, low, rise, others, TYPE, EACH)
            tl.store(dx_ptr + begin + one, dx1, mask=there1)
        # the target's own gradient takes the place of what the pass above wrote there: no comparison an element
        tl.debug_barrier()
        own = _exp_of(picked, high, low, TYPE) * rise - chosen
        tl.store(dx_ptr + begin + target, own.to(TYPE), mask=legal & live)


# -- the mean ----------------------------------------------------------------------------------------
@triton.jit
def count_rows(target_ptr, count_ptr, rows, ignored, BLOCK: tl.constexpr):
    """Counts the rows that are not ignored."""
    lane = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in tl.range(0, rows, BLOCK):
        inside = start + lane < rows
        target = tl.load(target_ptr + start + lane, mask=inside, other=0)
        count += tl.where(inside & (target != ignored), 1, 0)
    tl.store(count_ptr, tl.sum(count, 0).to(tl.float32))


@triton.jit
def mean_of_rows(loss_ptr, count_ptr, mean_ptr, rows, BLOCK: tl.constexpr):
    """The sum of the losses by what `count_rows` found."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, rows, BLOCK):
        total += tl.load(loss_ptr + start + lane, mask=start + lane < rows, other=0.0)
    tl.store(mean_ptr, tl.div_rn(tl.sum(total, 0), tl.load(count_ptr)))
