"""Functions of one element: Abs, Exp, Sigmoid, Gelu, Clip, ..."""

from __future__ import annotations

import math
from typing import Any, Final

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import full, malformed
from burn_torch.onnx.operators.registry import Entry, Operand, Outputs, operator
from burn_torch.tensor import Tensor

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "celu", "clip", "clip_6", "cos", "cosh",
    "elu", "erf", "exp", "floor", "gelu", "hard_sigmoid", "hard_swish", "identity", "is_inf", "is_nan", "leaky_relu",
    "log", "logical_not", "magnitude", "mish", "negative",
    "prelu", "prelu_6", "reciprocal", "relu", "rounded", "selu", "shrink",
    "sigmoid", "sign", "sin", "sinh", "softplus", "softsign", "sqrt", "swish", "tan", "tanh", "thresholded_relu",
]  # fmt: skip


PLAIN: Final[dict[str, str]] = {}
"""The operators that are a row of the table, by the name of the row: exports read it the other way round."""


def _plain(op: str, name: str, row: Any, written: str | None) -> Entry:
    """An operator that is a row of the table."""
    PLAIN[row.name] = op

    def function(x: Tensor) -> Tensor:
        return row(x)

    function.__name__ = name
    function.__doc__ = (row.__doc__ or "").partition("\n")[0]  # python -OO drops it
    return operator(op, written=written)(function)


acos: Final = _plain("Acos", "acos", ops.acos, "{0}.acos()")
acosh: Final = _plain("Acosh", "acosh", ops.acosh, "{0}.acosh()")
asin: Final = _plain("Asin", "asin", ops.asin, "{0}.asin()")
asinh: Final = _plain("Asinh", "asinh", ops.asinh, "{0}.asinh()")
atan: Final = _plain("Atan", "atan", ops.atan, "{0}.atan()")
atanh: Final = _plain("Atanh", "atanh", ops.atanh, "{0}.atanh()")
ceil: Final = _plain("Ceil", "ceil", ops.ceil, "{0}.ceil()")
cos: Final = _plain("Cos", "cos", ops.cos, "{0}.cos()")
cosh: Final = _plain("Cosh", "cosh", ops.cosh, "{0}.cosh()")
erf: Final = _plain("Erf", "erf", ops.erf, "{0}.erf()")
exp: Final = _plain("Exp", "exp", ops.exp, "{0}.exp()")
floor: Final = _plain("Floor", "floor", ops.floor, "{0}.floor()")
is_nan: Final = _plain("IsNaN", "is_nan", ops.is_nan, "{0}.is_nan()")
log: Final = _plain("Log", "log", ops.log, "{0}.log()")
logical_not: Final = _plain("Not", "logical_not", ops.bool_not, "{0}.bool_not()")
mish: Final = _plain("Mish", "mish", ops.mish, None)
negative: Final = _plain("Neg", "negative", ops.neg, "-{0}")
reciprocal: Final = _plain("Reciprocal", "reciprocal", ops.recip, "{0}.recip()")
rounded: Final = _plain("Round", "rounded", ops.round, "{0}.round()")
sigmoid: Final = _plain("Sigmoid", "sigmoid", ops.sigmoid, "activation.sigmoid({0})")
sin: Final = _plain("Sin", "sin", ops.sin, "{0}.sin()")
sinh: Final = _plain("Sinh", "sinh", ops.sinh, "{0}.sinh()")
sqrt: Final = _plain("Sqrt", "sqrt", ops.sqrt, "{0}.sqrt()")
tan: Final = _plain("Tan", "tan", ops.tan, "{0}.tan()")
tanh: Final = _plain("Tanh", "tanh", ops.tanh, "{0}.tanh()")


@operator("Identity")
def identity(x: object) -> Outputs:
    """The value itself."""
    return x


@operator("Abs")
def magnitude(x: Tensor) -> Tensor:
    """The size without the sign."""
    return x.abs()


@operator("Sign")
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return x.sign()


@operator("Relu", written="{0}.relu()")
def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return ops.relu(x) if x.dtype.is_float else ops.clamp_min(x, 0)


@operator("BitwiseNot")
def bitwise_not(x: Tensor) -> Tensor:
    """Every bit turned over."""
    return x.bitwise_not()


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Returns whether each element is infinite, of the signs asked for."""
    if detect_negative and detect_positive:
        return x.is_inf()
    if detect_positive:
        return x.equal(full((), math.inf, x))
    if detect_negative:
        return x.equal(full((), -math.inf, x))
    return x.is_inf().bool_and(x.is_nan())


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return ops.softplus(x, 1.0)


@operator("Softsign")
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return x / (x.abs() + 1.0)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1)."""
    return ops.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return ops.celu(x, alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.6732632, gamma: float = 1.050701) -> Tensor:
    """gamma * elu(x, alpha)."""
    return ops.elu(x, alpha) * gamma


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x, or its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise malformed("Gelu: no such approximation", given=repr(approximate), expected="'none' or 'tanh'")
    return ops.gelu(x) if approximate == "none" else ops.gelu_approximate(x)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """alpha * x + beta, brought into [0, 1]."""
    return ops.hard_sigmoid(x, alpha, beta)


@operator("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    """x * hard_sigmoid(x, 1/6, 1/2)."""
    return ops.hard_swish(x)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return ops.silu(x) if alpha == 1.0 else x * ops.sigmoid(x * alpha)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """x where it is not negative, else alpha * x."""
    return ops.leaky_relu(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where it is above alpha, else 0."""
    return ops.thresholded_relu(x, alpha)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    if x.dtype.is_float:
        return ops.shrink(x, lambd, bias)
    wide = x.cast(DType.F64)
    below, above = wide.lower(-lambd), wide.greater(lambd)
    zero = full((), 0.0, wide)
    return zero.mask_where(below, wide + bias).mask_where(above, wide - bias).cast(x.dtype)


@operator("PRelu", 1, 6)
def prelu_6(x: Tensor, slope: Tensor) -> Tensor:
    """x where it is not negative, else slope * x, with one slope a channel."""
    if slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(slope.shape[0], *(1,) * (x.ndim - 2))
    return x.mask_where(x.lower(0), x * slope)


@operator("PRelu", 7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where it is not negative, else slope * x; slope broadcasts to x."""
    return x.mask_where(x.lower(0), x * slope)


@operator("Clip", 1, 10)
def clip_6(x: Tensor, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38) -> Tensor:
    """x brought into [min, max]."""
    return ops.clamp(x, min, max)


@operator("Clip", 11)
def clip(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x brought into [min, max]; where min > max it is max."""
    y = x if min is None else ops.maximum(x, min)
    return y if max is None else ops.minimum(y, max)
