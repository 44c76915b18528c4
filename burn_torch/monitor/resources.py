"""What the machine is doing while a run goes on: processors, memory, GPUs.

Processors and memory are read from /proc, which costs a tenth of a millisecond; where there is none, they are not
known.  GPUs are asked through NVML where its Python package `pynvml` (nvidia-ml-py) is installed.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from burn_torch.monitor.event import GpuUse, Resources

__all__ = ["ResourceSampler", "Sampler"]

EVERY_S: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_KIB: Final = 1 << 10
_PROC: Final = Path("/proc")


@final
class Sampler:
    """Each `sample` is about the time since the one before."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._nvml = _Nvml.load()
        self._cpu = self._cpu_ticks()
        self._own = time.process_time(), time.monotonic()

    def sample(self) -> Resources:
        """What there is to know now."""
        total, free = self._memory()
        return Resources(
            cpu_percent=self._cpu_percent(),
            memory_bytes=None if total is None or free is None else total - free,
            process_memory_bytes=self._process_memory(),
            gpus=() if self._nvml is None else self._nvml.gpus(),
            memory_total_bytes=total,
            process_cpu_percent=self._process_percent(),
        )

    def _cpu_percent(self) -> float | None:
        before, self._cpu = self._cpu, self._cpu_ticks()
        if before is None or self._cpu is None:
            return None
        total, idle = self._cpu[0] - before[0], self._cpu[1] - before[1]
        return None if total <= 0 else min(max(100.0 * (total - idle) / total, 0.0), 100.0)

    def _cpu_ticks(self) -> tuple[int, int] | None:
        """All ticks of all processors, and the idle ones."""
        try:
            with (self._proc / "stat").open("rb") as file:
                ticks = [int(text) for text in file.readline().split()[1:9]]  # guest time is in user time already
            return sum(ticks), ticks[3] + ticks[4]
        except (OSError, ValueError, IndexError):
            return None

    def _process_percent(self) -> float | None:
        before, self._own = self._own, (time.process_time(), time.monotonic())
        seconds = self._own[1] - before[1]
        return None if seconds <= 0 else 100.0 * (self._own[0] - before[0]) / seconds

    def _memory(self) -> tuple[int | None, int | None]:
        found: dict[bytes, int] = {}
        with suppress(OSError, ValueError, IndexError), (self._proc / "meminfo").open("rb") as file:
            for line in file:
                name, _, rest = line.partition(b":")
                if name in (b"MemTotal", b"MemAvailable"):
                    found[name] = int(rest.split()[0]) * _KIB
                    if len(found) == 2:
                        break
        return found.get(b"MemTotal"), found.get(b"MemAvailable")

    def _process_memory(self) -> int | None:
        try:
            return int((self._proc / "self" / "statm").read_bytes().split()[1]) * _PAGE
        except (OSError, ValueError, IndexError):
            return None


@final
class _Nvml:
    """The GPUs of this machine, as NVIDIA's management library sees them."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvmlInit()
        self._handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        self._names = [self._text(library.nvmlDeviceGetName(handle)) for handle in self._handles]

    @staticmethod
    def load() -> _Nvml | None:
        """None without the package, its library or a driver."""
        try:
            return _Nvml(importlib.import_module("pynvml"))
        except Exception:  # it raises errors of its own for each of them
            return None

    def gpus(self) -> tuple[GpuUse, ...]:
        """What each is doing."""
        library = self._library
        found = []
        for index, (handle, name) in enumerate(zip(self._handles, self._names, strict=True)):
            memory = self._asked(library.nvmlDeviceGetMemoryInfo, handle)
            rates = self._asked(library.nvmlDeviceGetUtilizationRates, handle)
            celsius = self._asked(library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU)
            milliwatt = self._asked(library.nvmlDeviceGetPowerUsage, handle)
            found.append(
                GpuUse(
                    index,
                    name,
                    None if rates is None else float(rates.gpu),
                    None if memory is None else int(memory.used),
                    None if memory is None else int(memory.total),
                    None if celsius is None else float(celsius),
                    None if milliwatt is None else milliwatt / 1000.0,
                )
            )
        return tuple(found)

    @staticmethod
    def _asked(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception:  # not every GPU answers every question
            return None

    @staticmethod
    def _text(name: str | bytes) -> str:
        return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


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
            found = sampler.sample()
            if not self._closed.is_set():
                self._publish(found)
