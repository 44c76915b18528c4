"""The kernels of the norms' backward; `norm.launch_backward` says what they compute and chooses among them."""

from __future__ import annotations

from burn_kernels._triton import let_next_begin, tl, triton, wait_for_last
from burn_kernels.prims import joined, tile


# -- parts -------------------------------------------------------------------------------------------
@triton.jit
def normalised(x, mean_ptr, rstd_ptr, row, valid, CENTRED: tl.constexpr):
    """The numbers of some rows, normalised, and what they were multiplied by."""
    rstd = tl.load(rstd_ptr + row, mask=valid, other=0.0)
    if CENTRED:
        x -= tl.load(mean_ptr + row, mask=valid, other=0.0)[:, None]
    return x * rstd[:, None], rstd


@triton.jit
def row_gradient(n, g, rstd, along_ptr, offset_ptr, row, valid, cols, CENTRED: tl.constexpr):
    """The gradient of some rows from n, their normalised numbers, and g, the gradient of those.

    The means over all columns: from this tile where it holds them all, else from memory.
    """
    if along_ptr is None:
        along = tl.sum(g * n, 1) / cols
    else:
        along = tl.load(along_ptr + row, mask=valid, other=0.0)
    dx = g - n * along[:, None]
    if CENTRED:
        if along_ptr is None:
            offset = tl.sum(g, 1) / cols
        else:
            offset = tl.load(offset_ptr + row, mask=valid, other=0.0)
        dx -= offset[:, None]
    return dx * rstd[:, None]


@triton.jit
def add_both(a, b, c, d):
    """Adds pairs."""
    return a + c, b + d


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def row_means(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dy_stride, x_stride, cols,
    CENTRED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The two means of every row over all columns."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    along = tl.zeros((BLOCK,), tl.float32)
    offset = tl.zeros((BLOCK,), tl.float32)
    mean = 0.0
    if CENTRED:
        mean = tl.load(mean_ptr + row)
    for start in tl.range(0, cols, BLOCK):
        inside = start + col < cols
        # the slabs read both again; which rows are still in the L2 cache by then is left to chance
        n = tl.load(x_ptr + row * x_stride + start + col, mask=inside, other=0.0).to(tl.float32) - mean
        g = tl.load(dy_ptr + row * dy_stride + start + col, mask=inside, other=0.0).to(tl.float32)
        if w_ptr is not None:
            g *= tl.load(w_ptr + start + col, mask=inside, other=0.0).to(tl.float32)
        along += g * n
        offset += g
    tl.store(along_ptr + row, tl.sum(along, 0) * tl.load(rstd_ptr + row) / cols)
    if CENTRED:
        tl.store(offset_ptr + row, tl.sum(offset, 0) / cols)


@triton.jit
def backward_rows(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, along_ptr, offset_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, x_stride,
    rows, cols, CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    PASSING: tl.constexpr,
    LEADS: tl.constexpr,
):  # fmt: skip
    """The gradients of whole rows, some at once, or of a slab of their columns where their means are given."""
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    ONCE: tl.constexpr = "evict_first" if PASSING > 1 else ""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = at[None, :]
    # up to 8192 columns the weights stay in registers; beyond, there is no room, and the L1 cache holds them
    KEEP: tl.constexpr = BLOCK <= 8_192
    if w_ptr is not None and KEEP:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    if dw_ptr is not None:
        dw = tl.zeros((ROWS, BLOCK), tl.float32)
    if db_ptr is not None:
        db = tl.zeros((ROWS, BLOCK), tl.float32)
    tiles = tl.cdiv(rows, ROWS)
    for turn in tl.range(tl.program_id(1), tiles, tl.num_programs(1), num_stages=STAGES):
        which = turn
        if KEEP:  # from the last row on: what a forward just before has read last may still be in the cache
            which = tiles - 1 - turn
        row = which * ROWS + tl.arange(0, ROWS).to(tl.int64)
        valid = row < rows
        inside = valid[:, None] & (col < cols)
        n = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + col, mask=inside, other=0.0, eviction_policy=ONCE)
        dy = dy.to(tl.float32)
        n, rstd = normalised(n, mean_ptr, rstd_ptr, row, valid, CENTRED)
        if dw_ptr is not None:
            dw += dy * n
        if db_ptr is not None:
            db += dy
        g = dy
        if w_ptr is not None:
            if not KEEP:
                w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
            g *= w
        dx = row_gradient(n, g, rstd, along_ptr, offset_ptr, row, valid, cols, CENTRED)
        dx = dx.to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row[:, None] * cols + col, dx, mask=inside, eviction_policy=POLICY)
    if LEADS:
        let_next_begin()
    share = tl.program_id(1).to(tl.int64) * cols + at
    if dw_ptr is not None:
        tl.store(dw_ptr + share, tl.sum(dw, 0), mask=at < cols)
    if db_ptr is not None:
        tl.store(db_ptr + share, tl.sum(db, 0), mask=at < cols)


