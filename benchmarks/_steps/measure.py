"""Times variants of one step in turns, compares what they compute, and sets the result against bars."""

from __future__ import annotations

import gc
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "CLOCKS",
    "NO_TIME",
    "Bar",
    "Failed",
    "Local",
    "Result",
    "Variant",
    "judge",
    "measure",
    "prepare",
    "rises",
    "sync",
    "table",
]

CHECKED_STEPS = 5
NO_TIME = "left out: no time"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "process": time.process_time}
"""How seconds are counted.  The processor time of the process leaves out what other programs take of a shared machine;
it is the same as the time on the wall where one thread computes and nothing waits."""


class Variant(ABC):
    """One way to take the step of a case.  `start` builds it; it may fail, and the reason stands in its row."""

    name: str
    first_s: float = 0.0
    clock: str = "wall"

    @abstractmethod
    def start(self) -> None:
        """Builds it from the case's weights."""

    @abstractmethod
    def numbers(self) -> list[float]:
        """Returns what it computes from the start: the losses of the first steps, or a loss and the size of its
        gradients.
        """

    @abstractmethod
    def run(self, steps: int) -> float:
        """Seconds for so many steps; no loss is read, the device is waited for once."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what it holds."""


class Failed(Exception):
    """Why a variant cannot run here."""


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Local(Variant):
    """A variant in this process: a function of the number of the step that gives the loss, unread."""

    step: Callable[[int], Any]
    read: Callable[[Any], float]
    steps: int = 0

    def numbers(self) -> list[float]:
        return [self.read(self.step(self._next())) for _ in range(CHECKED_STEPS)]

    def run(self, steps: int) -> float:
        step, first = self.step, self.steps
        self.steps += steps
        self.step(self.steps)  # the caches and the clock of whoever ran before
        now = CLOCKS[self.clock]
        self.wait()
        begun = now()
        for i in range(first, first + steps):
            step(i)
        self.wait()
        return now() - begun

    def wait(self) -> None:
        """Until all steps are done."""
        sync()

    def _next(self) -> int:
        self.steps += 1
        return self.steps - 1

    def close(self) -> None:
        name = self.name
        self.__dict__.clear()  # whatever a subclass built: parameters, graphs, their memory
        self.name = name


@dataclass
class Result:
    """A row: a variant of a case, its times, and what it computed."""

    variant: str
    us: list[float] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    apart: float | None = None
    first_s: float = 0.0
    peak_mib: float | None = None
    steady_mib: float | None = None
    held_mib: float | None = None
    rise_mib: float | None = None
    why: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.us) if self.us else math.nan

    @property
    def low(self) -> float:
        """The low decile: what remains of a time when other programs disturb it."""
        return statistics.quantiles(self.us, n=10, method="inclusive")[0] if len(self.us) > 1 else self.median

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a share of the median."""
        if len(self.us) < 4:
            return math.nan
        quarters = statistics.quantiles(self.us, n=4, method="inclusive")
        return (quarters[2] - quarters[0]) / self.median

    def row(self) -> dict[str, Any]:
        """As it goes to the file."""
        known = {"median_us": self.median, "low_decile_us": self.low, "spread": self.spread} if self.us else {}
        facts = {"loss_apart": self.apart, "first_s": self.first_s, "peak_mib": self.peak_mib}
        facts |= {"steady_mib": self.steady_mib, "held_mib": self.held_mib}
        facts |= {} if self.rise_mib is None else {"rise_mib": self.rise_mib}
        return {"variant": self.variant, **known, **facts, "numbers": self.numbers, "why": self.why, "us": self.us}


# -- building -------------------------------------------------------------------------------------------
def prepare(variants: Sequence[Variant], tolerance: float | None, seconds: Callable[[Variant], float]) -> list[Result]:
    """Starts each variant in turn and compares its numbers with those of the first.

    seconds   how much time is left for a variant: below 0 it is left out
    tolerance the largest relative distance at which two variants still compute the same; None: no comparison
    """
    results: list[Result] = []
    for variant in variants:
        result = Result(variant.name)
        results.append(result)
        if seconds(variant) < 0:
            result.why = NO_TIME
            continue
        gc.collect()
        memory = _Memory()
        begun = time.perf_counter()
        try:
            variant.start()
            result.numbers = variant.numbers()
            result.first_s = variant.first_s or time.perf_counter() - begun
            memory.first()
            variant.run(2)
            memory.steady(result)
        except Exception as error:  # a rival that fails is a finding, not the end of the run
            result.why = why(error)
            close(variant)
            continue
        if not all(math.isfinite(n) for n in result.numbers):
            result.why = f"numbers that are not finite: {result.numbers}"
        elif tolerance is not None and results[0].numbers:
            pairs = zip(result.numbers, results[0].numbers, strict=True)
            result.apart = max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)
            if result.apart > tolerance:
                result.why = f"computes something else: {result.apart:.1e} apart, at most {tolerance:.0e} allowed"
    return results


def why(error: BaseException) -> str:
    """The first line of an error."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__


def close(variant: Variant) -> None:
    """Closes a variant, also a broken one."""
    try:
        variant.close()
    except Exception as error:
        print(f"    {variant.name} did not close: {why(error)}")
    gc.collect()


