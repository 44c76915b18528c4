"""Defines what functions of numpy and torch do with our tensors: a right result, or an error that names the method of
ours.

numpy's functions compute with what `np.asarray(x)` gives, and return arrays.  Its ufuncs are refused, but for operators
with a number of numpy's on one side; so are torch's functions: what they computed would be on no tape.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from burn_torch.core.errors import DTypeError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spellings import hint
from burn_torch.core.spellings.layers import FUNCTIONAL
from burn_torch.core.spellings.packages import BURN_TORCH
from burn_torch.core.spellings.tensors import FUNCTIONS
from burn_torch.ops.value import Value
from burn_torch.tensor.apply import NUMBERS, number

__all__ = ["HOMES", "Protocols"]

HOMES: Final[dict[str, str]] = {}
"""By the names of functions of tensors, the module that has them.  They are made of tensors: the package adds them."""

_HINTS: Final = {**FUNCTIONAL, **BURN_TORCH, **FUNCTIONS}

_OPERATORS: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.matmul: operator.matmul,
}
_OF_SHAPE: Final[Mapping[object, Callable[[Any], object]]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.spec.numel,
}


class Protocols(Value):
    """How numpy and torch hand a call to the class of an argument."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: object) -> object:
        compute = _OPERATORS.get(ufunc)
        if compute is not None and method == "__call__" and not options:
            operands = [x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else number(x) for x in inputs]
            other = next((x for x in operands if not isinstance(x, (Value, *NUMBERS))), None)
            return compute(*operands) if other is None else compute(self, other)  # which refuses it
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise _refuse_function(
            "numpy", name, f"a tensor {self.spec}", "np.asarray(x) is an array of numpy's", type(self)
        )

    def __array_function__(self, function: Any, types: object, args: Any, options: Any) -> Any:
        if function in _OF_SHAPE and len(args) == 1 and not options:
            return _OF_SHAPE[function](args[0])
        return function(*_as_arrays(args), **_as_arrays(options))

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: object = (), options: object = None) -> object:
        shown, otherwise = f"a {cls.__name__} of burn_torch", "x.into_torch() is torch's, without gradients"
        raise _refuse_function("torch", function.__name__, shown, otherwise, cls)


def _refuse_function(library: str, name: str, given: str, otherwise: str, kind: type[object]) -> DTypeError:
    home = HOMES.get(name)
    ours = hint(name, _HINTS, "nn.functional")
    if hasattr(kind, name):
        ours = f"x.{name}(...)"
    elif home is not None:
        ours = f"{home}.{name}(...), of burn_torch.tensor"
    return at_user_line(
        DTypeError(
            f"{library}.{name} takes what {library} has",
            given=given,
            expected=f"values of {library}",
            mend=otherwise if ours is None or "no counterpart" in ours else f"{ours}; {otherwise}",
        )
    )


def _as_arrays(value: Any) -> Any:
    if isinstance(value, Value):
        return np.asarray(value)
    if isinstance(value, dict):
        return {key: _as_arrays(one) for key, one in value.items()}
    return type(value)(map(_as_arrays, value)) if type(value) in (list, tuple) else value
