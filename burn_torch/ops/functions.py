"""Element-wise functions of one tensor: signs, powers, exponentials, logarithms, whole numbers."""

from __future__ import annotations

import builtins
import math

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, NUMERIC
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import special
from burn_torch.ops.laws import Idempotent, Unsigned
from burn_torch.ops.op import PerCall, op
from burn_torch.ops.samples import Array, distinct, fixed, on_plain_shapes, uniform
from burn_torch.ops.unsigned import absolute, signum


@op(
    torch=torch.abs,
    numpy=np.abs,
    scalar=builtins.abs,
    inplace=torch.Tensor.abs_,
    pointwise="abs({0})",
    cost="cheap",
    laws=[Idempotent(), Unsigned(PerCall(lambda call: absolute))],
    samples=[distinct((3, 5)), fixed(np.array(-0.5)), uniform(1, 2, (2, 0))],
)
def abs(x: TensorSpec) -> TensorSpec:
    """The size without the sign.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out; the lowest integer stays.
    The gradient at 0 is 0.
    """
    return x.require(NUMERIC)


@abs.gradient
def _(g, y, x):
    return g * sign(x)


def _numpy_sign(x: Array) -> Array:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)  # np.sign keeps NaN


@op(
    torch=torch.sign,
    numpy=_numpy_sign,
    inplace=torch.Tensor.sign_,
    pointwise="where({0} > 0, 1, where({0} < 0, -1, 0))",
    cost="cheap",
    nondifferentiable=True,
    laws=[Idempotent(), Unsigned(PerCall(lambda call: signum))],
    samples=[distinct((3, 5)), fixed([-2.0, -0.0, 0.0, np.nan, np.inf]), distinct((2, 0))],
)
def sign(x: TensorSpec) -> TensorSpec:
    """-1, 0 or 1 as x is negative, zero or positive; 0 for NaN.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    Its gradient is 0 where it has one, and is not recorded.
    """
    return x.require(NUMERIC)


@op(
    torch=torch.square,
    numpy=np.square,
    inplace=torch.Tensor.square_,
    pointwise="({0} * {0})",
    cost="cheap",
    laws=[Unsigned("bits")],
    samples=on_plain_shapes(-3, 3),
)
def square(x: TensorSpec) -> TensorSpec:
    """x times x.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out; integers wrap around.
    """
    return x.require(NUMERIC)


@square.gradient
def _(g, y, x):
    return g * (x * 2.0)


@op(
    torch=torch.reciprocal,
    numpy=np.reciprocal,
    inplace=torch.Tensor.reciprocal_,
    pointwise="(1.0 / {0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(0.5, 3),
)
def recip(x: TensorSpec) -> TensorSpec:
    """1 / x; infinite at 0, with the sign of the zero.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@recip.gradient
def _(g, y, x):
    return -g * (y * y)


@op(
    torch=torch.sqrt,
    numpy=np.sqrt,
    scalar=special.root,
    inplace=torch.Tensor.sqrt_,
    pointwise="sqrt({0})",
    cost="cheap",
    samples=on_plain_shapes(0.5, 3),
)
def sqrt(x: TensorSpec) -> TensorSpec:
    """The square root; NaN below 0.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    The gradient at 0 is infinite.
    """
    return x.require(FLOAT)


@sqrt.gradient
def _(g, y, x):
    return g / (y * 2.0)


@op(
    torch=torch.rsqrt,
    numpy=lambda x: np.reciprocal(np.sqrt(x)),
    inplace=torch.Tensor.rsqrt_,
    pointwise="rsqrt({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(0.5, 3),
)
def rsqrt(x: TensorSpec) -> TensorSpec:
    """1 / sqrt(x); infinite at 0, NaN below.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@rsqrt.gradient
def _(g, y, x):
    return g * (y * y * y) * -0.5


# -- exponentials and logarithms ----------------------------------------------------------------------
@op(
    torch=torch.exp,
    numpy=np.exp,
    scalar=special.exponential,
    inplace=torch.Tensor.exp_,
    pointwise="exp({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-3, 3),
)
def exp(x: TensorSpec) -> TensorSpec:
    """Element-wise exponential.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@exp.gradient
def _(g, y, x):
    return g * y


@op(
    torch=torch.expm1,
    numpy=np.expm1,
    inplace=torch.Tensor.expm1_,
    pointwise="expm1({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-2, 2),
)
def expm1(x: TensorSpec) -> TensorSpec:
    """exp(x) - 1, accurate near 0.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@expm1.gradient
