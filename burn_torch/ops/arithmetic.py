"""Element-wise arithmetic on two operands, each a tensor or a number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT, NUMERIC, DType
from burn_torch.core.spec import INT_NUMBER, NumberSpec, TensorSpec
from burn_torch.ops import special, unsigned
from burn_torch.ops.comparison import equal, greater, greater_equal, is_nan, lower, not_equal
from burn_torch.ops.functions import floor, log, trunc
from burn_torch.ops.functions import round as nearest
from burn_torch.ops.held_numbers import division_by_zero, held, too_large
from burn_torch.ops.laws import Associative, Exchange, Neutral, OnHost, Rewrite, SelfInverse, Uniform, Unsigned
from burn_torch.ops.logic import bool_and
from burn_torch.ops.op import Call, Candidate, Op, PerCall, op
from burn_torch.ops.rules import elementwise, sum_to
from burn_torch.ops.samples import Array, distinct, sample, uniform
from burn_torch.ops.selection import cast, mask_where
from burn_torch.ops.signature import Operand
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value

_PAIR = [
    sample(uniform(-3, 3), uniform(-3, 3)),
    sample(uniform(-3, 3, (2, 1, 4)), uniform(-3, 3, (3, 1))),
    sample(uniform(-3, 3, (0, 3)), uniform(-3, 3, (3,))),
    sample(uniform(-3, 3, ()), uniform(-3, 3, ())),
    sample(uniform(-3, 3), 1.5),
    sample(2.5, uniform(-3, 3)),
]

_QUOTIENT = [
    sample(uniform(-7, 7), uniform(1, 3)),
    sample(uniform(3, 7, (2, 1, 4)), uniform(-3, -1, (3, 1))),
    sample(uniform(3, 7, (0, 3)), uniform(1, 3, (3,))),
    sample(uniform(3, 7, ()), uniform(1, 3, ())),
    sample(uniform(-7, 7), 1.5),
    sample(6.5, uniform(1, 3)),
]


def _tensor(call: Call) -> TensorSpec:
    return next(spec for spec in call.specs if isinstance(spec, TensorSpec))


def _dtype(call: Call) -> DType:
    return _tensor(call).dtype


def _on_tensors(function: Callable[..., torch.Tensor]) -> Callable[[Call], Callable[..., torch.Tensor]]:
    # for functions of torch that take no number: some of them mix no 0-d tensor of the host with others
    def build(call: Call) -> Candidate:
        if not any(isinstance(spec, NumberSpec) for spec in call.specs):
            return function
        dtype = TO_TORCH[_dtype(call)]
        if isinstance(call.specs[0], NumberSpec):
            return lambda x, y: function(torch.full((), x, dtype=dtype, device=y.device), y)
        return lambda x, y: function(x, torch.full((), y, dtype=dtype, device=x.device))

    return build


@op(
    torch=held(operator.add),
    numpy=held(operator.add),
    scalar=operator.add,
    inplace=torch.Tensor.add_,
    pointwise="({0} + {1})",
    cost="cheap",
    commutative=True,
    laws=[Neutral(-0.0, (0, 1)), Exchange(), Associative(), Uniform((0, 1)), OnHost(), Unsigned("bits")],
    samples=_PAIR,
)
def add(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise sum.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.  Integers wrap around; a number that
    their type cannot hold is refused.
    """
    return elementwise(x, y)


@add.gradient
def _(g, z, x, y):
    return sum_to(g, x), sum_to(g, y)


