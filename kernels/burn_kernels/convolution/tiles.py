"""Convolutions of few channels as products of matrices, on the cores for tensors; the formulas are in `convolution`.

    y[p, o] = sum over k of x[p, k] * w[o, k]               k = (channel, row, column of the kernel)
    dw[o, k] = sum over p of dz[p, o] * x[p, k]

The matrix x[p, k] is never in memory.  As in the direct kernels lanes are pixels: a lane loads what its pixel reads,
one tap after the other, neighbours from neighbouring places; the columns are joined to a tile that stays on the chip.
"""

from __future__ import annotations

import torch

from burn_kernels._triton import INTERPRETED, tl, triton
from burn_kernels.convolution.kernels import Form, Pixels, col_of, nothing, row_of
from burn_kernels.convolution.references import Geometry, in_tf32


def rounds(dtype: torch.dtype, geometry: Geometry) -> bool:
    """Tells if a kernel rounds to tf32 itself: the cores cut digits off; the interpreter keeps them all."""
    return in_tf32(dtype, geometry) and not INTERPRETED


@triton.jit
def _join_columns(columns, FIRST: tl.constexpr, ROUNDED: tl.constexpr, PIXELS: tl.constexpr):
    """16 of the vectors as the columns of a matrix."""
    now = nothing()
    for i in tl.static_range(16):
        now = now + (columns[FIRST + i],)
    for level in tl.static_range(4):  # of columns that lie half of all apart
        more = nothing()
        for i in tl.static_range(8 >> level):
            more = more + (tl.reshape(tl.join(now[i], now[i + (8 >> level)]), (PIXELS, 2 << level)),)
        now = more
    return _round(now[0], ROUNDED)


@triton.jit
def _round(x, ROUNDED: tl.constexpr):
    """To the nearest number of tf32."""
    if ROUNDED:
        x = tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


