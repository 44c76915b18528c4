"""The rival in JAX as a variant: it asks a worker in a process of its own, so that neither side's settings, threads or
memory touch the other's, and both take turns all the same."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._steps.asking import Asked, jax_environment
from benchmarks._steps.cases import Array, Case
from benchmarks._steps.measure import CHECKED_STEPS, Variant

__all__ = ["JaxStep"]


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
        self.worker: Asked | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None
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
        script = str(Path(__file__).with_name("jax_worker.py"))
        self.worker = Asked([self.python, script, str(folder)], jax_environment(self.device, self.threads))
        self.version = f"{self.worker.ready['ready']} on {self.worker.ready['device']}"

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.worker is not None
        return self.worker.ask(question)

    def numbers(self) -> list[float]:
        reply = self._ask({"numbers": CHECKED_STEPS})
        self.first_s = reply["first_s"]
        self.peak_mib = self._ask({"peak": True})["peak_mib"]
        numbers: list[float] = reply["numbers"]
        return numbers

    def run(self, steps: int) -> float:
        seconds: float = self._ask({"run": steps, "clock": self.clock})["seconds"]
        return seconds

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None
        if self.folder is not None:
            self.folder.cleanup()
