"""Element by element: functions, comparisons, logic, choices, arithmetic."""

from __future__ import annotations

import math
import re
from typing import Final

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Size
from burn_torch.onnx.exporting.writer import Cannot, Number, Wire, Writer
from burn_torch.onnx.operators.arithmetic import PAIRS
from burn_torch.onnx.operators.elementwise import PLAIN
from burn_torch.onnx.rows.formulas import write
from burn_torch.onnx.rows.registry import row
from burn_torch.ops.elementary import ELEMENTARY


# -- functions of one tensor ---------------------------------------------------------------------------------
def _same(name: str, op: str) -> None:
    row(name)(lambda w, x: w.node(op, x))


for _name, _op in {**PLAIN, "abs": "Abs", "bitwise_not": "BitwiseNot", "relu": "Relu", "selu": "Selu"}.items():
    _same(_name, _op)


@row("sign")
def _(w: Writer, x: Wire) -> Wire:
    sign = w.node("Sign", x)
    return w.node("Where", w.node("IsNaN", x), w.number(0.0, x.dtype), sign) if x.dtype.is_float else sign


_FORMULAS: Final = {
    "square(x)": "x * x",
    "rsqrt(x)": "Reciprocal(Sqrt(x))",
    "expm1(x)": "Tanh(x * 0.5) * (Exp(x) + 1.0)",  # nothing cancels near 0
    "log1p(x)": "Where(Abs(x) < 0.5, Atanh(x / (x + 2.0)) * 2.0, Log(x + 1.0))",  # 1 + x loses what x is near 0
    "trunc(x)": "Where(x < 0.0, Ceil(x), Floor(x))",
    "is_finite(x)": "Not(IsNaN(x) | IsInf(x))",
    "log_sigmoid(x)": "-Softplus(-x)",
    "silu(x)": "x * Sigmoid(x)",
    "mish(x)": "x * Tanh(Softplus(x))",
    "hard_sigmoid(x, alpha, beta)": "Clip(x * alpha + beta, 0.0, 1.0)",
    "threshold(x, threshold, value)": "Where(x <= threshold, value, x)",
    "thresholded_relu(x, alpha)": "Where(x <= alpha, 0.0, x)",
}
"""Rows, their inputs, and the formulas that are written for them."""


def _defines(heading: str, text: str) -> None:
    name, *operands = re.findall(r"\w+", heading)
    row(name)(lambda w, *values: write(w, text, **dict(zip(operands, values, strict=True))))


for _heading, _text in _FORMULAS.items():
    _defines(_heading, _text)


@row("clone", "to_place")
def _(w: Writer, x: Wire, **place: object) -> Wire:
    return x


@row("cast")
def _(w: Writer, x: Wire, *, dtype: DType) -> Wire:
    return w.cast(x, dtype)


@row("is_inf")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("IsInf", x) if x.dtype.is_float else w.node("Less", x, x)


# -- two operands ----------------------------------------------------------------------------------------------
def pair(w: Writer, x: Wire | Number, y: Wire | Number) -> tuple[Wire, Wire]:
    """Both as tensors of one element type; one of them is a tensor."""
    dtype = x.dtype if isinstance(x, Wire) else y.dtype  # type: ignore[union-attr]  # then y is the tensor
    return w.operand(x, dtype), w.operand(y, dtype)


