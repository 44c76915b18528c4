"""Activation functions that are curves: sigmoid and what is made of it, gelu, the exponential units.

Each is written so that no intermediate overflows or cancels at large |x|.  The backward rows are fused in torch; their
decompositions make them differentiate again.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import special
from burn_torch.ops.activations import backward_spec, relu_backward
from burn_torch.ops.functions import exp
from burn_torch.ops.laws import EndsProduct
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import elementwise
from burn_torch.ops.samples import Array, Sample, sample, uniform
from burn_torch.ops.selection import clamp
from burn_torch.ops.signature import Number
from burn_torch.ops.trigonometry import tanh

aten = torch.ops.aten

SELU_ALPHA: Final = 1.6732632423543772848170429916717
SELU_SCALE: Final = 1.0507009873554804934193349852946
"""Klambauer et al. 2017, equation 14: the fixed point of mean 0 and variance 1."""

SQRT_HALF: Final = math.sqrt(0.5)
SQRT_TWO_OVER_PI: Final = math.sqrt(2 / math.pi)
GELU_CUBIC: Final = 0.044715


def _samples(*numbers: float) -> list[Sample]:
    return [
        sample(uniform(-3, 3), *numbers),
        sample(uniform(-3, 3, ()), *numbers),
        sample(uniform(-9, 9, (2, 1, 5)), *numbers),
        sample(uniform(-1, 1, (0, 3)), *numbers),
    ]


def _backward_samples(*numbers: float) -> list[Sample]:
    return [
        sample(uniform(-1, 1), uniform(-3, 3), *numbers),
        sample(uniform(-1, 1, ()), uniform(-1.2, -0.2, ()), *numbers),
        sample(uniform(-1, 1, (0, 3)), uniform(-3, 3, (0, 3)), *numbers),
    ]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# -- sigmoid -----------------------------------------------------------------------------------------
@op(
    torch=torch.sigmoid,
    numpy=_sigmoid,
    inplace=torch.Tensor.sigmoid_,
    pointwise="sigmoid({0})",
    cost="cheap",
    samples=_samples(),
)
def sigmoid(x: TensorSpec) -> TensorSpec:
    """1 / (1 + exp(-x)).

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@sigmoid.gradient
def _(g, y, x):
    return sigmoid_backward(g, y)


@op(
    torch=aten.sigmoid_backward.default,
    numpy=lambda g, y: g * (1 - y) * y,
    pointwise="({0} * (1.0 - {1}) * {1})",
    cost="cheap",
    samples=[
        sample(uniform(-1, 1), uniform(0.6, 0.9)),
        sample(uniform(-1, 1, ()), uniform(0.1, 0.4, ())),
        sample(uniform(-1, 1, (0, 3)), uniform(0, 1, (0, 3))),
    ],
)
def sigmoid_backward(g: TensorSpec, y: TensorSpec) -> TensorSpec:
    """g * (1 - y) * y, where y is the output of sigmoid.

    Shapes: g, y (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, y)


@sigmoid_backward.gradient
def _(h, z, g, y):
    return sigmoid_backward(h, y), h * g * (1 - 2 * y)


@op(
    torch=functional.logsigmoid,
    numpy=lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    pointwise="(minimum({0}, 0.0) - log1p(exp(-abs({0}))))",
    cost="cheap",
    packed="dense",
    precision="high",
    samples=_samples(),
)
def log_sigmoid(x: TensorSpec) -> TensorSpec:
    """log(1 / (1 + exp(-x))) as min(x, 0) - log(1 + exp(-|x|)), which neither overflows nor cancels.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@log_sigmoid.gradient
def _(g, y, x):
    return softplus_backward(g, x, -1.0)  # log_sigmoid(x) = -softplus(-x)


@op(
    torch=functional.silu,
    numpy=lambda x: x / (1 + np.exp(-x)),
    pointwise="({0} * sigmoid({0}))",
    cost="cheap",
    samples=_samples(),
    source="Elfwing, Uchibe, Doya 2017, equation 2, https://arxiv.org/abs/1702.03118",
)
def silu(x: TensorSpec) -> TensorSpec:
    """x * sigmoid(x), also known as swish.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@silu.gradient
def _(g, y, x):
    return silu_backward(g, x)


def _numpy_silu_backward(g: Array, x: Array) -> Array:
    s = _sigmoid(x)
    return g * s * (1 + x * (1 - s))


@op(
    torch=aten.silu_backward.default,
    numpy=_numpy_silu_backward,
    pointwise="({0} * sigmoid({1}) * (1.0 + {1} * (1.0 - sigmoid({1}))))",
    cost="cheap",
    samples=_backward_samples(),
)
def silu_backward(g: TensorSpec, x: TensorSpec) -> TensorSpec:
    """g * sigmoid(x) * (1 + x * (1 - sigmoid(x))).

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x)


