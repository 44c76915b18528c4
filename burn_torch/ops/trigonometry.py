"""Functions of angles and of hyperbolas, and their inverses, element by element."""

from __future__ import annotations

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.arithmetic import hypot
from burn_torch.ops.functions import rsqrt
from burn_torch.ops.op import op
from burn_torch.ops.rules import alike
from burn_torch.ops.samples import on_plain_shapes, sample, uniform


# -- angles ------------------------------------------------------------------------------------------
@op(
    torch=torch.sin,
    numpy=np.sin,
    inplace=torch.Tensor.sin_,
    pointwise="sin({0})",
    cost="cheap",
    samples=on_plain_shapes(-3, 3),
)
def sin(x: TensorSpec) -> TensorSpec:
    """Sine of an angle in radians.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@sin.gradient
def _(g, y, x):
    return g * cos(x)


@op(
    torch=torch.cos,
    numpy=np.cos,
    inplace=torch.Tensor.cos_,
    pointwise="cos({0})",
    cost="cheap",
    samples=on_plain_shapes(-3, 3),
)
def cos(x: TensorSpec) -> TensorSpec:
    """Cosine of an angle in radians.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@cos.gradient
def _(g, y, x):
    return -(g * sin(x))


@op(
    torch=torch.tan,
    numpy=np.tan,
    inplace=torch.Tensor.tan_,
    pointwise="tan({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-1.2, 1.2),
)
def tan(x: TensorSpec) -> TensorSpec:
    """Tangent of an angle in radians.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@tan.gradient
def _(g, y, x):
    return g * (y * y + 1.0)


@op(
    torch=torch.asin,
    numpy=np.arcsin,
    inplace=torch.Tensor.asin_,
    pointwise="asin({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-0.9, 0.9),
)
def asin(x: TensorSpec) -> TensorSpec:
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@asin.gradient
def _(g, y, x):
    return g * rsqrt(1.0 - x * x)


@op(
    torch=torch.acos,
    numpy=np.arccos,
    inplace=torch.Tensor.acos_,
    pointwise="acos({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-0.9, 0.9),
)
def acos(x: TensorSpec) -> TensorSpec:
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1].

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@acos.gradient
def _(g, y, x):
    return -(g * rsqrt(1.0 - x * x))


@op(
    torch=torch.atan,
    numpy=np.arctan,
    inplace=torch.Tensor.atan_,
    pointwise="atan({0})",
    cost="cheap",
    samples=on_plain_shapes(-3, 3),
)
def atan(x: TensorSpec) -> TensorSpec:
    """The angle in (-pi/2, pi/2) whose tangent is x.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@atan.gradient
def _(g, y, x):
    length = hypot(x, 1.0)  # x * x leaves the range of halves at 256
    return g / length / length


# -- hyperbolic functions ----------------------------------------------------------------------------
@op(
    torch=torch.sinh,
    numpy=np.sinh,
    inplace=torch.Tensor.sinh_,
    pointwise="sinh({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-3, 3),
)
def sinh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic sine.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@sinh.gradient
def _(g, y, x):
    return g * cosh(x)


@op(
    torch=torch.cosh,
    numpy=np.cosh,
    inplace=torch.Tensor.cosh_,
    pointwise="cosh({0})",
    cost="cheap",
    precision="high",
    samples=on_plain_shapes(-3, 3),
)
def cosh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic cosine.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@cosh.gradient
def _(g, y, x):
    return g * sinh(x)


@op(
    torch=torch.tanh,
    numpy=np.tanh,
    inplace=torch.Tensor.tanh_,
    pointwise="tanh({0})",
    cost="cheap",
    samples=on_plain_shapes(-2, 2),
)
def tanh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic tangent.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@tanh.gradient
def _(g, y, x):
    return tanh_backward(g, y)


@op(
    torch=torch.ops.aten.tanh_backward.default,
    numpy=lambda g, y: g * (1 - y * y),
    pointwise="({0} * (1.0 - {1} * {1}))",
    cost="cheap",
    samples=[
        sample(uniform(-1, 1), uniform(-0.9, 0.9)),
        sample(uniform(0.5, 1, ()), uniform(0.5, 0.9, ())),
        sample(uniform(-1, 1, (0,)), uniform(-0.9, 0.9, (0,))),
    ],
)
def tanh_backward(g: TensorSpec, y: TensorSpec) -> TensorSpec:
    """g * (1 - y^2): the gradient of tanh by its output, in one pass.

    Shapes: g, y (*s) -> (*s).  Dtypes: floats, both the same.
    """
    return alike(g, y)


@tanh_backward.gradient
def _(h, z, g, y):
    return tanh_backward(h, y), h * g * (y * -2.0)


@op(
    torch=torch.asinh,
    numpy=np.arcsinh,
    inplace=torch.Tensor.asinh_,
    pointwise="asinh({0})",
    cost="cheap",
    samples=on_plain_shapes(-3, 3),
)
def asinh(x: TensorSpec) -> TensorSpec:
    """Inverse hyperbolic sine.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@asinh.gradient
def _(g, y, x):
    return g / hypot(x, 1.0)


@op(
    torch=torch.acosh,
    numpy=np.arccosh,
    inplace=torch.Tensor.acosh_,
    pointwise="acosh({0})",
    cost="cheap",
    samples=on_plain_shapes(1.3, 3),
)
def acosh(x: TensorSpec) -> TensorSpec:
    """Inverse hyperbolic cosine, not negative; NaN below 1.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    The gradient at 1 is infinite.
    """
    return x.require(FLOAT)


@acosh.gradient
def _(g, y, x):
    return g * rsqrt(x - 1.0) * rsqrt(x + 1.0)


@op(
    torch=torch.atanh,
    numpy=np.arctanh,
    inplace=torch.Tensor.atanh_,
    pointwise="atanh({0})",
    cost="cheap",
    samples=on_plain_shapes(-0.8, 0.8),
)
def atanh(x: TensorSpec) -> TensorSpec:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@atanh.gradient
def _(g, y, x):
    return g / (1.0 - x * x)
