"""The kernels of the norms' forward; the formulas are in `norm`."""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.prims import edge_columns, inverse_root, joined, quotient, row_parts, tile


@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, rows, cols, eps,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PASSING: tl.constexpr,
    ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    valid = row < rows
    inside = valid[:, None] & (col < cols)
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    x = tl.load(x_ptr + row[:, None] * x_stride + col, mask=inside, other=0.0, cache_modifier=MODIFIER).to(tl.float32)
    if CENTRED:
        mean = quotient(tl.sum(x, 1), tl.cast(cols, tl.float32), TYPE)
        x = tl.where(col < cols, x - mean[:, None], 0.0)
        tl.store(mean_ptr + row, mean, mask=valid)
    rstd = inverse_root(quotient(tl.sum(x * x, 1), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd, mask=valid)
    # read here, not before the sums: the registers they would hold cost more programs than the waiting
    # (layer norm at 8192 bf16 columns: 0.073 ms so, 0.096 ms read early; H200, benchmarks/notes/norm.md)
    y = _scale(x * rstd[:, None], w_ptr, b_ptr, col, col < cols).to(y_ptr.dtype.element_ty)
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    tl.store(y_ptr + row[:, None] * cols + col, y, mask=inside, eviction_policy=POLICY)


@triton.jit
def _row_tiles(
    row_ptr, cols, BLOCK: tl.constexpr, TILES: tl.constexpr, EVEN: tl.constexpr, ASIDE: tl.constexpr
):  # fmt: skip
    """A row as a tuple of tiles."""
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    xs = ()
    for t in tl.static_range(TILES):
        col = t * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(row_ptr + col, cache_modifier=MODIFIER)
        else:
            x = tl.load(row_ptr + col, mask=col < cols, other=0.0, cache_modifier=MODIFIER)
        xs = joined(xs, (x,))
    return xs


@triton.jit
def _forward_tiles(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    CENTRED: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, EVEN: tl.constexpr,
    PASSING: tl.constexpr, ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    POLICY: tl.constexpr = "evict_first" if PASSING else ""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    xs = _row_tiles(x_ptr + row * x_stride, cols, BLOCK, TILES, EVEN, ASIDE)
    mean = 0.0
    if CENTRED:
        total = tl.zeros((BLOCK,), tl.float32)
        for t in tl.static_range(TILES):
            total += xs[t].to(tl.float32)
        mean = quotient(tl.sum(total, 0), tl.cast(cols, tl.float32), TYPE)
        tl.store(mean_ptr + row, mean)
    power = tl.zeros((BLOCK,), tl.float32)
    for t in tl.static_range(TILES):
        away = xs[t].to(tl.float32) - mean
        if not EVEN:
            away = tl.where(t * BLOCK + lane < cols, away, 0.0)
        power += away * away
    rstd = inverse_root(quotient(tl.sum(power, 0), tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd)
    for t in tl.static_range(TILES):
        col = t * BLOCK + lane
        y = (xs[t].to(tl.float32) - mean) * rstd
        if w_ptr is not None:
            y *= tile(w_ptr, col, cols, EVEN).to(tl.float32)
        if b_ptr is not None:
            y += tile(b_ptr, col, cols, EVEN).to(tl.float32)
        if EVEN:
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), eviction_policy=POLICY)
        else:
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=col < cols, eviction_policy=POLICY)


@triton.jit
def _forward_wide(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    CENTRED: tl.constexpr, PACKED: tl.constexpr, EDGES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
    ASIDE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    MODIFIER: tl.constexpr = ".cg" if ASIDE else ""
    KEEP: tl.constexpr = "" if ASIDE else "evict_last"
    DROP: tl.constexpr = "" if ASIDE else "evict_first"
    row = tl.program_id(0).to(tl.int64)
    begin = row * x_stride
    body, lead, size = row_parts(begin, cols, VECTOR)
    y_begin, y_body = row * cols, row * cols + lead
    if PACKED:  # said so that the compiler sees that y is aligned where x is
        y_begin, y_body = begin, body
    lane = tl.arange(0, LANES)
    at = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # each lane: the mean of the numbers it saw, and the sum of their squared distances from it
    means = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    STEP: tl.constexpr = LANES * VECTOR
    steps = size // STEP
    for step in tl.range(0, steps):
        read = tl.load(x_ptr + body + step * STEP + at, eviction_policy=KEEP, cache_modifier=MODIFIER)
        x = read.to(tl.float32)
        if CENTRED:  # the vector's own, joined to the lane's by Chan's rule
            mean = tl.sum(x, 1) / VECTOR
            away = x - mean[:, None]
            gap = mean - means
            means += gap * (1.0 / (step + 1.0))
            squares += tl.sum(away * away, 1) + gap * (mean - means) * VECTOR
        else:
            squares += tl.sum(x * x, 1)
    seen = (steps * VECTOR).to(tl.float32) + tl.zeros((LANES,), tl.float32)
    for start in tl.range(steps * STEP, size, STEP):  # what is no whole step
        inside = start + at < size
        x = tl.load(x_ptr + body + start + at, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            # a lane is inside with its whole vector or not at all
            added = tl.where(start + lane * VECTOR < size, VECTOR, 0).to(tl.float32)
            mean = tl.sum(x, 1) / VECTOR
            away = x - mean[:, None]
            gap = mean - means
            share = added / tl.maximum(seen + added, 1.0)
            squares += tl.where(added > 0.0, tl.sum(away * away, 1) + gap * gap * seen * share, 0.0)
            means += gap * share
            seen += added
        else:
            squares += tl.sum(x * x, 1)
    if EDGES:
        edge, edge_inside = edge_columns(lead, size, cols, VECTOR)
        ends = tl.load(x_ptr + begin + edge, mask=edge_inside, other=0.0).to(tl.float32)
    middle = 0.0
    if CENTRED:
        middle = tl.sum(means * seen, 0)
        if EDGES:
            middle += tl.sum(ends, 0)
        middle = quotient(middle, tl.cast(cols, tl.float32), TYPE)
        squares += seen * (means - middle) * (means - middle)
        tl.store(mean_ptr + row, middle)
    power = tl.sum(squares, 0)
    if EDGES:
        ends = tl.where(edge_inside, ends - middle, 0.0)
        power += tl.sum(ends * ends, 0)
    rstd = inverse_root(quotient(power, tl.cast(cols, tl.float32), TYPE) + eps, TYPE)
    tl.store(rstd_ptr + row, rstd)
    if EDGES:
        y_ends = _scale(ends * rstd, w_ptr, b_ptr, edge, edge_inside)
        tl.store(y_ptr + y_begin + edge, y_ends.to(TYPE), mask=edge_inside)
    last = (size - 1) // STEP * STEP
    for back in tl.range(0, size, STEP):
        start = last - back  # what was read last is still near
        inside = start + at < size
        again = tl.load(
            x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy=DROP, cache_modifier=MODIFIER
        )
        col = start + at
        if EDGES:
            col += lead
        y = _scale((again.to(tl.float32) - middle) * rstd, w_ptr, b_ptr, col, inside)
        tl.store(y_ptr + y_body + start + at, y.to(TYPE), mask=inside, eviction_policy="evict_first")


@triton.jit
def _scale(n, w_ptr, b_ptr, col, inside):
    if w_ptr is not None:
        n *= tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
    if b_ptr is not None:
        n += tl.load(b_ptr + col, mask=inside, other=0.0).to(tl.float32)
    return n
