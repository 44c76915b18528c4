"""Measuring on purpose: the problems of a list, or those that this process has met so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from burn_kernels._triton import AVAILABLE, INTERPRETED
from burn_kernels.arguments import checked
from burn_kernels.autotune.compiling import Compilers, Tally, variants
from burn_kernels.autotune.errors import CandidateError
from burn_kernels.autotune.selection import Decision, Selector, current
from burn_kernels.autotune.trial import fenced
from burn_kernels.autotune.tunable import TUNABLES, Tunable
from burn_kernels.errors import KernelArgumentError, KernelDeviceError, KernelLimitError

__all__ = ["Measured", "tune", "tune_pending"]


@checked
@dataclass(frozen=True)
class Measured:
    """The outcome of measuring one key."""

    key: str
    number: int
    """Counting from 1."""
    count: int
    """The number of keys in all."""
    chosen: str
    """The candidate that runs from now on."""
    median_ms: float | None
    """Its median, or None if there are no timings."""
    default_ms: float | None
    """That of the default."""
    disqualified: tuple[str, ...]
    why_not: str
    """Why there are no timings to keep, or empty."""
    took_s: float = 0.0


Progress = Callable[[Measured], None]


@checked
def tune(
    only: str = "",
    shapes: Sequence[tuple[int, int]] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: int = 0,
    again: bool = False,
    part: tuple[int, int] = (0, 1),
    workers: int | None = None,
    progress: Progress = lambda measured: None,
    compiled: Callable[[Tally], None] = lambda tally: None,
) -> list[Measured]:
    """Measures every op whose name begins with `only`, for shapes (rows, cols) or those that each op names itself.

    `only` may be several beginnings, separated by commas: ops are measured in their order.  What is in the store is not
    measured again unless `again`.  `part` (i, n) measures every n-th key from the i-th: for n processes beside each
    other, each with a GPU of its own.  So many `workers` compile ahead, by default one for each core but one; keys are
    measured as their kernels are there.  `compiled` is told what they did.
    Raises: KernelDeviceError where no GPU is, KernelArgumentError for an op that is not there, CandidateError if a
    candidate broke the device.
    """
    if not torch.cuda.is_available() or device >= torch.cuda.device_count():
        raise KernelDeviceError(
            "autotune: there is no such GPU to measure on",
            given=f"device {device}; torch finds {torch.cuda.device_count()} GPUs",
            expected="a CUDA or ROCm device; CPU tensors use the references, which have no configs",
            mend="run this on the machine with the GPU, or import timings that one exported",
        )
    count = max(1, _cores() - 1) if workers is None else workers
    return tune_with(
        current(),
        only,
        shapes,
        dtype=dtype,
        device=device,
        again=again,
        part=part,
        workers=count if AVAILABLE and not INTERPRETED else 0,
        progress=progress,
        compiled=compiled,
    )


def _cores() -> int:
    """The cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tune_with(
    selector: Selector,
    only: str = "",
    shapes: Sequence[tuple[int, int]] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: int = 0,
    again: bool = False,
    part: tuple[int, int] = (0, 1),
    workers: int = 0,
    progress: Progress = lambda measured: None,
    compiled: Callable[[Tally], None] = lambda tally: None,
) -> list[Measured]:
    """As `tune`, by a selector that is given."""
    beginnings = only.split(",")
    wanted = dict.fromkeys(tunable for begin in beginnings for name, tunable in sorted(TUNABLES.items())
                           if name.startswith(begin))  # fmt: skip
    if not all(any(name.startswith(begin) for name in TUNABLES) for begin in beginnings):
        raise KernelArgumentError(
            "autotune: no such op",
            given=repr(only),
            expected=f"the beginning of one of {', '.join(sorted(TUNABLES))}",
            mend="leave it out to measure all",
        )
    plans: dict[str, Decision] = {}
    for tunable in wanted:
        for rows, cols in shapes or tunable.shapes:
            for facts in tunable.problems(rows, cols, dtype or tunable.dtype):
                plan = selector.plan(tunable, device, facts)
                plans[plan.place.key] = plan
    mine = list(plans.values())[part[0] :: part[1]]
    due = [plan for plan in mine if again or plan.source != "measured"]
    try:
        if not workers or not due:
            return _all(selector, iter(due), len(due), again, progress)
        machine = selector.devices(device).machine
        with Compilers(machine, min(workers, 2 * len(due)), launchers=torch.cuda.is_available()) as compilers:
            _feed(compilers, selector, due, again)
            entries = _all(selector, _as_ready(compilers, selector, due), len(due), again, progress)
            if compilers.tally.compiled or compilers.tally.failed:
                compiled(compilers.tally)
        return entries
    finally:
        selector.forget()  # what was decided before follows the new timings