def _binary(name: str, op: str, negated: bool = False) -> None:
    def rule(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
        z = w.node(op, *pair(w, x, y))
        return w.node("Not", z) if negated else z

    row(name)(rule)


_PAIRS: Final = {
    **PAIRS, "bool_and": "And", "bool_or": "Or", "bool_xor": "Xor", "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "div": "Div", "maximum": "Max", "minimum": "Min",
}  # fmt: skip
for _name, _op in _PAIRS.items():
    _binary(_name, _op)
_binary("not_equal", "Equal", negated=True)


@row("fmod")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    return w.node("Mod", *pair(w, x, y), fmod=1)


@row("remainder")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = pair(w, x, y)
    if not a.dtype.is_float:
        return w.node("Mod", a, b)
    left = w.node("Mod", a, b, fmod=1)  # which has the sign of x
    return write(w, "Where(Sign(left) * Sign(b) < 0.0, left + b, left)", left=left, b=b)


@row("pow")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = pair(w, x, y)
    if a.dtype.is_int and (isinstance(y, Wire | Size) or float(y) < 0):  # type: ignore[arg-type]  # no Varying: whole
        raise Cannot("powers of integers, unless the exponent is a known number of 0 or more")
    return w.node("Pow", a, b)


@row("atan2")
def _(w: Writer, y: Wire | Number, x: Wire | Number) -> Wire:
    up, right = pair(w, y, x)
    zero, endless = w.number(0.0, up.dtype), w.number(math.inf, up.dtype)
    height, width = w.node("Abs", up), w.node("Abs", right)
    angle = w.node("Atan", w.node("Div", height, width))
    for equal, known in ((zero, 0.0), (endless, math.pi / 4)):  # 0 / 0 and inf / inf
        both = w.node("And", w.node("Equal", height, equal), w.node("Equal", width, equal))
        angle = w.node("Where", both, w.number(known, up.dtype), angle)
    angle = w.node("Where", _negative(w, right), w.node("Sub", w.number(math.pi, up.dtype), angle), angle)
    return w.node("Where", _negative(w, up), w.node("Neg", angle), angle)


def _negative(w: Writer, x: Wire) -> Wire:
    """Returns whether x is below 0, or -0."""
    return write(w, "(x < 0.0) | (Reciprocal(x) < 0.0)", x=x)


@row("hypot")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = (w.node("Abs", part) for part in pair(w, x, y))
    large, small = w.node("Max", a, b), w.node("Min", a, b)
    ratio = w.node("Div", small, large)
    length = "Where((large == 0.0) | (large == endless), large, large * Sqrt(ratio * ratio + 1.0))"
    return write(w, length, large=large, ratio=ratio, endless=math.inf)


@row("logaddexp")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = pair(w, x, y)
    apart = write(w, "Where(a == b, 0.0, Abs(a - b))", a=a, b=b)  # infinite operands have no difference
    power = w.node("Exp", w.node("Neg", apart))
    return w.node("Add", w.node("Max", a, b), write(w, _FORMULAS["log1p(x)"], x=power))


@row("erfinv")
def _(w: Writer, x: Wire) -> Wire:
    if x.dtype is DType.F64:
        raise Cannot("erfinv of float64: its steps are for float32")
    results = [x if x.dtype is DType.F32 else w.cast(x, DType.F32)]
    for step in ELEMENTARY["erfinv"].steps:
        operands = {f"_{i}": result for i, result in enumerate(results)}
        results.append(write(w, re.sub(r"\{(\d+)\}", r"_\1", step), **operands))
    return results[-1] if x.dtype is DType.F32 else w.cast(results[-1], x.dtype)


# -- choices -----------------------------------------------------------------------------------------------------
@row("mask_where")
def _(w: Writer, x: Wire, mask: Wire, value: Wire | Number) -> Wire:
    return w.node("Where", mask, w.operand(value, x.dtype), x)


@row("clamp")
def _(w: Writer, x: Wire, low: Number, high: Number) -> Wire:
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:  # ONNX leaves it open
        return w.node("Where", w.node("Equal", x, x), w.number(high, x.dtype), x)
    return w.node("Clip", x, w.number(low, x.dtype), w.number(high, x.dtype))


@row("clamp_min")
def _(w: Writer, x: Wire, low: Number) -> Wire:
    return w.node("Clip", x, w.number(low, x.dtype))


@row("clamp_max")
def _(w: Writer, x: Wire, high: Number) -> Wire:
    return w.node("Clip", x, None, w.number(high, x.dtype))


# -- activations -------------------------------------------------------------------------------------------------
@row("leaky_relu")
def _(w: Writer, x: Wire, slope: Number) -> Wire:
    if isinstance(slope, float | int) and x.dtype is DType.F32:
        return w.node("LeakyRelu", x, alpha=float(slope))
    return write(w, "Where(x <= 0.0, x * slope, x)", x=x, slope=slope)


@row("prelu")
def _(w: Writer, x: Wire, alpha: Wire) -> Wire:
    if alpha.shape != (1,):
        alpha = w.reshape(alpha, (*alpha.shape, *(1,) * (x.ndim - 2)))
    elif x.ndim == 0:
        alpha = w.reshape(alpha, ())
    return w.node("PRelu", x, alpha)


@row("shrink")
def _shrunk(w: Writer, x: Wire, lambd: Number, bias: Number) -> Wire:
    drawn = write(w, "x - Sign(x) * bias", x=x, bias=bias) if bias != 0.0 else x
    return write(w, "Where(Abs(x) <= lambd, 0.0, drawn)", x=x, lambd=lambd, drawn=drawn)


row("hard_shrink")(lambda w, x, lambd: _shrunk(w, x, lambd, 0.0))
row("soft_shrink")(lambda w, x, lambd: _shrunk(w, x, lambd, lambd))


@row("hard_swish")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 14 and x.dtype is DType.F32:
        return w.node("HardSwish", x)
    return write(w, "x * Clip(x + 3.0, 0.0, 6.0) / 6.0", x=x)


@row("softplus")
def _(w: Writer, x: Wire, beta: Number) -> Wire:
    return w.node("Softplus", x) if beta == 1.0 else write(w, "Softplus(x * beta) / beta", x=x, beta=beta)


@row("gelu")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 20:
        return w.node("Gelu", x)
    return write(w, "x * 0.5 * (Erf(x * scale) + 1.0)", x=x, scale=math.sqrt(0.5))


@row("gelu_approximate")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 20:
        return w.node("Gelu", x, approximate="tanh")
    text = "x * 0.5 * (Tanh((x + x * x * x * 0.044715) * scale) + 1.0)"
    return write(w, text, x=x, scale=math.sqrt(2 / math.pi))


@row("elu")
def _(w: Writer, x: Wire, alpha: Number) -> Wire:
    if isinstance(alpha, int | float) and x.dtype is DType.F32:
        return w.node("Elu", x, alpha=float(alpha))
    return _exponential(w, x, alpha, 1.0)


@row("celu")
def _(w: Writer, x: Wire, alpha: Number) -> Wire:
    if isinstance(alpha, int | float) and x.dtype is DType.F32:
        return w.node("Celu", x, alpha=float(alpha))
    return _exponential(w, x, alpha, alpha)


def _exponential(w: Writer, x: Wire, alpha: Number, width: Number) -> Wire:
    """x where x > 0, else alpha * (exp(x / width) - 1)."""
    low = write(w, "Min(x, 0.0)", x=x) if width == 1.0 else write(w, "Min(x, 0.0) / width", x=x, width=width)
    return write(w, "Where(x <= 0.0, (Exp(low) - 1.0) * alpha, x)", x=x, low=low, alpha=alpha)


# -- softmax --------------------------------------------------------------------------------------------------------
def _normalises(name: str, op: str) -> None:
    row(name)(lambda w, x, *, dim: w.node(op, x, axis=dim))


for _name, _op in {"softmax": "Softmax", "log_softmax": "LogSoftmax"}.items():
    _normalises(_name, _op)


@row("quiet_softmax")
def _(w: Writer, x: Wire, *, dim: int) -> Wire:
    zero = w.number(0.0, x.dtype)
    top = w.node("Max", w.reduce("ReduceMax", x, (dim,)), zero)
    e = w.node("Exp", w.node("Sub", x, top))
    total = w.node("Add", w.reduce("ReduceSum", e, (dim,)), w.node("Exp", w.node("Neg", top)))
    return w.node("Div", e, total)


# -- losses ----------------------------------------------------------------------------------------------------
@row("cross_entropy_with_probabilities")
def _(w: Writer, logits: Wire, probabilities: Wire) -> Wire:
    last = logits.ndim - 1
    zero = w.number(0.0, logits.dtype)
    term = w.node("Mul", probabilities, w.node("LogSoftmax", logits, axis=last))
    term = w.node("Where", w.node("Equal", probabilities, zero), zero, term)
    return w.node("Neg", w.node("ReduceSum", term, w.ints([last]), keepdims=0))


@row("binary_cross_entropy_with_logits")
def _(w: Writer, logits: Wire, targets: Wire) -> Wire:
    rest = w.node("Mul", w.node("Sub", w.number(1.0, logits.dtype), targets), logits)
    return w.node("Add", rest, w.node("Softplus", w.node("Neg", logits)))


@row("binary_cross_entropy")
def _(w: Writer, probabilities: Wire, targets: Wire) -> Wire:
    one, least = w.number(1.0, targets.dtype), w.number(-100.0, targets.dtype)
    sides = []
    for p, t in ((probabilities, targets), (w.node("Sub", one, probabilities), w.node("Sub", one, targets))):
        sides.append(w.node("Mul", t, w.node("Clip", w.node("Log", p), least)))
    return w.node("Neg", w.node("Add", *sides))
