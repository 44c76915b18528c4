"""Another process that answers a line of JSON by one: a rival whose settings, threads and memory stay apart."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

from benchmarks._steps.measure import Failed

__all__ = ["Asked", "jax_environment"]

PATIENCE_S = 120.0


def jax_environment(device: str, threads: int) -> dict[str, str]:
    """For JAX: memory as it is needed, not all at once; on a CPU as many threads as torch has."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment.pop("PYTHONPATH", None)
    if device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
        if threads == 1:
            environment["BENCH_ONE_CORE"] = "1"
            environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    return environment


class Asked:
    """A running worker.  `ready` is its first line."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # as long as the worker runs
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self.ready = self._answer()
        except Failed:
            self.close()
            raise

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer.  Raises: Failed where the worker ended, or is silent for too long."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")  # the end

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failed(f"the worker has been silent for {PATIENCE_S:.0f} s") from None
        if not line:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["no word"]
            raise Failed(f"the worker ended: {lines[-1][:140]}")
        reply: dict[str, Any] = json.loads(line)
        return reply
