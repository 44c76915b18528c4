"""The rival in JAX as a variant: it asks a worker in a process of its own, so that neither side's settings, threads or
memory touch the other's, and both take turns all the same."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._steps.cases import Array, Case
from benchmarks._steps.measure import CHECKED_STEPS, Failed, Variant

__all__ = ["JaxStep"]

PATIENCE_S = 120.0


class JaxStep(Variant):
    """`jax.jit` of the whole step with donated state.

    python    the interpreter that has jax; this one by itself
    precision what JAX calls the precision of products
    """

    name = "JAX jit"

    def __init__(
        self, case: Case, values: Mapping[str, Array], device: str, *, python: str, precision: str, threads: int
    ) -> None:
        self.case, self.values, self.device = case, values, device
        self.python, self.precision, self.threads = python or sys.executable, precision, threads
        self.process: subprocess.Popen[str] | None = None
        self.peak_mib: float | None = None
        self.version = ""

    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder, case = Path(self.folder.name), self.case
        np.savez(folder / "weights.npz", **self.values)  # type: ignore[arg-type]  # names are paths, never `file`
        arrays = {
            f"{i}.{j}": array.astype(np.int32) if array.dtype == np.int64 else array
            for i, batch in enumerate(case.batches)
            for j, array in enumerate(batch)
        }
        np.savez(folder / "batches.npz", **arrays)  # type: ignore[arg-type]
        adam = None if case.optimizer is None else asdict(case.optimizer)
        task = {"loss": case.jax, "adam": adam, "precision": self.precision, "count": len(case.batches)}
        text = json.dumps(task | {"parts": len(case.batches[0])})
        (folder / "task.json").write_text(text, encoding="utf-8")
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        environment.pop("PYTHONPATH", None)
        if self.device == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
            if self.threads == 1:
                environment["BENCH_ONE_CORE"] = "1"
                environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
        self.errors = (folder / "errors.txt").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [self.python, str(Path(__file__).with_name("jax_worker.py")), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        ready = self._answer()
        self.version = f"{ready['ready']} on {ready['device']}"

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.put(line)
        self.lines.put("")  # the end

    def _answer(self) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failed(f"the worker has been silent for {PATIENCE_S:.0f} s") from None
        if not line:
            self.errors.seek(0)
            told = self.errors.read().strip().splitlines() or ["no word"]
            raise Failed(f"the worker ended: {told[-1][:140]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def numbers(self) -> list[float]:
        found = self._ask({"numbers": CHECKED_STEPS})
        self.first_s = found["first_s"]
        self.peak_mib = self._ask({"peak": True})["peak_mib"]
        numbers: list[float] = found["numbers"]
        return numbers

    def run(self, steps: int) -> float:
        seconds: float = self._ask({"run": steps, "clock": self.clock})["seconds"]
        return seconds

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.errors.close()
            self.process = None
        self.folder.cleanup()
