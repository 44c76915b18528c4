"""Numbers beside tensors: a number that stands for an element must be one that the element type holds.

torch wraps a number beside integers around, or takes it modulo the type, and refuses some that a float type would make
infinite; numpy refuses the former and makes infinities of the latter.  Here both leaves refuse both in one error.
Comparisons need no type that holds both sides: what is below the range of a type is below all its values.  Arithmetic
on floats needs none either: a number beyond the range makes an infinity there, or 0, as it does in wider types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, final

from burn_torch.core.dtype import DType, rounded_to
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import INT_NUMBER, NumberSpec, TensorSpec
from burn_torch.ops.op import Call, Candidate, PerCall
from burn_torch.ops.value import Primitive

__all__ = [
    "NumberRange",
    "beyond",
    "bind_candidate",
    "compares",
    "division_by_zero",
    "half_beside",
    "held",
    "is_stored",
    "number_ranges",
    "refuse_long_numbers",
    "refuse_unheld",
    "require_numbers",
    "too_large",
]


class NumberRange(NamedTuple):
    """The range of the number at input `position`.  Infinities and NaN are elements of every float type."""

    position: int
    low: int | float
    high: int | float

    def holds(self, number: Primitive) -> bool:
        """Tells if the number is in the range, or no finite one beside floats."""
        return bool(self.low <= number <= self.high) or (isinstance(self.low, float) and not math.isfinite(number))


@final
class Held(PerCall):
    """A candidate that refuses numbers; `stored`: those that a float type does not hold, too."""

    def __init__(self, build: Callable[[Call], Candidate], stored: bool) -> None:
        super().__init__(build)
        self.stored: Final = stored


def held(candidate: Candidate | PerCall, *, stored: bool = False) -> PerCall:
    """A candidate whose numbers must be ones that the integers beside them can be.  Free on floats and tensors.

    stored: whether the numbers become elements of the result; then a finite number must not leave the range of a float
    type either.
    """

    def build(call: Call) -> Candidate:
        function = bind_candidate(call, candidate)
        ranges = _ranges(call, stored=stored)
        if not ranges or function is None:
            return function
        if len(ranges) > 1:

            def run_all(*inputs: object) -> Any:
                _require(call, inputs, ranges)
                return function(*inputs)

            return run_all
        position, low, high = ranges[0]

        def run(*inputs: Primitive) -> Primitive:
            if not low <= inputs[position] <= high:
                _require(call, inputs, ranges)
            return function(*inputs)

        return run

    return Held(build, stored)


def compares(candidate: Callable[..., object] | PerCall) -> PerCall:
    """A candidate that compares with numbers: beside halves with what the half type holds.

    So numpy does, and torch in some kernels; in others, CUDA's among them, it compares in float32.
    """

    def build(call: Call) -> Candidate:
        function, half = bind_candidate(call, candidate), half_beside(call)
        at = {i for i, spec in enumerate(call.specs) if isinstance(spec, NumberSpec)}
        if half is None or not at:
            return function
        return lambda *inputs: function(*[_nearest(half, x) if i in at else x for i, x in enumerate(inputs)])

    return PerCall(build)


@lru_cache(maxsize=1024)
def _nearest(dtype: DType, number: float) -> float:  # without the sign of 0, which no comparison sees
    return rounded_to(dtype, number)


def half_beside(call: Call) -> DType | None:
    """The type of a Call's tensors where it is one of 16 bits."""
    dtype = _element_type(call)
    return dtype if dtype in (DType.F16, DType.BF16) else None


def bind_candidate(call: Call, candidate: Candidate | PerCall) -> Any:
    """A leaf's candidate as a function of the inputs alone."""
    if isinstance(candidate, PerCall):
        return candidate.build(call)
    return partial(candidate, **call.attrs) if call.attrs else candidate


def refuse_long_numbers(call: Call, function: Candidate) -> Candidate:
    """A function that takes no whole number of more than 64 bits beside floats, as torch takes none; numpy would."""
    dtype = _element_type(call)
    at = [i for i, spec in enumerate(call.specs) if spec is INT_NUMBER]
    if not at or dtype is None or not dtype.is_float or call.op.random:
        return function

    def run(*inputs: Primitive) -> Primitive:
        if any(not -(1 << 63) <= inputs[i] < 1 << 64 for i in at):
            raise too_large(call, inputs)
        return function(*inputs)

    return run


def refuse_unheld(call: Call, function: Candidate) -> Candidate:
    """A function that takes the numbers which a Call's `held` candidate takes, and refuses others as that one does."""
    taken = call.op.torch
    return held(PerCall(lambda _: function), stored=taken.stored).build(call) if isinstance(taken, Held) else function


