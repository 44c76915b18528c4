"""The kernels of depthwise convolutions: one plane in, one plane out; the formulas are in `convolution`.

    y[i, j] = b + sum over k, l of w[k, l] * x[i + k - pad, j + l - pad]
    dx[i, j] = sum of w[k, l] * dz[i - k + pad, j - l + pad]         dw[k, l] = sum over i, j of x[i, j] * the same dz

Limit: memory.  A lane computes COLS neighbours of ROWS rows of one plane.  It loads each row it needs once, its own
columns as one vector and those beside them one by one, and keeps them in registers: 3 x 3 with 8 columns and 7 rows
takes 27 loads for 56 results, where a lane a pixel takes 504.  Gradients of x and of w read the same places of dz, so
one pass makes both: x and dz in, dx out.
"""

from __future__ import annotations

from dataclasses import dataclass

from burn_kernels._triton import tl, triton
from burn_kernels.convolution.kernels import nothing
from burn_kernels.convolution.references import Geometry
from burn_kernels.launch import Machine, ceil_div

MOST_PRODUCTS = 512
"""Products of a lane, written out one after the other: the time to compile grows faster than their number."""


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A lane has `cols` columns of `rows` rows, a program `warps` of 32 lanes.

    `programs` a processor share the images where weights have gradients.  All 0: torch's convolution.
    """

    rows: int
    cols: int
    warps: int
    programs: int


LIBRARY = Config(0, 0, 0, 0)


def plane_candidates(
    width: int, height: int, taps: int, itemsize: int, machine: Machine, *, back: bool = False
) -> list[Config]:
    """Configs for planes so wide and high, the default first."""
    if machine.backend == "interpreter":  # small, so that ragged edges come up
        return [Config(2, 4, 1, 2), Config(3, 2, 1, 2)]
    vector = 16 // itemsize
    most = vector if taps <= 9 else min(4, vector)
    fits = next((n for n in (8, 4, 2) if n <= most and width % n == 0), 1)
    # H200, 2026-11-22, benchmarks/notes/convolution.md: a vector of 4 bytes that is whole is faster than a broken one
    # of 16; sums of dw over lanes are paid once a program, so lanes of more rows are better where they fill it
    usual = 7 if height % 7 == 0 else 8
    high = (usual, 4) if back and fits == 8 and machine.arch != 80 else (4, usual)  # 7 rows of float16 spill on sm_80
    shares = [(4, 8), (2, 16), (1, 32)] if machine.backend == "cuda" else [(4, 8), (2, 16)]  # AMD's warps are wider
    if taps > 9:
        shares.reverse()
    configs = [
        Config(min(rows, height, max(1, MOST_PRODUCTS // (cols * taps))), cols, warps, programs)
        for warps, programs in shares
        for cols in dict.fromkeys((fits, most))
        for rows in high
    ]
    return list(dict.fromkeys(configs))


def plane_shares(geometry: Geometry, config: Config, machine: Machine) -> tuple[int, int]:
    """Parts that the images of a channel are shared out to, and lanes of a part."""
    lanes = geometry.batch * ceil_div(geometry.height, config.rows) * ceil_div(geometry.width, config.cols)
    tiles = ceil_div(lanes, 32 * config.warps)
    parts = max(1, min(tiles, machine.processors * config.programs // geometry.channels))
    each = ceil_div(tiles, parts) * 32 * config.warps
    return ceil_div(lanes, each), each


# -- lines -------------------------------------------------------------------------------------------
@triton.jit
def _columns(v, COLS: tl.constexpr, LANES: tl.constexpr):
    """The columns of (LANES, COLS) as a tuple: halves of even and odd ones, again and again."""
    columns = nothing()
    if COLS == 1:
        columns = (tl.reshape(v, (LANES,)),)
    elif COLS == 2:
        columns = tl.split(v)
    elif COLS == 4:
        even, odd = tl.split(tl.reshape(v, (LANES, 2, 2)))
        a, c = tl.split(even)
        b, d = tl.split(odd)
        columns = (a, b, c, d)
    else:
        even, odd = tl.split(tl.reshape(v, (LANES, 2, 2, 2)))
        evens, odds = tl.split(even), tl.split(odd)
        a, e = tl.split(evens[0])
        c, g = tl.split(evens[1])
        b, f = tl.split(odds[0])
        d, h = tl.split(odds[1])
        columns = (a, b, c, d, e, f, g, h)
    return columns


@triton.jit
def _join_columns(v, COLS: tl.constexpr, LANES: tl.constexpr):
    """A tuple of vectors as the columns of (LANES, COLS)."""
    if COLS == 1:
        tile = tl.reshape(v[0], (LANES, 1))
    elif COLS == 2:
        tile = tl.join(v[0], v[1])
    elif COLS == 4:
        tile = tl.reshape(tl.join(tl.join(v[0], v[2]), tl.join(v[1], v[3])), (LANES, 4))
    else:
        even = tl.join(tl.join(v[0], v[4]), tl.join(v[2], v[6]))
        odd = tl.join(tl.join(v[1], v[5]), tl.join(v[3], v[7]))
        tile = tl.reshape(tl.join(even, odd), (LANES, 8))
    return tile


@triton.jit
def _line(
    plane, row, col, height, width, valid, LEFT: tl.constexpr, RIGHT: tl.constexpr, EVEN: tl.constexpr,
    COLS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Columns [col - LEFT, col + COLS + RIGHT) of a row of each lane's plane, zero outside of it: a tuple."""
    there = valid & (row >= 0) & (row < height)
    begin = plane + row.to(tl.int64) * width + col
    side = tl.arange(0, COLS)
    line = nothing()
    for i in tl.static_range(LEFT):
        at = i - LEFT
        inside = there & (col + at >= 0)
        if not EVEN:  # a lane may begin where this plane has ended
            inside = inside & (col + at < width)
        line = line + (tl.load(begin + at, mask=inside, other=0.0).to(tl.float32),)
    if EVEN:  # the vector is whole or not there
        middle = tl.load(begin[:, None] + side[None, :], mask=there[:, None], other=0.0)
    else:
        inside = there[:, None] & ((col[:, None] + side[None, :]) < width)
        middle = tl.load(begin[:, None] + side[None, :], mask=inside, other=0.0)
    line = line + _columns(middle.to(tl.float32), COLS, LANES)
    for i in tl.static_range(RIGHT):
        line = line + (tl.load(begin + (COLS + i), mask=there & (col + COLS + i < width), other=0.0).to(tl.float32),)
    return line


