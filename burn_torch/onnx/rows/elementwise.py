"""Element by element: functions, comparisons, logic, choices, arithmetic."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Size
from burn_torch.onnx.exporting.writer import Cannot, Number, Wire, Writer
from burn_torch.onnx.operators.arithmetic import PAIRS
from burn_torch.onnx.operators.elementwise import PLAIN
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


@row("square")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Mul", x, x)


@row("rsqrt")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Reciprocal", w.node("Sqrt", x))


@row("expm1")
def _(w: Writer, x: Wire) -> Wire:
    # tanh(x / 2) (exp(x) + 1): nothing cancels near 0
    half = w.node("Tanh", w.node("Mul", x, w.number(0.5, x.dtype)))
    return w.node("Mul", half, w.node("Add", w.node("Exp", x), w.number(1.0, x.dtype)))


@row("log1p")
def _log1p(w: Writer, x: Wire) -> Wire:
    # 2 atanh(x / (x + 2)) near 0, where 1 + x loses what x is
    one, two = w.number(1.0, x.dtype), w.number(2.0, x.dtype)
    small = w.node("Less", w.node("Abs", x), w.number(0.5, x.dtype))
    near = w.node("Mul", w.node("Atanh", w.node("Div", x, w.node("Add", x, two))), two)
    return w.node("Where", small, near, w.node("Log", w.node("Add", x, one)))


@row("trunc")
def _(w: Writer, x: Wire) -> Wire:
    down = w.node("Less", x, w.number(0.0, x.dtype))
    return w.node("Where", down, w.node("Ceil", x), w.node("Floor", x))


@row("clone", "to_place")
def _(w: Writer, x: Wire, **place: Any) -> Wire:
    return x


@row("cast")
def _(w: Writer, x: Wire, *, dtype: DType) -> Wire:
    return w.cast(x, dtype)


@row("is_inf")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("IsInf", x) if x.dtype.is_float else w.node("Less", x, x)


@row("is_finite")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Not", w.node("Or", w.node("IsNaN", x), w.node("IsInf", x)))


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
    zero = w.number(0.0, a.dtype)
    other = w.node("Less", w.node("Mul", w.node("Sign", left), w.node("Sign", b)), zero)
    return w.node("Where", other, w.node("Add", left, b), left)


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
    zero = w.number(0.0, x.dtype)
    return w.node("Or", w.node("Less", x, zero), w.node("Less", w.node("Reciprocal", x), zero))


@row("hypot")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = (w.node("Abs", part) for part in pair(w, x, y))
    large, small = w.node("Max", a, b), w.node("Min", a, b)
    zero, one = w.number(0.0, a.dtype), w.number(1.0, a.dtype)
    ratio = w.node("Div", small, large)
    length = w.node("Mul", large, w.node("Sqrt", w.node("Add", w.node("Mul", ratio, ratio), one)))
    plain = w.node("Or", w.node("Equal", large, zero), w.node("Equal", large, w.number(math.inf, a.dtype)))
    return w.node("Where", plain, large, length)


@row("logaddexp")
def _(w: Writer, x: Wire | Number, y: Wire | Number) -> Wire:
    a, b = pair(w, x, y)
    # infinite operands have no difference
    apart = w.node("Where", w.node("Equal", a, b), w.number(0.0, a.dtype), w.node("Abs", w.node("Sub", a, b)))
    return w.node("Add", w.node("Max", a, b), _log1p(w, w.node("Exp", w.node("Neg", apart))))


@row("erfinv")
def _(w: Writer, x: Wire) -> Wire:
    if x.dtype is DType.F64:
        raise Cannot("erfinv of float64: its steps are for float32")
    results = [x if x.dtype is DType.F32 else w.cast(x, DType.F32)]
    for step in ELEMENTARY["erfinv"].steps:
        results.append(_write_step(w, step, results))
    return results[-1] if x.dtype is DType.F32 else w.cast(results[-1], x.dtype)


_OPERATORS: Final = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Eq: "Equal", ast.Lt: "Less",
}  # fmt: skip


def _write_step(w: Writer, template: str, operands: Sequence[Wire]) -> Wire:
    """Writes the nodes of one step of an elementary function."""

    def write(node: ast.expr) -> Wire:
        match node:
            case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
                return w.node(_OPERATORS[type(operator)], write(left), write(right))
            case ast.UnaryOp(ast.USub(), operand):
                return w.node("Neg", write(operand))
            case ast.Name(name):
                return operands[int(name.removeprefix("_"))]
            case ast.Constant(value) | ast.Call(ast.Name("float"), [ast.Constant(value)]):
                return w.number(float(value), DType.F32)  # type: ignore[arg-type]  # templates hold numbers alone
            case ast.Call(ast.Name(name), arguments):
                return w.node(name.capitalize(), *map(write, arguments))
        raise AssertionError(ast.dump(node))

    return write(ast.parse(re.sub(r"\{(\d+)\}", r"_\1", template), mode="eval").body)


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
def _keeps(w: Writer, x: Wire, other: Callable[[], Wire], low: Number) -> Wire:
    """x where x > low or NaN, else what `other` writes."""
    return w.node("Where", w.node("LessOrEqual", x, w.number(low, x.dtype)), other(), x)


@row("leaky_relu")
def _(w: Writer, x: Wire, slope: Number) -> Wire:
    if isinstance(slope, float | int) and x.dtype is DType.F32:
        return w.node("LeakyRelu", x, alpha=float(slope))
    return _keeps(w, x, lambda: w.node("Mul", x, w.number(slope, x.dtype)), 0.0)


@row("prelu")
def _(w: Writer, x: Wire, alpha: Wire) -> Wire:
    if alpha.shape != (1,):
        alpha = w.reshape(alpha, (*alpha.shape, *(1,) * (x.ndim - 2)))
    elif x.ndim == 0:
        alpha = w.reshape(alpha, ())
    return w.node("PRelu", x, alpha)


@row("threshold")
def _(w: Writer, x: Wire, threshold: Number, value: Number) -> Wire:
    return _keeps(w, x, lambda: w.number(value, x.dtype), threshold)


@row("thresholded_relu")
def _(w: Writer, x: Wire, alpha: Number) -> Wire:
    return _keeps(w, x, lambda: w.number(0.0, x.dtype), alpha)


@row("shrink")
def _shrunk(w: Writer, x: Wire, lambd: Number, bias: Number) -> Wire:
    drawn = w.node("Sub", x, w.node("Mul", w.node("Sign", x), w.number(bias, x.dtype))) if bias != 0.0 else x
    small = w.node("LessOrEqual", w.node("Abs", x), w.number(lambd, x.dtype))
    return w.node("Where", small, w.number(0.0, x.dtype), drawn)


row("hard_shrink")(lambda w, x, lambd: _shrunk(w, x, lambd, 0.0))
row("soft_shrink")(lambda w, x, lambd: _shrunk(w, x, lambd, lambd))


@row("hard_sigmoid")
def _(w: Writer, x: Wire, alpha: Number, beta: Number) -> Wire:
    steep = w.node("Add", w.node("Mul", x, w.number(alpha, x.dtype)), w.number(beta, x.dtype))
    return w.node("Clip", steep, w.number(0.0, x.dtype), w.number(1.0, x.dtype))


@row("hard_swish")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 14 and x.dtype is DType.F32:
        return w.node("HardSwish", x)
    three, six = w.number(3.0, x.dtype), w.number(6.0, x.dtype)
    gate = w.node("Clip", w.node("Add", x, three), w.number(0.0, x.dtype), six)
    return w.node("Div", w.node("Mul", x, gate), six)


@row("log_sigmoid")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Neg", w.node("Softplus", w.node("Neg", x)))


@row("silu")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Mul", x, w.node("Sigmoid", x))


@row("softplus")
def _(w: Writer, x: Wire, beta: Number) -> Wire:
    if beta == 1.0:
        return w.node("Softplus", x)
    scale = w.number(beta, x.dtype)
    return w.node("Div", w.node("Softplus", w.node("Mul", x, scale)), scale)


@row("mish")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Mul", x, w.node("Tanh", w.node("Softplus", x)))


@row("gelu")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 20:
        return w.node("Gelu", x)
    share = w.node("Erf", w.node("Mul", x, w.number(math.sqrt(0.5), x.dtype)))
    half = w.node("Mul", x, w.number(0.5, x.dtype))
    return w.node("Mul", half, w.node("Add", share, w.number(1.0, x.dtype)))


@row("gelu_approximate")
def _(w: Writer, x: Wire) -> Wire:
    if w.opset >= 20:
        return w.node("Gelu", x, approximate="tanh")
    cube = w.node("Mul", w.node("Mul", w.node("Mul", x, x), x), w.number(0.044715, x.dtype))
    inner = w.node("Mul", w.node("Add", x, cube), w.number(math.sqrt(2 / math.pi), x.dtype))
    half = w.node("Mul", x, w.number(0.5, x.dtype))
    return w.node("Mul", half, w.node("Add", w.node("Tanh", inner), w.number(1.0, x.dtype)))


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
    zero = w.number(0.0, x.dtype)
    low = w.node("Min", x, zero)
    power = w.node("Exp", low if width == 1.0 else w.node("Div", low, w.number(width, x.dtype)))
    return _keeps(
        w, x, lambda: w.node("Mul", w.node("Sub", power, w.number(1.0, x.dtype)), w.number(alpha, x.dtype)), 0.0
    )


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