class _Memory:
    """The device memory that a variant takes, where the device is a GPU."""

    def __init__(self) -> None:
        self.on = torch.cuda.is_available()
        if self.on:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self.before, self.reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
            torch.cuda.reset_peak_memory_stats()

    def first(self) -> None:
        if self.on:
            torch.cuda.synchronize()
            self.peak = torch.cuda.max_memory_allocated() - self.before
            torch.cuda.reset_peak_memory_stats()

    def steady(self, result: Result) -> None:
        if self.on:
            torch.cuda.synchronize()
            result.steady_mib = (torch.cuda.max_memory_allocated() - self.before) / 2**20
            result.peak_mib = max(self.peak / 2**20, result.steady_mib)
            gc.collect()
            torch.cuda.empty_cache()
            result.held_mib = (torch.cuda.memory_reserved() - self.reserved) / 2**20


def rises(variants: Sequence[Variant], results: Sequence[Result], steps: int = 3) -> None:
    """GPU memory that steps take over what is there between them, when all variants have been warmed up.

    Unlike `peak` it has no part of what libraries reserve when they are first asked, whoever asks.
    """
    for _ in range(2 if torch.cuda.is_available() else 0):
        for variant, result in zip(variants, results, strict=True):
            if not result.why:
                variant.run(1)
                torch.cuda.synchronize()
                gc.collect()
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                variant.run(steps)
                torch.cuda.synchronize()
                result.rise_mib = (torch.cuda.max_memory_allocated() - before) / 2**20


# -- timing ---------------------------------------------------------------------------------------------
def measure(
    variants: Sequence[Variant], results: Sequence[Result], *, visit_s: float, seconds: float, rounds: int
) -> None:
    """Times the variants that work in turns (A B C, C B A, ...), as many steps a visit as fit into `visit_s`."""
    live = [(v, r) for v, r in zip(variants, results, strict=True) if not r.why]
    inner = {}
    for variant, result in live:
        try:
            inner[variant.name] = max(1, min(1000, math.ceil(visit_s / (variant.run(3) / 3))))
        except Exception as error:
            result.why = why(error)
    deadline = time.perf_counter() + seconds
    for turn in range(rounds):
        if turn >= 5 and time.perf_counter() > deadline:
            break
        for variant, result in live if turn % 2 == 0 else reversed(live):
            if result.why:
                continue
            try:
                result.us.append(variant.run(inner[variant.name]) / inner[variant.name] * 1e6)
            except Exception as error:
                result.why = why(error)


# -- judging --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Bar:
    """At most `at_most` times a rival, or at most so much.

    of   "us" a step, "peak_mib", or what a measurement of its own names
    goal beyond the bar: shown, never a failure
    """

    at_most: float
    rival: str = ""
    of: str = "us"
    goal: bool = False


def judge(bars: Sequence[Bar], results: Sequence[Result], ours: str) -> list[dict[str, Any]]:
    """Each bar with its ratio: of times, the median over the rounds of ours over the rival's next to it."""
    by_name = {r.variant: r for r in results}
    entries = []
    for bar in bars:
        mine, theirs = by_name.get(ours), by_name.get(bar.rival)
        entry: dict[str, Any] = {"ours": ours, "rival": bar.rival, "of": bar.of, "at_most": bar.at_most}
        entry["goal"] = bar.goal
        missing = [name for name, r in ((ours, mine), (bar.rival, theirs)) if r is None or r.why or not r.us]
        if missing:
            entry |= {"ratio": None, "verdict": "not measured", "why": "no " + ", no ".join(missing)}
        else:
            assert mine is not None
            assert theirs is not None
            entry |= _ratio(bar, mine, theirs)
        entries.append(entry)
    return entries


def _ratio(bar: Bar, mine: Result, theirs: Result) -> dict[str, Any]:
    if bar.of != "us":
        a, b = getattr(mine, bar.of), getattr(theirs, bar.of)
        if not a or not b:
            return {"ratio": None, "verdict": "not measured", "why": f"no {bar.of} on this device"}
        ratio, low = a / b, None
    else:
        ratio = statistics.median(a / b for a, b in zip(mine.us, theirs.us, strict=False))
        low = mine.low / theirs.low
    return {"ratio": ratio, "low_ratio": low, "verdict": "pass" if ratio <= bar.at_most else "FAIL"}


def table(results: Sequence[Result]) -> list[str]:
    """Lines of columns, each time beside the best rival's."""
    rivals = [r.median for r in results if r.us and not r.why and not r.variant.startswith("burn_torch")]
    best = min(rivals, default=math.nan)
    gpu = any(r.peak_mib is not None for r in results)
    head = f"  {'variant':<34}{'median us':>11}{'low':>10}{'spread':>8}{'/ best':>8}{'first s':>9}{'apart':>9}"
    lines = [head + (f"{'peak MiB':>10}{'steady':>9}{'held':>9}" if gpu else "")]
    for r in results:
        if r.us:
            apart = "-" if r.apart is None else f"{r.apart:.1e}"
            line = f"  {r.variant:<34}{r.median:>11.1f}{r.low:>10.1f}{100 * r.spread:>6.1f} %{r.median / best:>8.2f}"
            line += f"{r.first_s:>9.1f}{apart:>9}"
            if gpu:
                line += "".join(
                    f"{mib:>{w}.0f}" if mib is not None else " " * (w - 1) + "-"
                    for mib, w in ((r.peak_mib, 10), (r.steady_mib, 9), (r.held_mib, 9))
                )
        else:
            line = f"  {r.variant:<34}"
        lines.append(line + (f"  {r.why}" if r.why else ""))
    return lines
