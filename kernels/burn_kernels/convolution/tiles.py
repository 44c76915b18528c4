"""Convolutions of few channels as products of matrices, on the cores for tensors; the formulas are in `convolution`.

    y[p, o] = sum over k of x[p, k] * w[o, k]               k = (channel, row, column of the kernel)
    dw[o, k] = sum over p of dz[p, o] * x[p, k]

The matrix x[p, k] is never in memory.  As in the direct kernels lanes are pixels: a lane loads what its pixel reads,
one tap after the other, neighbours from neighbouring places; the columns are joined to a tile that stays on the chip.
"""

from __future__ import annotations

import torch

from burn_kernels._triton import INTERPRETED, tl, triton
from burn_kernels.convolution.kernels import nothing, source
from burn_kernels.convolution.references import Geometry, in_tf32


def rounds(dtype: torch.dtype, made: Geometry) -> bool:
    """Whether a kernel rounds to tf32 itself: the cores cut digits off; the interpreter keeps them all."""
    return in_tf32(dtype, made) and not INTERPRETED


@triton.jit
def _joined(columns, FIRST: tl.constexpr, ROUNDED: tl.constexpr, PIXELS: tl.constexpr):
    """16 of the vectors as the columns of a matrix."""
    now = nothing()
    for i in tl.static_range(16):
        now = now + (columns[FIRST + i],)
    for level in tl.static_range(4):  # of columns that lie half of all apart
        more = nothing()
        for i in tl.static_range(8 >> level):
            more = more + (tl.reshape(tl.join(now[i], now[i + (8 >> level)]), (PIXELS, 2 << level)),)
        now = more
    return _rounded(now[0], ROUNDED)


@triton.jit
def _rounded(x, ROUNDED: tl.constexpr):
    """To the nearest number of tf32."""
    if ROUNDED:
        x = tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


