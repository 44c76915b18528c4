"""Measures the candidates of one key: right first, then fast.

Each candidate computes a small problem in fenced, poisoned memory and is compared with float64; then the real size,
compared with the first candidate that was right.  Only those that pass both are timed.  Whatever a candidate raises
disqualifies it, by name and with the reason.  If the device itself is lost, `CandidateError` names the candidate: no
later result of the process could be trusted.

Inputs are drawn for the measurement; nothing of the caller is read or written, and no global random state moves.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from burn_kernels.autotune import trial as trials
from burn_kernels.autotune.clock import Clock
from burn_kernels.autotune.errors import CandidateError
from burn_kernels.autotune.inputs import Inputs
from burn_kernels.autotune.key import Candidate, Facts
from burn_kernels.autotune.race import race
from burn_kernels.autotune.store import Fault, Place, Timing
from burn_kernels.launch import unobserved

if TYPE_CHECKING:
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["Budget", "Found", "is_sticky", "measure"]

JUDGED_ELEMENTS = 1 << 22
"""The elements of the problem that is compared with float64: some milliseconds on a GPU, a second at most on a CPU."""
TENSORS = 12
"""As many tensors of the problem's size may be held at once: inputs, results of two configs, and guards."""


@dataclass
class Budget:
    """Seconds that measurements may take, compiling included."""

    key_s: float = 20.0
    process_s: float = 180.0
    now: Callable[[], float] = time.monotonic
    spent_s: float = 0.0

    def left(self) -> bool:
        """Tells if another key may be begun."""
        return self.spent_s < self.process_s


@dataclass
class Found:
    """The results of measuring a key."""

    timings: list[Timing] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    why_not: str = ""
    """Why there are no timings, or none that may be kept; empty if all went to the end."""


def measure(
    tunable: Tunable,
    facts: Facts,
    configs: Mapping[str, object],
    place: Place,
    *,
    clock: Clock,
    budget: Budget,
    eliminating: bool = True,
    on_loss: Callable[[Fault], object] = lambda fault: None,
) -> Found:
    """Times the configs that compute the right thing; `on_loss` is told of one that broke the device.

    Raises: CandidateError if a candidate broke the device.
    """
    outcome = Found()
    if not budget.left():
        outcome.why_not = f"the process's {budget.process_s:.0f} s for measurements are spent"
        return outcome
    need = TENSORS * tunable.elements(facts) * facts.dtype.itemsize
    if need > clock.spare_bytes():
        outcome.why_not = f"it needs {need >> 20} MiB of memory, and {clock.spare_bytes() >> 20} MiB may be taken"
        return outcome
    begun = budget.now()
    until = begun + min(budget.key_s, budget.process_s - budget.spent_s)
    try:
        with torch.no_grad(), unobserved(), clock.aside():
            _measure(tunable, facts, configs, place, clock, outcome, eliminating, on_loss, lambda: budget.now() < until)
    except torch.OutOfMemoryError:
        outcome.timings.clear()
        outcome.why_not = "memory ran out"
    finally:
        budget.spent_s += budget.now() - begun
    return outcome


def _measure(
    tunable: Tunable,
    facts: Facts,
    configs: Mapping[str, object],
    place: Place,
    clock: Clock,
    results: Found,
    eliminating: bool,
    on_loss: Callable[[Fault], object],
    within: Callable[[], bool],
) -> None:
    def disqualify(name: str, reason: str) -> None:
        results.faults.append(Fault(place, name, "disqualified", reason))

    def failed(name: str, error: Exception) -> None:
        disqualify(name, _reason(error))
        try:
            clock.settle()
        except Exception as lost:
            on_loss(results.faults[-1])
            raise CandidateError(
                f"autotune: a candidate of {tunable.name} broke the device",
                given=f"{name} for {place.key}: {_reason(error)}",
                expected="a kernel that stays within its memory",
                mend="start the process again; the candidate is disqualified and will not be tried again",
            ) from lost

    def attempt(name: str, work: Callable[[], list[str]]) -> bool:
        try:
            faults = work()
            clock.settle()
        except torch.OutOfMemoryError:
            raise  # not the candidate's fault
        except Exception as error:
            failed(name, error)
            return False
        if faults:
            disqualify(name, "; ".join(faults))
        return not faults

    digits, right, racing = tunable.judged_in(facts), list[str](), list[str]()

    def small() -> trials.Trial:
        return tunable.trial(reduced(tunable, facts), Inputs(clock.device, seed=1))

    def large() -> trials.Trial:
        return tunable.trial(facts, Inputs(clock.device, seed=2))

    trial = small()
    truth = trials.Truth.of(trial)  # what it raises is no candidate's fault
    for name, config in configs.items():
        if attempt(name, functools.partial(trials.judge, trial, config, truth, digits)):
            right.append(name)
        else:
            trial = small()  # the same numbers again: it may have written over some of them
    del truth
    trial, base = large(), list[torch.Tensor]()
    for name in right:
        begun = bool(racing)
        if begun:
            work = functools.partial(trials.agree, trial, configs[name], base, digits)
        else:
            base.clear()
            work = functools.partial(_begin, trial, configs[name], base)
        if attempt(name, work):
            racing.append(name)
        else:
            trial = large()
    del base
    if not racing:
        results.why_not = "no candidate computes the right thing"
        return
    outcome = race(
        racing,
        lambda name: clock.milliseconds(lambda: (trial.timed or trial.run)(trial.inputs, configs[name])),
        within=within,
        eliminating=eliminating,
    )
    for name, error in outcome.failed.items():
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        failed(name, error)
    for name, samples in outcome.samples.items():
        numbers = dict(Candidate.of(configs[name]).config)
        gone = name in outcome.eliminated
        results.timings.append(Timing(place, name, numbers, tuple(samples), outcome.median(name), gone))
    if not outcome.complete:
        results.why_not = "the time for this key ran out; what was measured holds for this process and is not stored"


def _begin(large: trials.Trial, config: object, base: list[torch.Tensor]) -> list[str]:
    outputs, faults = trials.first(large, config)
    base += outputs
    return faults


def reduced(tunable: Tunable, facts: Facts) -> Facts:
    """The same problem with fewer rows: few enough to be compared with float64, and no round number of them."""
    free = list(facts.free)
    while tunable.elements(facts._replace(free=tuple(free))) > JUDGED_ELEMENTS and max(free, default=0) > 3:
        place = free.index(max(free))
        free[place] = (free[place] // 2) | 1
    return facts._replace(free=tuple(free))


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0][:300]}"


_STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert",
    "illegal instruction",
    "hardware stack error",
    "invalid program counter",
    "invalid address space",
)


def is_sticky(error: BaseException) -> bool:
    """Tells if this error of CUDA or HIP leaves the device useless for the rest of the process."""
    text = str(error).lower()
    return any(sign in text for sign in _STICKY)