def _require(call: Call, inputs: Sequence[object], ranges: Sequence[NumberRange]) -> None:
    """Raises ArgumentError for a number that leaves its range."""
    for limits in ranges:
        if not limits.holds(inputs[limits.position]):
            raise too_large(call, inputs)


def beyond(call: Call, function: Candidate, constant: Callable[[Any, bool], Any]) -> Candidate:
    """A comparison that is right for numbers beyond the integers beside them.

    constant: makes the answer, one truth value in the shape of a tensor.
    """
    ranges = _ranges(call)
    if not ranges:
        return function
    position, low, high = ranges[0]

    def run(x: Primitive, y: Primitive) -> Primitive:
        number, tensor = (x, y) if position == 0 else (y, x)
        if low <= number <= high:
            return function(x, y)
        assert call.op.scalar is not None
        # every value of the type lies on the same side of the number as 0 does
        return constant(tensor, call.op.scalar(number, 0) if position == 0 else call.op.scalar(0, number))

    return run


def _ranges(call: Call, *, stored: bool = False) -> list[NumberRange]:
    """The ranges of the numbers that the element type limits: integers always, floats where numbers are stored."""
    dtype = _element_type(call)
    if dtype is None or dtype.is_bool or (dtype.is_float and not stored):
        return []
    low, high = dtype.limits
    return [NumberRange(i, low, high) for i, spec in enumerate(call.specs) if isinstance(spec, NumberSpec)]


def is_stored(call: Call) -> bool:
    """Tells if the numbers of a row become elements of its result."""
    return isinstance(call.op.torch, Held) and call.op.torch.stored


def _element_type(call: Call) -> DType | None:
    # rows that make tensors say the type themselves
    of_result: DType | None = call.attrs.get("dtype")
    tensors = (spec.dtype for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec))
    return of_result or next(tensors, None)


def require_numbers(call: Call, dtype: DType, numbers: Sequence[Primitive]) -> None:
    """Raises ArgumentError for a number that tensors of a type cannot hold."""
    if not dtype.is_bool:
        limits = NumberRange(0, *dtype.limits)
        if not all(map(limits.holds, numbers)):
            raise too_large(call, numbers)


def number_ranges(call: Call) -> list[NumberRange]:
    """For each number among a Call's inputs that a leaf may refuse or treat apart the range of those that it does not.

    Beside integers that is their range, for any other whole number 64 bits.  The numbers of random rows are keys.
    """
    ranges = [] if call.op.random else _ranges(call, stored=is_stored(call))
    limited = {limits.position for limits in ranges}
    return ranges + [
        NumberRange(i, -(1 << 63), (1 << 64) - 1)
        for i, spec in enumerate(call.specs)
        if isinstance(spec, NumberSpec) and spec.kind == "int" and i not in limited
    ]


def too_large(call: Call, inputs: Sequence[object]) -> ArgumentError:
    """The error of a number that the type of the tensors beside it cannot hold."""
    dtype = _element_type(call)
    numbers = [x for x in inputs if isinstance(x, int | float) and not isinstance(x, bool)]
    expected, mend = "whole numbers of at most 64 bits", "write it as a float: float(number)"
    if dtype is not None and dtype.is_int:
        low, high = dtype.limits
        expected = f"whole numbers from {low} to {high}"
        mend = "cast the tensor to a wider type first, for example with .int() or .float()"
    elif (
        dtype is not None and dtype.is_float and all(isinstance(x, float) or -(1 << 63) <= x < 1 << 64 for x in numbers)
    ):
        low, high = dtype.limits
        expected = f"numbers from {low:.6g} to {high:.6g}, which {dtype} holds, or an infinity"
        mend = f"write float('inf') or -float('inf') where that is meant, or cast to a type wider than {dtype} first"
    return at_user_line(
        ArgumentError(
            f"{call.op.name}: a number does not fit the element type",
            given=f"{', '.join(map(_digits, numbers))} in {call.op.signature.describe(call.specs, call.attrs)}",
            expected=expected,
            mend=mend,
        )
    )


def division_by_zero(call: Call) -> ArgumentError:
    """The error of integers divided by 0, which have no infinity to answer with."""
    return at_user_line(
        ArgumentError(
            f"{call.op.name}: an integer is divided by zero",
            given=call.op.signature.describe(call.specs, call.attrs),
            expected="divisors other than 0; integers have no infinity and no NaN",
            mend="cast to a float type first, or replace the zeros: y.mask_fill(y == 0, 1)",
        )
    )


def _digits(number: int | float) -> str:
    # Python itself refuses to write thousands of digits
    is_short = isinstance(number, float) or number.bit_length() < 128
    return str(number) if is_short else f"a number of {int(number).bit_length()} bits"
