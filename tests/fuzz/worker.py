"""Runs programs through the doors of one phase, in a process of its own, and sends what it counts and finds.

Messages are ("counts", Counter), ("failure", Failure) as soon as a door disagrees, and ("shrunk", Failure) once it is
small: a worker may be ended at any time, and what disagreed is known by then.
"""

from __future__ import annotations

import argparse
import collections
import gc
import hashlib
import itertools
import os
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.fuzz.phases import PHASES

__all__ = ["KINDS", "Failure", "Shared", "case_seed", "check_program", "try_door", "work"]

SHRUNK_OF_A_KIND: Final = 8
"""Failures of one door in like words that are shrunk, by all processes together; the numbers of others are printed."""
KINDS: Final = 1 << 12
"""Places in the table of kinds, by a hash of the words."""
_FLUSH_S: Final = 2.0
_CHUNK: Final = 8
"""Programs that a worker takes at once where the door computes one after the other."""


@dataclass(frozen=True)
class Failure:
    """A disagreement: the door, the number of the program, the door's words, and the program as JSON."""

    door: str
    number: int
    words: str
    program: str | None
    second: bool
    seed: int


@dataclass(frozen=True)
class Shared:
    """Holds what the processes of a phase share.

    next      the number that the next free worker takes
    kinds     how many failures of each kind were shrunk
    running   for each worker, the number it computes and since when
    deadline  no program begins later (seconds since 1970; infinite without one)
    most      the numbers end here
    """

    next: Any
    kinds: Any
    running: Any
    deadline: float
    most: int

    def take(self, count: int) -> list[int]:
        """The next numbers; none at the end."""
        with self.next.get_lock():
            first = self.next.value
            self.next.value = min(first + count, self.most)
            return list(range(first, self.next.value))

    def may_shrink(self, kind: str) -> bool:
        """Returns whether few failures of this kind were shrunk before; counts this one."""
        at = int.from_bytes(hashlib.blake2b(kind.encode(), digest_size=4).digest()) % KINDS
        with self.kinds.get_lock():
            self.kinds[at] += 1
            return bool(self.kinds[at] <= SHRUNK_OF_A_KIND)


def case_seed(seed: int, number: int) -> int:
    """The seed of one program."""
    return seed * 1_000_003 + number


# -- one program -----------------------------------------------------------------------------------------------
def check_program(case: Any, doors: Any, counts: collections.Counter[str]) -> list[tuple[Any, str]]:
    """Runs a case through doors: each door that disagrees, with its words; counts what ran and what was skipped."""
    disagreements: list[tuple[Any, str]] = []
    for door in doors:
        if not door.takes(case):
            continue
        words, skipped = try_door(door, case)
        if skipped is not None:
            counts[f"{door.name}|skipped|{skipped}"] += 1
            continue
        counts[f"{door.name}|run"] += 1
        if words:
            counts[f"{door.name}|failed"] += 1
            disagreements.append((door, words))
    return disagreements


def try_door(door: Any, case: Any) -> tuple[str, str | None]:
    """Returns what a door says of a case, and why it was skipped; an exception is a disagreement too."""
    try:
        outcome = door.check(case)
    except Exception as fault:
        last = traceback.extract_tb(fault.__traceback__)[-1]
        text = [*str(fault).splitlines(), ""]
        return f"raised {type(fault).__name__}: {text[0]} ({Path(last.filename).name}:{last.lineno})", None
    return "; ".join(outcome.differences[:3]), outcome.skipped


# -- many ----------------------------------------------------------------------------------------------------
def work(phase: str, options: argparse.Namespace, shared: Shared, connection: Any, place: int) -> None:
    """Programs through the doors of a phase until the numbers or the time end."""
    os.environ.update(PHASES[phase].environment_of(place))
    gc.set_threshold(2000, 10, 30)  # a program leaves little garbage and much that is kept: a full look takes 0.2 s
    from tests.fuzz.doors import DOORS
    from tests.fuzz.opened import opened

    names = [word for word in options.doors.split(",") if word]
    doors = [door for door in DOORS[phase] if not names or door.name in names]
    worker = _Worker(options, [replace(door, share=1.0) for door in doors] if names else doors, shared, connection)
    with opened(phase) as (at_once, run_all), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in _sizes(at_once):
            numbers = shared.take(size) if time.time() < shared.deadline else []
            if not numbers:
                break
            steps = [numbers] if at_once > 1 else [[number] for number in numbers]
            for batch in steps:
                if time.time() >= shared.deadline:
                    worker.count("programs not begun", len(batch))
                    continue
                shared.running[2 * place], shared.running[2 * place + 1] = batch[0], time.time()
                run_all(worker.check, batch)
    worker.flush()
    connection.close()


