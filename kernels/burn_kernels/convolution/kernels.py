"""The kernels of direct convolutions; the formulas are in `convolution`.

Lanes are pixels, and sums are held by channel: tuples of vectors, a running sum each, so that a lane multiplies what it
has loaded once by OUTS weights, which all lanes share.  No lane needs a number of another one, no shared memory is
used, and no column matrix is made.
"""

from __future__ import annotations

from typing import NamedTuple

from burn_kernels import random
from burn_kernels._triton import tl, triton


# -- arguments in groups -----------------------------------------------------------------------------
class ImageStrides(NamedTuple):
    """The distances between neighbouring elements of an image along its axes."""

    batch: int
    channel: int
    row: int
    col: int


class WeightStrides(NamedTuple):
    """The distances between the weights of neighbouring groups, of channels written, and of channels read."""

    group: int
    out: int
    source: int


class Sizes(NamedTuple):
    """Rows and columns of the image and of the result, channels read and written in a group, and groups."""

    height: int
    width: int
    out_h: int
    out_w: int
    sources: int
    targets: int
    groups: int


class Steps(NamedTuple):
    """Strides, padding and dilation of a convolution."""

    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    dilation_h: int
    dilation_w: int


class Form(NamedTuple):
    """The constants of the sums.  BACK: a data gradient; STRIDED: by steps, back; MASKED: taps may lie outside."""

    BACK: bool
    STRIDED: bool
    MASKED: bool
    KERNEL_H: int
    KERNEL_W: int


class Pixels(NamedTuple):
    """Image, row and column of the pixels of a program, and whether they exist; in kernels."""

    n: object
    y: object
    x: object
    valid: object


# -- forward and data gradient -----------------------------------------------------------------------
@triton.jit
def nothing():
    """A tuple to add to."""
    return ()


@triton.jit
def _zeros(COUNT: tl.constexpr, PIXELS: tl.constexpr):
    """A tuple of COUNT vectors of zeros."""
    vectors = nothing()
    for _ in tl.static_range(COUNT):
        vectors = vectors + (tl.zeros((PIXELS,), tl.float32),)
    return vectors


@triton.jit
def source(at, k, stride, pad, dilation, size, BACK: tl.constexpr, STRIDED: tl.constexpr):
    """The row (or column) of the source that a tap reads for place `at`, and whether there is one."""
    if BACK:
        s = at + pad - k * dilation
        there = s >= 0
        if STRIDED:
            there = there & (s % stride == 0)
            s = s // stride
        there = there & (s < size)
    else:
        s = at * stride - pad + k * dilation
        there = (s >= 0) & (s < size)
    return s, there


@triton.jit
def row_of(pixels, ky, sizes, steps, FORM: tl.constexpr):
    """The row of the source that row `ky` of the kernel reads, and whether there is one."""
    return source(pixels.y, ky, steps.stride_h, steps.pad_h, steps.dilation_h, sizes.height, FORM.BACK, FORM.STRIDED)


@triton.jit
def col_of(pixels, kx, sizes, steps, FORM: tl.constexpr):
    """The column of the source that column `kx` of the kernel reads, and whether there is one."""
    return source(pixels.x, kx, steps.stride_w, steps.pad_w, steps.dilation_w, sizes.width, FORM.BACK, FORM.STRIDED)


