"""Runs phases in processes, gathers what they count and find, and prints it."""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import multiprocessing
import os
import queue
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.fuzz.phases import PHASES, Phase

__all__ = ["Failure", "check_program", "run_phases"]

HANGS_AFTER_S: Final = 180.0
SHRUNK_OF_A_KIND: Final = 2
"""Failures of one door in like words that are shrunk; more are counted only."""


@dataclass(frozen=True)
class Failure:
    """A disagreement: the door, the number of the program, what it said, and the program as JSON once shrunk."""

    door: str
    number: int
    words: str
    program: str | None
    second: bool
    seed: int


def case_seed(seed: int, number: int) -> int:
    """The seed of one program."""
    return seed * 1_000_003 + number


# -- in a worker -----------------------------------------------------------------------------------------------
def check_program(case: Any, doors: Any, counts: collections.Counter[str]) -> list[tuple[Any, str]]:
    """Runs a case through doors: each door that disagrees, with its words; counts what ran and what was skipped."""
    found: list[tuple[Any, str]] = []
    for door in doors:
        if door.share < 1 and (case.seed * 2654435761 >> 7) % 1000 >= 1000 * door.share:
            continue
        words, skipped = try_door(door, case)
        if skipped is not None:
            counts[f"{door.name}|skipped|{skipped}"] += 1
            continue
        counts[f"{door.name}|run"] += 1
        if words:
            counts[f"{door.name}|failed"] += 1
            found.append((door, words))
    return found


def try_door(door: Any, case: Any) -> tuple[str, str | None]:
    """What a door says of a case, and why it was skipped; an exception is a disagreement too."""
    try:
        outcome = door.check(case)
    except Exception as fault:
        last = traceback.extract_tb(fault.__traceback__)[-1]
        text = [*str(fault).splitlines(), ""]
        return f"raised {type(fault).__name__}: {text[0]} ({Path(last.filename).name}:{last.lineno})", None
    return "; ".join(outcome.differences[:3]), outcome.skipped


def _work(
    phase: str, options: argparse.Namespace, numbers: Any, deadline: float | None, told: Any, at: Any, place: int
) -> None:
    """Programs of these numbers through the doors of a phase, until the deadline; tells of failures and counts."""
    os.environ.update(PHASES[phase].environment)
    from tests.fuzz.doors import DOORS
    from tests.fuzz.opened import opened

    names = [word for word in options.doors.split(",") if word]
    worker = _Worker(phase, options, [door for door in DOORS[phase] if not names or door.name in names], told)
    left = iter(numbers)
    with opened(phase) as (at_once, run_all), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while deadline is None or time.time() < deadline:
            batch = list(itertools.islice(left, at_once))
            if not batch or (options.first and worker.failed):
                break
            at[2 * place], at[2 * place + 1] = batch[0], time.time()
            run_all(worker.check, batch)
    worker.counts["cpu_ms"] = round(1000 * time.process_time())
    told.put(("counts", worker.counts))


class _Worker:
    """Runs programs by their number."""

    def __init__(self, phase: str, options: argparse.Namespace, doors: Sequence[Any], told: Any) -> None:
        self.phase = phase
        self.seed = options.seed
        self.shrinks = 0 if options.first else SHRUNK_OF_A_KIND
        self.failed = False
        self.doors = [replace(door, share=1.0) for door in doors] if options.doors else doors
        self.second_every = 1 if all(door.name.startswith("second") for door in doors) else 10
        self.told = told
        self.counts: collections.Counter[str] = collections.Counter()
        self.kinds: collections.Counter[str] = collections.Counter()

    def check(self, number: int) -> None:
        from tests.fuzz.case import Case
        from tests.fuzz.draw import draw_program

        own = case_seed(self.seed, number)
        case = Case(draw_program(own), second=number % self.second_every == 0, seed=own % (1 << 31))
        self.counts["programs"] += 1
        self.counts["steps"] += len(case.program.steps)
        try:
            assert case.judge
        except Exception as fault:
            words = f"eager raised {type(fault).__name__}: {fault}"
            self.counts["reference|failed"] += 1
            self.failed = True
            self.told.put(("failure", Failure("reference", number, words, case.program.to_json(), False, case.seed)))
            return
        for door, words in check_program(case, self.doors, self.counts):
            kind = f"{door.name} {words[:60] if words.startswith('raised') else words.split(':')[0][:40]}"
            self.kinds[kind] += 1
            self.failed = True
            program = None
            if self.kinds[kind] <= self.shrinks:
                program = _smallest(door, case)
                words = try_door(door, Case(program, case.second, case.seed))[0] or words
            text = program and program.to_json()
            self.told.put(("failure", Failure(door.name, number, words, text, case.second, case.seed)))
        self.counts["unstable"] += case.judge.unstable