def _sizes(at_once: int) -> Iterator[int]:
    """How many programs are taken: few at first where many are compiled together, as the time may be short."""
    if at_once == 1:
        yield from itertools.repeat(_CHUNK)
    size = 8
    while True:
        yield min(size, at_once)
        size *= 2


class _Worker:
    """Checks programs by their number."""

    def __init__(self, options: argparse.Namespace, doors: Sequence[Any], shared: Shared, connection: Any) -> None:
        self.seed = options.seed
        self.shrinks = not options.first
        self.doors = doors
        self.second_every = 1 if all(door.name.startswith("second") for door in doors) else 10
        self.steps_every = 1 if all(door.name.startswith("steps") for door in doors) else 24
        self.shared = shared
        self._connection = connection
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._flushed = time.monotonic()
        self._used = _processor_s()

    def check(self, number: int) -> None:
        """Draws the program of a number, and compares its doors."""
        counts: collections.Counter[str] = collections.Counter()
        try:
            self._check(number, counts)
        finally:
            with self._lock:
                self._counts.update(counts)
            if time.monotonic() > self._flushed + _FLUSH_S:
                self.flush()

    def count(self, name: str, count: int) -> None:
        """Counts something."""
        with self._lock:
            self._counts[name] += count

    def flush(self) -> None:
        """Sends the counts so far."""
        with self._lock:
            used = _processor_s()
            self._counts["cpu_ms"] += round(1000 * (used - self._used))
            self._used, self._flushed = used, time.monotonic()
            counts, self._counts = self._counts, collections.Counter()
            self._send("counts", counts)

    def _tell(self, kind: str, failure: Failure) -> None:
        with self._lock:
            self._send(kind, failure)

    def _send(self, kind: str, value: Any) -> None:
        with suppress(BrokenPipeError):  # the parent has seen enough
            self._connection.send((kind, value))

    def _check(self, number: int, counts: collections.Counter[str]) -> None:
        from tests.fuzz.case import Case
        from tests.fuzz.draw import draw_program

        own = case_seed(self.seed, number)
        trains = number % self.steps_every == 5 % self.steps_every
        case = Case(draw_program(own), number % self.second_every == 0, own % (1 << 31), trains)
        counts["programs"] += 1
        counts["steps"] += len(case.program.steps)
        try:
            assert case.judge
        except Exception as fault:
            words = f"eager raised {type(fault).__name__}: {fault}"
            counts["reference|failed"] += 1
            self._tell("failure", Failure("reference", number, words, case.program.to_json(), False, case.seed))
            return
        for door, words in check_program(case, self.doors, counts):
            text = None if door.name.startswith("steps") else case.program.to_json()  # the words have the training
            failure = Failure(door.name, number, words, text, case.second, case.seed)
            self._tell("failure", failure)
            kind = f"{door.name} {words[:60] if words.startswith('raised') else words.split(':')[0][:40]}"
            seconds = min(30.0, self.shared.deadline - time.time())
            if text and self.shrinks and seconds > 0 and self.shared.may_shrink(kind):
                program = smallest(door, case, seconds)
                words = try_door(door, Case(program, case.second, case.seed))[0] or words
                self._tell("shrunk", replace(failure, words=words, program=program.to_json()))
        counts["unstable"] += case.judge.unstable


def _processor_s() -> float:
    """The time of this process and of the compilers that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def smallest(door: Any, case: Any, seconds: float) -> Any:
    """The smallest program that the door still disagrees on."""
    from tests.fuzz.case import Case
    from tests.fuzz.shrink import shrunk

    raised = try_door(door, case)[0].startswith("raised")

    def fails(program: Any) -> bool:
        words = try_door(door, Case(program, case.second, case.seed))[0]
        return bool(words) and words.startswith("raised") == raised

    return shrunk(case.program, fails, seconds=seconds)
