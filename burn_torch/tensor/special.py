"""Functions of probabilities, logarithms and signs that numpy, scipy and torch have beside the elementary ones.

Each is composed of rows, so it has gradients of any order, compiles and fuses.  All take floats of any shape, which
broadcast, and give the same type.
"""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import axis, real
from burn_torch.tensor.apply import binary, require_tensor, unary, widen
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "copysign", "entr", "floor_divide", "frac", "heaviside", "lerp", "logcumsumexp", "logit", "ndtr", "sinc", "xlog1py",
    "xlogy",
]  # fmt: skip


# -- logarithms -----------------------------------------------------------------------------------------
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x * log(y), and 0 where x is 0 and y is no NaN.

    Where y is 0 beside it, neither has a gradient.  PyTorch: torch.special.xlogy; scipy.special.xlogy.
    """
    x, y, nothing = _beside_zero(x, y, y)
    return (x * y.mask_fill(nothing, 1.0).log()).mask_fill(nothing, 0.0)


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """x * log(1 + y), exact near y = 0, and 0 where x is 0 and y is no NaN.  PyTorch: torch.special.xlog1py."""
    x, y, nothing = _beside_zero(x, y, y + 1.0)
    return (x * y.mask_fill(nothing, 0.0).log1p()).mask_fill(nothing, 0.0)


def _beside_zero(x: Tensor, y: Tensor, argument: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both of one shape, and where x is 0 beside an argument whose logarithm is no finite number."""
    both = binary(ops.add, x, argument).shape
    x, y, argument = x.expand(both), y.expand(both), argument.expand(both)
    return x, y, (x == 0.0) & ((argument <= 0.0) | (argument == math.inf))


def entr(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0, and minus infinity below.  PyTorch: torch.special.entr; scipy.special.entr."""
    require_tensor(x)
    return xlogy(-x, x.abs()).mask_fill(x < 0.0, -math.inf)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x held between eps and 1 - eps if eps is given; the inverse of the sigmoid.

    PyTorch: torch.logit; scipy.special.logit.
    """
    require_tensor(x)
    if eps is not None:
        least = real(eps, "eps")
        if isinstance(least, float) and not 0.0 <= least <= 0.5:
            raise told(
                ArgumentError,
                "eps is not a small number",
                given=f"eps {eps}",
                expected="a number from 0 to 0.5",
                mend="write eps=1e-6",
            )
        x = x.clamp(least, 1.0 - least)
    return (x / (1.0 - x)).log()


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """The logarithms of running sums of exp(x) along an axis, without overflow or underflow.

    Sums of 1, 2, 4, ... elements are joined, so it takes log2(n) steps.  Shapes: x (..., n, ...) -> the same.
    PyTorch: torch.logcumsumexp.
    """
    at = axis(x, dim)
    size, step = x.shape[at], 1
    while step < size:
        front, rest = x.narrow(at, 0, step), x.narrow(at, step, size - step)
        x = Tensor.cat([front, rest.logaddexp(x.narrow(at, 0, size - step))], at)
        step *= 2
    return x


# -- probabilities ----------------------------------------------------------------------------------------
def ndtr(x: Tensor) -> Tensor:
    """The probability that a standard normal value is below x.  Far below 0 it is exact to the rounding of 1.

    PyTorch: torch.special.ndtr; scipy.special.ndtr.
    """
    require_tensor(x)
    return 0.5 + 0.5 * (x * math.sqrt(0.5)).erf()


# -- parts and signs ------------------------------------------------------------------------------------------
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0.  PyTorch: torch.sinc; numpy.sinc."""
    require_tensor(x)
    none = x == 0.0
    angle = x.mask_fill(none, 1.0) * math.pi
    return (angle.sin() / angle).mask_fill(none, 1.0)


def frac(x: Tensor) -> Tensor:
    """x without its whole part, with the sign of x; the gradient is 1.  PyTorch: torch.frac; numpy.modf."""
    require_tensor(x)
    return x - x.trunc()


def heaviside(x: Tensor, values: Tensor | float) -> Tensor:
    """0 below 0, 1 above, and `values` at 0.  x has no gradient.  PyTorch: torch.heaviside; numpy.heaviside."""
    require_tensor(x)
    step = (x > 0.0).cast(x.dtype)
    if not isinstance(values, Tensor):
        return step.mask_fill(x == 0.0, real(values, "values"))
    shape = binary(ops.add, x, values).shape
    return step.expand(shape).mask_where((x == 0.0).expand(shape), values.expand(shape))


def copysign(x: Tensor, y: Tensor) -> Tensor:
    """x with the sign of y, that of -0.0 and 0.0 too.  PyTorch: torch.copysign; numpy.copysign."""
    require_tensor(x)
    require_tensor(y, "y")
    negative = (y < 0.0) | ((y == 0.0) & (y.detach().mask_fill(y != 0.0, 1.0).recip() < 0.0))
    sign = 1.0 - 2.0 * negative.cast(x.dtype)
    return unary(ops.abs, x) * sign


def floor_divide(x: Tensor, y: Tensor | float) -> Tensor:
    """The largest whole number of times that y fits into x, as // of Python's numbers; it has no gradient.

    (x / y).floor() is one too many where x / y rounds up to a whole number.  Integers divide exactly.
    Division by 0 is x / y; what is infinite has no whole parts: NaN.  PyTorch: torch.floor_divide; numpy.floor_divide.
    """
    require_tensor(x)
    if not x.dtype.is_float:
        return (x - x.remainder(y)).div(y)
    dtype, divisor = x.dtype, y.detach() if isinstance(y, Tensor) else x.new_full((), real(y, "y"))
    x, y = widen(x.detach()), widen(divisor)
    quotient = binary(ops.div, x, y)
    whole = ((x - x.remainder(y)) / y).round()
    # the remainder of an infinite y is no number, and a quotient below 0 may be too small for its type
    rest = quotient.floor().mask_fill((quotient == 0.0) & (x != 0.0) & ((x < 0.0) ^ (y < 0.0)), -1.0)
    rest = rest.mask_fill(x.is_inf() & (y != 0.0), math.nan)
    return rest.mask_where(quotient.is_finite() & (quotient != 0.0), whole).cast(dtype)


def lerp(start: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """start + weight * (end - start), exactly `end` at weight 1.  PyTorch: torch.lerp."""
    require_tensor(start, "start")
    require_tensor(end, "end")
    way = binary(ops.sub, end, start)
    if not isinstance(weight, Tensor):
        part = real(weight, "weight")
        return start + way * part if part < 0.5 else end - way * (1.0 - part)
    near, far = start + way * weight, end - way * (1.0 - weight)
    return far.mask_where((weight.abs() < 0.5).expand(near.shape), near)


word_functions(globals())
