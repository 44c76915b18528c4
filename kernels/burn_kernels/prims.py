"""Functions that kernels share, in plain Triton: no call into a device library, so one text serves CUDA, ROCm and the
interpreter.

All take and return float32.  Largest errors against float64, in units in the last place, over the whole range
(tests/interpreted/test_prims.py holds them): exp 1, exp_fast |x| + 2, expm1 2, log1p 4, tanh 3, erf 2, sigmoid 4,
sin_cos_of_turn 3; normal_cdf_fast leaves 5e-5 of the result where that is above 2e-4.  Those that are named short are
for results that are rounded to bfloat16: over all of its numbers they are 0.1 of its units off at most.

The polynomials were fitted for this file: least squares with Lawson's weights on Chebyshev nodes, so that the largest
relative error is near the smallest possible; what each leaves over is in the comment beside it.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SQRT_HALF = tl.constexpr(0.7071067811865476)
INV_SQRT_2PI = tl.constexpr(0.3989422804014327)


@triton.jit
def exp_fast(x):
    """exp(x) by one multiplication and one exp2: enough where the result is rounded to a half type."""
    return tl.exp2(x * LOG2E)


@triton.jit
def _near_one(r):
    """exp(r) - 1 - r over r squared, for |r| < 0.5; leaves 3.1e-9 of exp(r) - 1."""
    p = 0.00019993183377664536 * r + 0.0013997446512803435
    p = p * r + 0.008333072066307068
    p = p * r + 0.04166531562805176
    p = p * r + 0.1666666865348816
    return p * r + 0.5


ROUNDS = tl.constexpr(12582912.0)  # 1.5 * 2^23: a sum with it is whole, and its low bits are those of the whole number


@triton.jit
def _power_of_two(n):
    """2^n for n from -126 to 127, of which the low nine bits count: written into the exponent, so it is exact."""
    return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exp(x):
    """exp(x), as 2^n exp(r) with |r| <= ln(2) / 2."""
    # beyond these bounds the result is 0 or infinite, and so it is on them
    x = tl.maximum(x, -104.0, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, 89.0, propagate_nan=tl.PropagateNan.ALL)
    # n is rounded by an addition: of floor and of conversions to int32 a processor does fewer at once
    shifted = x * LOG2E + ROUNDS
    n = shifted - ROUNDS
    # x - n ln(2): the high part has 9 bits, so that its product with n is exact
    r = (x - n * 0.693359375) + n * 0.00021219444005469057
    near = 1.0 + r
    lost = r - (near - 1.0)
    y = near + (_near_one(r) * r * r + lost)
    # in two factors, as 2^n itself may be infinite or no normal number where the result is finite and not 0
    bits = shifted.to(tl.int32, bitcast=True)
    return y * _power_of_two(bits >> 1) * _power_of_two(bits - (bits >> 1))


@triton.jit
def expm1(x):
    """exp(x) - 1, right for small x too."""
    return tl.where(tl.abs(x) < 0.5, _near_one(x) * x * x + x, exp(x) - 1.0)


@triton.jit
def log1p(x):
    """log(1 + x), right for small x too: log(u) times x over what 1 + x kept of x (Kahan)."""
    u = 1.0 + x
    kept = u - 1.0
    scaled = tl.log(u) * (x / tl.where(kept == 0.0, 1.0, kept))
    return tl.where(kept == 0.0, x, tl.where(u < float("inf"), scaled, u))


@triton.jit
def tanh(x):
    """Hyperbolic tangent."""
    a = tl.abs(x)
    s = x * x
    p = -0.005717044696211815 * s + 0.020650586113333702  # leaves 4.1e-9 on [0, 0.625]
    p = p * s - 0.05374349653720856
    p = p * s + 0.13331490755081177
    p = p * s - 0.3333328366279602
    far = 1.0 - 2.0 / (exp_fast(2.0 * a) + 1.0)
    return tl.where(a < 0.625, p * s * x + x, tl.where(x < 0.0, -far, far))


@triton.jit
def erf(x):
    """Error function."""
    a = tl.minimum(tl.abs(x), 4.0, propagate_nan=tl.PropagateNan.ALL)  # erf(4) rounds to 1
    s = x * x
    p = 7.853857823647559e-05 * s - 0.0008010192541405559  # leaves 1.2e-9 on [0, 1]
    p = p * s + 0.005188327748328447
    p = p * s - 0.026853810995817184
    p = p * s + 0.1128358542919159
    p = p * s - 0.3761262595653534
    p = p * s + 0.12837916612625122
    q = -0.00026772680575959384 * a + 0.0042409575544297695  # -log2(erfc) on [1, 4]; leaves 1.0e-9 of erf
    q = q * a - 0.031458426266908646
    q = q * a + 0.14865151047706604
    q = q * a + 0.9207649827003479
    q = q * a + 1.6259751319885254
    q = q * a + 0.0005103083094581962
    far = 1.0 - tl.exp2(-q)
    return tl.where(a < 1.0, p * x + x, tl.where(x < 0.0, -far, far))


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), divided right: `/` is two units off on a GPU, and so was the slope of SiLU."""
    return tl.div_rn(1.0, 1.0 + exp(-x))