@op(
    torch=held(operator.sub),
    numpy=held(operator.sub),
    scalar=operator.sub,
    inplace=torch.Tensor.sub_,
    pointwise="({0} - {1})",
    cost="cheap",
    laws=[Neutral(0.0, (1,)), Uniform((0, 1)), OnHost(), Unsigned("bits")],
    samples=_PAIR,
)
def sub(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise difference x - y.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.  Integers wrap around; a number that
    their type cannot hold is refused.
    """
    return elementwise(x, y)


@sub.gradient
def _(g, z, x, y):
    return sum_to(g, x), sum_to(-g, y)


@op(
    torch=held(operator.mul),
    numpy=held(operator.mul),
    scalar=operator.mul,
    inplace=torch.Tensor.mul_,
    pointwise="({0} * {1})",
    cost="cheap",
    commutative=True,
    laws=[Neutral(1.0, (0, 1)), Exchange(), Associative(), Uniform((0, 1)), OnHost(), Unsigned("bits")],
    samples=_PAIR,
)
def mul(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise product.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.  Integers wrap around; a number that
    their type cannot hold is refused.
    """
    return elementwise(x, y)


@mul.gradient
def _(g, z, x, y):
    return sum_to(g * y, x), sum_to(g * x, y)


# -- quotients --------------------------------------------------------------------------------------------
_truncated = partial(torch.div, rounding_mode="trunc")


def _torch_div(call: Call) -> Candidate:
    tensor = _tensor(call)
    if not tensor.dtype.is_float:
        # of smaller types the processor divides wider registers, and the quotient fits
        traps = tensor.place == "cpu" and tensor.dtype in (DType.I64, DType.I32)
        return _truncated_on_host if traps else _truncated
    # torch writes 2.5 / x as 2.5 * (1 / x), which rounds twice
    return _on_tensors(torch.div)(call) if isinstance(call.specs[0], NumberSpec) else operator.truediv


def _truncated_on_host(x: int | torch.Tensor, y: int | torch.Tensor) -> torch.Tensor:
    # the processor ends the process at -2^63 / -1, whose quotient is no int64: here it wraps around
    minus = y == -1
    if minus is False or (minus is not True and not minus.any()):
        return _truncated(x, y)
    x = torch.as_tensor(x, dtype=getattr(y, "dtype", None), device="cpu")
    if minus is True:
        return -x
    return torch.where(minus, -x, _truncated(x, torch.where(minus, 1, y)))


def _truncated_quotient(x: Array | int, y: Array | int) -> Array:
    quotient = np.floor_divide(x, y)
    return quotient + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))


def _refuses_zero(candidate: Callable[..., torch.Tensor] | PerCall) -> PerCall:
    # integers have no NaN to stand for x mod 0; torch raises in words of its own
    def build(call: Call) -> Candidate:
        function = candidate.build(call) if isinstance(candidate, PerCall) else candidate
        if _dtype(call).is_float:
            return function

        def run(x: int | torch.Tensor, y: int | torch.Tensor) -> torch.Tensor:
            try:
                return function(x, y)
            except RuntimeError as err:
                if "ZeroDivisionError" not in str(err):
                    raise
                raise division_by_zero(call) from None

        return run

    return PerCall(build)


def _refuse_zero(candidate: Callable[..., np.ndarray] | PerCall) -> PerCall:
    def build(call: Call) -> Candidate:
        function = candidate.build(call) if isinstance(candidate, PerCall) else candidate

        def whole(x: Array | int, y: Array | int) -> Array:
            if np.size(x) and not np.all(y):
                raise division_by_zero(call)
            return function(x, y)

        return function if _dtype(call).is_float else whole

    return held(PerCall(build))


