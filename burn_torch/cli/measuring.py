"""The measuring behind `burn-torch bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from burn_torch.cli.one_step import OneStep, peak_process_bytes, step
from burn_torch.core.errors import TraceError
from burn_torch.train.stepping import reason_of

__all__ = ["Measured", "Time", "measured"]


@dataclass(frozen=True)
class Time:
    """One way of running the step: the median, and between what a tenth and nine tenths of the steps lie."""

    name: str
    first_ms: float
    median_ms: float
    low_ms: float
    high_ms: float
    items_per_s: float


@dataclass(frozen=True)
class Measured:
    """Holds what a step takes."""

    recipe: str
    device: str
    parameters: int
    items: int
    times: tuple[Time, ...]
    batch_ms: float
    memory: dict[str, int]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def measured(one: OneStep, *, steps: int, warmup: int) -> Measured:
    """Runs the step eagerly and compiled."""
    times, notes = [_timed(one, "eager", step, steps, warmup)], []
    memory = {"parameters": one.parameter_bytes}
    try:
        times.append(_timed(one, "compiled", one.compiled(), steps, warmup))
        memory["a compiled step as planned, parameters and optimizer included"] = one.explain().peak_bytes
    except TraceError as err:
        notes.append(f"it cannot be compiled: {reason_of(err)}")
    if one.device.place.startswith("cuda"):
        memory["the most that torch has used on the GPU"] = torch.cuda.max_memory_allocated(one.device.place)
    peak = peak_process_bytes()
    if peak is not None:
        memory["the most that this process has used"] = peak
    return Measured(
        one.recipe.name,
        one.device.place,
        one.learner.model.num_params(),
        one.items,
        tuple(times),
        _batch_ms(one),
        memory,
        tuple(notes),
    )


def _timed(one: OneStep, name: str, function: Callable[..., object], steps: int, warmup: int) -> Time:
    times = [1e3 * seconds for seconds in one.timed(function, 1 + warmup + steps)]
    rest = sorted(times[1 + warmup :])
    median = statistics.median(rest)
    low, high = rest[len(rest) // 10], rest[min(len(rest) - 1, len(rest) * 9 // 10)]
    return Time(name, times[0], median, low, high, one.items / median * 1e3)


def _batch_ms(one: OneStep) -> float:
    times = []
    with one.train_loader.epoch(0) as batches:
        for _ in range(min(10, len(one.train_loader))):
            began = time.perf_counter()
            next(batches)
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)
