"""Compiles what candidates will launch in other processes, before anything is measured, into Triton's own cache.

    with Compilers(machine, 15) as compilers:
        compilers.ask("softmax rows<=8192 ...", variants(tunable, facts, configs, machine))
        compilers.wait(keys)                    the first of these keys of which nothing is missing

What a candidate would launch is recorded on tensors that hold nothing; no GPU is needed for that, nor for compiling.
Kernels that several candidates share are compiled once.  A process that dies, hangs or fails costs nothing but its own
kernel: whatever is not in the cache is compiled by who launches it, and fails there, by name, if it must.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import Inputs, Tunable
from burn_kernels.autotune.tuner import reduced
from burn_kernels.launch import Launch, Machine, recording

__all__ = ["Compilers", "Variant", "launches", "variants"]

WORKER = "burn_kernels.autotune.compile_worker"
PATIENCE_S = 120.0
"""For one kernel, and for a process to begin."""
MOST_DEATHS = 3
"""Of processes in one place, after which none is begun there any more."""


# -- what is to be compiled --------------------------------------------------------------------------
@dataclass(frozen=True)
class Variant:
    """One kernel as Triton tells kernels apart, and where a process finds it: what `launches` gives, at `number`."""

    op: str
    facts: Facts
    config: Mapping[str, int]
    number: int
    print: tuple[object, ...]
    """The same for what Triton compiles once."""

    def request(self) -> dict[str, object]:
        """As a process is asked for it."""
        facts = self.facts._asdict() | {"dtype": str(self.facts.dtype).removeprefix("torch.")}
        return {"op": self.op, "facts": facts, "config": dict(self.config), "number": self.number}


def launches(tunable: Tunable, facts: Facts, configs: Iterable[object], machine: Machine) -> Iterator[list[Launch]]:
    """What a trial would launch, for each config: what draws its inputs, if that takes kernels, and the config."""
    with torch.no_grad():
        with recording(machine) as drawing:
            trial = tunable.trial(facts, Inputs("meta"))
        for config in configs:
            with recording(machine) as running:
                trial.run(trial.inputs, config)
            yield [*drawing, *running]


def variants(tunable: Tunable, facts: Facts, configs: Sequence[Any], machine: Machine) -> Iterator[Variant]:
    """All kernels that measuring these configs launches: those of the small problem and those of the real one."""
    for problem in dict.fromkeys((reduced(tunable, facts), facts)):
        for config, found in zip(configs, launches(tunable, problem, configs, machine), strict=True):
            for number, launch in enumerate(found):
                yield Variant(tunable.name, problem, asdict(config), number, fingerprint(launch))


def fingerprint(launch: Launch) -> tuple[object, ...]:
    """What of a launch goes into its code: types, sizes that are 1, multiples of 16 or wide, options."""
    words: list[Any] = [f"{launch.kernel.fn.__module__}.{launch.kernel.fn.__qualname__}", launch.warps, launch.stages]
    words += [bool(launch.together), int(launch.registers), bool(launch.early), bool(launch.contracts)]
    given = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False)) | launch.constants
    for parameter in launch.kernel.params:
        value = given.get(parameter.name, parameter.default)
        words.append(repr(value) if parameter.is_constexpr else _kind_of(value, parameter.do_not_specialize))
    return tuple(words)


def _kind_of(value: Any, plain: bool) -> object:
    """What of an argument goes into the code; of a tuple what of its members does."""
    if value is None:
        return repr(value)
    if isinstance(value, tuple):
        return tuple(_kind_of(one, plain) for one in value)
    if isinstance(value, torch.Tensor):
        return str(value.dtype), not plain and value.data_ptr() % 16 == 0
    if isinstance(value, int) and not isinstance(value, bool):
        wide = not -(2**31) <= value < 2**31
        return (wide,) if plain else (wide, value == 1, value % 16 == 0)
    return type(value).__name__


# -- the processes -----------------------------------------------------------------------------------
@dataclass
class _Job:
    variant: Variant
    done: bool = False
    why_not: str = ""


@dataclass
class Tally:
    """What came of it."""

    compiled: int = 0
    spent_s: float = 0.0
    """Of all processes together."""
    waited_s: float = 0.0
    """Of who measures, for kernels."""
    failed: list[str] = field(default_factory=list)
    """Of kernels that were not compiled, why."""


class Compilers:
    """So many processes that compile for a machine; `launchers` builds the host's side too, which needs its driver."""

    def __init__(
        self,
        machine: Machine,
        count: int,
        *,
        launchers: bool = False,
        patience_s: float = PATIENCE_S,
        command: Sequence[str] = (sys.executable, "-m", WORKER),
    ) -> None:
        self.tally = Tally()
        self._command = [*command, json.dumps(asdict(machine) | {"launchers": launchers})]
        self._patience_s = patience_s
        self._jobs: dict[tuple[object, ...], _Job] = {}
        self._by_key: dict[str, list[_Job] | None] = {}
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._working = count
        self._ending = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for one in self._threads:
            one.start()

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes; kernels that nobody has begun are not compiled."""
        with self._changed:
            self._ending = True
            running = list(self._running)
            self._changed.notify_all()
        for process in running:
            process.kill()
        for _thread in self._threads:
            self._queue.put(None)
        for one in self._threads:
            one.join()

    # -- asking ----------------------------------------------------------------------------------
    def ask(self, key: str, wanted: Iterable[Variant]) -> None:
        """Has the kernels of a key compiled, after those of the keys before it."""
        jobs = []
        with self._changed:
            for variant in wanted:
                job = self._jobs.get(variant.print)
                if job is None:
                    job = self._jobs[variant.print] = _Job(variant)
                    self._queue.put(job)
                jobs.append(job)
            self._by_key[key] = jobs
            self._changed.notify_all()

    def skip(self, key: str, why_not: str) -> None:
        """Says of a key that nothing is compiled for it: its turn comes when no other key is left."""
        with self._changed:
            self.tally.failed.append(f"{key}: {why_not}")
            self._by_key[key] = None
            self._changed.notify_all()

    def wait(self, keys: Sequence[str], *, until: float = float("inf")) -> str | None:
        """The first of these keys whose kernels are all there; waits for one.

        None where `until`, of time.monotonic, comes first.  Without any process left, the first key.
        """
        with self._changed:
            while True:
                jobs = {key: self._by_key[key] for key in keys if key in self._by_key}
                for key, mine in jobs.items():
                    if mine is not None and all(job.done for job in mine):
                        return key
                alone = len(jobs) == len(keys) and not any(jobs.values())
                if alone or self._ending or not self._working:
                    return keys[0]
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))

    # -- serving ---------------------------------------------------------------------------------
    def _serve(self) -> None:
        """The thread of one process: hands it one kernel after the other, and begins another one where it ended."""
        deaths, process = 0, None
        try:
            while deaths < MOST_DEATHS and (job := self._queue.get()) is not None and not self._ending:
                begun = time.monotonic()
                if process is None:
                    process = self._begin()
                why_not = self._compile(process, job) if process is not None else "no process could be begun"
                if process is None or process.poll() is not None:
                    process, deaths = None, deaths + 1
                self._finish(job, why_not, time.monotonic() - begun)
        finally:
            if process is not None:
                _end(process)
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _begin(self) -> subprocess.Popen[bytes] | None:
        folder = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_MODULE_LOADING": "LAZY"},
            )
        except OSError:
            return None
        with self._changed:
            self._running.add(process)
            if self._ending:
                process.kill()
        return process

    def _compile(self, process: subprocess.Popen[bytes], job: _Job) -> str:
        """Has one kernel compiled; returns why it was not, or an empty text."""
        assert process.stdin is not None
        request = json.dumps(job.variant.request()) + "\n"
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            line = self._line(process)
            return str(json.loads(line)["why_not"])
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            _end(process)
            return f"the process that compiles ended with {process.returncode} ({type(error).__name__}: {error})"

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        until, text = time.monotonic() + self._patience_s, b""
        while not text.endswith(b"\n"):
            there, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not there:
                raise TimeoutError(f"no answer within {self._patience_s:.0f} s")
            part = os.read(process.stdout.fileno(), 65_536)
            if not part:
                raise EOFError("no answer")
            text += part
        return text

    def _finish(self, job: _Job, why_not: str, took_s: float) -> None:
        with self._changed:
            job.done, job.why_not = True, why_not
            self.tally.spent_s += took_s
            if why_not and not self._ending:
                self.tally.failed.append(f"{job.variant.print[0]} of {job.variant.op}: {why_not}")
            elif not why_not:
                self.tally.compiled += 1
            self._running = {process for process in self._running if process.poll() is None}
            self._changed.notify_all()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
