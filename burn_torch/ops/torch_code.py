"""torch candidates that are known as source, so that a program can write them down.

    torch=PerCall(lambda call: TorchCode("addmm({2}, {0}, {1})", addmm=torch.addmm))

Called, such a candidate computes like any function.  A generated program has the expression itself in place of a
call of a closure: it costs less, and it can be read.  `code_of` finds the source of candidates that are functions of
torch, with or without `functools.partial`.
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final, final

import torch

from burn_torch.ops.op import Candidate
from burn_torch.ops.value import Attrs, Primitive

__all__ = ["Over", "TorchCode", "code_of", "importable"]

_FIELD: Final = re.compile(r"\{(\w+)\}")


@final
class TorchCode:
    """A candidate as an expression.  `{i}` is input i, `{all}` stands for all inputs, other names are bound: as
    `{name}`, and where they are called without braces too.

    `{*name}` writes the elements of a bound tuple as separate arguments, which torch reads faster than a tuple:
    0.7 us for x.view(16, 32), 1.2 for x.view((16, 32)).

    inputs: how many there are, where the expression does not name the last one (an absent bias).
    numbers: what a number beside a tensor may be given as; "tensors" says that a tensor without axes, of the element
    type of the result, gives the same bits.
    """

    __slots__ = ("expression", "function", "names", "numbers")

    def __init__(self, expression: str, /, *, inputs: int = 0, numbers: str = "numbers", **names: Any) -> None:
        for name, value in list(names.items()):
            if f"{{*{name}}}" in expression:
                del names[name]
                parts = {f"{name}_{i}": part for i, part in enumerate(value)}
                names |= parts
                expression = expression.replace(f"{{*{name}}}", ", ".join(f"{{{part}}}" for part in parts))
        for name in names:
            expression = re.sub(rf"(?<![\w.{{]){name}\(", f"{{{name}}}(", expression)
        self.expression: Final = expression
        self.names: Final[Mapping[str, Any]] = names
        self.numbers: Final = numbers
        outside = {"__builtins__": builtins, **names}  # torch's modes look for builtins there
        self.function: Final[Candidate] = FunctionType(_code(expression, inputs), outside)

    def __call__(self, *inputs: Primitive) -> Any:
        """Computes."""
        return self.function(*inputs)

    def write(self, inputs: list[str], name: Callable[[str, Any], str]) -> str:
        """The expression over these inputs; `name(hint, constant)` tells what a bound constant is called."""

        def field(match: re.Match[str]) -> str:
            key = match[1]
            if key.isdigit():
                return inputs[int(key)]
            return ", ".join(inputs) if key == "all" else name(key, self.names[key])

        return _FIELD.sub(field, self.expression)

    def __repr__(self) -> str:
        return f"TorchCode({self.expression!r})"


@functools.lru_cache(maxsize=1024)
def _code(expression: str, inputs: int) -> CodeType:
    # one source for all shapes: bound constants are globals of the function
    fields = _FIELD.findall(expression)
    count = max((int(key) + 1 for key in fields if key.isdigit()), default=0)
    count = max(count, inputs)
    parameters = "*inputs" if "all" in fields else ", ".join(f"_{i}" for i in range(count))
    body = _FIELD.sub(lambda m: f"_{m[1]}" if m[1].isdigit() else "*inputs" if m[1] == "all" else m[1], expression)
    return eval(f"lambda {parameters}: {body}", {}).__code__


@final
class Over:
    """An in-place form with several results: `over[i]` is the input that result i is written over.

    The function returns its results like the candidate; it may refuse to write over an input that it cannot (one with
    gaps) and return a new tensor instead.

    choices: where results have several such inputs or none, all (result, input) pairs; `over` is empty then, and the
    leaf has a function for each choice.  The results are row-major, however other inputs lie in memory.
    """

    def __init__(self, function: Candidate, over: tuple[int, ...], choices: tuple[tuple[int, int], ...] = ()) -> None:
        self.function: Final = function
        self.over: Final = over
        self.choices: Final = choices

    def __call__(self, *inputs: Primitive) -> Any:
        """Computes in place."""
        return self.function(*inputs)


_INFIX: Final[dict[Any, str]] = {
    operator.add: "{0} + {1}",
    operator.sub: "{0} - {1}",
    operator.mul: "{0} * {1}",
    operator.truediv: "{0} / {1}",
}
"""Operators that compute on tensors of one element type, to which a number beside them is rounded first."""

_WRITTEN_OVER: Final = ("add_", "sub_", "mul_", "div_")
"""The same in place."""


def code_of(function: Any, attrs: Attrs) -> TorchCode | None:
    """The source of a candidate; None where it is a closure, which a program has to call."""
    if isinstance(function, TorchCode):
        return function
    if isinstance(function, partial):
        return None if function.args else code_of(function.func, {**function.keywords, **attrs})
    keywords = "".join(f", {name}={{{name}}}" for name in attrs)
    if function in _INFIX and not attrs:
        return TorchCode(_INFIX[function], numbers="tensors")
    name = getattr(function, "__name__", "")
    if getattr(torch.Tensor, name, None) is function and not attrs:
        return _method(name)
    if importable(function) is not None:
        hint = name.rpartition(".")[0] or name  # "threshold_backward.default"
        hint = "torch_all" if hint == "all" else hint  # {all} are the inputs
        return TorchCode(f"{{{hint}}}({{all}}{keywords})", **{hint: function}, **attrs)
    return None


@functools.cache
def _method(name: str) -> TorchCode:
    # {rest} is not a field of TorchCode: in-place forms have one to three inputs, each with a source of its own
    return TorchCode(f"{{{name}}}({{all}})", numbers="tensors" if name in _WRITTEN_OVER else "numbers",
                     **{name: getattr(torch.Tensor, name)})  # fmt: skip


def importable(function: Any) -> str | None:
    """How source names a function of torch: "torch.exp", "torch.ops.aten.elu.default"; None for anything else."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{function}"
    name = getattr(function, "__name__", None)
    if name is None:
        return None
    for path, place in _PLACES.items():
        if getattr(place, name, None) is function:
            return f"{path}.{name}"
    return None


_PLACES: Final[dict[str, Any]] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch._C._nn": torch._C._nn,
    "torch.linalg": torch.linalg,
}
