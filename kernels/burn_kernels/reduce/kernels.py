"""The kernels of reductions; the formulas are in `reduce`, and the cut of their work in `reduce.configs`.

Each lane of a tile keeps its own running value (of var mean and squares, of logsumexp maximum and sum, of argmax value
and place), joined once.  Tiles are taken in groups: the loads of a group leave together, and only the last group has
masks.  Where results are too few to fill the machine, the reduced axis is cut, and a second, small kernel joins the
parts; argmax carries (key, place) as one 64-bit number.
"""

from __future__ import annotations

from typing import NamedTuple

from burn_kernels._triton import tl, triton
from burn_kernels.prims import LOWEST, exp_for, halves, joined, quotient


# -- kernels -----------------------------------------------------------------------------------------
class Cut(NamedTuple):
    """The places of results and their elements, and their cut into blocks of results and chunks of the length."""

    kept: int
    inner: int
    outer_stride: int
    inner_stride: int
    length: int
    stride: int
    chunks: int
    chunk: int
    far_stride: int
    blocks: int


@triton.jit
def _place(cut, SPREAD: tl.constexpr, KEPT: tl.constexpr):
    """Finds the work of this program: first elements, numbers of results, which are there, begin and end, its part."""
    pid = tl.program_id(0).to(tl.int64)
    block, part = pid % cut.blocks, pid // cut.blocks
    if SPREAD:  # inner is short: a tile spans several outers
        k = block * KEPT + tl.arange(0, KEPT)
        valid = k < cut.kept
        first = (k // cut.inner) * cut.outer_stride + (k % cut.inner) * cut.inner_stride
    else:
        in_row = tl.cdiv(cut.inner, KEPT)
        outer = block // in_row
        i = (block % in_row) * KEPT + tl.arange(0, KEPT)
        valid = i < cut.inner
        first = outer * cut.outer_stride + i * cut.inner_stride
        k = outer * cut.inner + i
    start = (part % cut.chunks) * cut.chunk
    first += (part // cut.chunks) * cut.far_stride
    return first, k, valid, start, tl.minimum(start + cut.chunk, cut.length), part


@triton.jit
def _peak(x, AXIS: tl.constexpr):
    """The maximum along an axis, NaN where there is one."""
    odd = tl.max((x != x).to(tl.int32), AXIS)
    top = tl.max(tl.where(x != x, float("-inf"), x), AXIS)
    return tl.where(odd > 0, float("nan"), top)


@triton.jit
def _pack(value, place):
    """One number that is larger for the larger value, at equals for the smaller place; NaN is above all."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)  # -0 equals 0
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(value != value, 0x7FFFFFFF, key)
    return (key.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _higher(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _take(a, b, x, group, like, KIND: tl.constexpr, AHEAD: tl.constexpr, TYPE: tl.constexpr):
    """Takes a group of tiles (KEPT, BLOCK, AHEAD), all of it there, into the lanes' running values."""
    SIGN: tl.constexpr = -1.0 if KIND == "amin" else 1.0
    if KIND == "sum" or KIND == "mean":
        a += tl.sum(x, 2)
    elif KIND == "ties":
        a += tl.sum(tl.where(x == like, 1.0, 0.0), 2)
    elif KIND == "var":
        # the group's own mean and squares, joined to the lane's by Chan's rule: one division a group
        middle = tl.sum(x, 2) * (1.0 / AHEAD)
        away = x - middle[:, :, None]
        gap = middle - a
        a += gap * (1.0 / (group + 1.0))
        b += tl.sum(away * away, 2) + gap * (middle - a) * AHEAD
    elif KIND == "logsumexp":
        # the larger of the two has exponential 1: one exp an element
        e = exp_for(-tl.abs(x - a), TYPE)
        b = tl.where(x > a, b * e + 1.0, b + e)
        a = _higher(a, x)
    else:
        a = _higher(a, SIGN * x)
    return a, b


@triton.jit
def place_once(
    x_ptr, a_ptr, y_ptr, cut, KIND: tl.constexpr, WHOLE: tl.constexpr, SPREAD: tl.constexpr, KEPT: tl.constexpr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Finds the place of the highest element of one part: to the end if WHOLE, else as (key, place) of the part.

    A lane keeps its highest value and the group of tiles that it came from; the one group that holds the first of the
    highest is read again for the place in it.
    """
    first, k, valid, start, end, part = _place(cut, SPREAD, KEPT)
    SIGN: tl.constexpr = -1.0 if KIND == "argmin" else 1.0
    STEP: tl.constexpr = AHEAD * BLOCK
    lane = tl.arange(0, BLOCK)
    a = tl.full((KEPT, BLOCK), float("-inf"), tl.float32)
    place = tl.zeros((KEPT, BLOCK), tl.int32)
    count = (end - start).to(tl.int32)
    groups = count // STEP
    begin, offset = x_ptr + start * cut.stride, first[:, None] + lane[None, :] * cut.stride
    here = begin
    for group in tl.range(0, groups):
        tiles = ()
        for u in tl.static_range(AHEAD):
            tiles = joined(tiles, (tl.load(here + u * BLOCK * cut.stride + offset, mask=valid[:, None], other=0.0),))
        here += STEP * cut.stride
        top = SIGN * tiles[0].to(tl.float32)  # type: ignore[misc]  # to mypy it is still empty
        for u in tl.static_range(1, AHEAD):
            top = _higher(top, SIGN * tiles[u].to(tl.float32))
        a, place = _take_group(a, place, top, group)
    for begun in tl.range(groups * STEP, count, BLOCK):  # what is no whole group
        inside = valid[:, None] & (begun + lane < count)[None, :]
        x = tl.load(here + offset, mask=inside, other=-SIGN * float("inf"))
        here += BLOCK * cut.stride
        a, place = _take_group(a, place, SIGN * x.to(tl.float32), groups)
    highest = _peak(a, 1)
    same = (a == highest[:, None]) | ((a != a) & (highest != highest)[:, None])
    which = tl.min(tl.where(same, place, 0x7FFFFFFF), 1)
    # of that group, what the lanes read that hold it: of columns each element is a sector of its own
    same &= place == which[:, None]
    skip = which * STEP
    local = tl.full((KEPT, BLOCK), 0x7FFFFFFF, tl.int32)
    again = begin + offset + skip.to(tl.int64)[:, None] * cut.stride
    for u in tl.range(0, AHEAD):
        at = skip[:, None] + (u * BLOCK + lane)[None, :]
        inside = valid[:, None] & (at < count) & same
        x = SIGN * tl.load(again, mask=inside, other=0.0).to(tl.float32)
        again += BLOCK * cut.stride
        hit = (x == highest[:, None]) | ((x != x) & (highest != highest)[:, None])
        local = tl.minimum(local, tl.where(hit & inside, at, 0x7FFFFFFF))
    local_place = tl.min(local, 1)
    if WHOLE:
        tl.store(y_ptr + k, start + local_place, mask=valid)
    else:
        tl.store(a_ptr + part * cut.kept + k, _pack(highest, local_place), mask=valid)


@triton.jit
def place_columns(
    x_ptr, a_ptr, y_ptr, cut, KIND: tl.constexpr, WHOLE: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
    AHEAD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `place_once` where results lie side by side in memory and elements of one do not.

    A lane takes AHEAD elements that follow each other, so what it keeps names so few that whoever knows the last word,
    this program if WHOLE, else `join_places`, reads them again: once a result, not once a part.
    """
    first, k, valid, start, end, part = _place(cut, False, KEPT)
    SIGN: tl.constexpr = -1.0 if KIND == "argmin" else 1.0
    STEP: tl.constexpr = AHEAD * BLOCK
    lane = tl.arange(0, BLOCK) * AHEAD
    count = (end - start).to(tl.int32)
    groups = count // STEP
    a = tl.full((KEPT, BLOCK), float("-inf"), tl.float32)
    place = tl.zeros((KEPT, BLOCK), tl.int32)
    here, offset = x_ptr + start * cut.stride, first[:, None] + lane[None, :] * cut.stride
    for group in tl.range(0, groups, num_stages=STAGES):
        tiles = ()
        for u in tl.static_range(AHEAD):
            tiles = joined(tiles, (tl.load(here + u * cut.stride + offset, mask=valid[:, None], other=0.0),))
        here += STEP * cut.stride
        top = SIGN * tiles[0].to(tl.float32)  # type: ignore[misc]  # to mypy it is still empty
        for u in tl.static_range(1, AHEAD):
            top = _higher(top, SIGN * tiles[u].to(tl.float32))
        a, place = _take_group(a, place, top, group)
    if groups * STEP < count:  # what is no whole group
        top = tl.full((KEPT, BLOCK), float("-inf"), tl.float32)
        for u in tl.range(0, AHEAD):
            inside = valid[:, None] & (groups * STEP + u + lane < count)[None, :]
            x = tl.load(here + u * cut.stride + offset, mask=inside, other=-SIGN * float("inf"))
            top = _higher(top, SIGN * x.to(tl.float32))
        a, place = _take_group(a, place, top, groups)
    best = tl.max(_pack(a, place * STEP + lane[None, :]), 1)
    if WHOLE:
        row = 0x7FFFFFFF - (best & 0x7FFFFFFF)
        tl.store(
            y_ptr + k, _again(x_ptr, first, row, cut.stride, cut.length, best >> 32, valid, SIGN, AHEAD), mask=valid
        )
    else:
        tl.store(a_ptr + part * cut.kept + k, best, mask=valid)


@triton.jit
def _take_group(a, place, top, group):
    """Takes one more group into the lanes' highest values and the groups that they came from."""
    # a sum with 0 makes of -0 the 0 that it equals; a lane that is NaN stays so, bit by bit, so the first one wins
    top = _higher(a, top + 0.0)
    return top, tl.where(top.to(tl.int32, bitcast=True) != a.to(tl.int32, bitcast=True), group, place)


@triton.jit
def _again(x_ptr, first, row, stride, length, key, valid, SIGN: tl.constexpr, AHEAD: tl.constexpr):
    """Reads AHEAD elements from `row` on: where the first is that `_pack` gave this key."""
    key = key.to(tl.int32)
    value = tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)[:, None]
    rows = row[:, None] + tl.arange(0, AHEAD)[None, :]
    inside = valid[:, None] & (rows < length)
    x = SIGN * tl.load(x_ptr + first[:, None] + rows * stride, mask=inside, other=0.0).to(tl.float32)
    hit = inside & ((x == value) | ((x != x) & (value != value)))
    return tl.min(tl.where(hit, rows, 0x7FFFFFFFFFFFFFFF), 1)


@triton.jit
def reduce_once(
    x_ptr, like_ptr, a_ptr, b_ptr, y_ptr, mean_ptr, cut, divisor, KIND: tl.constexpr, WHOLE: tl.constexpr,
    SPREAD: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Reduces a tile of results over one part of their elements: to the end if WHOLE, else to (a, b) of the part."""
    first, k, valid, start, end, part = _place(cut, SPREAD, KEPT)
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    SIGN: tl.constexpr = -1.0 if KIND == "amin" else 1.0
    PEAK: tl.constexpr = KIND != "sum" and KIND != "mean" and KIND != "var"
    STEP: tl.constexpr = AHEAD * BLOCK
    lane = tl.arange(0, BLOCK)
    each = lane[None, :, None] + (tl.arange(0, AHEAD) * BLOCK)[None, None, :]
    like = 0.0
    if PEAK and KIND != "ties":  # elements of a group have values of their own; of sums, a group is one step
        a = tl.full((KEPT, BLOCK, AHEAD), LOWEST if KIND == "logsumexp" else float("-inf"), tl.float32)
        b = tl.zeros((KEPT, BLOCK, AHEAD), tl.float32)
    else:
        a = tl.zeros((KEPT, BLOCK), tl.float32)
        b = tl.zeros((KEPT, BLOCK), tl.float32)
    if KIND == "ties":
        like = tl.load(like_ptr + k, mask=valid, other=0.0).to(tl.float32)[:, None, None]
    groups = ((end - start) // STEP).to(tl.int32)
    # one address that moves, and places beside it that do not: an address a lane would take two registers an element
    here, places = x_ptr + start * cut.stride, first[:, None, None] + each * cut.stride
    for group in tl.range(0, groups):
        x = tl.load(here + places, mask=valid[:, None, None], other=0.0).to(tl.float32)
        here += STEP * cut.stride
        a, b = _take(a, b, x, group, like, KIND, AHEAD, TYPE)
    # at most one turn; an `if` in its place makes Triton 3.6 refuse sums of float32 (OptimizeThreadLocality)
    for begun in tl.range(groups * STEP, (end - start).to(tl.int32), STEP):
        inside = valid[:, None, None] & (begun + each < end - start)
        # what changes nothing: a value that is no number equals none
        NEUTRAL: tl.constexpr = float("nan") if KIND == "ties" else -SIGN * float("inf") if PEAK else 0.0
        x = tl.load(here + places, mask=inside, other=NEUTRAL).to(tl.float32)
        if KIND == "var":
            added = tl.sum(tl.where(inside, 1.0, 0.0), 2)
            middle = tl.sum(x, 2) / tl.maximum(added, 1.0)
            away = tl.where(inside, x - middle[:, :, None], 0.0)
            gap = middle - a
            before = (groups * AHEAD).to(tl.float32)
            share = added / tl.maximum(before + added, 1.0)
            b += tl.sum(away * away, 2) + gap * gap * before * share
            a += gap * share
        else:
            a, b = _take(a, b, x, groups, like, KIND, AHEAD, TYPE)
    out = part * cut.kept + k
    if KIND == "sum" or KIND == "mean" or KIND == "ties":
        total = tl.sum(a, 1)
        if WHOLE:
            tl.store(y_ptr + k, quotient(total, divisor, TYPE).to(y_ptr.dtype.element_ty), mask=valid)
        else:
            tl.store(a_ptr + out, total, mask=valid)
    elif KIND == "var":
        seen = (tl.maximum(end - start - lane + BLOCK - 1, 0) // BLOCK).to(tl.float32)[None, :]
        mean = tl.sum(a * seen, 1) / (end - start).to(tl.float32)
        away = a - mean[:, None]
        squares = tl.sum(b + seen * away * away, 1)
        if WHOLE:
            tl.store(y_ptr + k, quotient(squares, divisor, TYPE).to(y_ptr.dtype.element_ty), mask=valid)
            tl.store(mean_ptr + k, mean, mask=valid)
        else:
            tl.store(a_ptr + out, mean, mask=valid)
            tl.store(b_ptr + out, squares, mask=valid)
    elif KIND == "logsumexp":
        top = _peak(_peak(a, 2), 1)
        total = tl.sum(tl.sum(b * exp_for(a - top[:, None, None], TYPE), 2), 1)
        if WHOLE:
            lse = _lse(top, total, TYPE)
            tl.store(y_ptr + k, lse.to(y_ptr.dtype.element_ty), mask=valid)
            tl.store(mean_ptr + k, lse, mask=valid)
        else:
            tl.store(a_ptr + out, top, mask=valid)
            tl.store(b_ptr + out, total, mask=valid)
    else:
        top = _peak(_peak(a, 2), 1)
        if WHOLE:
            tl.store(y_ptr + k, (SIGN * top).to(y_ptr.dtype.element_ty), mask=valid)
        else:
            tl.store(a_ptr + out, top, mask=valid)


@triton.jit
def _log_wide(x):
    """log(x) of a normal float32 x > 0 in float64; -inf of 0."""
    bits = x.to(tl.int32, bitcast=True)
    n = (bits - 0x3F3504F3) >> 23  # x is 2^n m, m from sqrt(1/2) to sqrt(2)
    m = (bits - (n << 23)).to(tl.float32, bitcast=True).to(tl.float64)
    s = (m - 1.0) / (m + 1.0)
    q = s * s  # up to 0.0295: of 2 atanh(s) the next term is 2e-12 of it
    p = 0.15384615384615385 * q + 0.18181818181818182
    p = p * q + 0.2222222222222222
    p = p * q + 0.2857142857142857
    p = p * q + 0.4
    p = p * q + 0.6666666666666666
    y = n.to(tl.float64) * 0.6931471805599453 + (p * q * s + 2.0 * s)
    return tl.where(x > 0.0, y, tl.where(x == 0.0, float("-inf"), float("nan")))


@triton.jit
def _lse(top, total, TYPE: tl.constexpr):
    """The largest element and the logarithm of the sum beside it; of float32 in float64, as the gradient takes it."""
    if TYPE == tl.float32:
        lse = top.to(tl.float64) + _log_wide(total)
    else:
        lse = top + tl.log(total)
    # a sum with +inf in it is +inf, though inf - inf is no number
    return tl.where(top == float("inf"), top, lse)


@triton.jit
def join_parts(
    a_ptr, b_ptr, y_ptr, mean_ptr, kept, parts, length, chunks, chunk, divisor, KIND: tl.constexpr,
    PARTS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Joins what `reduce_once` left of the parts of each result; of places `join_places` does."""
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    lane = tl.arange(0, PARTS)
    a = tl.zeros((PARTS, KEPT), tl.float32)
    b = tl.zeros((PARTS, KEPT), tl.float32)
    if KIND == "amax" or KIND == "amin" or KIND == "logsumexp":
        a += float("-inf")
    for at in tl.range(0, parts, PARTS):
        part = at + lane
        inside = (part < parts)[:, None] & valid[None, :]
        where = (part.to(tl.int64) * kept)[:, None] + k[None, :]
        if KIND == "var":
            seen = tl.minimum(length - (part % chunks).to(tl.int64) * chunk, chunk).to(tl.float32)[:, None]
            a += seen * tl.load(a_ptr + where, mask=inside, other=0.0)
        elif KIND == "sum" or KIND == "mean" or KIND == "ties":
            a += tl.load(a_ptr + where, mask=inside, other=0.0)
        else:
            peaks = tl.load(a_ptr + where, mask=inside, other=float("-inf"))
            a = tl.maximum(a, peaks, propagate_nan=tl.PropagateNan.ALL)
    if KIND == "sum" or KIND == "mean" or KIND == "ties":
        tl.store(
            y_ptr + k, quotient(tl.sum(a, 0), divisor, y_ptr.dtype.element_ty).to(y_ptr.dtype.element_ty), mask=valid
        )
    elif KIND == "amax" or KIND == "amin":
        SIGN: tl.constexpr = -1.0 if KIND == "amin" else 1.0
        tl.store(y_ptr + k, (SIGN * _peak(a, 0)).to(y_ptr.dtype.element_ty), mask=valid)
    else:
        if KIND == "var":
            middle = tl.sum(a, 0) / (parts // chunks * length).to(tl.float32)
        else:
            middle = _peak(a, 0)
        for at in tl.range(0, parts, PARTS):
            part = at + lane
            inside = (part < parts)[:, None] & valid[None, :]
            where = (part.to(tl.int64) * kept)[:, None] + k[None, :]
            if KIND == "var":
                seen = tl.minimum(length - (part % chunks).to(tl.int64) * chunk, chunk).to(tl.float32)[:, None]
                away = tl.load(a_ptr + where, mask=inside, other=0.0) - middle[None, :]
                away = tl.where(inside, away, 0.0)
                b += tl.load(b_ptr + where, mask=inside, other=0.0) + seen * away * away
            else:
                peaks = tl.load(a_ptr + where, mask=inside, other=float("-inf"))
                total = tl.load(b_ptr + where, mask=inside, other=0.0)
                b += tl.where(total > 0.0, total * exp_for(peaks - middle[None, :], tl.float32), 0.0)
        if KIND == "var":
            tl.store(
                y_ptr + k,
                quotient(tl.sum(b, 0), divisor, y_ptr.dtype.element_ty).to(y_ptr.dtype.element_ty),
                mask=valid,
            )
            tl.store(mean_ptr + k, middle, mask=valid)
        else:
            lse = _lse(middle, tl.sum(b, 0), y_ptr.dtype.element_ty)
            tl.store(y_ptr + k, lse.to(y_ptr.dtype.element_ty), mask=valid)
            tl.store(mean_ptr + k, lse, mask=valid)


@triton.jit
def join_places(
    x_ptr, a_ptr, y_ptr, kept, inner, outer_stride, inner_stride, length, stride, parts, chunk,
    KIND: tl.constexpr, AHEAD: tl.constexpr, PARTS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Joins what `place_once` left of the parts of each result, or `place_columns`: then places of AHEAD elements."""
    in_row = tl.cdiv(inner, KEPT)
    outer = tl.program_id(0).to(tl.int64) // in_row
    i = tl.program_id(0).to(tl.int64) % in_row * KEPT + tl.arange(0, KEPT)
    valid = i < inner
    k = outer * inner + i
    lane = tl.arange(0, PARTS)
    best = tl.full((KEPT, PARTS), -0x7FFFFFFFFFFFFFFF, tl.int64)
    place = tl.zeros((KEPT, PARTS), tl.int64)
    for at in tl.range(0, parts, PARTS):
        part = (at + lane).to(tl.int64)
        inside = valid[:, None] & (part < parts)[None, :]
        packed = tl.load(a_ptr + k[:, None] + (part * kept)[None, :], mask=inside, other=-0x7FFFFFFFFFFFFFFF)
        better = (packed >> 32) > (best >> 32)
        best = tl.where(better, packed, best)
        place = tl.where(better, (part * chunk)[None, :], place)
    key = best >> 32
    highest = tl.max(key, 1)
    local = place + 0x7FFFFFFF - (best & 0x7FFFFFFF)
    row = tl.min(tl.where(key == highest[:, None], local, 0x7FFFFFFFFFFFFFFF), 1)
    if AHEAD > 1:
        SIGN: tl.constexpr = -1.0 if KIND == "argmin" else 1.0
        first = outer * outer_stride + i * inner_stride
        row = _again(x_ptr, first, row, stride, length, highest, valid, SIGN, AHEAD)
    tl.store(y_ptr + k, row, mask=valid)


@triton.jit
def spread_back(
    dy_ptr, x_ptr, like_ptr, ties_ptr, dx_ptr, cut, divisor, KIND: tl.constexpr, SPREAD: tl.constexpr,
    KEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of each element of a tile of results."""
    first, k, valid, start, end, _ = _place(cut, SPREAD, KEPT)
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    dy = quotient(tl.load(dy_ptr + k, mask=valid, other=0.0).to(tl.float32), divisor, TYPE)
    like, rest = halves(tl.load(like_ptr + k, mask=valid, other=0.0))
    like, rest = like[:, None], tl.where(rest == rest, rest, 0.0)[:, None]  # inf - inf is no number
    if KIND == "extreme":
        dy = dy / tl.load(ties_ptr + k, mask=valid, other=1.0)
    for at in tl.range(start, end, BLOCK):
        r = at + tl.arange(0, BLOCK)
        inside = valid[:, None] & (r < end)[None, :]
        where = first[:, None] + (r * cut.stride)[None, :]
        x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
        if KIND == "var":
            dx = dy[:, None] * 2.0 * (x - like)
        elif KIND == "logsumexp":
            dx = dy[:, None] * exp_for((x - like) - rest, TYPE)
        else:
            dx = dy[:, None] * tl.where(x == like, 1.0, 0.0)
        tl.store(dx_ptr + where, dx.to(TYPE), mask=inside)
