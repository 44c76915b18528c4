"""What the kernels of attention share: where a sequence lies, which keys a query sees, and the scores of a tile.

Scores of half types are kept in base 2, so that a weight is one exp2: the scale that comes with them is scale *
log2(e), or scale over the softcap, which is multiplied by log2(e) itself.  Those of float32 stay in base e, so that a
rounded log2(e) costs no digits.  Tiles are (queries, keys) or (keys, queries): `row` and `col` come with an axis of one
where the other runs.
"""

from __future__ import annotations

from burn_kernels import random
from burn_kernels._triton import tl, triton
from burn_kernels.prims import LOG2E, exp, tanh

LN2 = tl.constexpr(0.6931471805599453)


# -- sequences ---------------------------------------------------------------------------------------
@triton.jit
def sequence(starts_ptr, number, length):
    """Where a sequence begins among packed ones, and its length; 0 and `length` where they are not packed."""
    begin = tl.full((), 0, tl.int64)
    if starts_ptr is not None:
        begin = tl.load(starts_ptr + number).to(tl.int64)
        length = (tl.load(starts_ptr + number + 1).to(tl.int64) - begin).to(tl.int32)
    return begin, length


@triton.jit
def placed(which, heads, blocks, bias_ptr, bias_batch):
    """The head and batch entry of the program that is `which` among those of one block: heads follow each other, but
    batch entries do where they share a bias, so that it comes from memory once."""
    head, batch = which % heads, which // heads
    if bias_ptr is not None:
        batches = tl.num_programs(0) // blocks // heads
        head = tl.where(bias_batch == 0, which // batches, head)
        batch = tl.where(bias_batch == 0, which % batches, batch)
    return head, batch


@triton.jit
def tile(x_ptr, at, stride, length, dim, DIM: tl.constexpr, EVEN: tl.constexpr, EDGE: tl.constexpr):
    """Rows `at` (n,) of a head: (n, DIM), zeros past its ends."""
    d = tl.arange(0, DIM)[None, :]
    place = x_ptr + at.to(tl.int64)[:, None] * stride + d
    if EDGE and not EVEN:
        x = tl.load(place, mask=(at < length)[:, None] & (d < dim), other=0.0)
    elif EDGE:
        x = tl.load(place, mask=(at < length)[:, None], other=0.0)
    elif not EVEN:
        x = tl.load(place, mask=d < dim, other=0.0)
    else:
        x = tl.load(place)
    return x


# -- who sees whom -----------------------------------------------------------------------------------
@triton.jit
def keys_of(
    first, last, shift, length, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """For queries [first, last]: [begin, end) of the keys that some see, and in it [whole, partial) of blocks of keys
    that all of them see; begin, whole and partial are multiples of BLOCK."""
    begin, end, whole, partial = 0, length, 0, length
    if CAUSAL:
        end = tl.minimum(end, last + shift + 1)
        partial = tl.minimum(partial, first + shift + 1)
    elif WINDOW:
        end = tl.minimum(end, last + shift + window)
        partial = tl.minimum(partial, first + shift + window)
    if WINDOW:
        begin = tl.maximum(begin, first + shift - window + 1)
        whole = tl.maximum(whole, last + shift - window + 1)
    begin = begin // BLOCK * BLOCK
    whole = (whole + BLOCK - 1) // BLOCK * BLOCK
    return begin, tl.maximum(end, begin), whole, tl.maximum(partial, whole) // BLOCK * BLOCK


@triton.jit
def queries_of(
    first, last, shift, length, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """For keys [first, last]: [begin, end) of the queries that see some; begin is a multiple of BLOCK."""
    begin, end = 0, length
    if CAUSAL:
        begin = tl.maximum(begin, first - shift)
    elif WINDOW:
        begin = tl.maximum(begin, first - shift - window + 1)
    if WINDOW:
        end = tl.minimum(end, last - shift + window)
    begin = begin // BLOCK * BLOCK
    return begin, tl.maximum(end, begin)


# -- scores ------------------------------------------------------------------------------------------
@triton.jit
def power(x, TYPE: tl.constexpr):
    """exp2(x) of half types, exp(x) of float32."""
    if TYPE == tl.float32:
        y = exp(x)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def _turned(x, TYPE: tl.constexpr):
    if TYPE == tl.float32:
        y = tanh(x)
    else:  # right to 1e-7, not to the last place: what is added to a score's own rounding is less than that
        y = 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)
    return y


@triton.jit
def beside(x_ptr, row, col, rows, cols, x_row, x_col, PAST: tl.constexpr):
    """The tile of a mask or bias that lies beside a tile of scores; what lies past the ends is anything.

    PAST says whether keys reach past the last one: 0 no; 1 by sixteen neighbours at once; 2 one by one.
    """
    # of queries past the end the last one's row is read again: it counts nowhere
    at_row = tl.minimum(row, rows - 1).to(tl.int64) * x_row
    if PAST == 2:
        # so for keys: predicates for each element take more registers, on CDNA scalar ones, than the scores.  But then
        # neighbours are not known to be neighbours, and each element is a load of its own
        x = tl.load(x_ptr + at_row + tl.minimum(col, cols - 1).to(tl.int64) * x_col)
    elif PAST == 1:
        x = tl.load(x_ptr + at_row + col.to(tl.int64) * x_col, mask=col < cols, other=0)
    else:
        x = tl.load(x_ptr + at_row + col.to(tl.int64) * x_col)
    return x


@triton.jit
def scores(
    s, mask, bias, base, row, col, cols, scale, softcap, shift, window,
    TYPE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """The scores of a tile of products, less `base` if it is not None, -inf where a query does not see a key; and what
    the softcap's tanh gave, 0 without one.  `mask` and `bias` are the tiles beside it, or None."""
    UNIT: tl.constexpr = 1.0 if TYPE == tl.float32 else LOG2E
    turned = 0.0
    if softcap is not None:
        turned = _turned(s * scale, TYPE)
        s = turned * (softcap * UNIT)
    else:
        s = s * scale
    if base is not None and bias is not None and TYPE != tl.float32:
        s += bias.to(tl.float32) * UNIT - base  # two fused operations in all, with that above
    else:
        if bias is not None:
            s += bias.to(tl.float32) * UNIT
        if base is not None:
            s -= base
    if mask is not None:
        s = tl.where(mask != 0, s, float("-inf"))
    if EDGE:
        seen = col < cols
        if CAUSAL:
            seen = seen & (col <= row + shift)
        elif WINDOW:
            seen = seen & (col < row + shift + window)
        if WINDOW:
            seen = seen & (col > row + shift - window)
        s = tl.where(seen, s, float("-inf"))
    return s, turned


@triton.jit
def drops(
    key, stream, last, scale, number, row, start, cols,
    KEY: tl.constexpr, STREAM: tl.constexpr, QUADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a dropout multiplies the weights of queries `row` (n,) and keys [start, start + BLOCK) by: (n, BLOCK).

    `number` is that of the first query; a query has `cols` words.
    """
    row = number + row.to(tl.int64)
    key, stream = random.held(key, KEY), random.held(stream, STREAM)
    return tl.where(random.kept(key, stream, last, row, start, cols, QUADS, BLOCK), scale, 0.0)


@triton.jit
def base_of(lse, TYPE: tl.constexpr):
    """What exponents of weights are counted from: lse in their base; infinite for a query that sees nothing."""
    base = lse
    if TYPE != tl.float32:
        base = lse * LOG2E
    return tl.where(lse == float("-inf"), float("inf"), base)


@triton.jit
def inverse(x, TYPE: tl.constexpr):
    """1 / x for x near 1 or above; of float32 next to rounded right, without the branches of a division that is."""
    r = 1.0 / x
    if TYPE == tl.float32:
        r = tl.fma(r, tl.fma(-x, r, 1.0), r)
    return r


@triton.jit
def lse_of(top, total, TYPE: tl.constexpr):
    """lse of the largest score and the sum of weights beside it; -inf of a query that sees nothing."""
    blind = total == 0.0
    rest = tl.where(blind, 1.0, total)
    if TYPE == tl.float32:
        lse = top + tl.log(rest)
    else:
        lse = (top + tl.log2(rest)) * LN2
    return tl.where(blind, float("-inf"), lse)