@silu_backward.decomposes
def _(g, x):
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


# -- softplus -----------------------------------------------------------------------------------------
def _torch_softplus(call: Call) -> Candidate:
    # torch's softplus is x itself past a threshold; this one is where exp is about to overflow, so nothing is lost
    # (at torch's default of 20 the jump is 2e-9, many units of a float64).  Half types compute in float32.
    threshold = 700.0 if call.results[0].dtype is DType.F64 else 80.0
    return lambda x, beta: functional.softplus(x, beta, threshold)


def _torch_softplus_backward(call: Call) -> Candidate:
    # torch's is g * z / (z + 1) with z = exp(beta * x), and g * z overflows; from here on the quotient rounds to 1
    threshold = 40.0 if call.results[0].dtype is DType.F64 else 20.0
    return lambda g, x, beta: aten.softplus_backward.default(g, x, beta, threshold)


@op(
    torch=PerCall(_torch_softplus),
    numpy=lambda x, beta: np.where(x * beta > 80, x, np.logaddexp(x * beta, np.zeros((), x.dtype)) / beta),
    # past 80 the logarithm adds no digit
    pointwise="where({0} * {1} > 80.0, {0}, (maximum({0} * {1}, 0.0) + log1p(exp(-abs({0} * {1})))) / {1})",
    cost="cheap",
    precision="high",
    samples=[*_samples(1.0), *_samples(2.5)],
)
def softplus(x: TensorSpec, beta: Number) -> TensorSpec:
    """log(1 + exp(beta * x)) / beta, which is x itself where the exponential would overflow.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.softplus turns into x past beta * x = 20 already, with a jump of 2e-9 / beta.
    """
    return elementwise(x, beta, dtypes=FLOAT)


@softplus.gradient
def _(g, y, x, beta):
    return softplus_backward(g, x, beta), None


@op(
    torch=PerCall(_torch_softplus_backward),
    numpy=lambda g, x, beta: g * _sigmoid(x * beta),
    pointwise="({0} * sigmoid({1} * {2}))",
    cost="cheap",
    precision="high",
    samples=[*_backward_samples(1.0), *_backward_samples(-2.5)],
)
def softplus_backward(g: TensorSpec, x: TensorSpec, beta: Number) -> TensorSpec:
    """g * sigmoid(beta * x).

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x, beta)


@softplus_backward.gradient
def _(h, z, g, x, beta):
    return softplus_backward(h, x, beta), sigmoid_backward(h * g, sigmoid(x * beta)) * beta, None


# -- mish ---------------------------------------------------------------------------------------------
@op(
    torch=functional.mish,
    numpy=lambda x: x * np.tanh(np.logaddexp(x, np.zeros((), x.dtype))),
    pointwise="({0} * tanh(maximum({0}, 0.0) + log1p(exp(-abs({0})))))",
    cost="cheap",
    samples=_samples(),
    source="Misra 2019, equation 1, https://arxiv.org/abs/1908.08681",
)
def mish(x: TensorSpec) -> TensorSpec:
    """x * tanh(softplus(x)).

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@mish.gradient
def _(g, y, x):
    return mish_backward(g, x)


def _numpy_mish_backward(g: Array, x: Array) -> Array:
    t = np.tanh(np.logaddexp(x, np.zeros((), x.dtype)))
    return g * (t + x * _sigmoid(x) * (1 - t * t))


def _mish_backward_pointwise() -> str:
    t = "tanh(maximum({1}, 0.0) + log1p(exp(-abs({1}))))"
    return f"({{0}} * ({t} + {{1}} * sigmoid({{1}}) * (1.0 - {t} * {t})))"