@triton.jit
def sigmoid_fast(x):
    """As sigmoid, with exp_fast."""
    return 1.0 / (1.0 + exp_fast(-x))


@triton.jit
def erf_short(x):
    """As erf, by ten instructions: enough where the result is rounded to bfloat16."""
    s = x * x
    p = 1.3676227354153525e-05 * s - 0.00035222648875787854  # of erf(x) / x; leaves 3.1e-4
    p = p * s + 0.003913604188710451
    p = p * s - 0.02550417371094227
    p = p * s + 0.11342883110046387
    p = p * s - 0.3777550458908081
    p = p * s + 1.1287283897399902
    # from 2.55 on, where erf is within 3.1e-4 of 1, the product is 1 or more, and a sum with 1 leaves nothing behind
    y = tl.minimum(p * x, 1.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(y, -1.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def sigmoid_short(x):
    """As sigmoid_fast, without a division: enough where the result is rounded to bfloat16."""
    root = tl.rsqrt(1.0 + tl.exp2(x * -LOG2E))
    return root * root


@triton.jit
def tanh_short(x):
    """As tanh, by 2 sigmoid(2 x) - 1 and x - x^3 / 3: enough where the result is rounded to bfloat16."""
    root = tl.rsqrt(1.0 + tl.exp2(x * (-2.0 * LOG2E)))
    return tl.where(tl.abs(x) < 0.0625, x - x * (x * x) * 0.3333333432674408, 2.0 * (root * root) - 1.0)


@triton.jit
def normal_cdf_fast(x):
    """Phi(x), the share of a normal variable below x: enough where the result is rounded to a half type."""
    a = tl.abs(x)
    p = -0.0003726384020410478 * a + 0.006310269236564636  # log2(Phi(-a)) on [0, 6]; beyond, the first term rules
    p = p * a - 0.049784913659095764
    p = p * a - 0.46212682127952576
    p = p * a - 1.1500585079193115
    p = p * a - 1.0000594854354858
    tail = tl.exp2(p)
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def sin_cos_of_turn(turn):
    """Sine and cosine of `turn` (int32) times a full turn over 2^32."""
    quarter = (turn + (1 << 29)) >> 30  # the nearest; the sum may wrap, and so does a turn
    x = (turn - (quarter << 30)).to(tl.float32) * 2.3283064365386963e-10  # an eighth of a turn at most
    s = x * x
    p = -75.39361572265625 * s + 81.59235382080078  # leaves 3.3e-9
    p = p * s - 41.3416633605957
    sine = p * s * x + 6.2831854820251465 * x
    q = 59.229244232177734 * s - 85.4432373046875  # leaves 6.4e-11
    q = q * s + 64.93932342529297
    q = q * s - 19.739208221435547
    cosine = q * s + 1.0
    odd, below = (quarter & 1) != 0, (quarter & 2) != 0
    first, second = tl.where(odd, cosine, sine), tl.where(odd, sine, cosine)
    return tl.where(below, -first, first), tl.where(odd != below, -second, second)


# -- what generated kernels add ------------------------------------------------------------------------
@triton.jit
def tanh_odd_short(x):
    """As tanh_short, and -0 of -0."""
    return tl.where(x == 0.0, x, tanh_short(x))


@triton.jit
def sigmoid_tail_fast(x):
    """As sigmoid_tail, with exp_fast."""
    small = exp_fast(-tl.abs(x))
    return tl.where(x < 0.0, small, 1.0) / (1.0 + small)


@triton.jit
def sigmoid_tail_short(x):
    """As sigmoid_tail, without a division, like sigmoid_short."""
    small = tl.exp2(tl.abs(x) * -LOG2E)
    root = tl.rsqrt(1.0 + small)
    return root * root * tl.where(x < 0.0, small, 1.0)


@triton.jit
def divided(a, b):
    """a / b of float32, rounded right."""
    return tl.div_rn(a, b)


@triton.jit
def divided_by(a, b, r):
    """a / b for a number b, rounded right; r is 1 / b as float32.

    Where b is no normal number it is given as NaN, and r as 2^-24 / b, as one over it may be infinite.
    """
    q = a * r
    near = tl.fma(tl.fma(-q, b, a), r, q)  # what q leaves over is exact (Markstein); NaN where q is infinite
    q = tl.where(b == b, q, q * 16777216.0)
    return tl.where((near == near) & (a != 0.0), near, q)  # a sum loses the sign of -0


@triton.jit
def trunc(x):
    """The whole number next to x toward zero."""
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))


