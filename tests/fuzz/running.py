"""Runs phases in processes, and gathers what they count and find.

The wall time is the budget: a worker begins no program after its phase's time, and what still runs at the end of it is
ended.  A worker that crashed or hangs is a failure, and another one takes its place.
"""

from __future__ import annotations

import argparse
import collections
import gc
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, Final

from tests.fuzz.phases import PHASES, Phase
from tests.fuzz.report import Report
from tests.fuzz.worker import KINDS, Failure, Shared, work

__all__ = ["run_phases"]

HANGS_AFTER_S: Final = 180.0
PROGRESS_S: Final = 20.0
_GRACE: Final = 0.12
"""The part of a phase's time, at most `_MOST_GRACE_S`, in which programs end and none begins."""
_MOST_GRACE_S: Final = 4.0


def run_phases(options: argparse.Namespace, began: float) -> int:
    """Runs the chosen phases one after the other; the exit status, 1 also where a phase compared nothing.

    began  when the process was started
    """
    end = math.inf if options.seconds is None else began + options.seconds - 0.3
    names = options.phases.split(",")
    report = Report(options)
    with _one_folder():
        left = [PHASES[name] for name in names if _can_run(PHASES[name])]
        most = [None if options.count is None else _part(options, phase, left[0]) for phase in left]
        for at, phase in enumerate(left):
            now = time.time()
            share = phase.time / sum(other.time for other in left[at:])
            phase_end = now + max(0.0, end - now) * share
            _PhaseRun(phase, options, phase_end, most[at], report).run()
            if options.first and report.failures:
                break
    report.print_summary(time.time() - began)
    idle = [name for name, counts in report.counts.items() if not counts["programs"]]
    if idle:
        print(f"nothing was compared in {', '.join(idle)}: the time was over before a program was; give more SECONDS")
    return 1 if report.failures or idle else 0


def _can_run(phase: Phase) -> bool:
    why = phase.missing()
    if why is not None:
        print(f"{phase.name}: not run: {why}", flush=True)
    return why is None


def _part(options: argparse.Namespace, phase: Phase, first: Phase) -> int:
    return max(1, round(options.count * phase.programs / first.programs))


@contextmanager
def _one_folder() -> Iterator[None]:
    """A block whose processes write their files in one folder, which is then removed with all that ended ones left."""
    with tempfile.TemporaryDirectory(prefix="burn-fuzz-", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def _context(phase: Phase) -> Any:
    """Forks, which shares what is imported, where there is `fork`; a process of CUDA is spawned."""
    if phase.name == "cuda" or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    import tests.fuzz.doors
    import tests.fuzz.draw
    import tests.fuzz.opened  # noqa: F401  # the modules that every worker needs

    if "triton" in sys.modules:  # it has read its environment
        return multiprocessing.get_context("spawn")
    gc.freeze()
    return multiprocessing.get_context("fork")


class _PhaseRun:
    """One phase in its processes."""

    def __init__(self, phase: Phase, options: argparse.Namespace, end: float, most: int | None, report: Report) -> None:
        self.phase = phase
        self.options = options
        self.began = time.time()
        self.end = end
        self.report = report
        self.context = _context(phase)
        first, most = (options.only, options.only + 1) if options.only is not None else (0, most)
        self.count = 1 if options.only is not None else options.processes
        grace = min(_MOST_GRACE_S, _GRACE * (end - self.began)) if end < math.inf else 0.0
        self.shared = Shared(
            self.context.Value("q", first),
            self.context.Array("i", KINDS),
            self.context.Array("d", 2 * self.count),
            end - grace,
            10**12 if most is None else most,
        )
        self.counts: collections.Counter[str] = collections.Counter()
        self.workers: dict[Any, tuple[Any, int]] = {}
        """For each connection, its process and the place of it."""

    def run(self) -> None:
        """Until the numbers or the time end."""
        for place in range(self.count):
            self._start(place)
        printed = time.time()
        while self.workers:
            for connection in wait(list(self.workers), timeout=0.2):
                self._take(connection)
            now = time.time()
            if now > self.end or (self.options.first and self.report.failures):
                self._end_all()
            for connection, (process, place) in list(self.workers.items()):
                if now - self.shared.running[2 * place + 1] > HANGS_AFTER_S:
                    process.kill()
                    self._restart_after(connection, f"no answer in {HANGS_AFTER_S:.0f} s")
            if now - printed > PROGRESS_S:
                printed = now
                self.report.print_progress(self.phase.name, self.counts, now - self.began)
        self.report.end_phase(self.phase.name, self.counts, time.time() - self.began)

    def _start(self, place: int) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        self.shared.running[2 * place], self.shared.running[2 * place + 1] = -1, time.time()
        before = dict(os.environ)
        os.environ.update(self.phase.environment_of(place))
        try:
            arguments = (self.phase.name, self.options, self.shared, theirs, place)
            process = self.context.Process(target=work, args=arguments, daemon=True)
            process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()
        self.workers[ours] = process, place

    def _take(self, connection: Any) -> None:
        """A message of a worker, or its end."""
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            process, _ = self.workers[connection]
            process.join()
            if process.exitcode:
                self._restart_after(connection, f"the process ended with {process.exitcode}")
            else:
                del self.workers[connection]
            return
        if kind == "counts":
            self.counts.update(value)
        elif kind == "failure":
            self.report.add(self.phase.name, value)
        else:
            self.report.add_shrunk(self.phase.name, value)

    def _restart_after(self, connection: Any, words: str) -> None:
        """A program ended its process: the rest goes to another one."""
        process, place = self.workers.pop(connection)
        process.join()
        number = int(self.shared.running[2 * place])
        self.report.add(self.phase.name, Failure(self.phase.name, number, words, None, False, 0))
        if time.time() < self.shared.deadline and number >= 0:
            self._start(place)

    def _end_all(self) -> None:
        """Ends what still computes, after what it has sent."""
        for connection, (process, _) in list(self.workers.items()):
            while connection.poll() and connection in self.workers:
                self._take(connection)
            if connection in self.workers:
                process.kill()
                process.join()
                del self.workers[connection]
                self.counts["cut off"] += 1