@triton.jit
def _columns(
    image, oy, ox, valid, c, sources, x_channel, x_row, x_col, height, width, stride_h, stride_w, pad_h, pad_w,
    dilation_h, dilation_w, BACK: tl.constexpr, STRIDED: tl.constexpr, MASKED: tl.constexpr, KERNEL_H: tl.constexpr,
    KERNEL_W: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """What CHANNELS channels from c on show to the kernel at each pixel: a tuple of vectors, pieces of 16."""
    SIGN: tl.constexpr = -1 if BACK else 1
    found = nothing()
    for i in tl.static_range(CHANNELS):
        channel = image + tl.cast(c + i, tl.int64) * x_channel
        for ky in tl.static_range(KERNEL_H):
            sy, row_there = source(oy, ky, stride_h, pad_h, dilation_h, height, BACK, STRIDED)
            if STRIDED:
                line = channel + sy.to(tl.int64) * x_row
            else:
                line = channel + SIGN * tl.cast(ky * dilation_h, tl.int64) * x_row
            for kx in tl.static_range(KERNEL_W):
                sx, col_there = source(ox, kx, stride_w, pad_w, dilation_w, width, BACK, STRIDED)
                inside = valid & (c + i < sources)
                if MASKED:
                    inside = inside & row_there & col_there
                if STRIDED:
                    from_x = line + sx.to(tl.int64) * x_col
                else:
                    from_x = line + SIGN * kx * dilation_w * x_col
                found = found + (tl.load(from_x, mask=inside, other=0.0),)
    for _ in tl.static_range((CHANNELS * KERNEL_H * KERNEL_W + 15) // 16 * 16 - CHANNELS * KERNEL_H * KERNEL_W):
        found = found + (tl.zeros((PIXELS,), found[0].dtype),)
    return found


@triton.jit
def convolve_tiles(
    x_ptr, w_ptr, b_ptr, y_ptr, x_batch, x_channel, x_row, x_col, w_group, w_out, w_in, count, height, width, out_h,
    out_w, sources, targets, groups, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, BACK: tl.constexpr,
    STRIDED: tl.constexpr, MASKED: tl.constexpr, KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr,
    PRECISION: tl.constexpr, ROUNDED: tl.constexpr, OUTS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """PIXELS pixels of OUTS channels of y; BACK, of the data gradient: then x is dz, and height and width its sizes."""
    TAPS: tl.constexpr = KERNEL_H * KERNEL_W
    area = out_h * out_w
    blocks = tl.cdiv(targets, OUTS)
    group, out = tl.program_id(1) // blocks, (tl.program_id(1) % blocks) * OUTS
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    valid = p < count
    n = (p // area).to(tl.int64)
    place = p % area
    oy, ox = place // out_w, place % out_w
    image = x_ptr + n * x_batch + (group * sources).to(tl.int64) * x_channel
    if not STRIDED:  # a tap is one distance from here for all lanes
        y0, _row = source(oy, 0, stride_h, pad_h, dilation_h, height, BACK, STRIDED)
        x0, _col = source(ox, 0, stride_w, pad_w, dilation_w, width, BACK, STRIDED)
        image += y0.to(tl.int64) * x_row + x0.to(tl.int64) * x_col
    o = out + tl.arange(0, OUTS)
    weights = w_ptr + group * w_group + o[None, :] * w_out
    total = tl.zeros((PIXELS, OUTS), tl.float32)
    for c in tl.range(0, sources, CHANNELS):
        columns = _columns(
            image, oy, ox, valid, c, sources, x_channel, x_row, x_col, height, width, stride_h, stride_w, pad_h, pad_w,
            dilation_h, dilation_w, BACK, STRIDED, MASKED, KERNEL_H, KERNEL_W, CHANNELS, PIXELS,
        )  # fmt: skip
        for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
            k = piece * 16 + tl.arange(0, 16)
            there = ((k < CHANNELS * TAPS) & (c + k // TAPS < sources))[:, None] & (o < targets)[None, :]
            w = tl.load(weights + ((c + k // TAPS) * w_in + k % TAPS)[:, None], mask=there, other=0.0)
            x = _joined(columns, piece * 16, ROUNDED, PIXELS)
            total = tl.dot(x, _rounded(w, ROUNDED), total, input_precision=PRECISION)
    if b_ptr is not None:
        total += tl.load(b_ptr + group * targets + o, mask=o < targets, other=0.0).to(tl.float32)[None, :]
    at = ((n * groups + group) * targets * area + place)[:, None] + o[None, :] * area
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=valid[:, None] & (o < targets)[None, :])


@triton.jit
def _beside(columns, COUNT: tl.constexpr, PIXELS: tl.constexpr):
    """16 vectors, or 32, as the columns of a matrix."""
    found = _joined(columns, 0, False, PIXELS)
    if COUNT == 32:
        both = tl.join(found, _joined(columns, 16, False, PIXELS))
        found = tl.reshape(tl.permute(both, (0, 2, 1)), (PIXELS, 32))
    return found


@triton.jit
def weigh_tiles(
    dz_ptr, x_ptr, part_ptr, x_batch, x_channel, x_row, x_col, count, each, height, width, out_h, out_w, sources,
    targets, groups, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, MASKED: tl.constexpr, BIAS: tl.constexpr,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, PRECISION: tl.constexpr, ROUNDED: tl.constexpr,
    OUTS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Over one part of the pixels: the gradient of weights from CHANNELS channels to OUTS, and of these's biases."""
    TAPS: tl.constexpr = KERNEL_H * KERNEL_W
    steps, blocks = tl.cdiv(sources, CHANNELS), tl.cdiv(targets, OUTS)
    pid = tl.program_id(1)
    c = pid % steps * CHANNELS
    out = pid // steps % blocks * OUTS
    group = pid // (steps * blocks)
    begin = tl.program_id(0) * each
    area = out_h * out_w
    images = x_ptr + (group * sources).to(tl.int64) * x_channel
    outputs = dz_ptr + (group * targets + out).to(tl.int64) * area
    total = nothing()
    for _ in tl.static_range((CHANNELS * TAPS + 15) // 16):
        total = total + (tl.zeros((OUTS, 16), tl.float32),)
    bias = tl.zeros((PIXELS, OUTS), tl.float32)
    for at in tl.range(begin, tl.minimum(begin + each, count), PIXELS):
        p = at + tl.arange(0, PIXELS)
        valid = p < count
        n = (p // area).to(tl.int64)
        place = p % area
        oy, ox = place // out_w, place % out_w
        gradients = nothing()
        from_dz = outputs + n * (groups * targets) * area + place
        for o in tl.static_range(OUTS):
            gradients = gradients + (tl.load(from_dz + o * area, mask=valid & (out + o < targets), other=0.0),)
        y0, _row = source(oy, 0, stride_h, pad_h, dilation_h, height, False, False)
        x0, _col = source(ox, 0, stride_w, pad_w, dilation_w, width, False, False)
        image = images + n * x_batch + y0.to(tl.int64) * x_row + x0.to(tl.int64) * x_col
        columns = _columns(
            image, oy, ox, valid, c, sources, x_channel, x_row, x_col, height, width, stride_h, stride_w, pad_h, pad_w,
            dilation_h, dilation_w, False, False, MASKED, KERNEL_H, KERNEL_W, CHANNELS, PIXELS,
        )  # fmt: skip
        dz = _beside(gradients, OUTS, PIXELS)
        turned = tl.trans(_rounded(dz, ROUNDED))
        more = nothing()
        for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
            x = _joined(columns, piece * 16, ROUNDED, PIXELS)
            more = more + (tl.dot(turned, x, total[piece], input_precision=PRECISION),)
        total = more
        if BIAS:
            bias += dz.to(tl.float32)
    weights = groups * targets * sources * TAPS
    part = part_ptr + tl.program_id(0).to(tl.int64) * (weights + groups * targets)
    o = out + tl.arange(0, OUTS)
    channel = group * targets + o
    for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
        k = piece * 16 + tl.arange(0, 16)
        there = ((k < CHANNELS * TAPS) & (c + k // TAPS < sources))[None, :] & (o < targets)[:, None]
        to = part + channel[:, None] * (sources * TAPS) + (c * TAPS + k)[None, :]
        tl.store(to, total[piece], mask=there)
    if BIAS:
        # every program sums the bias, as it has read dz anyway; one for each channel writes it
        tl.store(part + weights + channel, tl.sum(bias, 0), mask=(o < targets) & (c == 0))
