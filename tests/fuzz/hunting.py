"""Runs faults, each in a process of its own, and says at which program each was found.

A worker of each phase imports the library once and forks for every fault, so that what one fault leaves in caches is
not there for the next.  A program counts only if it passes without the fault.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

from tests.fuzz.phases import PHASES
from tests.fuzz.worker import case_seed, try_door

__all__ = ["hunt", "run_faults"]

_CANDIDATES: Final = 3
"""Programs that disagree under a fault, until one of them passes without it."""


def hunt(fault: Any, seed: int, numbers: Sequence[int], *, planted: bool) -> list[tuple[int, str]]:
    """The first of these programs that disagree, with what the door says: one, or those computed along with it."""
    from tests.fuzz.case import Case
    from tests.fuzz.doors import DOORS
    from tests.fuzz.draw import draw_program
    from tests.fuzz.opened import opened

    door = next(door for door in DOORS[fault.phase] if door.name == fault.door)
    disagreements: list[tuple[int, str]] = []

    def check(number: int) -> None:
        own = case_seed(seed, number)
        case = Case(draw_program(own), second=True, seed=own % (1 << 31), trains=True)
        words, skipped = try_door(door, case)
        if words and skipped is None:
            disagreements.append((number, words))

    with opened(fault.phase, fault.name if planted else None) as (at_once, run_all), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(numbers), at_once):
            run_all(check, numbers[start : start + at_once])
            if disagreements:
                break
    return sorted(disagreements)


def _first_found(fault: Any, seed: int) -> tuple[int | None, str]:
    """The first program that disagrees under a fault and passes without it, and the words; None if there is none."""
    start = 0
    for _ in range(_CANDIDATES):
        disagreements = _hunt_in_fork(fault, seed, range(start, fault.budget), planted=True)
        clean = {
            number for number, _ in _hunt_in_fork(fault, seed, [n for n, _ in disagreements if n >= 0], planted=False)
        }
        for number, words in disagreements:
            if number not in clean:
                return number, words
        if not disagreements:
            break
        start = disagreements[-1][0] + 1
    return None, "not found"


def _hunt_in_fork(fault: Any, seed: int, numbers: Sequence[int], *, planted: bool) -> list[tuple[int, str]]:
    """`hunt` in a forked process.  Raises: RuntimeError where that ends otherwise."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send(hunt(fault, seed, numbers, planted=planted))
        except BaseException as failure:
            theirs.send(f"{type(failure).__name__}: {failure}")

    child = context.Process(target=run)
    child.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        answer = [(-1, "the process ended")]  # a fault may crash it: that is seen too
    child.join()
    if isinstance(answer, str):
        raise RuntimeError(f"{fault.name}: {answer}")
    return list(answer)


def _work(phase: str, names: Sequence[str], seed: int, answers: Any) -> None:
    os.environ.update(PHASES[phase].environment)
    import tests.fuzz.doors
    import tests.fuzz.draw
    import tests.fuzz.opened  # noqa: F401  # what every hunt needs
    from tests.fuzz.faults import FAULTS

    for name in names:
        began = time.time()
        try:
            answers.put((name, *_first_found(FAULTS[name], seed), time.time() - began))
        except RuntimeError as fault:
            answers.put((name, None, str(fault), time.time() - began))


def run_faults(names: Sequence[str], seed: int) -> list[str]:
    """Plants these faults one after the other, prints where each was found; the names of those that were not."""
    from tests.fuzz.faults import FAULTS

    context = multiprocessing.get_context("spawn")
    missed: list[str] = []
    for phase in dict.fromkeys(FAULTS[name].phase for name in names):
        why = PHASES[phase].missing()
        own = [name for name in names if FAULTS[name].phase == phase]
        if why is not None:
            print(f"{phase}: not run: {why}", flush=True)
            missed += own
            continue
        answers = context.Queue()
        before = dict(os.environ)
        os.environ.update(PHASES[phase].environment)
        worker = context.Process(target=_work, args=(phase, own, seed, answers))
        try:
            worker.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        for _ in own:
            name, number, words, seconds = answers.get()
            fault = FAULTS[name]
            where = "NOT FOUND" if number is None else f"program {number:5}"
            print(f"{name:40} {fault.door:12} {where} of {fault.budget:6}, {seconds:5.0f} s: {words[:100]}", flush=True)
            if number is None:
                missed.append(name)
        worker.join()
    print(f"{len(names) - len(missed)} of {len(names)} faults found; seed {seed}", flush=True)
    return missed
