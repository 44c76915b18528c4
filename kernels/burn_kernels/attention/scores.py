"""Functions that the kernels of attention share: the place of a sequence, the keys of a query, the scores of a tile.

Scores of half types are kept in base 2, so that a weight is one exp2: the scale that comes with them is scale *
log2(e), or scale over the softcap, which is multiplied by log2(e) itself.  Those of float32 stay in base e, so that a
rounded log2(e) costs no digits.  Tiles are (queries, keys) or (keys, queries): `row` and `col` come with an axis of one
where the other runs.
"""

from __future__ import annotations

from typing import NamedTuple

from burn_kernels import random
from burn_kernels._triton import tl, triton
from burn_kernels.prims import LOG2E, exp, tanh

LN2 = tl.constexpr(0.6931471805599453)


# -- arguments in groups -----------------------------------------------------------------------------
class Strides(NamedTuple):
    """The distances between elements of each operand that neighbour each other along an axis."""

    q_batch: int
    q_head: int
    q_seq: int
    k_batch: int
    k_head: int
    k_seq: int
    v_batch: int
    v_head: int
    v_seq: int
    mask_batch: int
    mask_head: int
    mask_row: int
    mask_col: int
    bias_batch: int
    bias_head: int
    bias_row: int
    bias_col: int
    list_batch: int = 0
    list_head: int = 0
    list_line: int = 0


class Steps(NamedTuple):
    """The strides of a result, or of its gradient."""

    batch: int
    head: int
    seq: int


class Sizes(NamedTuple):
    """The numbers of heads, queries and keys, and the distances between the numbers of queries."""

    heads: int
    group: int
    seq_q: int
    seq_k: int
    dim: int
    number_batch: int
    number_head: int


class Flags(NamedTuple):
    """The constants of a kernel."""

    CAUSAL: bool
    BOTTOM: bool
    WINDOW: bool
    DROP: bool
    QUADS: bool
    KEY: bool
    STREAM: bool
    PRECISION: str
    DIM: int
    EVEN: bool
    SCORE: object = None
    """The user's function of a score; None where there is none, so for SLOPE, its derivative, and SEEN."""
    SLOPE: object = None
    SEEN: object = None
    BLOCK: int = 0
    """Positions of a block of the lists of `attention.modified`."""


class Rule(NamedTuple):
    """How products become scores; in kernels."""

    scale: object
    softcap: object
    window: object
    shift: object
    place: object


class Place(NamedTuple):
    """The batch entry and the head of a program, and what users' functions read; in kernels.

    listed and limit say which blocks a loop visits, and how many, where it visits few.
    """

    batch: object
    head: object
    captured: object
    listed: object
    limit: object


class Draw(NamedTuple):
    """The weights that a dropout keeps; in kernels."""

    key: object
    stream: object
    last: object
    scale: object


class Head(NamedTuple):
    """Pointers to the first elements of a head; in kernels."""

    k: object
    v: object
    mask: object
    bias: object


# -- sequences ---------------------------------------------------------------------------------------
@triton.jit
def sequence(starts_ptr, number, length):
    """The beginning of a sequence among packed ones, and its length; 0 and `length` where they are not packed."""
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
def tile(x_ptr, at, stride, length, dim, FLAGS: tl.constexpr, EDGE: tl.constexpr):
    """Rows `at` (n,) of a head: (n, DIM), zeros past its ends."""
    EVEN: tl.constexpr = FLAGS.EVEN
    d = tl.arange(0, FLAGS.DIM)[None, :]
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
def keys_of(first, last, shift, length, window, FLAGS: tl.constexpr, BLOCK: tl.constexpr):
    """For queries [first, last]: [begin, end) of the keys that some see, and in it [whole, partial) of blocks of keys
    that all of them see; begin, whole and partial are multiples of BLOCK."""
    begin, end, whole, partial = 0, length, 0, length
    if FLAGS.CAUSAL:
        end = tl.minimum(end, last + shift + 1)
        partial = tl.minimum(partial, first + shift + 1)
    elif FLAGS.WINDOW:
        end = tl.minimum(end, last + shift + window)
        partial = tl.minimum(partial, first + shift + window)
    if FLAGS.WINDOW:
        begin = tl.maximum(begin, first + shift - window + 1)
        whole = tl.maximum(whole, last + shift - window + 1)
    begin = begin // BLOCK * BLOCK
    whole = (whole + BLOCK - 1) // BLOCK * BLOCK
    return begin, tl.maximum(end, begin), whole, tl.maximum(partial, whole) // BLOCK * BLOCK