@triton.jit
def _place(lane, strips, vecs, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Plane, first row and first column of a lane."""
    strip = lane // vecs
    return strip // strips, strip % strips * ROWS, lane % vecs * COLS


@triton.jit
def _width(width, vecs, EVEN: tl.constexpr, COLS: tl.constexpr):
    """The width, as a product where it is one: so the compiler knows what divides it."""
    if EVEN:
        columns = vecs * COLS
    else:
        columns = width
    return columns


# -- forward -----------------------------------------------------------------------------------------
@triton.jit
def convolve_planes(
    x_ptr, w_ptr, b_ptr, y_ptr, lanes, channels, strips, vecs, height, width, out_h, out_w, PAD_H: tl.constexpr,
    PAD_W: tl.constexpr, KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, SAME: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """ROWS by COLS pixels of y a lane.  SAME: y is as wide as x."""
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = lane < lanes
    plane, top, left = _place(lane, strips, vecs, ROWS, COLS)
    channel = plane % channels
    top, left = top.to(tl.int32), left.to(tl.int32)
    width = _width(width, vecs, EVEN, COLS)
    if SAME:
        out_w = width
    weights = nothing()
    for t in tl.static_range(KERNEL_H * KERNEL_W):
        weights = weights + (
            tl.load(w_ptr + channel * (KERNEL_H * KERNEL_W) + t, mask=valid, other=0.0).to(tl.float32),
        )
    bias = tl.zeros((LANES,), tl.float32)
    if b_ptr is not None:
        bias = tl.load(b_ptr + channel, mask=valid, other=0.0).to(tl.float32)
    from_x = x_ptr + plane * (height * width)
    to_y = y_ptr + plane * (out_h * out_w)
    side = tl.arange(0, COLS)
    seen = nothing()
    for r in tl.static_range(ROWS + KERNEL_H - 1):
        seen = seen + _line(
            from_x, top + (r - PAD_H), left, height, width, valid, PAD_W, KERNEL_W - 1 - PAD_W, EVEN, COLS, LANES
        )
        if r >= KERNEL_H - 1:  # all that a row of y needs
            total = nothing()
            for c in tl.static_range(COLS):
                z = bias
                for k in tl.static_range(KERNEL_H):
                    for m in tl.static_range(KERNEL_W):
                        z = tl.fma(
                            seen[(r - KERNEL_H + 1 + k) * (COLS + KERNEL_W - 1) + c + m], weights[k * KERNEL_W + m], z
                        )
                total = total + (z,)
            y = _join_columns(total, COLS, LANES).to(y_ptr.dtype.element_ty)
            row = top + (r - KERNEL_H + 1)
            there = (valid & (row < out_h))[:, None]
            if not (EVEN and SAME):
                there = there & ((left[:, None] + side[None, :]) < out_w)
            begin = to_y + row.to(tl.int64) * out_w + left
            tl.store(begin[:, None] + side[None, :], y, mask=there)


# -- backward ----------------------------------------------------------------------------------------
@triton.jit
def turn_planes(
    dz_ptr, x_ptr, w_ptr, dx_ptr, part_ptr, lanes, each, channels, strips, vecs, height, width, out_h, out_w,
    BIAS: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr, KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr,
    SAME: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """dx of one channel and a part of the images, if dx_ptr is there, and the sums of dw and db, if part_ptr is."""
    TAPS: tl.constexpr = KERNEL_H * KERNEL_W
    channel, part = tl.program_id(0) % channels, tl.program_id(0) // channels
    width = _width(width, vecs, EVEN, COLS)
    if SAME:
        out_w = width
    weights, sums = nothing(), nothing()
    for t in tl.static_range(KERNEL_H * KERNEL_W):
        if dx_ptr is not None:
            weights = weights + (tl.load(w_ptr + channel * TAPS + t).to(tl.float32),)
        if part_ptr is not None:
            sums = sums + (tl.zeros((LANES,), tl.float32),)
    bias = tl.zeros((LANES,), tl.float32)
    side = tl.arange(0, COLS)
    begin = part * each
    for at in tl.range(begin, tl.minimum(begin + each, lanes), LANES):
        lane = at + tl.arange(0, LANES)
        valid = lane < lanes
        image, top, left = _place(lane, strips, vecs, ROWS, COLS)
        plane = image.to(tl.int64) * channels + channel
        from_dz = dz_ptr + plane * (out_h * out_w)
        seen = nothing()
        for r in tl.static_range(ROWS + KERNEL_H - 1):
            seen = seen + _line(
                from_dz, top + (r - (KERNEL_H - 1 - PAD_H)), left, out_h, out_w, valid, KERNEL_W - 1 - PAD_W, PAD_W,
                EVEN and SAME, COLS, LANES,
            )  # fmt: skip
            if r >= KERNEL_H - 1:
                row = top + (r - KERNEL_H + 1)
                if dx_ptr is not None:
                    total = nothing()
                    for c in tl.static_range(COLS):
                        z = tl.zeros((LANES,), tl.float32)
                        for k in tl.static_range(KERNEL_H):
                            for m in tl.static_range(KERNEL_W):
                                d = seen[(r - k) * (COLS + KERNEL_W - 1) + c + KERNEL_W - 1 - m]
                                z = tl.fma(d, weights[k * KERNEL_W + m], z)
                        total = total + (z,)
                    there = (valid & (row < height))[:, None]
                    if not EVEN:
                        there = there & ((left[:, None] + side[None, :]) < width)
                    to = dx_ptr + plane * (height * width) + row.to(tl.int64) * width + left
                    dx = _join_columns(total, COLS, LANES).to(dx_ptr.dtype.element_ty)
                    tl.store(to[:, None] + side[None, :], dx, mask=there)
                if part_ptr is not None:
                    x = _line(
                        x_ptr + plane * (height * width), row, left, height, width, valid, 0, 0, EVEN, COLS, LANES
                    )
                    more = nothing()
                    for k in tl.static_range(KERNEL_H):
                        for m in tl.static_range(KERNEL_W):
                            s = sums[k * KERNEL_W + m]
                            for c in tl.static_range(COLS):
                                s = tl.fma(x[c], seen[(r - k) * (COLS + KERNEL_W - 1) + c + KERNEL_W - 1 - m], s)
                            more = more + (s,)
                    sums = more
                    if BIAS:  # each place of dz is some lane's own
                        for c in tl.static_range(COLS):
                            bias += seen[(r - PAD_H) * (COLS + KERNEL_W - 1) + c + KERNEL_W - 1 - PAD_W]
    if part_ptr is not None:
        to = part_ptr + part.to(tl.int64) * (channels * TAPS + channels)
        for t in tl.static_range(KERNEL_H * KERNEL_W):
            tl.store(to + channel * TAPS + t, tl.sum(sums[t], 0))
        if BIAS:
            tl.store(to + channels * TAPS + channel, tl.sum(bias, 0))