@checked
def tune_pending(*, progress: Progress = lambda measured: None) -> list[Measured]:
    """Measures the keys that this process has used and that have no timings: after one step of a training, say."""
    selector = current()
    pending = selector.pending()
    return _all(selector, iter(pending), len(pending), False, progress)


def _feed(compilers: Compilers, selector: Selector, decisions: Sequence[Decision], again: bool) -> None:
    """Says what all these keys launch: some seconds of Python, which beside a measurement would disturb it."""
    for decision in decisions:
        tunable, machine = decision.tunable, selector.devices(decision.index).machine
        configs = list(selector.contenders(decision, again=again).values())
        try:
            wanted = list(variants(tunable, decision.facts, configs, machine))
        except Exception as error:  # the measurement meets it again, and says whose it is
            compilers.skip(decision.place.key, f"{type(error).__name__}: {error}")
        else:
            compilers.ask(decision.place.key, wanted)


def _as_ready(compilers: Compilers, selector: Selector, decisions: Sequence[Decision]) -> Iterator[Decision]:
    """The keys as their kernels are compiled.  Waiting counts as time spent; when that is up, all that are left."""
    left, budget = {decision.place.key: decision for decision in decisions}, selector.budget
    with fenced():  # its first use imports much of torch: now, while the first kernels are compiled
        torch.empty(1)
    while left:
        begun = budget.now()
        until = time.monotonic() + budget.process_s - budget.spent_s
        key = compilers.wait(list(left), until=until)
        waited_s = budget.now() - begun
        budget.spent_s += waited_s
        compilers.tally.waited_s += waited_s
        if key is None:
            yield from left.values()
            return
        yield left.pop(key)


def _all(
    selector: Selector, decisions: Iterator[Decision], count: int, again: bool, progress: Progress
) -> list[Measured]:
    entries = []
    for number, decision in enumerate(decisions, 1):
        begun = time.monotonic()
        try:
            why_not = selector.measure(decision, again=again)
        except KernelLimitError as error:  # no candidate is right; the other keys may fare better
            why_not = str(error).splitlines()[1].strip()
        except CandidateError:  # the device is lost
            raise
        except Exception as error:  # of the problem, or its reference: said, as the other keys can still be measured
            why_not = f"it could not be measured: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        measured = _note_measured(selector, decision, number, count, why_not, time.monotonic() - begun)
        entries.append(measured)
        progress(measured)
    return entries


def _note_measured(
    selector: Selector, decision: Decision, number: int, count: int, why_not: str, took_s: float
) -> Measured:
    place, tunable = decision.place, decision.tunable
    times = {timing.candidate: timing.median_ms for timing in selector.store.timings(place)}
    chosen = name_of(tunable, decision)
    default = next(iter(tunable.named(decision.facts, selector.devices(decision.index).machine)))
    broken = tuple(f"{fault.candidate}: {fault.reason}" for fault in selector.store.faults(place))
    return Measured(place.key, number, count, chosen, times.get(chosen), times.get(default), broken, why_not, took_s)


def name_of(tunable: Tunable, decision: Decision) -> str:
    """The name of the candidate that a decision takes."""
    return next((name for name, config in decision.ranking.items() if config == decision.config), tunable.name)
