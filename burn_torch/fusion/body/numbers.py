"""The numbers of a kernel: literals are written into it, those of run time are arguments, some made on the host."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from burn_torch.core.dtype import DType, rounded_to
from burn_torch.fusion.body.loops import Argument
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.templates import read_template
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.ops.held_numbers import NumberRange, half_beside, is_stored, number_ranges, too_large
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Real, Size

if TYPE_CHECKING:
    from burn_torch.fusion.body.dialect import Dialect

__all__ = ["LEAST_NORMAL", "Numbers", "held_single", "require_number"]

_Made = Callable[[Sequence[Primitive]], Any]


def require_number(node: Node, position: int, kind: DType, dialect: type[Dialect]) -> None:
    """Raises: Unfusible for a literal that the leaf refuses, and for a fraction beside integers."""
    i = node.inputs[position]
    if not isinstance(i, Literal) or isinstance(i.value, Size | Real):
        return
    limits, half = _limits(node.call, position), _half(node.call, position)
    if limits is not None and not limits.holds(i.value):
        raise Unfusible(Reason.DTYPE, f"the number {i.value} beside {kind}")
    held = i.value if half is None else rounded_to(half, i.value)
    if dialect.refuses(held, kind):
        raise Unfusible(Reason.DTYPE, f"the number {held} beside {kind}")


def _limits(call: Call, position: int) -> NumberRange | None:
    return next((r for r in number_ranges(call) if r.position == position), None) if is_stored(call) else None


def _half(call: Call, position: int) -> DType | None:
    """The half type that a number is compared in; None where it is not compared with halves."""
    return half_beside(call) if position in read_template(call.op.pointwise or "0").compared else None


@final
class Numbers:
    """Gives the source text of each number, as a dialect writes it, and collects arguments."""

    def __init__(self, body: Graph, dialect: Dialect) -> None:
        self.dialect: Final = dialect
        self.arguments: Final[dict[Any, Argument]] = {}
        self._position: Final = {i: position for position, (i, _) in enumerate(body.inputs)}

    def operand(self, node: Node, position: int, kind: DType) -> str:
        """A number among the inputs as an operand of a type; beside halves that it is compared with as they hold it."""
        i, call = node.inputs[position], node.call
        limits, half = _limits(call, position), _half(call, position)
        how = "f64" if kind is DType.F64 else "f32" if kind.is_float else "i64"
        if isinstance(i, Literal) and not isinstance(i.value, Size | Real):
            return self.dialect.literal(i.value if half is None else rounded_to(half, i.value), kind)
        read = self._reader(i)  # a symbolic literal too: a kernel that runs is given the number
        if limits is None and half is None:
            return self._argument((i, how), how, read)

        def held(numbers: Sequence[object]) -> Any:
            value = read(numbers)
            if limits is not None and not limits.holds(value):
                raise too_large(call, [value])
            return value if half is None else rounded_to(half, value)

        return self._argument((i, how, half, limits and (limits.low, limits.high)), how, held)

    def inverse(self, i: Input) -> str:
        """One over a number, as float32: the largest there is where that is infinite, so that a product with 0 is 0."""
        return self._single(i, "inverse", _inverse)

    def divisor(self, i: Input) -> tuple[str, str]:
        """A number and one over it as `prims.divided_by` takes them."""
        return self._single(i, "divisor", _divisor), self._single(i, "shifted inverse", _shifted_inverse)

    def _single(self, i: Input, name: str, convert: Callable[[float], float]) -> str:
        if isinstance(i, Literal):
            return self.dialect.constant(convert(float(i.value)), DType.F32)
        read = self._reader(i)
        return self._argument((i, name), "f32", lambda numbers: convert(float(read(numbers))))

    def key(self, i: Input) -> str:
        """A random key or a stream: an integer modulo 2^64."""
        return self._argument((i, "key"), "i64", self._as_signed(self._reader(i)))

    def made_of(
        self, name: str, inputs: Sequence[Input], numbers: Callable[..., Sequence[float | int]], kind: DType
    ) -> list[str]:
        """Numbers that the host makes of inputs, for results of a type."""
        fraction = "f64" if kind is DType.F64 else "f32"
        readers = [self._reader(i) for i in inputs]
        texts: list[str] = []
        for n, example in enumerate(numbers(*[0.5 for _ in readers])):
            how = "i64" if isinstance(example, int) else fraction
            texts.append(self._argument((tuple(inputs), name, n, how), how, self._nth(n, numbers, readers)))
        return texts

    # -- how the host makes them ---------------------------------------------------------------------
    def _reader(self, i: Input) -> _Made:
        if isinstance(i, Literal):
            value = i.value
            return lambda _: value
        assert isinstance(i, int)
        position = self._position[i]
        return lambda numbers: numbers[position]

    @staticmethod
    def _as_signed(number: _Made) -> _Made:
        return lambda numbers: (number(numbers) + (1 << 63)) % (1 << 64) - (1 << 63)

    @staticmethod
    def _nth(n: int, function: Callable[..., Sequence[object]], readers: Sequence[_Made]) -> _Made:
        return lambda numbers: function(*[read(numbers) for read in readers])[n]

    def _argument(self, key: object, how: str, value: _Made) -> str:
        if key not in self.arguments:
            self.arguments[key] = Argument(f"n{len(self.arguments)}", how, value)
        return self.dialect.argument(self.arguments[key])


_SINGLE: Final = struct.Struct("f")
LEAST_NORMAL: Final = 2.0**-126
"""The smallest normal float32."""
_LARGEST: Final = (2.0 - 2.0**-23) * 2.0**127


def held_single(number: float) -> float:
    """A number as float32 holds it."""
    try:
        held: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return held


def _inverse(number: float) -> float:
    held = held_single(number)
    if not held:
        return math.copysign(math.inf, held)
    return 1.0 / held if abs(held) >= LEAST_NORMAL or held != held else math.copysign(_LARGEST, held)


def _divisor(number: float) -> float:
    held = held_single(number)
    return math.nan if 0.0 < abs(held) < LEAST_NORMAL else held


def _shifted_inverse(number: float) -> float:
    held = held_single(number)
    return 2.0**-24 / held if 0.0 < abs(held) < LEAST_NORMAL else _inverse(held)
