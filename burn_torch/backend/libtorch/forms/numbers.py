"""Rows whose run-time numbers lie on the device: what a program needs that is recorded once and replayed.

A recorded launch has its numbers baked in, so those that change from call to call (a learning rate, a step count, the
key of a dropout) are put into a block of device memory before each replay, and rows read them there as 0-d tensors.
A row's form says how: `form(call, known)` gives a `DeviceForm`, or None where this Call has none.  `known` has one
entry an input: the value of a number that never changes, `RUN_TIME` for one that does, None for what is no number.

The host computes in double what can be computed there (1 - beta ** time); the device reads results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.creation import range_ends
from burn_torch.ops.held_numbers import is_stored, require_numbers
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["FORMS", "RUN_TIME", "DeviceForm", "Form", "keyed", "run_time_numbers"]

RUN_TIME: Final = type("RunTime", (), {"__repr__": lambda self: "RUN_TIME"})()
"""Stands for a number that changes from call to call."""


@dataclass(frozen=True)
class DeviceForm:
    """A Call that reads numbers from the device.

    dtypes    of the 0-d tensors that it reads
    pack      from the run-time numbers, in the order of the inputs, to the values of these; on the host
    compute   `compute(*slots, *others)`: the 0-d tensors, then the other inputs as they were
    over      where `compute` writes over inputs instead: for each result its position among slots and others
    """

    dtypes: tuple[DType, ...]
    pack: Callable[..., Sequence[float | int | bool]]
    compute: Candidate
    over: tuple[int, ...] | None = None


Form = Callable[[Call, Sequence[Primitive]], "DeviceForm | None"]


def run_time_numbers(known: Sequence[object]) -> list[int]:
    """Returns the positions of inputs whose numbers change."""
    return [i for i, value in enumerate(known) if value is RUN_TIME]


def tensor_of(call: Call) -> TensorSpec:
    """The first tensor among inputs and results."""
    return next(spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec))


# -- element-wise rows -------------------------------------------------------------------------------------
_HALF: Final = (DType.F16, DType.BF16)
_FLOATS: Final = (DType.F64, DType.F32, *_HALF)
_INTS: Final = (DType.I64, DType.I32, DType.I16, DType.I8, DType.U8)


def operands(function: Candidate, dtypes: Sequence[DType]) -> Form:
    """The form of a row whose numbers stand for tensors of one element: `function` on 0-d tensors in their places.

    dtypes: of the tensors beside the number.  Half types compute in float32, as torch does beside a Python number: a
    0-d tensor of a half type would round the number.  Comparisons are to do that.
    """

    def form(call: Call, known: Sequence[Primitive]) -> DeviceForm | None:
        dtype = tensor_of(call).dtype
        if dtype not in dtypes:
            return None
        at = run_time_numbers(known)
        slot = DType.F32 if dtype in _HALF else dtype
        others = [i for i in range(len(known)) if i not in at]
        order = [(at + others).index(i) for i in range(len(known))]
        wide = dtype in _HALF and not call.result.dtype.is_bool
        computed = _in_float32(function, call) if wide else function
        return DeviceForm(
            (slot,) * len(at),
            partial(_check_numbers, call, dtype),
            lambda *inputs: computed(*[inputs[i] for i in order]),
        )

    return form


def _in_float32(function: Candidate, call: Call) -> Callable[..., torch.Tensor]:
    def run(*inputs: Primitive) -> torch.Tensor:
        wide = [x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        y: torch.Tensor = function(*wide)
        return y.to(TO_TORCH[call.result.dtype])

    return run


def _check_numbers(call: Call, dtype: DType, *numbers: object) -> Sequence[Primitive]:
    if dtype.is_int or is_stored(call):
        require_numbers(call, dtype, numbers)
    return numbers


def _between(x: Primitive, low: Any, high: Any) -> Any:
    x = torch.maximum(x, low) if isinstance(low, torch.Tensor) else torch.clamp_min(x, low)
    return torch.minimum(x, high) if isinstance(high, torch.Tensor) else torch.clamp_max(x, high)


_FUNCTIONS: Final[dict[str, tuple[Candidate, Sequence[DType]]]] = {
    "add": (operator.add, (*_FLOATS, *_INTS)),
    "sub": (operator.sub, (*_FLOATS, *_INTS)),
    "mul": (operator.mul, (*_FLOATS, *_INTS)),
    "div": (operator.truediv, _FLOATS),  # an integer divided by 0 is refused on the host only
    "remainder": (torch.remainder, _FLOATS),
    "fmod": (torch.fmod, _FLOATS),
    "pow": (torch.pow, _FLOATS),
    "atan2": (torch.atan2, _FLOATS),
    "hypot": (torch.hypot, _FLOATS),
    "maximum": (torch.maximum, (*_FLOATS, *_INTS)),
    "minimum": (torch.minimum, (*_FLOATS, *_INTS)),
    "clamp": (_between, (*_FLOATS, *_INTS)),
    "clamp_min": (torch.maximum, (*_FLOATS, *_INTS)),
    "clamp_max": (torch.minimum, (*_FLOATS, *_INTS)),
    # an integer type may not hold the number, and then the answer is one for all its values
    "equal": (torch.eq, _FLOATS),
    "not_equal": (torch.ne, _FLOATS),
    "greater": (torch.gt, _FLOATS),
    "greater_equal": (torch.ge, _FLOATS),
    "lower": (torch.lt, _FLOATS),
    "lower_equal": (torch.le, _FLOATS),
}


def _mask_where(call: Call, known: Sequence[object]) -> DeviceForm | None:
    dtype = tensor_of(call).dtype
    if dtype not in (*_FLOATS, *_INTS, DType.BOOL):
        return None
    # the number is rounded to the type of x, half types too
    slot, kind = DType.F32 if dtype in _HALF else dtype, TO_TORCH[dtype]
    return DeviceForm(
        (slot,), partial(_check_numbers, call, dtype), lambda value, x, mask: torch.where(mask, value.to(kind), x)
    )


# -- rows that make tensors -----------------------------------------------------------------------------------
def _full(call: Call, known: Sequence[object]) -> DeviceForm | None:
    dtype, shape = call.attrs["dtype"], call.attrs["shape"]
    if dtype not in (*_FLOATS, *_INTS, DType.BOOL):
        return None
    slot = DType.F32 if dtype in _HALF else dtype
    theirs, device = TO_TORCH[dtype], torch.device(call.attrs["place"])
    return DeviceForm(
        (slot,),
        partial(_check_numbers, call, dtype),
        lambda value: torch.empty(shape, dtype=theirs, device=device).copy_(value),
    )


def _arange(call: Call, known: Sequence[Primitive]) -> DeviceForm | None:
    length, dtype = call.attrs["length"], call.attrs["dtype"]
    if dtype not in (*_FLOATS, *_INTS):
        return None
    wide = DType.F64 if dtype.is_float else DType.I64
    theirs, device = TO_TORCH[wide], torch.device(call.attrs["place"])
    at = run_time_numbers(known)

    def compute(*numbers: Primitive) -> torch.Tensor:
        start, step = numbers if at != [1] else (numbers[1], numbers[0])
        return torch.arange(length, dtype=theirs, device=device).mul_(step).add_(start).to(TO_TORCH[dtype])

    def pack(*given: Primitive) -> Sequence[Primitive]:
        start, step = (given[at.index(i)] if i in at else known[i] for i in range(2))
        require_numbers(call, dtype, range_ends(start, step, length))
        return given

    return DeviceForm((wide,) * len(at), pack, compute)


# -- random rows ------------------------------------------------------------------------------------------------
def keyed(function: Callable[[Call], Callable[..., object]]) -> Form:
    """The form of a row that draws by (key, stream), its last two inputs: `function(call)` takes them as tensors.

    The numbers before them (a probability, a range) must be known: they are part of the map from bits to values.
    """

    def form(call: Call, known: Sequence[Primitive]) -> DeviceForm | None:
        first, at = len(known) - 2, run_time_numbers(known)
        if any(i < first for i in at):
            return None
        compute = function(call)

        def run(*inputs: Primitive) -> Primitive:
            slots, others = inputs[: len(at)], inputs[len(at) :]
            if at == [first]:
                return compute(*others[:-1], slots[0], others[-1])
            return compute(*others, *slots)

        return DeviceForm((DType.I64,) * len(at), signed, run)

    return form


def signed(*numbers: int) -> list[int]:
    """Integers modulo 2^64, as signed ones with the same bits."""
    return [(number + (1 << 63)) % (1 << 64) - (1 << 63) for number in numbers]


FORMS: Final[Mapping[str, Form]] = {
    **{name: operands(function, dtypes) for name, (function, dtypes) in _FUNCTIONS.items()},
    "arange": _arange,
    "full": _full,
    "mask_where": _mask_where,
}
"""By the row's name; a row that draws has the form of `keyed`."""