@op(
    torch=held(_refuses_zero(PerCall(_torch_div))),
    numpy=_refuse_zero(PerCall(lambda call: operator.truediv if _dtype(call).is_float else _truncated_quotient)),
    scalar=special.divide,
    inplace=lambda x, y: torch.Tensor.div_(x, y, rounding_mode=None if x.is_floating_point() else "trunc"),
    pointwise="({0} / {1})",  # of floats; an integer kernel truncates toward zero, as `/` of C does
    cost="cheap",
    # where the reciprocal overflows, the product does and the quotient does not
    laws=[
        Neutral(1.0, (1,)),
        OnHost(on_cpu=True),
        Rewrite("mul", lambda y: 1.0 / y if abs(y) >= 1e-30 else None),
        Unsigned(_refuses_zero(unsigned.quotient)),
    ],
    samples=_QUOTIENT,
)
def div(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise quotient x / y; of integers the quotient truncated toward zero, 7 / -2 = -3, as in Burn.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    The least integer divided by -1 wraps around to itself.
    Raises: ArgumentError for an integer divided by 0, on the CPU.
    PyTorch: torch.div; of integers with rounding_mode="trunc".
    """
    return elementwise(x, y)


@div.gradient
def _(g, z, x, y):
    return sum_to(g / y, x), sum_to(-g * (z / y), y)


def _exact_rest(function: Callable[..., torch.Tensor], *, toward_zero: bool) -> PerCall:
    """torch's vectors give NaN where x / y overflows; C's function, and torch's own at the ends of rows, do not."""

    def build(call: Call) -> Candidate:
        computed = _on_tensors(function)(call)
        if not _dtype(call).is_float or _tensor(call).place != "cpu":
            return computed

        def run(x: float | torch.Tensor, y: float | torch.Tensor) -> torch.Tensor:
            z = computed(x, y)
            odd = z.isnan()
            if odd.any():
                some = [torch.as_tensor(v, dtype=z.dtype, device="cpu").expand(z.shape)[odd].double() for v in (x, y)]
                a, b = (v.numpy() for v in some)
                z[odd] = torch.from_numpy(_rest(a, b, toward_zero)).to(z.dtype)
            return z

        return run

    return PerCall(build)


def _rest(x: Primitive, y: Primitive, toward_zero: Primitive) -> Primitive:
    with np.errstate(all="ignore"):
        rest = np.fmod(x, y)
        return rest if toward_zero else np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _whole_in_place(function: Callable[..., torch.Tensor]) -> PerCall:
    # of floats the leaf looks at the operands again
    return PerCall(lambda call: None if _dtype(call).is_float else function)


@op(
    torch=held(_refuses_zero(_exact_rest(torch.remainder, toward_zero=False))),
    numpy=_refuse_zero(np.remainder),
    scalar=special.modulo,
    inplace=_whole_in_place(torch.Tensor.remainder_),
    pointwise="remainder({0}, {1})",
    cost="cheap",
    laws=[Unsigned(_refuses_zero(unsigned.rest))],
    samples=_QUOTIENT,
)
def remainder(x: Operand, y: Operand) -> TensorSpec:
    """The rest of x when divided by y: x - floor(x / y) * y.  It has the sign of y, as Python's % has.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    Raises: ArgumentError for an integer modulo 0, on the CPU; floats give NaN.  At multiples of y the gradient is that
    from above.
    """
    return elementwise(x, y)


@remainder.gradient
def _(g, z, x, y):
    return sum_to(g, x), _of_divisor(g, z, x, y, floor)


@op(
    torch=held(_refuses_zero(_exact_rest(torch.fmod, toward_zero=True))),
    numpy=_refuse_zero(np.fmod),
    inplace=_whole_in_place(torch.Tensor.fmod_),
    pointwise="fmod({0}, {1})",
    cost="cheap",
    laws=[Unsigned(_refuses_zero(unsigned.rest))],
    samples=_QUOTIENT,
)
def fmod(x: Operand, y: Operand) -> TensorSpec:
    """The rest of x when divided by y toward zero: x - trunc(x / y) * y.  It has the sign of x, as C's fmod has.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    Raises: ArgumentError for an integer modulo 0, on the CPU; floats give NaN.
    """
    return elementwise(x, y)


@fmod.gradient
def _(g, z, x, y):
    return sum_to(g, x), _of_divisor(g, z, x, y, trunc)


def _of_divisor(g: Value, z: Value, x: Value, y: Value, whole: Op) -> Value | None:
    """The gradient of z = x - n y for y: -n, with n from x - z, as x / y may round up to the next whole number."""
    if y.is_number:
        return None
    n = nearest((x - z) / y)
    return sum_to(-g * mask_where(n, is_nan(n), whole(x / y)), y)  # an infinite y leaves NaN of x - z


# -- powers --------------------------------------------------------------------------------------------------
def _torch_pow(call: Call) -> Candidate:
    if _dtype(call).is_float:
        return torch.pow
    if not isinstance(call.specs[1], NumberSpec):
        return held(torch.pow).build(call)
    largest = np.iinfo(_dtype(call).numpy).max

    def run(x: torch.Tensor, y: int) -> torch.Tensor:
        if y > largest:
            raise too_large(call, (x, y))
        return torch.pow(x, y) if y >= 0 else _units(x, y, torch.where)  # torch refuses this for numbers

    return run


def _numpy_pow(call: Call) -> Candidate:
    if _dtype(call).is_float:
        if call.specs[1] is not INT_NUMBER:
            return np.power
        # numpy rounds the exponent to the type of x, which may make an odd one even
        exact = 2 ** (np.finfo(_dtype(call).numpy).nmant + 1)
        return lambda x, y: np.power(x if -exact <= y <= exact else np.asarray(x, np.float64), y)
    if not isinstance(call.specs[1], NumberSpec):
        return held(_whole_power).build(call)
    largest = np.iinfo(_dtype(call).numpy).max

    def run(x: Array, y: int) -> Array:
        if y > largest:
            raise too_large(call, (x, y))
        return _whole_power(x, y)

    return run


def _whole_power(x: Array | int, y: Array | int) -> Array:
    dtype = np.result_type(x, y)
    power = np.power(x, np.maximum(y, 0).astype(dtype), dtype=dtype)
    return np.where(np.less(y, 0), _units(np.asarray(x, dtype), y, np.where), power)


def _unsigned_pow(call: Call) -> Candidate:
    if not isinstance(call.specs[1], NumberSpec):
        return held(unsigned.power).build(call)
    largest = _dtype(call).limits[1]

    def run(x: torch.Tensor, y: int) -> torch.Tensor:
        if y > largest:
            raise too_large(call, (x, y))
        return unsigned.power(x, y)

    return run


def _units(x: Primitive, y: Array | int, where: Candidate) -> Primitive:
    # x^y truncated toward zero for y < 0: only 1 and -1 keep a value
    minus_one = (x == -1) & (x < 0)  # u8 has a 255 that equals -1
    return where((x == 1) | (minus_one & (y % 2 != 0)), x, minus_one * x * x)


@op(
    torch=PerCall(_torch_pow),
    numpy=PerCall(_numpy_pow),
    scalar=special.power,
    inplace=lambda x, y: x.copy_(torch.pow(x, y)),
    pointwise="pow({0}, {1})",
    cost="cheap",
    laws=[Neutral(1.0, (1,)), Rewrite("mul", lambda y: "x" if y == 2 else None), Unsigned(PerCall(_unsigned_pow))],
    precision="high",
    samples=[
        sample(uniform(0.3, 2), uniform(-2, 3)),
        sample(uniform(0.3, 2, (2, 1, 4)), uniform(0.5, 3, (3, 1))),
        sample(uniform(0.3, 2, (0, 3)), uniform(-2, 3, (3,))),
        sample(uniform(1.5, 2, ()), uniform(0.5, 3, ())),
        sample(uniform(0.3, 2), 2.5),
        sample(uniform(-3, 3), 3),
        sample(uniform(0.3, 2), -1.5),
        sample(2.5, uniform(-2, 3)),
    ],
)
def pow(x: Operand, y: Operand) -> TensorSpec:
    """x to the power y.  Integers to a negative power are truncated toward zero: 1 and -1 stay, others become 0.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same; a float to an int number too.
    A negative float at a fractional power is NaN.  At y = 0 the gradient of x is 0, and at x = 0 that of y is 0 for
    y >= 0, also where the formulas y x^(y-1) and x^y log x have no value.
    """
    return elementwise(x, y)


@pow.gradient
def _(g, z, x, y):
    if x.is_number:
        return None, g * (z * log(x + equal(x, 0)))  # log 0 where x = 0 would spoil z = 0
    step = not_equal(y, 0)
    lowered = y - (step if y.is_number else cast(step, dtype=y.dtype))  # y - 1, and 0 for y = 0
    dx = sum_to(g * (y * pow(x, lowered)), x)
    if y.is_number:
        return dx, None
    flat = bool_and(equal(x, 0.0), greater_equal(y, 0.0))
    return dx, sum_to(mask_where(g * (z * log(x)), flat, 0.0), y)


# -- extremes and angles ----------------------------------------------------------------------------------------
_DISTINCT_PAIR = [
    sample(distinct((3, 4)), uniform(-0.05, 0.05)),
    sample(distinct((2, 1, 4)), uniform(-0.05, 0.05, (3, 1))),
    sample(uniform(-3, 3, (0, 3)), uniform(-3, 3, (3,))),
    sample(distinct((3, 4)), 0.7),
    sample(-0.7, distinct((3, 4))),
]


def _share_gradient(g: Value, x: Value, y: Value, wins: Op, loses: Op) -> tuple[Primitive, ...]:
    # all of g where one side wins, half of it at equal values
    half = mask_where(g, equal(x, y), g * 0.5)
    return sum_to(mask_where(half, loses(x, y), 0.0), x), sum_to(mask_where(half, wins(x, y), 0.0), y)


def _torch_extreme(of_two: Callable[..., torch.Tensor], of_number: Callable[..., torch.Tensor]) -> Candidate:
    def build(call: Call) -> Candidate:
        if isinstance(call.specs[1], NumberSpec):
            return of_number
        return (lambda x, y: of_number(y, x)) if isinstance(call.specs[0], NumberSpec) else of_two

    return build


@op(
    torch=held(PerCall(_torch_extreme(torch.maximum, torch.clamp_min)), stored=True),
    numpy=held(np.maximum, stored=True),
    scalar=special.larger,
    inplace=torch.Tensor.clamp_min_,
    pointwise="maximum({0}, {1})",
    cost="cheap",
    commutative=True,
    laws=[Unsigned("order")],
    samples=_DISTINCT_PAIR,
)
def maximum(x: Operand, y: Operand) -> TensorSpec:
    """The larger of two, element by element; NaN where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    At equal values each side gets half of the gradient.
    """
    return elementwise(x, y)


@maximum.gradient
def _(g, z, x, y):
    return _share_gradient(g, x, y, greater, lower)


@op(
    torch=held(PerCall(_torch_extreme(torch.minimum, torch.clamp_max)), stored=True),
    numpy=held(np.minimum, stored=True),
    scalar=special.smaller,
    inplace=torch.Tensor.clamp_max_,
    pointwise="minimum({0}, {1})",
    cost="cheap",
    commutative=True,
    laws=[Unsigned("order")],
    samples=_DISTINCT_PAIR,
)
def minimum(x: Operand, y: Operand) -> TensorSpec:
    """The smaller of two, element by element; NaN where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    At equal values each side gets half of the gradient.
    """
    return elementwise(x, y)


@minimum.gradient
def _(g, z, x, y):
    return _share_gradient(g, x, y, lower, greater)


@op(torch=PerCall(_on_tensors(torch.atan2)), numpy=np.arctan2, pointwise="atan2({0}, {1})", cost="cheap", samples=_PAIR)
def atan2(y: Operand, x: Operand) -> TensorSpec:
    """The angle of the point (x, y) from the positive x axis, in (-pi, pi].

    Shapes: y, x broadcast -> their common shape.  Dtypes: floats, both the same.
    At the origin the angle is 0 or pi by the signs of the zeros, and the gradient NaN.
    """
    return elementwise(y, x, dtypes=FLOAT)


@atan2.gradient
def _(g, z, y, x):
    length = hypot(x, y)  # its square may leave the range, or vanish
    return sum_to(g * (x / length) / length, y), sum_to(-g * (y / length) / length, x)


@op(
    torch=PerCall(_on_tensors(torch.hypot)),
    numpy=np.hypot,
    pointwise="hypot({0}, {1})",
    cost="cheap",
    commutative=True,
    samples=_PAIR,
)
def hypot(x: Operand, y: Operand) -> TensorSpec:
    """sqrt(x^2 + y^2), with no overflow between.

    Shapes: x, y broadcast -> their common shape.  Dtypes: floats, both the same.  The gradient at the origin is NaN.
    """
    return elementwise(x, y, dtypes=FLOAT)


@hypot.gradient
def _(g, z, x, y):
    return sum_to(g * (x / z), x), sum_to(g * (y / z), y)


@op(
    torch=PerCall(_on_tensors(torch.logaddexp)),
    numpy=np.logaddexp,
    pointwise="(maximum({0}, {1}) + log1p(exp(where({0} == {1}, 0.0, -abs({0} - {1})))))",
    cost="cheap",
    precision="high",
    commutative=True,
    samples=_PAIR,
)
def logaddexp(x: Operand, y: Operand) -> TensorSpec:
    """log(exp(x) + exp(y)), with no overflow between.

    Shapes: x, y broadcast -> their common shape.  Dtypes: floats, both the same.
    Equal operands, infinite ones too, get half of the gradient each.
    """
    return elementwise(x, y, dtypes=FLOAT)


@logaddexp.gradient
def _(g, z, x, y):
    ahead = ops.mask_where(x - y, equal(x, y), (x - y).new_full(z.shape, 0.0))
    return sum_to(g * ops.sigmoid(ahead), x), sum_to(g * ops.sigmoid(-ahead), y)


@op(
    torch=torch.neg,
    numpy=np.negative,
    scalar=operator.neg,
    inplace=torch.Tensor.neg_,
    pointwise="(-{0})",
    cost="cheap",
    laws=[SelfInverse(), OnHost(), Unsigned("bits")],
    samples=[uniform(-3, 3), uniform(-3, 3, ()), uniform(-3, 3, (0, 2))],
)
def neg(x: TensorSpec) -> TensorSpec:
    """Element-wise negation.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out; unsigned ones wrap around.
    """
    return x.require(NUMERIC)


@neg.gradient
def _(g, y, x):
    return -g
