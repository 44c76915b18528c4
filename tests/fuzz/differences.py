"""Differences of values along one direction: what does not share the gradient rules with what it judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from burn_torch import DType, Tensor
from burn_torch.core.data import TensorData
from tests.fuzz.case import PLAIN, Case, Outcome, skip
from tests.fuzz.compare import Judge
from tests.fuzz.program import Program
from tests.fuzz.rows import NO_SLOPE

__all__ = ["along", "dtypes_of", "is_double", "numeric", "pins_of", "weighted"]

_STEP: Final = 1e-4


def numeric(case: Case) -> Outcome:
    """The gradient along one direction, by differences of fourth order."""
    if not case.differentiates:
        return skip("no gradients")
    if not is_double(case):
        return skip("not in float64")
    program, pins = case.program, pins_of(case.program)
    upstream = [None if g is None else g.values for g in case.upstream]

    def value(xs: Sequence[Tensor]) -> float:
        ys = program(xs, program.numbers, lambda n, y: pins[n])
        return weighted([y.into_data() for y in ys], upstream)

    return along(case, value, lambda case: case.judge, slice(len(case.values), None), "gradient")


def pins_of(program: Program) -> dict[int, Tensor]:
    """Returns what a program holds constant, as its own inputs make it: a difference must not move it."""
    pins: dict[int, Tensor] = {}
    program(program.tensors(PLAIN), program.numbers, lambda n, y: pins.setdefault(n, y))
    return pins


def weighted(
    values: Sequence[TensorData | None], weights: Sequence[Any], of: Callable[[Any], Any] = np.positive
) -> float:
    """The sum of `of` each value times its weight, of those that are there."""
    with np.errstate(all="ignore"):
        pairs = [(y, w) for y, w in zip(values, weights, strict=True) if y is not None and w is not None]
        return float(sum(float(of(y.values * w).sum()) for y, w in pairs))


def along(
    case: Case, value: Callable[[Sequence[Tensor]], float], judge_of: Callable[[Case], Judge], part: slice, what: str
) -> Outcome:
    """Compares a part of a judge's reference, gradients of `value`, with differences along one direction."""
    if any(step.name in NO_SLOPE for step in case.program.steps):
        return skip("a row whose gradient is no slope")
    judge = judge_of(case)
    gradients = judge.reference[part]
    if any(_leaves_no_step(x.data) for x in case.program.inputs if x.dtype.is_float):
        return skip("infinite or large numbers")
    generator = np.random.default_rng(case.seed + 5)
    directions = [generator.uniform(-1, 1, case.program.inputs[i].data.shape) for i in case.program.wanted]
    expected = weighted(gradients, directions)
    if not np.isfinite(expected):
        return skip("not finite")

    def beside(step: float) -> Case:
        inputs = list(case.program.inputs)
        for i, d in zip(case.program.wanted, directions, strict=True):
            inputs[i] = replace(inputs[i], data=inputs[i].data + step * d)
        return replace(case, program=replace(case.program, inputs=tuple(inputs)))

    def at(step: float) -> float:
        return value(beside(step).program.tensors(PLAIN))

    start = at(0.0)
    slopes: list[float] = []
    bends: list[float] = []
    for step in (_STEP, _STEP / 4):
        a, b, c, d = at(step), at(-step), at(2 * step), at(-2 * step)
        if not np.isfinite([a, b, c, d]).all():
            return skip("not finite")
        slopes.append((8 * (a - b) - (c - d)) / (12 * step))
        bends.append(((a - start) - (start - b)) / step)
    truncation = abs(slopes[0] - slopes[1])
    kink = abs(4 * bends[1] - bends[0]) / 3  # a bend shrinks with the step, a kink does not
    size = max(abs(expected), abs(slopes[0]), weighted(gradients, directions, np.abs))
    summed = weighted(case.values, [None if g is None else g.values for g in case.upstream], np.abs)
    rounding = 2.0**-52 * max(1.0, abs(start), np.nan_to_num(summed)) / (_STEP / 4)
    allowed = 20 * (truncation + kink) + 3000 * rounding
    if allowed > 1e-2 * max(size, 1e-3):
        return skip("a kink or a steep place")
    if abs(expected - slopes[1]) <= allowed:
        return Outcome()
    if any(not abs(weighted(run[part], directions) - expected) <= allowed for run in judge.noisy_runs()):
        return skip("a tie that rounding decides")  # its gradient is one of several, and differences see a mean
    around = [weighted(judge_of(beside(step)).reference[part], directions) for step in (-_STEP / 16, _STEP / 16)]
    if abs(sum(around) / 2 - slopes[1]) <= 10 * allowed + 1e-7 * size:
        return skip("a kink or a steep place")  # the gradient is another on both sides: x * (x * y > 0) at the origin
    words = f"the {what} along a direction is {expected!r}, by differences {slopes[1]!r}; {allowed:.3g} allowed"
    return Outcome((words,))


def _leaves_no_step(data: Any) -> bool:
    """Returns whether numbers are so large that a step of a difference is lost in their rounding."""
    with np.errstate(all="ignore"):
        return bool(data.size and not np.nanmax(np.abs(data), initial=0.0) < 1e5)


def dtypes_of(step: Any) -> list[DType]:
    """The types that a step names."""
    return [v for v in step.attrs.values() if isinstance(v, DType)]


def is_double(case: Case) -> bool:
    """Returns whether all that a program computes is float64."""
    floats = [x.dtype for x in case.program.inputs if x.dtype.is_float]
    floats += [v for step in case.program.steps for v in dtypes_of(step) if v.is_float]
    return all(dtype is DType.F64 for dtype in floats)