@triton.jit
def _add_taps(
    total, image, weights, c, ky, pixels, out, strides, weight_strides, sizes, steps,
    FORM: tl.constexpr, OUTS: tl.constexpr,
):  # fmt: skip
    """The sums with row `ky` of the kernel over channel `c`."""
    SIGN: tl.constexpr = -1 if FORM.BACK else 1
    KERNEL_W: tl.constexpr = FORM.KERNEL_W
    sy, row_there = row_of(pixels, ky, sizes, steps, FORM)
    line = image + tl.cast(c, tl.int64) * strides.channel
    if FORM.STRIDED:
        line += sy.to(tl.int64) * strides.row
    else:
        line += SIGN * tl.cast(ky * steps.dilation_h, tl.int64) * strides.row
    for kx in tl.static_range(KERNEL_W):
        sx, col_there = col_of(pixels, kx, sizes, steps, FORM)
        inside = pixels.valid
        if FORM.MASKED:
            inside = pixels.valid & row_there & col_there
        if FORM.STRIDED:
            from_x = line + sx.to(tl.int64) * strides.col
        else:
            from_x = line + SIGN * kx * steps.dilation_w * strides.col
        x = tl.load(from_x, mask=inside, other=0.0).to(tl.float32)
        more = nothing()
        for o in tl.static_range(OUTS):
            # past the last channel the last one's weight is read, and the sum not written
            place = tl.minimum(out + o, sizes.targets - 1) * weight_strides.out + c * weight_strides.source
            place = place + ky * KERNEL_W + kx
            more = more + (tl.fma(x, tl.load(weights + place).to(tl.float32), total[o]),)
        total = more
    return total


