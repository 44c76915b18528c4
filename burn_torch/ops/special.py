"""Functions that numpy and plain Python lack: erf on arrays, and number functions that follow IEEE 754.

Python raises where IEEE 754 gives an infinity or NaN (1 / 0.0, log(0.0)); on tensors these are values, so on the
numbers beside them they are values too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["divide", "erf", "erfinv", "exponential", "larger", "logarithm", "modulo", "power", "root", "smaller"]

Array = NDArray[Any]


def erf(x: Array) -> Array:
    """The error function of each element, computed in float64.

    >>> erf(np.array([0.0, 0.5, np.inf])).tolist()
    [0.0, 0.5204998778130465, 1.0]
    """
    wide = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return wide.reshape(x.shape).astype(x.dtype)


def erfinv(x: Array) -> Array:
    """The inverse of erf at each element, computed in float64; infinite at -1 and 1, NaN beyond.

    >>> erfinv(np.array([0.0, 0.5204998778130465, -1.0])).tolist()
    [0.0, 0.5, -inf]
    """
    wide = np.fromiter(map(_erfinv, x.ravel().tolist()), np.float64, x.size)
    return wide.reshape(x.shape).astype(x.dtype)


def _erfinv(x: float) -> float:
    """The quantile of a normal distribution, made exact near 0 and near 1 by one step of Newton's method."""
    from statistics import NormalDist

    size = abs(x)
    if not size < 1.0:
        return math.copysign(math.inf, x) if size == 1.0 else math.nan
    y = -NormalDist().inv_cdf((1.0 - size) / 2) / math.sqrt(2.0)
    excess = math.erf(y) - size if size < 0.5 else (1.0 - size) - math.erfc(y)
    return math.copysign(y - excess * math.sqrt(math.pi) / 2 * math.exp(y * y), x)


def divide(x: float, y: float) -> float:
    """x / y; a division by zero gives an infinity or NaN.

    >>> divide(1, 4), divide(-1.0, 0.0), divide(0, 0)
    (0.25, -inf, nan)
    """
    try:
        return x / y
    except ZeroDivisionError:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def modulo(x: float, y: float) -> float:
    """The remainder with the sign of y; NaN for y = 0.

    >>> modulo(-7, 3), modulo(1.5, 0.0)
    (2, nan)
    """
    try:
        return x % y
    except ZeroDivisionError:
        return math.nan


def power(x: float, y: float) -> float:
    """x to the y; NaN for a negative x at a fractional y, infinite for 0 to a negative y.  Whole numbers stay whole.

    >>> power(2, 3), power(2, -1), power(-8.0, 0.5), power(0.0, -1.0), power(10.0, 400.0)
    (8, 0.5, nan, inf, inf)
    """
    try:
        result = x**y
    except ZeroDivisionError:
        odd = float(y).is_integer() and y % 2 == 1
        return math.copysign(math.inf, x) if odd else math.inf
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    return math.nan if isinstance(result, complex) else result


def exponential(x: float) -> float:
    """e to the x; infinite where that is too large.

    >>> exponential(0.0), exponential(1000.0)
    (1.0, inf)
    """
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def logarithm(x: float) -> float:
    """The natural logarithm; -inf at 0, NaN below.

    >>> logarithm(1.0), logarithm(0.0), logarithm(-1.0)
    (0.0, -inf, nan)
    """
    if x == 0:
        return -math.inf
    return math.log(x) if not x < 0 else math.nan


def root(x: float) -> float:
    """The square root; NaN below 0.

    >>> root(9.0), root(-1.0)
    (3.0, nan)
    """
    return math.nan if x < 0 else math.sqrt(x)


def larger(x: float, y: float) -> float:
    """The larger number; NaN if one is NaN.  A float if either is one.

    >>> larger(1, 2), larger(3, 2.5), larger(1.0, math.nan)
    (2, 3.0, nan)
    """
    return _kind(x, y)(x if x >= y or math.isnan(x) else y)


def smaller(x: float, y: float) -> float:
    """The smaller number; NaN if one is NaN.  A float if either is one.

    >>> smaller(1, 2), smaller(3, 2.5), smaller(1.0, math.nan)
    (1, 2.5, nan)
    """
    return _kind(x, y)(x if x <= y or math.isnan(x) else y)


def _kind(x: float, y: float) -> Callable[[float], float]:
    # the kind of a result must follow from the kinds of the inputs: a trace knows no more
    return float if float in (type(x), type(y)) else int
