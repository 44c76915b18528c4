"""Compiles what candidates will launch in other processes, before anything is measured, into Triton's own cache.

    with Compilers(machine, 15) as compilers:
        compilers.ask("softmax rows<=8192 ...", variants(tunable, facts, configs, machine))
        compilers.wait(keys)                    the first of these keys of which nothing is missing

What a candidate would launch is recorded on tensors that hold nothing; no GPU is needed for that, nor for compiling.
Kernels that several candidates share are compiled once.  A process that dies, hangs or fails costs nothing but its own
kernel: whatever is not in the cache is compiled by who launches it, and fails there, by name, if it must.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import Inputs, Tunable
from burn_kernels.autotune.tuner import reduced
from burn_kernels.launch import Launch, Machine, recording
from burn_kernels.workers import PATIENCE_S, Answer, Workers

__all__ = ["Compilers", "Variant", "launches", "variants"]

WORKER = "burn_kernels.autotune.compile_worker"


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
    """The launches of a trial, for each config: those that draw its inputs, if kernels do, and its own."""
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
        for config, launched in zip(configs, launches(tunable, problem, configs, machine), strict=True):
            for number, launch in enumerate(launched):
                yield Variant(tunable.name, problem, asdict(config), number, fingerprint(launch))


def fingerprint(launch: Launch) -> tuple[object, ...]:
    """The properties of a launch that go into its code: types, sizes that are 1, multiples of 16 or wide, options."""
    words: list[Any] = [f"{launch.kernel.fn.__module__}.{launch.kernel.fn.__qualname__}", launch.warps, launch.stages]
    words += [bool(launch.together), int(launch.registers), bool(launch.early), bool(launch.contracts)]
    arguments = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False)) | launch.constants
    for parameter in launch.kernel.params:
        value = arguments.get(parameter.name, parameter.default)
        words.append(repr(value) if parameter.is_constexpr else _kind_of(value, parameter.do_not_specialize))
    return tuple(words)


def _kind_of(value: Any, plain: bool) -> object:
    """The properties of an argument that go into the code; of a tuple those of its members."""
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
class Tally:
    """The sums of what the processes did."""

    compiled: int = 0
    spent_s: float = 0.0
    """The seconds of all processes together."""
    waited_s: float = 0.0
    """The seconds that the measuring process waits for kernels."""
    failed: list[str] = field(default_factory=list)
    """The reasons why kernels were not compiled."""


class Compilers:
    """Processes that compile for a machine; `launchers` builds the host's side too, which needs its driver."""

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
        about = json.dumps(asdict(machine) | {"launchers": launchers})
        folder = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_MODULE_LOADING": "LAZY"}
        self._workers = Workers([*command, about], count, patience_s=patience_s, environment=environment)
        self._asked: dict[tuple[object, ...], Future[Answer | None]] = {}
        self._done: set[Future[Answer | None]] = set()
        self._by_key: dict[str, list[Future[Answer | None]] | None] = {}
        self._changed = threading.Condition()
        self._ending = False

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *fault: object) -> None:
        """Ends all processes; kernels that no process has begun are not compiled."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._workers.__exit__(*fault)

    def ask(self, key: str, wanted: Iterable[Variant]) -> None:
        """Has the kernels of a key compiled, after those of the keys before it."""
        answers = []
        with self._changed:
            for variant in wanted:
                answer = self._asked.get(variant.print)
                if answer is None:
                    answer = self._asked[variant.print] = self._workers.submit(variant.request())
                    answer.add_done_callback(functools.partial(self._count, variant))
                answers.append(answer)
            self._by_key[key] = answers
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
                asked = {key: self._by_key[key] for key in keys if key in self._by_key}
                for key, answers in asked.items():
                    if answers is not None and self._done.issuperset(answers):
                        return key
                alone = len(asked) == len(keys) and not any(asked.values())
                if alone or self._ending or not self._workers.left:
                    return keys[0]
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))

    def _count(self, variant: Variant, future: Future[Answer | None]) -> None:
        answer = future.result()
        with self._changed:
            self._done.add(future)
            if answer is not None:
                self.tally.spent_s += answer.took_s
                if not answer.why_not:
                    self.tally.compiled += 1
                elif not self._ending:
                    self.tally.failed.append(f"{variant.print[0]} of {variant.op}: {answer.why_not}")
            self._changed.notify_all()
