"""The numbers of a kernel: literals are written into it, those of run time are arguments, some made on the host."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from burn_torch.core.dtype import DType, rounded_to
from burn_torch.fusion.body.loops import Argument
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.expressions import compared, number_text
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.ops.held_numbers import half_beside, is_stored, number_ranges, too_large
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Real, Size

__all__ = ["Numbers"]

_Made = Callable[[Sequence[Primitive]], Any]


class Numbers:
    """Gives the source text of each number, and collects arguments.  held: they are pointers to numbers."""

    def __init__(self, body: Graph, *, held: bool) -> None:
        self.held: Final = held
        self.arguments: Final[dict[Any, Argument]] = {}
        self._position: Final = {i: position for position, (i, _) in enumerate(body.inputs)}

    def operand(self, node: Node, position: int, kind: DType) -> str:
        """A number among the inputs as an operand of a type; beside halves that it is compared with as they hold it.

        Raises: Unfusible for a fraction beside integers, and for a literal that the leaf refuses.
        """
        i, call = node.inputs[position], node.call
        limits = next((r for r in number_ranges(call) if r.position == position), None) if is_stored(call) else None
        how = "f64" if kind is DType.F64 else "f32" if kind.is_float else "i64"
        half = half_beside(call) if position in compared(call.op.pointwise or "0") else None
        if isinstance(i, Literal) and not isinstance(i.value, Size | Real):
            if limits is not None and not limits.holds(i.value):
                raise Unfusible(Reason.DTYPE, f"the number {i.value} beside {kind}")
            return self._literal(i.value if half is None else rounded_to(half, i.value), kind)
        given = self._given(i)  # a symbolic literal too: a kernel that runs is given the number
        if limits is None and half is None:
            return self._argument((i, how), how, given)

        def held(numbers: Sequence[object]) -> Any:
            value = given(numbers)
            if limits is not None and not limits.holds(value):
                raise too_large(call, [value])
            return value if half is None else rounded_to(half, value)

        return self._argument((i, how, half, limits and (limits.low, limits.high)), how, held)

    def _literal(self, value: Primitive, kind: DType) -> str:
        if kind is DType.F64:  # beside `where` and `maximum` a number alone is a float32
            return f"tl.full((), {number_text(float(value))}, tl.float64)"
        if kind.is_float:
            held = _held(float(value))
            # Triton reads a number that is no normal float32 as a float64
            return f"tl.full((), {held}, tl.float32)" if 0.0 < abs(held) < _LEAST else number_text(held)
        if not isinstance(value, float):
            return number_text(value)
        raise Unfusible(Reason.DTYPE, f"the number {value} beside {kind}")

    def inverse(self, i: Input) -> str:
        """One over a number, as float32: the largest there is where that is infinite, so that a product with 0 is 0."""
        return self._single(i, "inverse", _inverse)

    def divisor(self, i: Input) -> tuple[str, str]:
        """A number and one over it as `prims.divided_by` takes them."""
        return self._single(i, "divisor", _divisor), self._single(i, "shifted inverse", _shifted_inverse)

    def _single(self, i: Input, name: str, made: Callable[[float], float]) -> str:
        if isinstance(i, Literal):
            return number_text(made(float(i.value)))
        given = self._given(i)
        return self._argument((i, name), "f32", lambda numbers: made(float(given(numbers))))

    def key(self, i: Input) -> str:
        """A random key or a stream: an integer modulo 2^64."""
        return self._argument((i, "key"), "i64", self._signed(self._given(i)))

    def made_of(
        self, name: str, inputs: Sequence[Input], numbers: Callable[..., Sequence[float | int]], kind: DType
    ) -> list[str]:
        """Numbers that the host makes of inputs, for results of a type."""
        fraction = "f64" if kind is DType.F64 else "f32"
        given = [self._given(i) for i in inputs]
        texts: list[str] = []
        for n, example in enumerate(numbers(*[0.5 for _ in given])):
            how = "i64" if isinstance(example, int) else fraction
            texts.append(self._argument((tuple(inputs), name, n, how), how, self._nth(n, numbers, given)))
        return texts

    # -- how the host makes them ---------------------------------------------------------------------
    def _given(self, i: Input) -> _Made:
        if isinstance(i, Literal):
            value = i.value
            return lambda _: value
        assert isinstance(i, int)
        position = self._position[i]
        return lambda numbers: numbers[position]

    @staticmethod
    def _signed(made: _Made) -> _Made:
        return lambda numbers: (made(numbers) + (1 << 63)) % (1 << 64) - (1 << 63)

    @staticmethod
    def _nth(n: int, function: Callable[..., Sequence[object]], given: Sequence[_Made]) -> _Made:
        return lambda numbers: function(*[made(numbers) for made in given])[n]

    def _argument(self, key: object, how: str, value: _Made) -> str:
        if key not in self.arguments:
            self.arguments[key] = Argument(f"n{len(self.arguments)}", how, value)
        name = self.arguments[key].name
        if self.held:
            return f"tl.load({name})"
        # the interpreter passes an integer that 32 bits hold in 32 bits, the bits of 0.0 too
        return f"tl.full((), {name}, tl.int64).to(tl.float64, bitcast=True)" if how == "f64" else name


_SINGLE: Final = struct.Struct("f")
_LEAST: Final = 2.0**-126
"""The smallest normal float32."""
_LARGEST: Final = (2.0 - 2.0**-23) * 2.0**127


def _held(number: float) -> float:
    try:
        held: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return held


def _inverse(number: float) -> float:
    held = _held(number)
    if not held:
        return math.copysign(math.inf, held)
    return 1.0 / held if abs(held) >= _LEAST or held != held else math.copysign(_LARGEST, held)


def _divisor(number: float) -> float:
    held = _held(number)
    return math.nan if 0.0 < abs(held) < _LEAST else held


def _shifted_inverse(number: float) -> float:
    held = _held(number)
    return 2.0**-24 / held if 0.0 < abs(held) < _LEAST else _inverse(held)