@triton.jit
def queries_of(first, last, shift, length, window, FLAGS: tl.constexpr, BLOCK: tl.constexpr):
    """For keys [first, last]: [begin, end) of the queries that see some; begin is a multiple of BLOCK."""
    begin, end = 0, length
    if FLAGS.CAUSAL:
        begin = tl.maximum(begin, first - shift)
    elif FLAGS.WINDOW:
        begin = tl.maximum(begin, first - shift - window + 1)
    if FLAGS.WINDOW:
        end = tl.minimum(end, last - shift + window)
    begin = begin // BLOCK * BLOCK
    return begin, tl.maximum(end, begin)


@triton.jit
def block_at(place, step, FLAGS: tl.constexpr):
    """The position at which a loop is after `step` positions of listed blocks."""
    number = step // FLAGS.BLOCK
    return tl.load(place.listed + number, mask=number < place.limit, other=0) * FLAGS.BLOCK + step % FLAGS.BLOCK


@triton.jit
def slopes_of(slope, turned, rule, FLAGS: tl.constexpr):
    """The gradient of products scaled, from that of scores."""
    if FLAGS.SLOPE is not None:
        slope *= turned
    elif rule.softcap is not None:
        slope *= 1.0 - turned * turned
    return slope


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
def quick_tanh(x):
    """tanh, right to 1e-7, not to the last place: what is added to a score's own rounding is less than that."""
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def whole_remainder(x, y):
    """x - floor(x / y) * y of whole numbers: it has the sign of y."""
    rest = x % y
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@triton.jit
def _tanh(x, TYPE: tl.constexpr):
    if TYPE == tl.float32:
        y = tanh(x)
    else:
        y = quick_tanh(x)
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
def scores(s, mask, bias, base, row, col, cols, rule, TYPE: tl.constexpr, FLAGS: tl.constexpr, EDGE: tl.constexpr):
    """The scores of a tile of products, less `base` if it is not None, -inf where a query does not see a key; and what
    the softcap's tanh gave, 0 without one.  `mask` and `bias` are the tiles beside it, or None."""
    UNIT: tl.constexpr = 1.0 if TYPE == tl.float32 else LOG2E
    turned = 0.0
    if FLAGS.SCORE is not None:
        place = rule.place
        natural = s * rule.scale
        s = FLAGS.SCORE(natural, place.batch, place.head, row, col, place.captured) * UNIT
        if FLAGS.SLOPE is not None:
            turned = FLAGS.SLOPE(natural, place.batch, place.head, row, col, place.captured)
    elif rule.softcap is not None:
        turned = _tanh(s * rule.scale, TYPE)
        s = turned * (rule.softcap * UNIT)
    else:
        s = s * rule.scale
    if base is not None and bias is not None and TYPE != tl.float32:
        s += bias.to(tl.float32) * UNIT - base  # two fused operations in all, with that above
    else:
        if bias is not None:
            s += bias.to(tl.float32) * UNIT
        if base is not None:
            if FLAGS.SCORE is not None:  # of rows that are not there a function may make an infinity, or NaN
                s = tl.where(base == float("inf"), float("-inf"), s - base)
            else:
                s -= base
    if mask is not None:
        s = tl.where(mask != 0, s, float("-inf"))
    if EDGE:
        seen = col < cols
        if FLAGS.CAUSAL:
            seen = seen & (col <= row + rule.shift)
        elif FLAGS.WINDOW:
            seen = seen & (col < row + rule.shift + rule.window)
        if FLAGS.WINDOW:
            seen = seen & (col > row + rule.shift - rule.window)
        if FLAGS.SEEN is not None:
            place = rule.place
            seen = seen & FLAGS.SEEN(place.batch, place.head, row, col, place.captured)
        s = tl.where(seen, s, float("-inf"))
    return s, turned


@triton.jit
def drops(draw, number, row, start, cols, FLAGS: tl.constexpr, BLOCK: tl.constexpr):
    """The factors of a dropout for the weights of queries `row` (n,) and keys [start, start + BLOCK): (n, BLOCK).

    `number` is that of the first query; a query has `cols` words.
    """
    row = number + row.to(tl.int64)
    key, stream = random.held(draw.key, FLAGS.KEY), random.held(draw.stream, FLAGS.STREAM)
    return tl.where(random.kept(key, stream, draw.last, row, start, cols, FLAGS.QUADS, BLOCK), draw.scale, 0.0)


@triton.jit
def base_of(lse, TYPE: tl.constexpr):
    """The base of exponents of weights: lse in their base; infinite for a query that sees nothing."""
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
