"""The kernels of norms over channels; the formulas are in `batch_norm` and `group_norm`.

A result (of batch norm a channel, of group norm a group of one image) has rows by cols elements, cols side by side.  A
tile is KEPT results by ROWS * BLOCK of their elements; a program takes KEPT results and all their tiles, or, where
results are too few to fill the machine, one part of the tiles, and small kernels join the parts.

Statistics are taken in one pass: sums of x - shift and of its square in float32, where shift is the mean of the
program's first tile.  With t tiles, (mean - shift)^2 is at most t times the variance, whatever the numbers are, so the
difference of the sums loses log2(t) bits at worst, and parts are joined by Chan's rule.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.channel_norm.scaling import activated, away_from, inverse_root_of, scaled, slope_at, wide_statistic
from burn_kernels.prims import quotient, wide


# -- tiles -------------------------------------------------------------------------------------------
@triton.jit
def _begin(k, inner, strides):
    """The first element of each result."""
    return (k // inner) * strides.outer + (k % inner) * strides.inner


@triton.jit
def lanes_of(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Row and column of each lane, from the corner of its tile."""
    lane = tl.arange(0, ROWS * BLOCK)
    return lane // BLOCK, lane % BLOCK


@triton.jit
def places_of(r, c, stride):
    """How far each lane lies behind the corner: the same for all tiles, so it is computed once."""
    return (r.to(tl.int64) * stride + c)[None, :]