@triton.jit
def rint(x):
    """The nearest whole number, of two the even one."""
    low = tl.floor(x)
    rest = x - low
    half = low * 0.5
    odd = half != tl.floor(half)
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    whole = tl.where(up, low + 1.0, low)
    return tl.where(whole == 0.0, x * 0.0, whole)  # -0.3 is -0


@triton.jit
def _less_multiples(a, b):
    """a modulo b for 0 <= a < 1024 b; of float64 for a < 2^24 b.  Exact without a fused multiplication: the parts of b
    and the whole number have half the digits.
    """
    large = a > 1e30  # where a product may be infinite, and b is no denormal number
    a = tl.where(large, a * 0.0625, a)
    b = tl.where(large, b * 0.0625, b)
    if a.dtype == tl.float64:
        n = tl.floor(a / b + 0.5)
        high = (b.to(tl.int64, bitcast=True) & -(1 << 27)).to(tl.float64, bitcast=True)
    else:
        n = tl.floor(tl.div_rn(a, b) + 0.5)
        high = (b.to(tl.int32, bitcast=True) & -(1 << 12)).to(tl.float32, bitcast=True)
    rest = (a - n * high) - n * (b - high)
    rest = tl.where(rest < 0.0, rest + b, rest)
    rest = tl.where(a < b, a, rest)  # also where b is infinite
    return tl.where(large, rest * 16.0, rest)


@triton.jit
def fmod(x, y):
    """The remainder of x divided by y toward zero, of float32 or float64: exact, with the sign of x."""
    x = tl.where(y == y, x, x)  # of one shape, numbers too
    y = tl.where(x == x, y, y)
    a, b = tl.abs(x), tl.abs(y)
    a = tl.where(a == float("inf"), float("nan"), a)
    b = tl.where(b == 0.0, float("nan"), b)
    step = 1024.0
    if a.dtype == tl.float64:
        step = 16777216.0
    times = b  # b times a power of two
    far = times * step <= a
    while tl.max(far.to(tl.int32)) > 0:  # rounds for all lanes, hardly ever any
        times = tl.where(far, times * step, times)
        far = times * step <= a
    rest = _less_multiples(a, times)
    while tl.max((times > b).to(tl.int32)) > 0:
        times = tl.where(times > b, times / step, times)
        rest = _less_multiples(rest, times)
    return tl.where(rest == 0.0, x * 0.0, tl.where(x < 0.0, -rest, rest))


@triton.jit
def remainder(x, y):
    """The remainder of x divided by y toward minus infinity, of float32 or float64: exact, but for one rounding where
    the signs differ; with the sign of y.
    """
    rest = fmod(x, y)
    return tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rest + y, rest)


