"""The arithmetic of norms over channels on a number: the distance from the mean, scale, activation and its slope.

Statistics of float32 tensors are float64, and enter in two parts each: what a rounded mean or rstd leaves over is an
error of every result of its channel.  Those of half types are float32, and rounding hides them.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.activation import activate
from burn_kernels.prims import exp, inverse_root, wide


@triton.jit
def parts_of(x):
    """x as two float32, the second what the first leaves over; 0 of what is float32 already."""
    high = x.to(tl.float32)
    low = tl.zeros_like(high)
    if x.dtype == tl.float64:
        low = (x - high).to(tl.float32)
        low = tl.where(low == low, low, 0.0)  # inf - inf is no number
    return high, low


@triton.jit
def away_from(x, mean):
    """x - mean; of float32 a mean is float64, as half of its last place times rstd is an error of each result."""
    high, low = parts_of(mean)
    away = x - high
    if mean.dtype == tl.float64:
        away -= low
    return away


@triton.jit
def scaled(x, mean, rstd, w, b):
    """The norm's output before its activation; one text, so that the backward finds the sign that the forward wrote.

    Of float32 rstd * w is taken in two parts, so that what is left are the roundings of x - mean and of the result.
    """
    away = away_from(x, mean)
    high, low = parts_of(rstd)
    scale = high * w
    y = tl.fma(away, scale, b)
    if rstd.dtype == tl.float64:
        near = tl.fma(away, scale, tl.fma(away, tl.fma(low, w, tl.fma(high, w, -scale)), b))
        y = tl.where(near == near, near, y)  # of what is infinite the second part is no number
    return y


@triton.jit
def activated(z, KIND: tl.constexpr, TYPE: tl.constexpr):
    """The activation of z and its slope; of float32 SiLU's takes 1 - sigmoid(z) as exactly as sigmoid(z): of 8 the
    difference would be off by a part in 6000, and the slope by six units."""
    if KIND == "silu" and TYPE == tl.float32:
        e = exp(-tl.abs(z))
        near = tl.div_rn(1.0, 1.0 + e)
        far = e * near
        s = tl.where(z < 0.0, far, near)
        y = z * s
        slope = s + y * tl.where(z < 0.0, near, far)
    else:
        y, slope = activate(z, KIND, TYPE)
    return y, slope


@triton.jit
def slope_at(x, n, mean, rstd, w, b, KIND: tl.constexpr, TYPE: tl.constexpr):
    """The slope of the activation where the normalized x is n."""
    if KIND == "relu":  # it jumps, so it wants the sign that the forward wrote
        z = scaled(x, mean, rstd, w, b)
    else:
        z = tl.fma(n, w, b)
    _, slope = activated(z, KIND, TYPE)
    return slope


@triton.jit
def inverse_root_of(x):
    """1 / sqrt(x), of float64 by a step of Newton's from float32's."""
    r = inverse_root(x.to(tl.float32), tl.float16).to(x.dtype)
    if x.dtype == tl.float64:
        near = r + 0.5 * r * (1.0 - x * r * r)
        r = tl.where(near == near, near, r)  # NaN where x is 0 or infinite, of which r is right
    return r


@triton.jit
def wide_statistic(x, TYPE: tl.constexpr):
    """A mean, variance or rstd from memory, as `scaled` takes it of tensors of TYPE."""
    if x.dtype != tl.float64:
        x = wide(x.to(tl.float32), TYPE)
    return x