@triton.jit
def backward_tiles(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, x_stride, rows, cols,
    CENTRED: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, ALL: tl.constexpr, EVEN: tl.constexpr,
    READS: tl.constexpr, GROUP: tl.constexpr, KEEP: tl.constexpr, STAGES: tl.constexpr, PASSING: tl.constexpr,
    LEADS: tl.constexpr,
):  # fmt: skip
    """The gradients of TILES tiles of every row; the means are over ALL, which each of the slabs reads."""
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    whole = 1.0 / cols  # a division a row is some 20 instructions
    base = tl.program_id(0) * (TILES * BLOCK) + tl.arange(0, BLOCK)
    dw, db, weights = (), (), ()
    for t in tl.static_range(TILES):
        dw = joined(dw, (tl.zeros((BLOCK,), tl.float32),))
        db = joined(db, (tl.zeros((BLOCK,), tl.float32),))
        if w_ptr is not None and KEEP:
            weights = joined(weights, (tile(w_ptr, base + t * BLOCK, cols, EVEN),))
    for turn in tl.range(tl.program_id(1), rows, tl.num_programs(1), num_stages=STAGES):
        row = rows - 1 - turn  # from the last row on, as in `backward_rows`
        place = row + tl.full((), 0, tl.int64)
        x_row, dy_row, dx_row = x_ptr + place * x_stride, dy_ptr + place * dy_stride, dx_ptr + place * cols
        rstd = tl.load(rstd_ptr + row)
        mean = 0.0
        if CENTRED:
            mean = tl.load(mean_ptr + row)
        along = tl.zeros((BLOCK,), tl.float32)
        offset = tl.zeros((BLOCK,), tl.float32)
        xs, dys = (), ()
        if ALL == GROUP:
            for t in tl.static_range(TILES):
                col = base + t * BLOCK
                x, dy = tile(x_row, col, cols, EVEN), tile(dy_row, col, cols, EVEN)
                if READS == 1:
                    xs, dys = joined(xs, (x,)), joined(dys, (dy,))
                g = dy.to(tl.float32)
                if w_ptr is not None:
                    if KEEP:
                        g *= weights[t].to(tl.float32)
                    else:
                        g *= tile(w_ptr, col, cols, EVEN).to(tl.float32)
                along += g * (x.to(tl.float32) - mean)
                offset += g
        else:
            # the tiles that are read again come last, and the second reading begins with the one that was read last
            for first in tl.range(0, ALL, GROUP):
                which = (tl.program_id(0) + 1) * TILES + first
                begun = tl.where(which >= ALL, which - ALL, which) * BLOCK
                for t in tl.static_range(GROUP):
                    col = begun + t * BLOCK + tl.arange(0, BLOCK)
                    x, g = tile(x_row, col, cols, EVEN), tile(dy_row, col, cols, EVEN).to(tl.float32)
                    if w_ptr is not None:
                        g *= tile(w_ptr, col, cols, EVEN).to(tl.float32)
                    along += g * (x.to(tl.float32) - mean)
                    offset += g
        shift = 0.0
        if CENTRED:
            total, totals = tl.reduce((along, offset), 0, add_both)
            shift = -totals * rstd * whole
        else:
            total = tl.sum(along, 0)
        slope = -total * rstd * rstd * whole
        new_dw, new_db = (), ()
        for t in tl.static_range(TILES - 1, -1, -1):
            col = base + t * BLOCK
            if READS == 1:
                x, dy = xs[t], dys[t]
            else:
                x, dy = tile(x_row, col, cols, EVEN), tile(dy_row, col, cols, EVEN)
            g = dy.to(tl.float32)
            n = (x.to(tl.float32) - mean) * rstd
            new_dw = joined((dw[t] + g * n,), new_dw)
            new_db = joined((db[t] + g,), new_db)
            if w_ptr is not None:
                if KEEP:
                    g *= weights[t].to(tl.float32)
                else:
                    g *= tile(w_ptr, col, cols, EVEN).to(tl.float32)
            dx = (g * rstd + (n * slope + shift)).to(dx_ptr.dtype.element_ty)
            if EVEN:
                tl.store(dx_row + col, dx, eviction_policy=POLICY)
            else:
                tl.store(dx_row + col, dx, mask=col < cols, eviction_policy=POLICY)
        dw, db = new_dw, new_db
    if LEADS:
        let_next_begin()
    share = tl.program_id(1).to(tl.int64) * cols
    for t in tl.static_range(TILES):
        col = base + t * BLOCK
        inside = None if EVEN else col < cols
        if dw_ptr is not None:
            tl.store(dw_ptr + share + col, dw[t], mask=inside)
        if db_ptr is not None:
            tl.store(db_ptr + share + col, db[t], mask=inside)


@triton.jit
def add_shares(
    dw_share_ptr, db_share_ptr, dw_ptr, db_ptr, shares, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The sums of some columns over what the programs have left; EARLY where these may not have ended."""
    if EARLY:
        wait_for_last()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros((ROWS, BLOCK), tl.float32)
    db = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.range(0, shares, ROWS):
        share = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (share < shares) & (at[None, :] < cols)
        if dw_ptr is not None:
            dw += tl.load(dw_share_ptr + share * cols + at[None, :], mask=inside, other=0.0)
        if db_ptr is not None:
            db += tl.load(db_share_ptr + share * cols + at[None, :], mask=inside, other=0.0)
    if dw_ptr is not None:
        tl.store(dw_ptr + at, tl.sum(dw, 0).to(dw_ptr.dtype.element_ty), mask=at < cols)
    if db_ptr is not None:
        tl.store(db_ptr + at, tl.sum(db, 0).to(db_ptr.dtype.element_ty), mask=at < cols)