@triton.jit
def _columns(
    image, pixels, c, strides, sizes, steps, FORM: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr
):  # fmt: skip
    """The places of CHANNELS channels from c on that the kernel reads for each pixel: a tuple of vectors, pieces of
    16."""
    SIGN: tl.constexpr = -1 if FORM.BACK else 1
    KERNEL_H: tl.constexpr = FORM.KERNEL_H
    KERNEL_W: tl.constexpr = FORM.KERNEL_W
    columns = nothing()
    for i in tl.static_range(CHANNELS):
        channel = image + tl.cast(c + i, tl.int64) * strides.channel
        for ky in tl.static_range(KERNEL_H):
            sy, row_there = row_of(pixels, ky, sizes, steps, FORM)
            if FORM.STRIDED:
                line = channel + sy.to(tl.int64) * strides.row
            else:
                line = channel + SIGN * tl.cast(ky * steps.dilation_h, tl.int64) * strides.row
            for kx in tl.static_range(KERNEL_W):
                sx, col_there = col_of(pixels, kx, sizes, steps, FORM)
                inside = pixels.valid & (c + i < sizes.sources)
                if FORM.MASKED:
                    inside = inside & row_there & col_there
                if FORM.STRIDED:
                    from_x = line + sx.to(tl.int64) * strides.col
                else:
                    from_x = line + SIGN * kx * steps.dilation_w * strides.col
                columns = columns + (tl.load(from_x, mask=inside, other=0.0),)
    for _ in tl.static_range((CHANNELS * KERNEL_H * KERNEL_W + 15) // 16 * 16 - CHANNELS * KERNEL_H * KERNEL_W):
        columns = columns + (tl.zeros((PIXELS,), columns[0].dtype),)
    return columns


@triton.jit
def convolve_tiles(
    x_ptr, w_ptr, b_ptr, y_ptr, strides, weight_strides, count, sizes, steps,
    FORM: tl.constexpr, PRECISION: tl.constexpr, ROUNDED: tl.constexpr, OUTS: tl.constexpr, CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):  # fmt: skip
    """PIXELS pixels of OUTS channels of y; BACK, of the data gradient: then x is dz, and height and width its sizes."""
    TAPS: tl.constexpr = FORM.KERNEL_H * FORM.KERNEL_W
    area = sizes.out_h * sizes.out_w
    blocks = tl.cdiv(sizes.targets, OUTS)
    group, out = tl.program_id(1) // blocks, (tl.program_id(1) % blocks) * OUTS
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    valid = p < count
    n = (p // area).to(tl.int64)
    place = p % area
    pixels = Pixels(n, place // sizes.out_w, place % sizes.out_w, valid)
    image = x_ptr + n * strides.batch + (group * sizes.sources).to(tl.int64) * strides.channel
    if not FORM.STRIDED:  # a tap is one distance from here for all lanes
        y0, _row = row_of(pixels, 0, sizes, steps, FORM)
        x0, _col = col_of(pixels, 0, sizes, steps, FORM)
        image += y0.to(tl.int64) * strides.row + x0.to(tl.int64) * strides.col
    o = out + tl.arange(0, OUTS)
    weights = w_ptr + group * weight_strides.group + o[None, :] * weight_strides.out
    total = tl.zeros((PIXELS, OUTS), tl.float32)
    for c in tl.range(0, sizes.sources, CHANNELS):
        columns = _columns(image, pixels, c, strides, sizes, steps, FORM, CHANNELS=CHANNELS, PIXELS=PIXELS)
        for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
            k = piece * 16 + tl.arange(0, 16)
            there = ((k < CHANNELS * TAPS) & (c + k // TAPS < sizes.sources))[:, None] & (o < sizes.targets)[None, :]
            at = ((c + k // TAPS) * weight_strides.source + k % TAPS)[:, None]
            w = tl.load(weights + at, mask=there, other=0.0)
            x = _join_columns(columns, piece * 16, ROUNDED, PIXELS)
            total = tl.dot(x, _round(w, ROUNDED), total, input_precision=PRECISION)
    if b_ptr is not None:
        b = tl.load(b_ptr + group * sizes.targets + o, mask=o < sizes.targets, other=0.0)
        total += b.to(tl.float32)[None, :]
    at = ((n * sizes.groups + group) * sizes.targets * area + place)[:, None] + o[None, :] * area
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=valid[:, None] & (o < sizes.targets)[None, :])


@triton.jit
def _beside(columns, COUNT: tl.constexpr, PIXELS: tl.constexpr):
    """16 vectors, or 32, as the columns of a matrix."""
    matrix = _join_columns(columns, 0, False, PIXELS)
    if COUNT == 32:
        both = tl.join(matrix, _join_columns(columns, 16, False, PIXELS))
        matrix = tl.reshape(tl.permute(both, (0, 2, 1)), (PIXELS, 32))
    return matrix


@triton.jit
def weigh_tiles(
    dz_ptr, x_ptr, part_ptr, strides, count, each, sizes, steps, MASKED: tl.constexpr, BIAS: tl.constexpr,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, PRECISION: tl.constexpr, ROUNDED: tl.constexpr,
    OUTS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Over one part of the pixels: the gradient of weights from CHANNELS channels to OUTS, and of these's biases."""
    TAPS: tl.constexpr = KERNEL_H * KERNEL_W
    shares, blocks = tl.cdiv(sizes.sources, CHANNELS), tl.cdiv(sizes.targets, OUTS)
    pid = tl.program_id(1)
    c = pid % shares * CHANNELS
    out = pid // shares % blocks * OUTS
    group = pid // (shares * blocks)
    FORM: tl.constexpr = Form(False, False, MASKED, KERNEL_H, KERNEL_W)
    begin = tl.program_id(0) * each
    area = sizes.out_h * sizes.out_w
    images = x_ptr + (group * sizes.sources).to(tl.int64) * strides.channel
    outputs = dz_ptr + (group * sizes.targets + out).to(tl.int64) * area
    total = nothing()
    for _ in tl.static_range((CHANNELS * TAPS + 15) // 16):
        total = total + (tl.zeros((OUTS, 16), tl.float32),)
    bias = tl.zeros((PIXELS, OUTS), tl.float32)
    for at in tl.range(begin, tl.minimum(begin + each, count), PIXELS):
        p = at + tl.arange(0, PIXELS)
        valid = p < count
        n = (p // area).to(tl.int64)
        place = p % area
        oy, ox = place // sizes.out_w, place % sizes.out_w
        gradients = nothing()
        from_dz = outputs + n * (sizes.groups * sizes.targets) * area + place
        for o in tl.static_range(OUTS):
            gradients = gradients + (tl.load(from_dz + o * area, mask=valid & (out + o < sizes.targets), other=0.0),)
        pixels = Pixels(n, oy, ox, valid)
        y0, _row = row_of(pixels, 0, sizes, steps, FORM)
        x0, _col = col_of(pixels, 0, sizes, steps, FORM)
        image = images + n * strides.batch + y0.to(tl.int64) * strides.row + x0.to(tl.int64) * strides.col
        columns = _columns(image, pixels, c, strides, sizes, steps, FORM, CHANNELS=CHANNELS, PIXELS=PIXELS)
        dz = _beside(gradients, OUTS, PIXELS)
        turned = tl.trans(_round(dz, ROUNDED))
        more = nothing()
        for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
            x = _join_columns(columns, piece * 16, ROUNDED, PIXELS)
            more = more + (tl.dot(turned, x, total[piece], input_precision=PRECISION),)
        total = more
        if BIAS:
            bias += dz.to(tl.float32)
    weights = sizes.groups * sizes.targets * sizes.sources * TAPS
    part = part_ptr + tl.program_id(0).to(tl.int64) * (weights + sizes.groups * sizes.targets)
    o = out + tl.arange(0, OUTS)
    channel = group * sizes.targets + o
    for piece in tl.static_range((CHANNELS * TAPS + 15) // 16):
        k = piece * 16 + tl.arange(0, 16)
        there = ((k < CHANNELS * TAPS) & (c + k // TAPS < sizes.sources))[None, :] & (o < sizes.targets)[:, None]
        to = part + channel[:, None] * (sizes.sources * TAPS) + (c * TAPS + k)[None, :]
        tl.store(to, total[piece], mask=there)
    if BIAS:
        # every program sums the bias, as it has read dz anyway; one for each channel writes it
        tl.store(part + weights + channel, tl.sum(bias, 0), mask=(o < sizes.targets) & (c == 0))
