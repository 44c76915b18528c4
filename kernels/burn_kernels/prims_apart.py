"""Functions of `prims` with products that go into sums, for generated kernels: those are compiled without contraction.

The same polynomials and the same errors.  They say `tl.fma`, which is one instruction there where a product and a sum
are two.  The library's own kernels, which are compiled with contraction, keep the plain forms: their timings are bound
to that text.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.prims import LOG2E, ROUNDS, _power_of_two, exp_fast

__all__ = ["erf", "erf_short", "exp", "expm1_odd", "sigmoid_tail", "tanh_odd"]


@triton.jit
def _near_one(r):
    """exp(r) - 1 - r over r squared, for |r| < 0.5; leaves 3.1e-9 of exp(r) - 1."""
    p = tl.fma(0.00019993183377664536, r, 0.0013997446512803435)
    p = tl.fma(p, r, 0.008333072066307068)
    p = tl.fma(p, r, 0.04166531562805176)
    p = tl.fma(p, r, 0.1666666865348816)
    return tl.fma(p, r, 0.5)


@triton.jit
def exp(x):
    """exp(x), as 2^n exp(r) with |r| <= ln(2) / 2."""
    # beyond these bounds the result is 0 or infinite, and so it is on them
    x = tl.maximum(x, -104.0, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, 89.0, propagate_nan=tl.PropagateNan.ALL)
    # n is rounded by an addition: of floor and of conversions to int32 a processor does fewer at once
    shifted = tl.fma(x, LOG2E, ROUNDS)
    n = shifted - ROUNDS
    # x - n ln(2): the high part has 9 bits, so that its product with n is exact
    r = tl.fma(n, 0.00021219444005469057, tl.fma(n, -0.693359375, x))
    near = 1.0 + r
    lost = r - (near - 1.0)
    y = near + tl.fma(_near_one(r) * r, r, lost)
    # in two factors, as 2^n itself may be infinite or no normal number where the result is finite and not 0
    bits = shifted.to(tl.int32, bitcast=True)
    return y * _power_of_two(bits >> 1) * _power_of_two(bits - (bits >> 1))


@triton.jit
def expm1_odd(x):
    """exp(x) - 1, right for small x too, and -0 of -0."""
    y = tl.where(tl.abs(x) < 0.5, tl.fma(_near_one(x) * x, x, x), exp(x) - 1.0)
    return tl.where(x == 0.0, x, y)


@triton.jit
def tanh_odd(x):
    """Hyperbolic tangent, and -0 of -0: where x is added to a term, the sum is 0."""
    a = tl.abs(x)
    s = x * x
    p = tl.fma(-0.005717044696211815, s, 0.020650586113333702)  # leaves 4.1e-9 on [0, 0.625]
    p = tl.fma(p, s, -0.05374349653720856)
    p = tl.fma(p, s, 0.13331490755081177)
    p = tl.fma(p, s, -0.3333328366279602)
    far = 1.0 - 2.0 / (exp_fast(2.0 * a) + 1.0)
    y = tl.where(a < 0.625, tl.fma(p * s, x, x), tl.where(x < 0.0, -far, far))
    return tl.where(x == 0.0, x, y)


@triton.jit
def erf(x):
    """Error function."""
    a = tl.minimum(tl.abs(x), 4.0, propagate_nan=tl.PropagateNan.ALL)  # erf(4) rounds to 1
    s = x * x
    p = tl.fma(7.853857823647559e-05, s, -0.0008010192541405559)  # leaves 1.2e-9 on [0, 1]
    p = tl.fma(p, s, 0.005188327748328447)
    p = tl.fma(p, s, -0.026853810995817184)
    p = tl.fma(p, s, 0.1128358542919159)
    p = tl.fma(p, s, -0.3761262595653534)
    p = tl.fma(p, s, 0.12837916612625122)
    q = tl.fma(-0.00026772680575959384, a, 0.0042409575544297695)  # -log2(erfc) on [1, 4]; leaves 1.0e-9 of erf
    q = tl.fma(q, a, -0.031458426266908646)
    q = tl.fma(q, a, 0.14865151047706604)
    q = tl.fma(q, a, 0.9207649827003479)
    q = tl.fma(q, a, 1.6259751319885254)
    q = tl.fma(q, a, 0.0005103083094581962)
    far = 1.0 - tl.exp2(-q)
    return tl.where(a < 1.0, tl.fma(p, x, x), tl.where(x < 0.0, -far, far))


@triton.jit
def erf_short(x):
    """As erf, by ten instructions: enough where the result is rounded to bfloat16."""
    s = x * x
    p = tl.fma(1.3676227354153525e-05, s, -0.00035222648875787854)  # of erf(x) / x; leaves 3.1e-4
    p = tl.fma(p, s, 0.003913604188710451)
    p = tl.fma(p, s, -0.02550417371094227)
    p = tl.fma(p, s, 0.11342883110046387)
    p = tl.fma(p, s, -0.3777550458908081)
    p = tl.fma(p, s, 1.1287283897399902)
    # from 2.55 on, where erf is within 3.1e-4 of 1, the product is 1 or more, and a sum with 1 leaves nothing behind
    y = tl.minimum(p * x, 1.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(y, -1.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def sigmoid_tail(x):
    """As sigmoid, below exp(-88) too, where exp(-x) is infinite; of float64 also."""
    if x.dtype == tl.float64:
        small = tl.exp(-tl.abs(x))
        y = tl.where(x < 0.0, small, 1.0) / (1.0 + small)
    else:
        small = exp(-tl.abs(x))
        y = tl.div_rn(tl.where(x < 0.0, small, 1.0), 1.0 + small)
    return y
