"""Defines what compiles before anything is timed, in processes beside each other: one queue of calls, each called once.

Compiling takes longer than timing, and a GPU that compilers measure candidates on times nothing else.  So processes of
their own take calls from a queue until it is empty or the patience is at an end, which fills the caches of Triton and
torch.compile on the disk.  The queue is a folder: who makes the file of a call first has it.  What torch.compile makes
and was not ready by then is left out, and told of: it would be compiled while others wait.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks._kernels.rows import SEARCHED

__all__ = ["FAILED", "Queue", "in_order_of_length", "is_compiled", "measuring_alone", "prepared"]

FAILED = "not prepared: "
"""How a line begins that tells of a call which failed."""
LONGEST = ("adamw", "linear_cross_entropy", "lion")
"""Families whose compilation takes longest: it begins first."""


def is_compiled(variant: str) -> bool:
    """Returns whether torch.compile makes it."""
    return variant.startswith("compile") or variant == "flex"


def needs_preparing(variant: str) -> bool:
    return is_compiled(variant) or variant == "liger" or variant.startswith("our")


def in_order_of_length(cases: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Cases that take longest first, the others as they come."""
    return sorted(cases, key=lambda pair: not pair[0].startswith(LONGEST))


# -- one measurement at a time -----------------------------------------------------------------------
def measuring_alone(folder: Path) -> None:
    """Lets torch.compile's searches of all processes that share a folder measure one at a time, and compile together:
    what two processes measure on one GPU at once leads either to a worse choice."""
    from torch._inductor.runtime import benchmarking

    file = os.open(folder / "measuring", os.O_CREAT | os.O_RDWR)  # as long as the process runs
    depth = 0

    @contextmanager
    def alone() -> Iterator[None]:
        nonlocal depth
        if not depth:
            fcntl.flock(file, fcntl.LOCK_EX)
        depth += 1
        try:
            yield
        finally:
            depth -= 1
            if not depth:
                fcntl.flock(file, fcntl.LOCK_UN)

    def locked(measure: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(measure)
        def measured(*arguments: Any, **named: Any) -> Any:
            with alone():
                return measure(*arguments, **named)

        return measured

    for kind in vars(benchmarking).values():
        for name in ("benchmark_gpu", "benchmark_many_gpu"):
            if isinstance(kind, type) and name in vars(kind):
                setattr(kind, name, locked(vars(kind)[name]))


# -- the queue ---------------------------------------------------------------------------------------
class Queue:
    """Cases, each with a pass, once for what compiles quickly and once for what searches; and which calls are ready."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def _file(self, case: str, passed: str, variant: str, kind: str) -> Path:
        return self.folder / f"{sha256(f'{case} {passed} {variant}'.encode()).hexdigest()[:16]}.{kind}"

    def take(self, case: str, passed: str, *, searched: bool) -> bool:
        """Returns whether nobody took it before: one process holds a case at a time, as it may have gigabytes."""
        try:
            self._file(case, passed, "", "searched" if searched else "taken").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @staticmethod
    def calls(variants: Sequence[str], *, searched: bool) -> list[str]:
        """The variants of a case that have to be called."""
        return [one for one in variants if needs_preparing(one) and (one == SEARCHED) is searched]

    def done(self, case: str, passed: str, variant: str, seconds: float) -> None:
        """A call is ready."""
        note = {"call": f"{case} {passed} {variant}", "seconds": round(seconds, 1)}
        self._file(case, passed, variant, "done").write_text(json.dumps(note), encoding="utf-8")

    def ready(self, case: str, passed: str, variant: str) -> bool:
        """Returns whether a call is, or nothing has to be done for it."""
        return not is_compiled(variant) or self._file(case, passed, variant, "done").exists()

    def told(self) -> str:
        """How many calls are ready, and which took longest."""
        done = [json.loads(file.read_text(encoding="utf-8")) for file in self.folder.glob("*.done")]
        done.sort(key=lambda one: -one["seconds"])
        longest = "; ".join(f"{one['call']} {one['seconds']:.0f} s" for one in done[:5])
        searched = sum(one["call"].endswith(SEARCHED) for one in done)
        total = sum(one["seconds"] for one in done)
        return f"{len(done)} calls are ready, {searched} of them searched, {total:.0f} s of work; longest: {longest}"


def prepared(command: Sequence[str], count: int, patience_s: float) -> Queue:
    """Runs `command --warm FOLDER` in so many processes at once, which share a queue in the folder; ends those that
    take longer than the patience."""
    queue = Queue(tempfile.mkdtemp(prefix="kernels-"))
    cores = len(os.sched_getaffinity(0))
    # the processes are about as many as the cores, so each compiles by itself
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(max(1, cores // count))}
    words = [queue.folder / f"{at}.log" for at in range(count)]
    running = []
    for file in words:
        with file.open("w", encoding="utf-8") as log:  # a pipe that nobody reads would fill, and stop its writer
            running.append(
                subprocess.Popen([*command, "--warm", str(queue.folder)], stdout=log, stderr=log, env=environment)
            )
    ended = time.monotonic() + patience_s
    for one in running:
        try:
            one.wait(max(0.0, ended - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.terminate()
    for one in running:
        try:
            one.wait(5)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    told_once = set[str]()
    for one, file in zip(running, words, strict=True):
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        told_once |= {line for line in lines if line.startswith(FAILED)}
        if one.returncode > 0:
            told_once.add(f"a process that prepares ended: {(lines or ['no word'])[-1]}")
    for line in sorted(told_once):
        print(f"    {line[:160]}", flush=True)
    return queue