def _(g, y, x):
    return g * (y + 1.0)


@op(
    torch=torch.log,
    numpy=np.log,
    scalar=special.logarithm,
    inplace=torch.Tensor.log_,
    pointwise="log({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(0.3, 3),
)
def log(x: TensorSpec) -> TensorSpec:
    """The natural logarithm; -inf at 0, NaN below.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@log.gradient
def _(g, y, x):
    return g / x


@op(
    torch=torch.log1p,
    numpy=np.log1p,
    inplace=torch.Tensor.log1p_,
    pointwise="log1p({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-0.6, 3),
)
def log1p(x: TensorSpec) -> TensorSpec:
    """log(1 + x), accurate near 0; -inf at -1, NaN below.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@log1p.gradient
def _(g, y, x):
    return g / (x + 1.0)


@op(
    torch=torch.erf,
    numpy=special.erf,
    scalar=math.erf,
    inplace=torch.Tensor.erf_,
    pointwise="erf({0})",
    cost="cheap",
    samples=on_plain_shapes(-2.5, 2.5),  # past |x| = 4 the slope is 0, and a wrong rule would pass
    source="DLMF 7.2.1",
)
def erf(x: TensorSpec) -> TensorSpec:
    """Error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@erf.gradient
def _(g, y, x):
    return g * exp(-(x * x)) * (2 / math.sqrt(math.pi))


@op(
    torch=torch.erfinv,
    numpy=special.erfinv,
    inplace=torch.Tensor.erfinv_,
    pointwise="erfinv({0})",
    cost="cheap",
    samples=on_plain_shapes(-0.9, 0.9),
    source="DLMF 7.17",
)
def erfinv(x: TensorSpec) -> TensorSpec:
    """The inverse of the error function: erf(erfinv(x)) = x; infinite at -1 and 1, NaN beyond.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@erfinv.gradient
def _(g, y, x):
    return g * exp(y * y) * (math.sqrt(math.pi) / 2)


# -- whole numbers -----------------------------------------------------------------------------------
@op(
    torch=torch.round,
    numpy=np.round,
    inplace=torch.Tensor.round_,
    pointwise="rint({0})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Idempotent()],
    samples=[uniform(-3, 3, (3, 5)), fixed([-2.5, -1.5, -0.5, 0.5, 1.5]), uniform(-3, 3, (2, 0))],
)
def round(x: TensorSpec) -> TensorSpec:
    """The nearest whole number; halves go to the even one: 0.5 to 0, 1.5 to 2.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    Its gradient is 0 where it has one, and is not recorded.
    """
    return x.require(FLOAT)


@op(
    torch=torch.floor,
    numpy=np.floor,
    inplace=torch.Tensor.floor_,
    pointwise="floor({0})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Idempotent()],
    samples=on_plain_shapes(-3, 3),
)
def floor(x: TensorSpec) -> TensorSpec:
    """The next whole number below, or x if it is whole.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    Its gradient is 0 where it has one, and is not recorded.
    """
    return x.require(FLOAT)


@op(
    torch=torch.ceil,
    numpy=np.ceil,
    inplace=torch.Tensor.ceil_,
    pointwise="ceil({0})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Idempotent()],
    samples=on_plain_shapes(-3, 3),
)
def ceil(x: TensorSpec) -> TensorSpec:
    """The next whole number above, or x if it is whole.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    Its gradient is 0 where it has one, and is not recorded.
    """
    return x.require(FLOAT)


@op(
    torch=torch.trunc,
    numpy=np.trunc,
    inplace=torch.Tensor.trunc_,
    pointwise="trunc({0})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Idempotent()],
    samples=on_plain_shapes(-3, 3),
)
def trunc(x: TensorSpec) -> TensorSpec:
    """The whole number next to x toward zero.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    Its gradient is 0 where it has one, and is not recorded.
    """
    return x.require(FLOAT)
