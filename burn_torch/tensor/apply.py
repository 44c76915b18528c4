"""The short way from a Tensor method to a backend: one lookup, one call.

Each function builds the key of a Call from what is at hand and finds it in the row's own cache; only a miss binds.
Attributes come in the declared order, already normalised (non-negative axes, tuples).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from burn_torch.backend import Backend
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, DTypeError
from burn_torch.core.frames import told
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, NUMBER_SPECS, Spec
from burn_torch.core.wording import described
from burn_torch.ops.op import REGISTRY, Call, Op, pairing_of
from burn_torch.ops.value import Value
from burn_torch.tensor.broadcasting import warn_of_pairing
from burn_torch.tensor.device_settings import defaults_at

__all__ = [
    "HALVES",
    "NUMBERS",
    "ComputesWithTensors",
    "apply",
    "apply_one",
    "beside_indices",
    "binary",
    "flat",
    "foreign",
    "indices",
    "no_tensor",
    "number",
    "operate",
    "reflect",
    "require_tensor",
    "shown",
    "unary",
    "widen",
]

T = TypeVar("T", bound=Value)


class ComputesWithTensors:
    """A class of this package whose own operators take tensors on either side."""

    __slots__ = ()


NUMBERS: Final = (int, float, np.number, np.bool_)
"""Holds what counts as a number beside a tensor."""

HALVES: Final = (DType.F16, DType.BF16)
"""The float types whose products and sums of squares leave their range early."""

_OPERANDS: Final = (Value, *NUMBERS)

_new: Final = object.__new__  # the hottest functions fill the slots themselves: 0.05 us less than through __init__


def unary(op: Op, x: T, *attrs: object) -> T:
    """A row of one tensor and one output."""
    try:
        spec = x.spec
    except AttributeError:
        raise no_tensor(x) from None
    key = (spec, attrs) if attrs else spec
    call = op.calls.get(key) or _bind(op, key, (spec,), attrs)
    backend = x.backend
    y = _new(x.__class__)
    y.backend = backend
    y.primitive = backend.execute(call, (x.primitive,))[0]
    y.spec = call.result
    return y


def binary(op: Op, x: T, y: Any) -> T:
    """A row of two operands without attributes; y is a tensor of any stack that mixes, or a number."""
    try:
        spec = x.spec
        backend = x.backend
    except AttributeError:
        raise no_tensor(x) from None
    kind = y.__class__
    if kind is x.__class__:
        if y.backend is not backend:
            return _lift(op, (x, y), ())  # type: ignore[no-any-return]  # a tensor of the same class
        key = (spec, y.spec)
        call = op.calls.get(key) or _first_call(op, key)
        z = _new(kind)
        z.backend = backend
        z.primitive = backend.execute(call, (x.primitive, y.primitive))[0]
        z.spec = call.result
        return z
    if kind is float:
        key = (spec, FLOAT_NUMBER)
    elif kind is int:
        key = (spec, INT_NUMBER)
    else:
        return op(x, number(y))  # type: ignore[no-any-return]  # rows are typed loosely
    call = op.calls.get(key) or op.remember(key, op.bind(key, {}))
    z = _new(x.__class__)
    z.backend = backend
    z.primitive = backend.execute(call, (x.primitive, y))[0]
    z.spec = call.result
    return z


def _first_call(op: Op, key: tuple[Spec, Spec]) -> Call:
    """The Call of two tensors that is met for the first time, or that pairs their elements, which may be unmeant."""
    call = op.bind(key, {})
    if call.pairing is not None:
        warn_of_pairing(op.name, call.pairing, call.result)
    return op.remember(key, call)


def widen(x: T) -> T:
    """float32 for half types, others as they are."""
    return unary(REGISTRY["cast"], x, DType.F32) if x.spec.dtype in HALVES else x


def flat(x: T) -> T:
    """A reduction over all axes as one axis of size 1."""
    return x if x.spec.shape == (1,) else unary(REGISTRY["reshape"], x, (1,))


def indices(x: T) -> T:
    """Indices, which rows give as i64, as the integers that their device is configured for."""
    stack = x.backend
    assert isinstance(stack, Backend), "rows trace gradients on values, which have no such methods"
    dtype = defaults_at(stack, x.spec.place).of(DType.I64)
    return x if dtype is DType.I64 else unary(REGISTRY["cast"], x, dtype)


def beside_indices(results: tuple[T, T]) -> tuple[T, T]:
    """Values, and their indices as `indices` gives them."""
    return results[0], indices(results[1])


def no_tensor(x: object, name: str = "x") -> BurnTorchError:
    """The error of an input that is no tensor of burn_torch."""
    kind = type(x)
    return told(
        DTypeError,
        f"{name} is no tensor of burn_torch",
        given=f"{name}: a {kind.__module__}.{kind.__qualname__}".replace("builtins.", ""),
        expected="a Tensor",
        mend="Tensor.from_torch(...) or Tensor.from_data(..., device) makes one of it",
    )


def require_tensor(x: object, name: str = "x") -> None:
    """Raises: DTypeError for what is no tensor of burn_torch."""
    if not isinstance(x, Value):
        raise no_tensor(x, name)


def operate(op: Op, x: T, y: object) -> T:
    """`binary` for an operator: what is neither tensor nor number is left to Python, which words the TypeError."""
    kind = y.__class__
    if kind is x.__class__ or kind is float or kind is int or isinstance(y, _OPERANDS):
        return binary(op, x, y)
    return foreign(op, x, y)


def reflect(op: Op, y: T, x: object) -> T:
    """`operate` with the number on the left: op(x, y)."""
    kind = x.__class__
    if kind is float:
        spec = FLOAT_NUMBER
    elif kind is int:
        spec = INT_NUMBER
    elif isinstance(x, _OPERANDS):
        return op(number(x), y)  # type: ignore[no-any-return]  # rows are typed loosely
    else:
        return foreign(op, y, x)
    key = (spec, y.spec)
    call = op.calls.get(key) or op.remember(key, op.bind(key, {}))
    backend = y.backend
    return y.__class__(backend, backend.execute(call, (x, y.primitive))[0], call.result)


def apply(op: Op, inputs: Sequence[Any], *attrs: Any) -> Any:
    """Any row whose first input is a tensor; other inputs are tensors, numbers or None.

    Returns: a tensor, or a tuple of tensors where the row has several outputs.
    """
    first = inputs[0]
    try:
        backend, _ = first.backend, first.spec
    except AttributeError:  # a tensor of torch or numpy, a device
        return op(*map(number, inputs), **_named(op, attrs))  # words the error
    kind = first.__class__
    specs: list[Spec | None] = []
    primitives: list[object] = []
    for x in inputs:
        if x.__class__ is kind and x.backend is backend:
            specs.append(x.spec)
            primitives.append(x.primitive)
        elif x is None:
            specs.append(None)
            primitives.append(None)
        else:
            spec = NUMBER_SPECS.get(x.__class__)
            if spec is None:
                return _lift(op, inputs, attrs)
            specs.append(spec)
            primitives.append(x)
    key = (*specs, *attrs)
    call = op.calls.get(key) or _bind(op, key, specs, attrs)
    outputs = backend.execute(call, primitives)
    if not call.multiple:
        return kind(backend, outputs[0], call.result or backend.spec(outputs[0]))
    return tuple([None if p is None else kind(backend, p, spec) for p, spec in zip(outputs, call.results, strict=True)])


class _ApplyOne(Protocol):
    def __call__(self, op: Op, inputs: tuple[T, *tuple[Any, ...]], *attrs: Any) -> T: ...


apply_one: Final[_ApplyOne] = apply
"""`apply` of a row with one output, as type checkers see it: a tensor of the class of the first input."""


def foreign(op: Op, x: T, other: object) -> T:
    """The answer to an operand that is neither tensor nor number: a class of the user's may know what to do with x.

    Classes that cannot know are refused: arrays, parameters, and Python's own values.  For a torch tensor Python would
    say "unsupported operand type(s) for +: 'Tensor' and 'Tensor'".
    """
    kind = type(other)
    if hasattr(kind, "__burn_tensor__") or issubclass(kind, ComputesWithTensors):  # which know every operator
        return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
    is_plain = kind.__module__ == "builtins" and op.name not in ("equal", "not_equal")
    if not (hasattr(other, "__array__") or hasattr(other, "val") or is_plain):
        return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
    raise told(
        DTypeError,
        f"{op.name} takes tensors of one kind",
        given=f"a tensor {x.spec} and {shown(other)}",
        expected="tensors of burn_torch and Python numbers",
        mend="param.val() is the tensor of a parameter"
        if hasattr(other, "val")
        else "Tensor.from_torch(...) or Tensor.from_data(..., x.device) makes one of it",
    )


def shown(value: object) -> str:
    """An operand for a message."""
    kind = type(value)
    if kind.__module__ != "builtins":
        return f"a {kind.__module__}.{kind.__qualname__}"
    return described(value)


def number(x: object) -> Any:
    """numpy's numbers as Python's, tensors of values that stand for one; everything else as it is."""
    if isinstance(x, np.number | np.bool_):
        return x.item()
    tensor = getattr(x.__class__, "__burn_tensor__", None)  # see QuantizedTensor
    return x if tensor is None else tensor(x)


def _lift(op: Op, inputs: Sequence[object], attrs: Sequence[object]) -> Any:
    """A row of tensors of several stacks, of which the lower are constants for the higher; or the error of others."""
    result = op(*map(number, inputs), **_named(op, attrs))
    pair = None if op.pointwise is None else pairing_of([getattr(x, "spec", None) for x in inputs])
    if pair is not None:
        warn_of_pairing(op.name, pair, result.spec)
    return result


def _named(op: Op, attrs: Sequence[object]) -> dict[str, object]:
    return dict(zip(op.signature.attrs, attrs, strict=True))


def _bind(op: Op, key: object, specs: Sequence[Spec | None], attrs: Sequence[object]) -> Call:
    try:
        call = op.bind(specs, _named(op, attrs))
        if call.pairing is not None:
            warn_of_pairing(op.name, call.pairing, call.result)
        return op.remember(key, call)
    except BurnTorchError:
        raise
    except TypeError as err:  # an attribute of another type: a float among the sizes, a text as an axis
        raise told(
            DTypeError,
            "an argument has the wrong type",
            given=", ".join(f"{name} {value!r}" for name, value in _named(op, attrs).items()),
            expected=", ".join(f"{name}: {kind}" for name, (kind, _) in op.signature.attrs.items()),
            mend=f"pass whole numbers where sizes and axes are meant ({err})",
        ) from err