@op(
    torch=aten.mish_backward.default,
    numpy=_numpy_mish_backward,
    pointwise=_mish_backward_pointwise(),
    cost="cheap",
    samples=_backward_samples(),
)
def mish_backward(g: TensorSpec, x: TensorSpec) -> TensorSpec:
    """g * (t + x * sigmoid(x) * (1 - t^2)) with t = tanh(softplus(x)).

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x)


@mish_backward.decomposes
def _(g, x):
    t = tanh(softplus(x, 1.0))
    return g * (t + x * sigmoid(x) * (1 - t * t))


# -- gelu ---------------------------------------------------------------------------------------------
def _numpy_gelu_backward(g: Array, x: Array) -> Array:
    density = np.exp(x * x * -0.5) * (SQRT_TWO_OVER_PI / 2)
    return g * (0.5 * (1 + special.erf(x * SQRT_HALF)) + x * density)


@op(
    torch=functional.gelu,
    numpy=lambda x: x * 0.5 * (1 + special.erf(x * SQRT_HALF)),
    pointwise=f"({{0}} * 0.5 * (1.0 + erf({{0}} * {SQRT_HALF})))",
    cost="cheap",
    samples=_samples(),
    source="Hendrycks, Gimpel 2016, section 2, https://arxiv.org/abs/1606.08415",
)
def gelu(x: TensorSpec) -> TensorSpec:
    """x times the probability that a standard normal variable is below x: x / 2 * (1 + erf(x / sqrt(2))).

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.  On a CPU torch takes it from oneDNN for contiguous
    float32 and bfloat16: at infinity it is NaN there, and around -3 it has four digits.  Generated kernels have all.
    """
    return x.require(FLOAT)


@gelu.gradient
def _(g, y, x):
    return gelu_backward(g, x)


@op(
    torch=aten.gelu_backward.default,
    numpy=_numpy_gelu_backward,
    pointwise=f"({{0}} * (0.5 * (1.0 + erf({{1}} * {SQRT_HALF}))"
    f" + {{1}} * exp({{1}} * {{1}} * -0.5) * {SQRT_TWO_OVER_PI / 2}))",
    cost="cheap",
    samples=_backward_samples(),
)
def gelu_backward(g: TensorSpec, x: TensorSpec) -> TensorSpec:
    """g * (P + x * p) with the normal distribution P(x) and its density p(x).

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.  As for gelu, oneDNN's may be NaN for an infinite g.
    """
    return backward_spec(g, x)


@gelu_backward.gradient
def _(h, z, g, x):
    near = clamp(x, *_CURVED)
    density = exp(near * near * -0.5) * (SQRT_TWO_OVER_PI / 2)
    return gelu_backward(h, x), h * g * density * (2 - near * near)


_CURVED = (-40.0, 40.0)
"""Beyond these gelu is x or 0: the density is 0 in float64 too, and powers of x leave the range of halves."""


def _numpy_gelu_approximate_backward(g: Array, x: Array) -> Array:
    t = np.tanh(SQRT_TWO_OVER_PI * (x + GELU_CUBIC * x * x * x))
    slope = SQRT_TWO_OVER_PI * (1 + 3 * GELU_CUBIC * x * x)
    return g * 0.5 * (1 + t + x * (1 - t * t) * slope)


@op(
    torch=lambda x: functional.gelu(x, approximate="tanh"),
    numpy=lambda x: x * 0.5 * (1 + np.tanh(SQRT_TWO_OVER_PI * (x + GELU_CUBIC * x * x * x))),
    pointwise=f"({{0}} * 0.5 * (1.0 + tanh({SQRT_TWO_OVER_PI} * ({{0}} + {GELU_CUBIC} * {{0}} * {{0}} * {{0}}))))",
    cost="cheap",
    laws=[EndsProduct("linear_gelu", "gelu_kept")],
    samples=_samples(),
    source="Hendrycks, Gimpel 2016, section 2, https://arxiv.org/abs/1606.08415",
)
def gelu_approximate(x: TensorSpec) -> TensorSpec:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), the tanh form of gelu.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.gelu(x, approximate="tanh").
    """
    return x.require(FLOAT)


@gelu_approximate.gradient
def _(g, y, x):
    return gelu_approximate_backward(g, x)


def _gelu_approximate_backward_pointwise() -> str:
    t = f"tanh({SQRT_TWO_OVER_PI} * ({{1}} + {GELU_CUBIC} * {{1}} * {{1}} * {{1}}))"
    slope = f"({SQRT_TWO_OVER_PI} * (1.0 + {3 * GELU_CUBIC} * {{1}} * {{1}}))"
    return f"({{0}} * 0.5 * (1.0 + {t} + {{1}} * (1.0 - {t} * {t}) * {slope}))"


