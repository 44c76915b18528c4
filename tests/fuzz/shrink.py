"""Makes a program that fails smaller, as long as the same door fails.

Results are dropped, steps are left out or replaced by inputs that hold their values, axes get shorter, numbers rounder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from burn_torch import BurnTorchError, Tensor
from tests.fuzz.case import PLAIN
from tests.fuzz.program import Input, Number, Program, Ref, Step, special

__all__ = ["shrunk"]


def shrunk(program: Program, fails: Callable[[Program], bool], *, seconds: float = 30.0) -> Program:
    """The smallest program found that fails still, within so many seconds."""
    end = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in _smaller(program):
            if time.monotonic() > end:
                break
            if _runs(candidate) and fails(candidate):
                program = candidate
                progress = True
                break
    return program


def _runs(program: Program) -> bool:
    try:
        program(program.tensors(PLAIN), program.numbers)
    except (BurnTorchError, ZeroDivisionError, RuntimeError, IndexError):
        return False
    return True


def _smaller(program: Program) -> Iterator[Program]:
    """Programs that are smaller by one thing, the largest cuts first."""
    if len(program.outputs) > 1:
        for i in range(len(program.outputs)):
            yield replace(program, outputs=(program.outputs[i],)).pruned()
        for i in range(len(program.outputs)):
            yield replace(program, outputs=program.outputs[:i] + program.outputs[i + 1 :]).pruned()
    everything = _everything(program)
    for number in reversed(range(len(program.steps))):
        yield from _without(program, number, everything)
    yield from _earlier_outputs(program)
    for i, x in enumerate(program.inputs):
        if x.wants_grad:
            yield _with_input(program, i, replace(x, wants_grad=False))
    yield from _shorter(program)
    yield from _rounder(program)


def _everything(program: Program) -> list[Tensor | None]:
    """All values of the program."""
    count = program.first_result(len(program.steps))
    pool: list[Any] = []
    for i in range(count):  # a result of several may be absent
        try:
            pool.append(replace(program, outputs=(i,))(program.tensors(PLAIN), program.numbers)[0])
        except (BurnTorchError, RuntimeError):
            pool.append(None)
    return pool


def _without(program: Program, number: int, values: list[Tensor | None]) -> Iterator[Program]:
    """Without one step: an operand in its place, or an input that holds what it gives."""
    step = program.steps[number]
    first = program.first_result(number)
    if step.results == 1 and values[first] is not None:
        for x in step.inputs:
            if isinstance(x, Ref) and _same_spec(values[x.at], values[first]):
                yield _renumber_values(program, {first: x.at}).pruned()
    outputs = [values[first + j] for j in range(step.results)]
    if all(y is not None for y in outputs):
        yield _as_inputs(program, number, [y for y in outputs if y is not None])


def _same_spec(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and a.spec is b.spec


def _renumber_values(program: Program, places: dict[int, int]) -> Program:
    steps = tuple(
        replace(s, inputs=tuple(Ref(places.get(x.at, x.at)) if isinstance(x, Ref) else x for x in s.inputs))
        for s in program.steps
    )
    return replace(program, steps=steps, outputs=tuple(places.get(i, i) for i in program.outputs))


def _as_inputs(program: Program, number: int, produced: list[Tensor]) -> Program:
    """With a step's results as further inputs."""
    count, first = len(program.inputs), program.first_result(number)
    added = tuple(Input(_read_array(y), y.dtype, wants_grad=y.dtype.is_float) for y in produced)

    def place(i: int) -> int:
        if i < count:
            return i
        if first <= i < first + len(produced):
            return count + i - first
        return i + len(produced) if i < first else i

    steps: list[Step] = []
    for n, s in enumerate(program.steps):
        if n != number:
            steps.append(replace(s, inputs=tuple(Ref(place(x.at)) if isinstance(x, Ref) else x for x in s.inputs)))
    outputs = tuple(place(i) for i in program.outputs)
    return replace(program, inputs=program.inputs + added, steps=tuple(steps), outputs=outputs).pruned()


def _read_array(y: Tensor) -> Any:
    values = y.into_data().values
    return np.asarray(values, np.float64 if y.dtype.is_float else np.bool_ if y.dtype.is_bool else np.int64)


def _earlier_outputs(program: Program) -> Iterator[Program]:
    """With an operand of the last step in the place of its result."""
    if len(program.outputs) == 1 and program.steps:
        for x in program.steps[-1].inputs:
            if isinstance(x, Ref) and x.at >= len(program.inputs):
                yield replace(program, outputs=(x.at,)).pruned()


def _with_input(program: Program, i: int, x: Input) -> Program:
    return replace(program, inputs=(*program.inputs[:i], x, *program.inputs[i + 1 :]))


def _shorter(program: Program) -> Iterator[Program]:
    """With all axes of one size shorter, in inputs and attributes alike."""
    sizes = sorted({n for x in program.inputs for n in x.data.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, size - 1)):
            if less < size:
                inputs = tuple(replace(x, data=_cut(x.data, size, less)) for x in program.inputs)
                steps = tuple(
                    replace(s, attrs={k: _resize_attribute(v, size, less) for k, v in s.attrs.items()})
                    for s in program.steps
                )
                yield replace(program, inputs=inputs, steps=steps)
    for i, x in enumerate(program.inputs):
        for axis, size in enumerate(x.data.shape):
            if size > 1:
                yield _with_input(program, i, replace(x, data=np.take(x.data, range(1), axis)))


def _cut(data: Any, size: int, less: int) -> Any:
    for axis, n in enumerate(data.shape):
        if n == size:
            data = np.take(data, range(less), axis)
    return data


def _resize_attribute(value: Any, size: int, less: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_resize_attribute(v, size, less) for v in value)
    return less if value == size and type(value) is int else value


def _rounder(program: Program) -> Iterator[Program]:
    for i, x in enumerate(program.inputs):
        if x.dtype.is_float and x.data.size:
            for digits in (0, 1, 2):
                rounded = np.round(x.data, digits)
                if not np.array_equal(rounded, x.data, equal_nan=True):
                    yield _with_input(program, i, replace(x, data=rounded))
    for n, step in enumerate(program.steps):
        if special(step.name) is not None:
            continue
        for k, x in enumerate(step.inputs):
            if isinstance(x, Number):
                other: Any = program.numbers[x.at]
            elif isinstance(x, float) and x != round(x, 1):
                other = round(x, 1)
            else:
                continue
            inputs = (*step.inputs[:k], other, *step.inputs[k + 1 :])
            steps = (*program.steps[:n], replace(step, inputs=inputs), *program.steps[n + 1 :])
            yield replace(program, steps=steps).pruned()