@triton.jit
def peak(x, AXIS: tl.constexpr):
    """The maximum along an axis, NaN where there is one."""
    odd = tl.max((x != x).to(tl.int32), AXIS)
    top = tl.max(tl.where(x != x, float("-inf"), x), AXIS)
    return tl.where(odd > 0, float("nan"), top)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def product(x, AXIS: tl.constexpr):
    """The product along an axis."""
    return tl.reduce(x, AXIS, _times)


# -- rows that begin anywhere ------------------------------------------------------------------------
@triton.jit
def row_parts(begin, cols, VECTOR: tl.constexpr):
    """Cuts a row, `cols` elements from element `begin` of its tensor on, for accesses of VECTOR elements.

    Returns where the body begins, a multiple of VECTOR; how many elements lead to it; how many it has, a multiple too.
    Written so that the compiler sees the multiples.
    """
    body = (begin + VECTOR - 1) // VECTOR * VECTOR
    lead = tl.minimum(body - begin, cols).to(tl.int32)
    return body, lead, (cols - lead) // VECTOR * VECTOR


@triton.jit
def edge_columns(lead, size, cols, VECTOR: tl.constexpr):
    """The columns before and after the body in one tile of 2 VECTOR lanes, and which lanes hold one."""
    edge = tl.arange(0, 2 * VECTOR)
    col = tl.where(edge < VECTOR, edge, lead + size + edge - VECTOR)
    return col, tl.where(edge < VECTOR, edge < lead, col < cols)


# -- rows in tiles -------------------------------------------------------------------------------------
@triton.jit
def tile(row_ptr, col, cols, WHOLE: tl.constexpr):
    """These columns of a row; WHOLE where none is beyond its end."""
    if WHOLE:
        x = tl.load(row_ptr + col)
    else:
        x = tl.load(row_ptr + col, mask=col < cols, other=0.0)
    return x


@triton.jit
def joined(first, second):
    """Two tuples as one."""
    return first + second


LOWEST = tl.constexpr(-3.4028234663852886e38)  # float32's; unlike -inf, its difference with itself is a number


@triton.jit
def wide(x, TYPE: tl.constexpr):
    """x in the type in which rows of TYPE keep their sums: of float32 float64, else float32.

    Half types are rounded far above float32's sums.  float32 is not, and memory leaves time for one float64 addition.
    """
    if TYPE == tl.float32:
        x = x.to(tl.float64)
    return x


@triton.jit
def halves(x):
    """x as two float32, the second what the first leaves over; of a float32 the second is 0."""
    high = x.to(tl.float32)
    return high, (x - high).to(tl.float32)


@triton.jit
def quotient(a, b, TYPE: tl.constexpr):
    """a / b, of float32 rounded right: what `/` gives is two units off, and all that is multiplied by it is too."""
    if TYPE == tl.float32:
        c = tl.div_rn(a, b)
    else:
        c = a / b
    return c


@triton.jit
def inverse_root(x, TYPE: tl.constexpr):
    """1 / sqrt(x), of float32 0.51 units off at most: what `/` gives is two off, and so is every number of its row."""
    r = 1.0 / tl.sqrt_rn(x)
    if TYPE == tl.float32:
        # a step of Newton's, with 1 - x r^2 in two parts: rounded, it would be worth no more than r
        root = x * r
        lost = tl.fma(x, r, -root)
        rest = tl.fma(-lost, r, tl.fma(-root, r, 1.0))
        near = tl.fma(0.5 * r, rest, r)
        r = tl.where(near == near, near, r)  # NaN where x is 0 or infinite, of which r is right
    return r


@triton.jit
def exp_for(x, TYPE: tl.constexpr):
    """exp(x), as exact as a result in TYPE can show."""
    if TYPE == tl.float32:
        y = exp(x)
    else:
        y = exp_fast(x)
    return y


@triton.jit
def add_exponentials(m, total, x, TYPE: tl.constexpr):
    """Takes a tile (lanes, n) into each lane's running maximum and sum of exp(x - maximum): one exp an element."""
    peak = tl.maximum(m, tl.max(x, 1))
    return peak, total * exp_for(m - peak, TYPE) + tl.sum(exp_for(x - peak[:, None], TYPE), 1)