def _smallest(door: Any, case: Any) -> Any:
    from tests.fuzz.case import Case
    from tests.fuzz.shrink import shrunk

    raised = try_door(door, case)[0].startswith("raised")

    def fails(program: Any) -> bool:
        words = try_door(door, Case(program, case.second, case.seed))[0]
        return bool(words) and words.startswith("raised") == raised

    return shrunk(case.program, fails, seconds=30)


# -- in the parent ---------------------------------------------------------------------------------------------
def run_phases(options: argparse.Namespace) -> int:
    """Runs the chosen phases one after the other; the exit status."""
    counts: dict[str, collections.Counter[str]] = {}
    failures: list[Failure] = []
    names = options.phases.split(",")
    can = [name for name in names if PHASES[name].missing() is None]
    whole = sum(PHASES[name].time for name in can) or 1.0
    for name in names:
        phase = PHASES[name]
        why = phase.missing()
        if why is not None:
            print(f"{name}: not run: {why}", flush=True)
            continue
        deadline = None if options.seconds is None else time.time() + options.seconds * phase.time / whole
        began = time.time()
        counts[name] = _run_phase(phase, options, deadline, failures)
        _print_counts(name, counts[name], time.time() - began)
    total = sum(c["programs"] for c in counts.values())
    print(f"{total} programs, {len(failures)} disagreements; seed {options.seed}", flush=True)
    return 1 if failures else 0


def _run_phase(
    phase: Phase, options: argparse.Namespace, deadline: float | None, failures: list[Failure]
) -> collections.Counter[str]:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    count = options.processes if options.only is None else 1
    at = context.Array("d", 2 * count)
    workers: list[Any] = []
    before = dict(os.environ)
    os.environ.update(phase.environment)
    try:
        for i in range(count):
            at[2 * i], at[2 * i + 1] = -1, time.time()
            arguments = (phase.name, options, _numbers(phase, options, i, count), deadline, told, at, i)
            workers.append(context.Process(target=_work, args=arguments, daemon=True))
            workers[-1].start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    counts: collections.Counter[str] = collections.Counter()
    left = set(range(count))

    def take(message: Any) -> None:
        kind, what = message
        if kind == "failure":
            failures.append(what)
            _print_failure(phase.name, what, options)
        else:
            counts.update(what)

    while left:
        try:
            take(told.get(timeout=0.2))
            continue
        except queue.Empty:
            pass
        for i in list(left):
            worker = workers[i]
            hangs = time.time() - at[2 * i + 1] > HANGS_AFTER_S
            if hangs:
                worker.terminate()
            if hangs or not worker.is_alive():
                worker.join()
                left.discard(i)
                if hangs or worker.exitcode:
                    words = (
                        f"no answer in {HANGS_AFTER_S:.0f} s" if hangs else f"the process ended with {worker.exitcode}"
                    )
                    take(("failure", Failure(phase.name, int(at[2 * i]), words, None, False, 0)))
    while True:
        try:
            take(told.get(timeout=0.1))
        except queue.Empty:
            break
    return counts


def _numbers(phase: Phase, options: argparse.Namespace, worker: int, workers: int) -> Any:
    if options.only is not None:
        return [options.only]
    most = 10**9 if options.count is None else max(1, round(options.count * phase.programs))
    return range(worker, most, workers)


def _print_failure(phase: str, failure: Failure, options: argparse.Namespace) -> None:
    print(f"\n{phase}, door {failure.door}, program {failure.number}: {failure.words}")
    print(f"  again: python -m tests.fuzz --phases {phase} --seed {options.seed} --only {failure.number}")
    if failure.program is not None:
        from tests.fuzz.corpus import as_python, save

        print("\n".join("  " + line for line in as_python(failure).splitlines()))
        if options.keep:
            name = f"{failure.door}-{hashlib.blake2b(failure.program.encode(), digest_size=4).hexdigest()}".replace(
                " ", "-"
            )
            print(f"  kept: {save(Path(options.keep), name, phase, failure)}")
    print(flush=True)


def _print_counts(phase: str, counts: collections.Counter[str], seconds: float) -> None:
    programs = counts["programs"]
    rate = programs / seconds if seconds else 0.0
    print(
        f"{phase}: {programs} programs of {counts['steps'] / max(programs, 1):.1f} steps in {seconds:.0f} s,"
        f" {rate:.1f} a second, {counts['cpu_ms'] / max(programs, 1):.0f} ms of a processor each"
    )
    names = dict.fromkeys(key.split("|")[0] for key in sorted(counts) if "|" in key)
    for name in names:
        ran, failed = counts[f"{name}|run"], counts[f"{name}|failed"]
        skipped = {key.split("|")[2]: n for key, n in counts.items() if key.startswith(f"{name}|skipped|")}
        words = "".join(f"; {n} not: {why}" for why, n in sorted(skipped.items()))
        print(f"  {name:16} {ran:8} run, {failed} disagree{words}")
    if counts["unstable"]:
        print(f"  {counts['unstable']} results not compared: rounding alone moves them")
    print(flush=True)