@triton.jit
def sums_at(
    x_ptr, w_ptr, b_ptr, pixels, group, out, strides, weight_strides, sizes, steps,
    FORM: tl.constexpr, OUTS: tl.constexpr, PIXELS: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """The convolution at pixels for channels [out, out + OUTS) of a group: a tuple of vectors.

    APART, each channel has a sum of its own: of float32, the 144 products of 3 x 3 taps by 16 channels of a layer's
    outputs, one after the other, leave twice what cuDNN's leave.
    """
    KERNEL_H: tl.constexpr = FORM.KERNEL_H
    total = _zeros(OUTS, PIXELS)
    image = x_ptr + pixels.n * strides.batch + (group * sizes.sources).to(tl.int64) * strides.channel
    weights = w_ptr + group * weight_strides.group
    if not FORM.STRIDED:  # a tap is one distance from here for all lanes
        y0, _ = row_of(pixels, 0, sizes, steps, FORM)
        x0, _ = col_of(pixels, 0, sizes, steps, FORM)
        image += y0.to(tl.int64) * strides.row + x0.to(tl.int64) * strides.col
    if APART:
        for c in tl.range(0, sizes.sources):
            part = _zeros(OUTS, PIXELS)
            for ky in tl.range(0, KERNEL_H):
                part = _add_taps(
                    part, image, weights, c, ky, pixels, out, strides, weight_strides, sizes, steps, FORM=FORM,
                    OUTS=OUTS,
                )  # fmt: skip
            more = nothing()
            for o in tl.static_range(OUTS):
                more = more + (total[o] + part[o],)
            total = more
    else:
        for at in tl.range(0, sizes.sources * KERNEL_H):
            total = _add_taps(
                total, image, weights, at // KERNEL_H, at % KERNEL_H, pixels, out, strides, weight_strides, sizes,
                steps, FORM=FORM, OUTS=OUTS,
            )  # fmt: skip
    if b_ptr is not None:
        more = nothing()
        for o in tl.static_range(OUTS):
            b = tl.load(b_ptr + group * sizes.targets + tl.minimum(out + o, sizes.targets - 1)).to(tl.float32)
            more = more + (total[o] + b,)
        total = more
    return total


@triton.jit(do_not_specialize=["key", "stream", "last"])
def convolve(
    x_ptr, w_ptr, b_ptr, y_ptr, passed_ptr, strides, weight_strides, count, sizes, steps, key, stream, last, scale,
    FORM: tl.constexpr, RELU: tl.constexpr, POOL: tl.constexpr, WINDOW: tl.constexpr, DROP: tl.constexpr,
    KEY: tl.constexpr, STREAM: tl.constexpr, OUTS: tl.constexpr, PIXELS: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """PIXELS pixels of OUTS channels of y; BACK, of the data gradient: then x is dz, and height and width its sizes."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    rows, cols = sizes.out_h // WINDOW, sizes.out_w // WINDOW
    blocks = tl.cdiv(sizes.targets, OUTS)
    group, out = tl.program_id(1) // blocks, (tl.program_id(1) % blocks) * OUTS
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    valid = p < count
    n = (p // (rows * cols)).to(tl.int64)
    place = p % (rows * cols)
    py, px = place // cols, place % cols
    best = _zeros(OUTS, PIXELS)
    bits = _zeros(OUTS, PIXELS)
    bit = 1.0
    for step in tl.range(0, WINDOW * WINDOW):
        oy, ox = py * WINDOW + step // WINDOW, px * WINDOW + step % WINDOW
        pixels = Pixels(n, oy, ox, valid)
        total = sums_at(
            x_ptr, w_ptr, b_ptr, pixels, group, out, strides, weight_strides, sizes, steps=steps, FORM=FORM, OUTS=OUTS,
            PIXELS=PIXELS, APART=APART,
        )  # fmt: skip
        more, passed = nothing(), nothing()
        for o in tl.static_range(OUTS):
            v = total[o]
            alive = tl.full((PIXELS,), 1.0, tl.float32)
            if DROP:
                element = n * sizes.groups * sizes.targets + group * sizes.targets + out + o
                element = (element * sizes.out_h + oy) * sizes.out_w + ox
                word = random.word_at(random.held(key, KEY), random.held(stream, STREAM), element)
                alive = tl.where(word <= last.to(tl.uint32), 1.0, 0.0)
                v = v * (alive * scale)
            if RELU:
                v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
                alive = tl.where(v > 0.0, 1.0, 0.0)
            if POOL == "max":  # the first of equals; NaN wins
                higher = (step == 0) | (v > best[o]) | ((v != v) & (best[o] == best[o]))
                more = more + (tl.where(higher, v, best[o]),)
                passed = passed + (tl.where(higher, alive * bit, bits[o]),)
            else:
                more = more + (best[o] + v,)
                passed = passed + (bits[o] + alive * bit,)
        best = more
        bits = passed
        bit *= 2.0
    for o in tl.static_range(OUTS):
        y = best[o]
        if POOL == "mean":
            y = y / (WINDOW * WINDOW)
        channel = (n * sizes.groups + group) * sizes.targets + out + o
        at = channel * (rows * cols) + place
        inside = valid & (out + o < sizes.targets)
        tl.store(y_ptr + at, y.to(TYPE), mask=inside)
        if WINDOW > 1:
            tl.store(passed_ptr + at, bits[o].to(tl.int16), mask=inside)


# -- before the weight gradient ----------------------------------------------------------------------
@triton.jit
def spread(dy_ptr, y_ptr, passed_ptr, dz_ptr, out_h, out_w, factor, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of the convolution's output from that of y: through a pool by `passed`, through a ReLU by y."""
    area = out_h * out_w
    blocks = tl.cdiv(area, BLOCK)
    plane = (tl.program_id(0) // blocks).to(tl.int64)
    e = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = e < area
    if WINDOW == 1:
        at = plane * area + e
        g = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32) * factor
        g = tl.where(tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32) > 0.0, g, 0.0)
    else:
        rows, cols = out_h // WINDOW, out_w // WINDOW
        oy, ox = e // out_w, e % out_w
        py, px = oy // WINDOW, ox // WINDOW
        inner = inside & (py < rows) & (px < cols)  # rows and columns left over belong to no window
        at = plane * (rows * cols) + py * cols + px
        bits = tl.load(passed_ptr + at, mask=inner, other=0).to(tl.int32)
        g = tl.load(dy_ptr + at, mask=inner, other=0.0).to(tl.float32) * factor
        g = tl.where(((bits >> ((oy % WINDOW) * WINDOW + ox % WINDOW)) & 1) == 1, g, 0.0)
    tl.store(dz_ptr + plane * area + e, g.to(dz_ptr.dtype.element_ty), mask=inside)


# -- weight gradient ---------------------------------------------------------------------------------
@triton.jit
def weigh(
    dz_ptr, x_ptr, part_ptr, strides, count, each, sizes, steps, MASKED: tl.constexpr, BIAS: tl.constexpr,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, ROWS: tl.constexpr, OUTS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Over one part of the pixels: the gradient of ROWS rows of the kernels from one channel to OUTS, and of biases."""
    KERNEL_ROWS: tl.constexpr = KERNEL_H // ROWS
    pid = tl.program_id(1)
    top = (pid % KERNEL_ROWS) * ROWS
    c = (pid // KERNEL_ROWS) % sizes.sources
    blocks = tl.cdiv(sizes.targets, OUTS)
    out = (pid // (KERNEL_ROWS * sizes.sources)) % blocks * OUTS
    group = pid // (KERNEL_ROWS * sizes.sources * blocks)
    FORM: tl.constexpr = Form(False, False, MASKED, KERNEL_H, KERNEL_W)
    begin = tl.program_id(0) * each
    area = sizes.out_h * sizes.out_w
    image = x_ptr + (group * sizes.sources + c).to(tl.int64) * strides.channel
    outputs = dz_ptr + (group * sizes.targets + out).to(tl.int64) * area
    total = _zeros(OUTS * ROWS * KERNEL_W, PIXELS)
    bias = _zeros(OUTS, PIXELS)
    for at in tl.range(begin, tl.minimum(begin + each, count), PIXELS):
        p = at + tl.arange(0, PIXELS)
        valid = p < count
        n = (p // area).to(tl.int64)
        place = p % area
        oy, ox = place // sizes.out_w, place % sizes.out_w
        g = nothing()
        for o in tl.static_range(OUTS):
            inside = valid & (out + o < sizes.targets)
            from_dz = outputs + (n * sizes.groups * sizes.targets + o) * area + place
            g = g + (tl.load(from_dz, mask=inside, other=0.0).to(tl.float32),)
        pixels = Pixels(n, oy, ox, valid)
        y0, _ = row_of(pixels, top, sizes, steps, FORM)
        x0, _ = col_of(pixels, 0, sizes, steps, FORM)
        here = image + n * strides.batch + y0.to(tl.int64) * strides.row + x0.to(tl.int64) * strides.col
        more = nothing()
        for tap in tl.static_range(ROWS * KERNEL_W):
            _, row_there = row_of(pixels, top + tap // KERNEL_W, sizes, steps, FORM)
            _, col_there = col_of(pixels, tap % KERNEL_W, sizes, steps, FORM)
            inside = valid
            if MASKED:
                inside = valid & row_there & col_there
            tap_row, tap_col = tap // KERNEL_W * steps.dilation_h, tap % KERNEL_W * steps.dilation_w
            x = tl.load(here + (tap_row * strides.row + tap_col * strides.col), mask=inside, other=0.0).to(tl.float32)
            for o in tl.static_range(OUTS):
                more = more + (tl.fma(g[o], x, total[tap * OUTS + o]),)
        total = more
        if BIAS:
            more = nothing()
            for o in tl.static_range(OUTS):
                more = more + (bias[o] + g[o],)
            bias = more
    weights = sizes.groups * sizes.targets * sizes.sources * (KERNEL_H * KERNEL_W)
    part = part_ptr + tl.program_id(0).to(tl.int64) * (weights + sizes.groups * sizes.targets)
    for o in tl.static_range(OUTS):
        channel = group * sizes.targets + out + o
        there = out + o < sizes.targets
        for tap in tl.static_range(ROWS * KERNEL_W):
            to = (channel * sizes.sources + c) * (KERNEL_H * KERNEL_W) + top * KERNEL_W + tap
            tl.store(part + to, tl.sum(total[tap * OUTS + o], 0), mask=there)
        if BIAS:
            # every program sums the bias, as it has read dz anyway; one for each channel writes it
            tl.store(part + weights + channel, tl.sum(bias[o], 0), mask=there & (c == 0) & (top == 0))


@triton.jit
def join_weights(part_ptr, dw_ptr, db_ptr, parts, weights, cols, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Adds the parts of the weight gradient and of the bias gradient, which lie behind each other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for start in tl.range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS).to(tl.int64)[:, None]
        inside = (part < parts) & (at[None, :] < cols)
        total += tl.load(part_ptr + part * cols + at[None, :], mask=inside, other=0.0)
    joined = tl.sum(total, 0).to(dw_ptr.dtype.element_ty)
    tl.store(dw_ptr + at, joined, mask=at < weights)
    if db_ptr is not None:
        tl.store(db_ptr + at - weights, joined, mask=(at >= weights) & (at < cols))