@triton.jit
def _corner(step, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The first row and column of a tile."""
    chunks = tl.cdiv(cols, BLOCK)
    return (step // chunks) * ROWS, (step % chunks) * BLOCK


@triton.jit
def there_of(top, left, r, c, rows, cols, valid):
    """Tells which lanes of a tile have an element."""
    return valid[:, None] & ((top + r < rows) & (left + c < cols))[None, :]


@triton.jit
def _elements(top, left, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts the lanes of a tile that have one."""
    return tl.minimum(rows - top, ROWS) * tl.minimum(cols - left, BLOCK)


@triton.jit
def vector_of(ptr, place, valid, absent):
    """The numbers of each result from a vector, `absent` where there is none."""
    if ptr is not None:
        v = tl.load(ptr + place, mask=valid, other=0.0).to(tl.float32)
    else:
        v = tl.zeros(place.shape, tl.float32) + absent
    return v


@triton.jit
def _affine(ptr, k, inner, row, col, rows, cols, there, absent, PLACE: tl.constexpr):
    """The weight, or bias, of each element of a tile, which a group has one of a row, or one of a column."""
    if ptr is None:
        v = absent
    elif PLACE == "row":
        v = tl.load(ptr + ((k % inner) * rows)[:, None] + row[None, :], mask=there, other=0.0).to(tl.float32)
    else:
        v = tl.load(ptr + ((k % inner) * cols)[:, None] + col[None, :], mask=there, other=0.0).to(tl.float32)
    return v


# -- statistics --------------------------------------------------------------------------------------
@triton.jit
def _moments(x_ptr, first, valid, row_stride, sizes, begin, end, TILE: tl.constexpr):
    """Over tiles [begin, end): how many elements, their mean, and the sum of their squared distances from it."""
    r, c = lanes_of(TILE.ROWS, TILE.BLOCK)
    place = x_ptr + first[:, None] + places_of(r, c, row_stride)
    top, left = _corner(begin, sizes.cols, TILE.ROWS, TILE.BLOCK)
    inside = there_of(top, left, r, c, sizes.rows, sizes.cols, valid)
    x = tl.load(place + (top.to(tl.int64) * row_stride + left), mask=inside, other=0.0).to(tl.float32)
    shift = tl.sum(x, 1) / _elements(top, left, sizes.rows, sizes.cols, TILE.ROWS, TILE.BLOCK).to(tl.float32)
    KEPT: tl.constexpr = TILE.KEPT
    LANES: tl.constexpr = TILE.ROWS * TILE.BLOCK
    total = tl.zeros((KEPT, LANES), tl.float32)
    squares = tl.zeros((KEPT, LANES), tl.float32)
    seen = begin * 0
    for step in tl.range(begin, end, num_stages=TILE.STAGES):
        top, left = _corner(step, sizes.cols, TILE.ROWS, TILE.BLOCK)
        inside = there_of(top, left, r, c, sizes.rows, sizes.cols, valid)
        x = tl.load(place + (top.to(tl.int64) * row_stride + left), mask=inside, other=0.0).to(tl.float32)
        away = tl.where(inside, x - shift[:, None], 0.0)
        total += away
        squares += away * away
        seen += _elements(top, left, sizes.rows, sizes.cols, TILE.ROWS, TILE.BLOCK)
    count = seen.to(tl.float32)
    off = quotient(tl.sum(total, 1), count, x_ptr.dtype.element_ty)
    rest = tl.sum(squares, 1) - count * off * off
    mean = wide(shift, x_ptr.dtype.element_ty) + off
    return count, mean, tl.maximum(rest, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def keep_statistics(mean, variance, count, pointers, k, valid, momentum, eps):
    """Writes mean and rstd, moves the running ones by `momentum`, and gives rstd, in the type of the mean.

    `pointers` are those of mean and rstd, of the old running mean and variance, and of the new ones.
    """
    mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr = pointers
    rstd = inverse_root_of(variance.to(mean.dtype) + eps)
    tl.store(mean_ptr + k, mean, mask=valid)
    tl.store(rstd_ptr + k, rstd, mask=valid)
    if new_mean_ptr is not None:
        old = tl.load(old_mean_ptr + k, mask=valid, other=0.0).to(tl.float32)
        new = (1.0 - momentum) * old + momentum * mean.to(tl.float32)
        tl.store(new_mean_ptr + k, new.to(new_mean_ptr.dtype.element_ty), mask=valid)
    if new_var_ptr is not None:
        old = tl.load(old_var_ptr + k, mask=valid, other=0.0).to(tl.float32)
        # the running variance is the unbiased one
        new = (1.0 - momentum) * old + momentum * (variance * count / (count - 1.0))
        tl.store(new_var_ptr + k, new.to(new_var_ptr.dtype.element_ty), mask=valid)
    return rstd


@triton.jit
def _write_normal(
    x_ptr, w_ptr, b_ptr, y_ptr, k, valid, mean, rstd, x_strides, y_strides, sizes, begin, end, KIND: tl.constexpr,
    PLACE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Writes y of tiles [begin, end), the last first: it is the one that was read last, and may still be near."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    if PLACE == "kept":
        w = vector_of(w_ptr, k % sizes.inner, valid, 1.0)[:, None]
        b = vector_of(b_ptr, k % sizes.inner, valid, 0.0)[:, None]
    r, c = lanes_of(TILE.ROWS, TILE.BLOCK)
    from_x = x_ptr + _begin(k, sizes.inner, x_strides)[:, None] + places_of(r, c, x_strides.row)
    to_y = y_ptr + _begin(k, sizes.inner, y_strides)[:, None] + places_of(r, c, y_strides.row)
    for back in tl.range(begin, end, num_stages=TILE.STAGES):
        top, left = _corner(begin + end - 1 - back, sizes.cols, TILE.ROWS, TILE.BLOCK)
        inside = there_of(top, left, r, c, sizes.rows, sizes.cols, valid)
        x = tl.load(from_x + (top.to(tl.int64) * x_strides.row + left), mask=inside, other=0.0).to(tl.float32)
        if PLACE == "kept":
            y = scaled(x, mean[:, None], rstd[:, None], w, b)
        else:
            scale = _affine(w_ptr, k, sizes.inner, top + r, left + c, sizes.rows, sizes.cols, inside, 1.0, PLACE)
            shift = _affine(b_ptr, k, sizes.inner, top + r, left + c, sizes.rows, sizes.cols, inside, 0.0, PLACE)
            y = scaled(x, mean[:, None], rstd[:, None], scale, shift)
        if KIND != "none":
            y, _ = activated(y, KIND, TYPE)
        tl.store(to_y + (top.to(tl.int64) * y_strides.row + left), y.to(TYPE), mask=inside)


# -- kernels, forward --------------------------------------------------------------------------------
@triton.jit
def forward_whole(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr, x_strides,
    y_strides, sizes, momentum, eps, KIND: tl.constexpr, PLACE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Statistics and output of KEPT results; their elements are read twice, the second time from near memory."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    first = _begin(k, sizes.inner, x_strides)
    count, mean, squares = _moments(x_ptr, first, valid, x_strides.row, sizes, 0, sizes.tiles, TILE)
    pointers = (mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr)
    variance = quotient(squares, count, x_ptr.dtype.element_ty)
    rstd = keep_statistics(mean, variance, count, pointers, k, valid, momentum, eps)
    _write_normal(
        x_ptr, w_ptr, b_ptr, y_ptr, k, valid, mean, rstd, x_strides, y_strides, sizes=sizes, begin=0, end=sizes.tiles,
        KIND=KIND, PLACE=PLACE, TILE=TILE,
    )  # fmt: skip


@triton.jit
def moments_of_parts(x_ptr, count_ptr, mean_ptr, squares_ptr, x_strides, sizes, steps, TILE: tl.constexpr):
    """The statistics of one part of the tiles of KEPT results."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    part = tl.program_id(1)
    begin = part * steps
    end = tl.minimum(begin + steps, sizes.tiles)
    first = _begin(k, sizes.inner, x_strides)
    count, mean, squares = _moments(x_ptr, first, valid, x_strides.row, sizes, begin, end, TILE)
    at = part.to(tl.int64) * sizes.kept + k
    tl.store(mean_ptr + at, mean, mask=valid)
    tl.store(squares_ptr + at, squares, mask=valid)
    if tl.program_id(0) == 0:
        tl.store(count_ptr + part, count)


@triton.jit
def join_moments(
    count_ptr, part_mean_ptr, squares_ptr, mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr,
    kept, parts, momentum, eps, PARTS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Joins the statistics of the parts by Chan's rule, about the mean of the first part."""
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    base = tl.load(part_mean_ptr + k, mask=valid, other=0.0)
    count = 0.0
    gap = tl.zeros((PARTS, KEPT), tl.float32)
    for at in tl.range(0, parts, PARTS):
        part = (at + tl.arange(0, PARTS)).to(tl.int64)
        inside = (part < parts)[:, None] & valid[None, :]
        seen = tl.load(count_ptr + part, mask=part < parts, other=0.0)
        mean = tl.load(part_mean_ptr + (part * kept)[:, None] + k[None, :], mask=inside, other=0.0)
        gap += seen[:, None] * tl.where(inside, mean - base[None, :], 0.0).to(tl.float32)
        count += tl.sum(seen, 0)
    middle = base + tl.div_rn(tl.sum(gap, 0), count)
    total = tl.zeros((PARTS, KEPT), tl.float32)
    for at in tl.range(0, parts, PARTS):
        part = (at + tl.arange(0, PARTS)).to(tl.int64)
        inside = (part < parts)[:, None] & valid[None, :]
        seen = tl.load(count_ptr + part, mask=part < parts, other=0.0)
        place = (part * kept)[:, None] + k[None, :]
        away = tl.load(part_mean_ptr + place, mask=inside, other=0.0) - middle[None, :]
        away = tl.where(inside, away, 0.0).to(tl.float32)
        total += tl.load(squares_ptr + place, mask=inside, other=0.0) + seen[:, None] * away * away
    pointers = (mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr)
    keep_statistics(middle, tl.div_rn(tl.sum(total, 0), count), count, pointers, k, valid, momentum, eps)


@triton.jit
def normalize(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_strides, y_strides, sizes, steps, eps, VARIANCE: tl.constexpr,
    KIND: tl.constexpr, PLACE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The output from known statistics; `rstd_ptr` holds variances if VARIANCE."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    # the programs that come last read what was read last before
    begin = (tl.num_programs(1) - 1 - tl.program_id(1)) * steps
    mean = wide_statistic(tl.load(mean_ptr + k, mask=valid, other=0.0), y_ptr.dtype.element_ty)
    rstd = wide_statistic(tl.load(rstd_ptr + k, mask=valid, other=0.0), y_ptr.dtype.element_ty)
    if VARIANCE:
        rstd = inverse_root_of(rstd + eps)
    _write_normal(
        x_ptr, w_ptr, b_ptr, y_ptr, k, valid, mean, rstd, x_strides, y_strides, sizes=sizes, begin=begin,
        end=tl.minimum(begin + steps, sizes.tiles), KIND=KIND, PLACE=PLACE, TILE=TILE,
    )  # fmt: skip


# -- kernels, backward -------------------------------------------------------------------------------
@triton.jit
def _slopes(from_dy, from_x, norm, inside, KIND: tl.constexpr):
    """The gradient before the activation, and the normalized x, of a tile."""
    mean, rstd, w, b = norm
    mean, rstd, w, b = mean[:, None], rstd[:, None], w[:, None], b[:, None]
    x = tl.load(from_x, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(from_dy, mask=inside, other=0.0).to(tl.float32)
    n = away_from(x, mean) * rstd.to(tl.float32)
    if KIND != "none":
        g *= slope_at(x, n, mean, rstd, w, b, KIND, from_x.dtype.element_ty)
    return g, tl.where(inside, n, 0.0)


@triton.jit
def _sums(
    dy_ptr, x_ptr, k, valid, norm, dy_strides, x_strides, sizes, begin, end, KIND: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Over tiles [begin, end): the sums of g * n and of g."""
    r, c = lanes_of(TILE.ROWS, TILE.BLOCK)
    from_dy = dy_ptr + _begin(k, sizes.inner, dy_strides)[:, None] + places_of(r, c, dy_strides.row)
    from_x = x_ptr + _begin(k, sizes.inner, x_strides)[:, None] + places_of(r, c, x_strides.row)
    KEPT: tl.constexpr = TILE.KEPT
    LANES: tl.constexpr = TILE.ROWS * TILE.BLOCK
    along = tl.zeros((KEPT, LANES), tl.float32)
    offset = tl.zeros((KEPT, LANES), tl.float32)
    for step in tl.range(begin, end, num_stages=TILE.STAGES):
        top, left = _corner(step, sizes.cols, TILE.ROWS, TILE.BLOCK)
        at_dy, at_x = top.to(tl.int64) * dy_strides.row + left, top.to(tl.int64) * x_strides.row + left
        inside = there_of(top, left, r, c, sizes.rows, sizes.cols, valid)
        g, n = _slopes(from_dy + at_dy, from_x + at_x, norm, inside, KIND)
        along += g * n
        offset += g
    return tl.sum(along, 1), tl.sum(offset, 1)


@triton.jit
def _write_slopes(
    dy_ptr, x_ptr, dx_ptr, k, valid, norm, along, offset, dy_strides, x_strides, dx_strides, sizes, begin, end,
    TRAINED: tl.constexpr, KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Writes dx of tiles [begin, end), the last first; `along` and `offset` are means of g * w * n and g * w."""
    _, rstd, w, _ = norm
    r, c = lanes_of(TILE.ROWS, TILE.BLOCK)
    from_dy = dy_ptr + _begin(k, sizes.inner, dy_strides)[:, None] + places_of(r, c, dy_strides.row)
    from_x = x_ptr + _begin(k, sizes.inner, x_strides)[:, None] + places_of(r, c, x_strides.row)
    to_dx = dx_ptr + _begin(k, sizes.inner, dx_strides)[:, None] + places_of(r, c, dx_strides.row)
    for back in tl.range(begin, end, num_stages=TILE.STAGES):
        top, left = _corner(begin + end - 1 - back, sizes.cols, TILE.ROWS, TILE.BLOCK)
        at_dy, at_x = top.to(tl.int64) * dy_strides.row + left, top.to(tl.int64) * x_strides.row + left
        inside = there_of(top, left, r, c, sizes.rows, sizes.cols, valid)
        g, n = _slopes(from_dy + at_dy, from_x + at_x, norm, inside, KIND)
        g *= w[:, None]
        if TRAINED:
            g = g - offset[:, None] - n * along[:, None]
        dx = g * rstd.to(tl.float32)[:, None]
        tl.store(to_dx + (top.to(tl.int64) * dx_strides.row + left), dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def known(
    mean_ptr, rstd_ptr, w_ptr, b_ptr, k, inner, per, valid, eps, TRAINED: tl.constexpr, TYPE: tl.constexpr
):  # fmt: skip
    """Mean, rstd, weight and bias of each channel; `per` channels share statistics.

    If not TRAINED, `rstd_ptr` has variances.
    """
    mean = wide_statistic(tl.load(mean_ptr + k // per, mask=valid, other=0.0), TYPE)
    rstd = wide_statistic(tl.load(rstd_ptr + k // per, mask=valid, other=0.0), TYPE)
    if not TRAINED:
        rstd = inverse_root_of(rstd + eps)
    return mean, rstd, vector_of(w_ptr, k % inner, valid, 1.0), vector_of(b_ptr, k % inner, valid, 0.0)


@triton.jit
def backward_whole(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, dy_strides, x_strides, dx_strides, sizes,
    count, eps, TRAINED: tl.constexpr, KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """All gradients of KEPT channels of a batch norm."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    norm = known(mean_ptr, rstd_ptr, w_ptr, b_ptr, k, sizes.inner, 1, valid, eps, TRAINED, TYPE)
    along, offset = _sums(
        dy_ptr, x_ptr, k, valid, norm, dy_strides, x_strides, sizes, 0, sizes.tiles, KIND=KIND, TILE=TILE
    )
    if dw_ptr is not None:
        tl.store(dw_ptr + k, along.to(dw_ptr.dtype.element_ty), mask=valid)
    if db_ptr is not None:
        tl.store(db_ptr + k, offset.to(db_ptr.dtype.element_ty), mask=valid)
    _, _, w, _ = norm
    _write_slopes(
        dy_ptr, x_ptr, dx_ptr, k, valid, norm, quotient(along * w, count, TYPE), quotient(offset * w, count, TYPE),
        dy_strides, x_strides, dx_strides, sizes=sizes, begin=0, end=sizes.tiles, TRAINED=TRAINED, KIND=KIND, TILE=TILE,
    )  # fmt: skip


@triton.jit
def sums_of_parts(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dy_strides, x_strides, sizes, steps, per,
    eps, TRAINED: tl.constexpr, KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The sums of one part of the tiles of KEPT channels; of a group norm, of channels of one image each."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    begin = tl.program_id(1) * steps
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    norm = known(
        mean_ptr, rstd_ptr, w_ptr, b_ptr, k, sizes.inner, per, valid, eps=eps, TRAINED=TRAINED, TYPE=TYPE
    )  # fmt: skip
    along, offset = _sums(
        dy_ptr, x_ptr, k, valid, norm, dy_strides, x_strides, sizes, begin, tl.minimum(begin + steps, sizes.tiles),
        KIND=KIND, TILE=TILE,
    )  # fmt: skip
    at = tl.program_id(1).to(tl.int64) * sizes.kept + k
    tl.store(along_ptr + at, along, mask=valid)
    tl.store(offset_ptr + at, offset, mask=valid)


@triton.jit
def join_sums(
    along_ptr, offset_ptr, w_ptr, mean_along_ptr, mean_offset_ptr, dw_ptr, db_ptr, kept, parts, count,
    PARTS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Adds the sums of the parts: to dw and db, and, where asked for, to the means that dx takes."""
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    along = tl.zeros((PARTS, KEPT), tl.float32)
    offset = tl.zeros((PARTS, KEPT), tl.float32)
    for at in tl.range(0, parts, PARTS):
        part = (at + tl.arange(0, PARTS)).to(tl.int64)
        inside = (part < parts)[:, None] & valid[None, :]
        place = (part * kept)[:, None] + k[None, :]
        along += tl.load(along_ptr + place, mask=inside, other=0.0)
        offset += tl.load(offset_ptr + place, mask=inside, other=0.0)
    total, rest = tl.sum(along, 0), tl.sum(offset, 0)
    if mean_along_ptr is not None:
        w = vector_of(w_ptr, k, valid, 1.0)
        tl.store(mean_along_ptr + k, tl.div_rn(total * w, count), mask=valid)
        tl.store(mean_offset_ptr + k, tl.div_rn(rest * w, count), mask=valid)
    if dw_ptr is not None:
        tl.store(dw_ptr + k, total.to(dw_ptr.dtype.element_ty), mask=valid)
    if db_ptr is not None:
        tl.store(db_ptr + k, rest.to(db_ptr.dtype.element_ty), mask=valid)


@triton.jit
def join_groups(
    along_ptr, offset_ptr, w_ptr, mean_along_ptr, mean_offset_ptr, groups, inner, per, parts, stride, count,
    KEPT: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    """The means that dx of a group norm takes, of KEPT groups, from the sums of the `per` channels of each."""
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < groups
    along = tl.zeros((KEPT, PER), tl.float32)
    offset = tl.zeros((KEPT, PER), tl.float32)
    for first in tl.range(0, per, PER):
        which = first + tl.arange(0, PER)
        channel = (k * per)[:, None] + which[None, :]
        inside = valid[:, None] & (which < per)[None, :]
        if w_ptr is not None:
            w = tl.load(w_ptr + channel % inner, mask=inside, other=0.0).to(tl.float32)
        else:
            w = 1.0
        for part in tl.range(0, parts):
            at = tl.cast(part, tl.int64) * stride + channel
            along += w * tl.load(along_ptr + at, mask=inside, other=0.0)
            offset += w * tl.load(offset_ptr + at, mask=inside, other=0.0)
    tl.store(mean_along_ptr + k, tl.div_rn(tl.sum(along, 1), count), mask=valid)
    tl.store(mean_offset_ptr + k, tl.div_rn(tl.sum(offset, 1), count), mask=valid)


@triton.jit
def slopes_of_parts(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, mean_along_ptr, mean_offset_ptr, dx_ptr, dy_strides, x_strides,
    dx_strides, sizes, steps, per, eps, TRAINED: tl.constexpr, KIND: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """dx of one part of the tiles of KEPT channels; of a group norm, of channels of one image each."""
    k = tl.program_id(0).to(tl.int64) * TILE.KEPT + tl.arange(0, TILE.KEPT)
    valid = k < sizes.kept
    begin = (tl.num_programs(1) - 1 - tl.program_id(1)) * steps
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    norm = known(
        mean_ptr, rstd_ptr, w_ptr, b_ptr, k, sizes.inner, per, valid, eps=eps, TRAINED=TRAINED, TYPE=TYPE
    )  # fmt: skip
    along, offset = vector_of(mean_along_ptr, k // per, valid, 0.0), vector_of(mean_offset_ptr, k // per, valid, 0.0)
    _write_slopes(
        dy_ptr, x_ptr, dx_ptr, k, valid, norm, along, offset, dy_strides, x_strides, dx_strides, sizes=sizes,
        begin=begin, end=tl.minimum(begin + steps, sizes.tiles), TRAINED=TRAINED, KIND=KIND, TILE=TILE,
    )  # fmt: skip
