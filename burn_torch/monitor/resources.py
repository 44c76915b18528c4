"""Defines what the machine is doing while a run goes on: processors, memory, GPUs.

The machine's own figures are in `burn_torch.monitor.machine`; reading it costs a tenth of a millisecond.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from burn_torch.monitor.event import Resources
from burn_torch.monitor.machine import Nvml, cpu_memory, cpu_times

__all__ = ["ResourceSampler", "Sampler"]

EVERY_S: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ROOT: Final = Path("/")


@final
class Sampler:
    """Each `sample` is about the time since the one before."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._nvml = Nvml()
        self._cpu = cpu_times(root)
        self._own = time.process_time(), time.monotonic()

    def sample(self) -> Resources:
        """Returns what there is to know now."""
        memory, total = cpu_memory(self._root) or (None, None)
        return Resources(
            cpu_percent=self._cpu_percent(),
            memory_bytes=memory,
            process_memory_bytes=self._process_memory(),
            gpus=self._nvml.gpus(),
            memory_total_bytes=total,
            process_cpu_percent=self._process_percent(),
        )

    def _cpu_percent(self) -> float | None:
        before, self._cpu = self._cpu, cpu_times(self._root)
        return None if before is None or self._cpu is None else self._cpu.percent_since(before)

    def _process_percent(self) -> float | None:
        before, self._own = self._own, (time.process_time(), time.monotonic())
        seconds = self._own[1] - before[1]
        return None if seconds <= 0 else 100.0 * (self._own[0] - before[0]) / seconds

    def _process_memory(self) -> int | None:
        try:
            return int((self._root / "proc/self/statm").read_bytes().split()[1]) * _PAGE
        except (OSError, ValueError, IndexError):
            return None


@final
class ResourceSampler:
    """A thread that samples every `every_s` seconds until it is closed."""

    def __init__(self, publish: Callable[[Resources], None], *, every_s: float = EVERY_S) -> None:
        self._publish = publish
        self._every_s = every_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="burn-torch-resources", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Ends; nothing is published after this."""
        self._closed.set()
        self._thread.join(timeout=5.0)

    def _work(self) -> None:
        sampler = Sampler()
        while not self._closed.wait(self._every_s):
            sample = sampler.sample()
            if not self._closed.is_set():
                self._publish(sample)
