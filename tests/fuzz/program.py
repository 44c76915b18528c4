"""A random program as data: what the drawer makes, the doors run, the shrinker takes apart and the corpus keeps.

The values of a program are numbered: first its inputs, then each step's results.  A step is a row of the table at
operands and attributes, or one of `SPECIAL`, which no row is.
"""

from __future__ import annotations

import json
import linecache
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from burn_torch import Device, DType, Tensor, ops
from burn_torch.core.data import TensorData
from burn_torch.ops.op import REGISTRY

__all__ = ["LAYER", "Array", "Input", "Number", "Program", "Ref", "Step", "compute", "special"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Ref:
    """An operand that is a value of the program."""

    at: int


@dataclass(frozen=True)
class Number:
    """An operand that is a number known at run time: `compile` takes it as an input of the program."""

    at: int


@dataclass(frozen=True)
class Input:
    """A tensor that goes in: its data as the element type holds it, and whether its gradient is asked for."""

    data: Array
    dtype: DType
    wants_grad: bool = False

    def tensor(self, device: Device) -> Tensor:
        return Tensor.from_data(TensorData.of(self.data).convert(self.dtype), device)


@dataclass(frozen=True)
class Step:
    """One operation: a row's name or a special one, its operands (Ref, Number, number, None) and attributes."""

    name: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    results: int = 1


def special(name: str) -> Callable[..., Any] | None:
    """Returns what computes a step that is no row: `detach`, and layers."""
    if name == "detach":
        return Tensor.detach
    if name.startswith(LAYER):
        from tests.fuzz.layers import layer_function  # few programs need it

        return layer_function(name.removeprefix(LAYER))
    return None


_FILE: Final = "program of the fuzzer"
linecache.cache[_FILE] = 0, None, [], _FILE  # it is no file: whoever shows its lines need not look for it

LAYER: Final = "layer: "
"""Names of steps that are layers begin so."""


def compute(name: str, operands: Sequence[Any], attrs: dict[str, Any], beside: Tensor) -> Any:
    """One step's result, where `beside` is."""
    function = special(name)
    if function is not None:
        return function(*operands)
    row = REGISTRY[name]
    if "place" in attrs:
        attrs = {**attrs, "place": beside.place}
    if any(isinstance(x, Tensor) for x in operands):
        return row(*operands, **attrs)
    return row.run(beside.backend, Tensor, operands, attrs)


@dataclass(frozen=True)
class Program:
    """Inputs, run-time numbers, steps, and which values are returned."""

    inputs: tuple[Input, ...]
    numbers: tuple[float | int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, xs: Sequence[Tensor], numbers: Sequence[Any], watch: Any = None) -> list[Tensor]:
        """The returned values, computed where `xs` are.

        watch  `watch(number of the step, its result)` gives what takes the place of a detached value
        """
        values: list[Tensor] = self.function(xs, numbers, watch)
        return values

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The steps as Python, one line each: a trace watches every Python function that it calls."""
        known: dict[str, Any] = {"Tensor": Tensor, "DType": DType, "ops": ops, "inf": math.inf, "nan": math.nan}
        known.update((_variable(step.name), special(step.name)) for step in self.steps if step.name.startswith(LAYER))
        exec(compile("\n".join(self._lines("xs, ns, watch")), _FILE, "exec"), known)
        function: Callable[..., Any] = known["f"]
        return function

    def _lines(self, parameters: str) -> list[str]:
        names = [f"x{i}" for i in range(len(self.inputs))]
        lines = [f"def f({parameters}):", f"    {', '.join(names)}, = xs"]
        for number, step in enumerate(self.steps):
            results = [f"v{len(names) + j}" for j in range(step.results)]
            one_part = "," if step.results == 1 and _gives_tuple(step.name) else ""
            lines.append(f"    {', '.join(results)}{one_part} = {_call(step, names)}")
            names += results
            if step.name == "detach" and "watch" in parameters:
                lines.append(f"    if watch: {results[0]} = watch({number}, {results[0]})")
        return [*lines, f"    return [{', '.join(names[i] for i in self.outputs)}]"]

    def tensors(self, device: Device) -> list[Tensor]:
        """The inputs as fresh tensors."""
        return [x.tensor(device) for x in self.inputs]

    @cached_property
    def wanted(self) -> list[int]:
        """The inputs whose gradient is asked for."""
        return [i for i, x in enumerate(self.inputs) if x.wants_grad]

    @cached_property
    def is_random(self) -> bool:
        """Returns whether a step draws from a key."""
        return any(step.name in REGISTRY and REGISTRY[step.name].random for step in self.steps)

    def widened(self) -> Program:
        """The same in float64."""
        inputs = tuple(replace(x, dtype=DType.F64) if x.dtype.is_float else x for x in self.inputs)
        steps = tuple(
            replace(s, attrs={k: DType.F64 if isinstance(v, DType) and v.is_float else v for k, v in s.attrs.items()})
            for s in self.steps
        )
        return replace(self, inputs=inputs, steps=steps)

    def first_result(self, number: int) -> int:
        """The value that is the first result of a step."""
        return len(self.inputs) + sum(step.results for step in self.steps[:number])

    def pruned(self) -> Program:
        """Without the steps, inputs and numbers that no result reads; at least one input stays."""
        starts = [self.first_result(n) for n in range(len(self.steps))]
        needed = set(self.outputs)
        kept: list[int] = []
        for n in reversed(range(len(self.steps))):
            step = self.steps[n]
            if any(starts[n] + j in needed for j in range(step.results)):
                kept.insert(0, n)
                needed.update(x.at for x in step.inputs if isinstance(x, Ref))
        inputs = [i for i in range(len(self.inputs)) if i in needed] or [0]
        places: dict[int, int] = {i: at for at, i in enumerate(inputs)}
        numbers = sorted({x.at for n in kept for x in self.steps[n].inputs if isinstance(x, Number)})
        steps = []
        for n in kept:
            step = self.steps[n]
            operands = tuple(
                Ref(places[x.at]) if isinstance(x, Ref) else Number(numbers.index(x.at)) if isinstance(x, Number) else x
                for x in step.inputs
            )
            for j in range(step.results):
                places[starts[n] + j] = len(places)
            steps.append(replace(step, inputs=operands))
        return Program(
            tuple(self.inputs[i] for i in inputs),
            tuple(self.numbers[i] for i in numbers),
            tuple(steps),
            tuple(places[i] for i in self.outputs),
        )

    # -- as text ---------------------------------------------------------------------------------------
    def to_json(self) -> str:
        """One line of JSON; `from_json` gives an equal program."""
        return json.dumps(
            {
                "inputs": [
                    [x.dtype.name, list(x.data.shape), [_word(v) for v in x.data.ravel().tolist()], x.wants_grad]
                    for x in self.inputs
                ],
                "numbers": [_word(n) for n in self.numbers],
                "steps": [
                    [s.name, [_operand(x) for x in s.inputs], {k: _attr(v) for k, v in s.attrs.items()}, s.results]
                    for s in self.steps
                ],
                "outputs": list(self.outputs),
            }
        )

    @staticmethod
    def from_json(text: str) -> Program:
        """The program of a line of JSON."""
        fields = json.loads(text)
        return Program(
            tuple(
                Input(_array(values, shape, DType.of(name)), DType.of(name), bool(wants))
                for name, shape, values, wants in fields["inputs"]
            ),
            tuple(_value(n) for n in fields["numbers"]),
            tuple(
                Step(name, tuple(_operand_of(x) for x in inputs), {k: _attr_of(v) for k, v in attrs.items()}, results)
                for name, inputs, attrs, results in fields["steps"]
            ),
            tuple(fields["outputs"]),
        )

    def source(self) -> str:
        """The program as Python in the public API: a function `f(xs, ns)` and its arguments."""
        lines = ["inf, nan = float('inf'), float('nan')", "", *self._lines("xs, ns")]
        layers = dict.fromkeys(step.name for step in self.steps if step.name.startswith(LAYER))
        lines[:0] = [f"{_variable(name)} = layer_function({name.removeprefix(LAYER)!r})" for name in layers]
        if layers:
            lines.insert(0, "from tests.fuzz.layers import layer_function")
        lines += ["", "def arguments(device):", "    return ["]
        for x in self.inputs:
            data = x.data.tolist()
            flat = f"np.zeros({x.data.shape})" if not x.data.size else repr(data)
            lines.append(f"        Tensor.from_data({flat}, device, {x.dtype.name!r}),  # {x.data.shape}")
        lines += ["    ]", "", f"ns = {list(self.numbers)!r}"]
        return "\n".join(lines)


def _gives_tuple(name: str) -> bool:
    """Returns whether a row gives a tuple whatever the number of its results: a split, an update of parameters."""
    return name in REGISTRY and str(REGISTRY[name].signature.python.return_annotation).startswith("tuple")


def _variable(layer: str) -> str:
    """Returns what a program calls a layer: a global variable, as a trace that meets a call without one looks for the
    function among all objects of the process.
    """
    return re.sub(r"\W+", "_", layer)


def _call(step: Step, names: Sequence[str]) -> str:
    operands = [names[x.at] if isinstance(x, Ref) else f"ns[{x.at}]" if isinstance(x, Number) else repr(x)
                for x in step.inputs]  # fmt: skip
    if step.name == "detach":
        return f"{operands[0]}.detach()"
    if step.name.startswith(LAYER):
        return f"{_variable(step.name)}({', '.join(operands)})"
    attrs = {name: f"DType.{v.name.upper()}" if isinstance(v, DType) else repr(v) for name, v in step.attrs.items()}
    if "place" in attrs:
        attrs["place"] = "xs[0].place"
    if any(isinstance(x, Ref) for x in step.inputs):
        return f"ops.{step.name}({', '.join([*operands, *(f'{k}={v}' for k, v in attrs.items())])})"
    words = ", ".join(f"{k!r}: {v}" for k, v in attrs.items())
    return f"ops.{step.name}.run(xs[0].backend, Tensor, [{', '.join(operands)}], {{{words}}})"


# -- words of JSON -------------------------------------------------------------------------------------------
def _word(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _value(word: Any) -> Any:
    return float(word) if isinstance(word, str) else word


def _array(values: list[Any], shape: list[int], dtype: DType) -> Array:
    kind = np.float64 if dtype.is_float else np.bool_ if dtype.is_bool else np.int64
    return np.array([_value(v) for v in values], dtype=kind).reshape(shape)


def _operand(x: Any) -> Any:
    if isinstance(x, Ref):
        return {"value": x.at}
    return {"number": x.at} if isinstance(x, Number) else _word(x)


def _operand_of(x: Any) -> Any:
    if isinstance(x, dict):
        return Ref(x["value"]) if "value" in x else Number(x["number"])
    return _value(x)


def _attr(value: Any) -> Any:
    if isinstance(value, DType):
        return {"dtype": value.name}
    return [_attr(v) for v in value] if isinstance(value, tuple) else value


def _attr_of(value: Any) -> Any:
    if isinstance(value, dict):
        return DType.of(value["dtype"])
    return tuple(_attr_of(v) for v in value) if isinstance(value, list) else value