@op(
    torch=lambda g, x: aten.gelu_backward.default(g, x, approximate="tanh"),
    numpy=_numpy_gelu_approximate_backward,
    pointwise=_gelu_approximate_backward_pointwise(),
    cost="cheap",
    laws=[EndsProduct("matmul_gelu_backward", "gelu_slope_and_sums")],
    samples=_backward_samples(),
)
def gelu_approximate_backward(g: TensorSpec, x: TensorSpec) -> TensorSpec:
    """g / 2 * (1 + t + x * (1 - t^2) * u'), with t = tanh(u), u = sqrt(2 / pi) * (x + 0.044715 * x^3).

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x)


@gelu_approximate_backward.decomposes
def _(g, x):
    x = clamp(x, *_CURVED)
    square = x * x
    t = tanh(x * (1 + square * GELU_CUBIC) * SQRT_TWO_OVER_PI)
    slope = (1 + square * (3 * GELU_CUBIC)) * SQRT_TWO_OVER_PI
    return g * 0.5 * (1 + t + x * (1 - t * t) * slope)


# -- exponential units ------------------------------------------------------------------------------------
@op(
    torch=functional.elu,
    numpy=lambda x, alpha: np.where(x < 0, np.expm1(x) * alpha, x),
    pointwise="where({0} < 0.0, {1} * expm1({0}), {0})",
    cost="cheap",
    samples=_samples(0.7),
    source="Clevert, Unterthiner, Hochreiter 2015, equation 15, https://arxiv.org/abs/1511.07289",
)
def elu(x: TensorSpec, alpha: Number) -> TensorSpec:
    """x where x > 0, else alpha * (exp(x) - 1).

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.  The gradient at 0 is alpha.
    """
    return elementwise(x, alpha, dtypes=FLOAT)


@elu.gradient
def _(g, y, x, alpha):
    return elu_backward(g, x, alpha), None


@op(
    # torch's own gives g or NaN where x is NaN, by the lane of a vector that an element is in
    torch=lambda g, x, alpha: torch.where(x == x, aten.elu_backward.default(g, alpha, 1, 1, False, x), x),
    numpy=lambda g, x, alpha: np.where(x > 0, g, g * alpha * np.exp(x)),
    pointwise="where({1} > 0.0, {0}, {0} * {2} * exp({1}))",
    cost="cheap",
    samples=_backward_samples(0.7),
)
def elu_backward(g: TensorSpec, x: TensorSpec, alpha: Number) -> TensorSpec:
    """g where x > 0, else g * alpha * exp(x); NaN stays NaN.

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x, alpha)


@elu_backward.gradient
def _(h, z, g, x, alpha):
    product = h * g  # where x > 0 the two terms are the same and leave 0
    return elu_backward(h, x, alpha), elu_backward(product, x, alpha) - relu_backward(product, x), None


def _torch_celu(x: torch.Tensor, alpha: float) -> torch.Tensor:
    if abs(alpha) > _LEAST_INVERTED:
        return aten.elu.default(x, alpha, 1, 1 / alpha)
    return torch.where(x < 0, torch.expm1(x / alpha) * alpha, x)


def _torch_celu_backward(g: torch.Tensor, x: torch.Tensor, alpha: float) -> torch.Tensor:
    # torch's own multiplies g by alpha and by 1 / alpha, which may overflow, and takes NaN by the lane, as that of elu
    wide = x if x.dtype.itemsize > 2 else x.float()  # rounds once
    return torch.where(x > 0, g, ((wide / alpha).exp_() * g).to(x.dtype))


_LEAST_INVERTED: Final = 1e-30
"""The reciprocal of a smaller number may leave float32."""


@op(
    torch=_torch_celu,
    numpy=lambda x, alpha: np.where(x < 0, np.expm1(x / alpha) * alpha, x),
    pointwise="where({0} < 0.0, {1} * expm1({0} / {1}), {0})",
    cost="cheap",
    samples=_samples(0.7),
    source="Barron 2017, equation 2, https://arxiv.org/abs/1704.07483",
)
def celu(x: TensorSpec, alpha: Number) -> TensorSpec:
    """x where x > 0, else alpha * (exp(x / alpha) - 1): its slope has no jump, whatever alpha.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return elementwise(x, alpha, dtypes=FLOAT)


@celu.gradient
def _(g, y, x, alpha):
    return celu_backward(g, x, alpha), None


@op(
    torch=_torch_celu_backward,
    numpy=lambda g, x, alpha: np.where(x > 0, g, g * np.exp(x / alpha)),
    pointwise="where({1} > 0.0, {0}, {0} * exp({1} / {2}))",
    cost="cheap",
    samples=_backward_samples(0.7),
)
def celu_backward(g: TensorSpec, x: TensorSpec, alpha: Number) -> TensorSpec:
    """g where x > 0, else g * exp(x / alpha); NaN stays NaN.

    Shapes: g, x (*s) -> (*s).  Dtypes: float, both the same.
    """
    return backward_spec(g, x, alpha)


@celu_backward.gradient
def _(h, z, g, x, alpha):
    product = h * g
    return celu_backward(h, x, alpha), (celu_backward(product, x, alpha) - relu_backward(product, x)) / alpha, None


@op(
    torch=torch.selu,
    numpy=lambda x: np.where(x < 0, np.expm1(x) * (SELU_ALPHA * SELU_SCALE), x * SELU_SCALE),
    pointwise=f"({SELU_SCALE} * where({{0}} < 0.0, {SELU_ALPHA} * expm1({{0}}), {{0}}))",
    cost="cheap",
    samples=_samples(),
    source="Klambauer et al. 2017, equation 2, https://arxiv.org/abs/1706.02515",
)
def selu(x: TensorSpec) -> TensorSpec:
    """scale * x where x > 0, else scale * alpha * (exp(x) - 1), with the self-normalising scale and alpha.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.  The gradient at 0 is scale * alpha.
    """
    return x.require(FLOAT)


@selu.gradient
def _(g, y, x):
    return elu_backward(g, x, SELU_ALPHA) * SELU_SCALE
