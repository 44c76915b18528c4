"""What this machine has to tell: use, memory and temperature of its processors, through no package but Python itself.

On Linux the kernel says it in /proc and /sys, and NVIDIA's driver in its library NVML, which comes with it; on other
systems the processor's figures come from psutil where that is installed.  What is not there is None.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

__all__ = ["CpuTimes", "CudaStats", "Nvml", "cpu_memory", "cpu_temperature", "cpu_times"]

_SENSORS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_ZONES: Final = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal")


@final
@dataclass(frozen=True)
class CpuTimes:
    """What all processors did since the machine was started, in seconds or ticks: only differences mean anything."""

    busy: float
    idle: float

    def use_since(self, before: CpuTimes) -> float | None:
        """Percent of the time between that they were busy; None if none has passed."""
        busy, idle = self.busy - before.busy, self.idle - before.idle
        return 100.0 * busy / (busy + idle) if busy + idle > 0 else None


def cpu_times(root: Path = Path("/")) -> CpuTimes | None:
    """The times of all processors together; None where nobody tells."""
    line = _text(root / "proc/stat").partition("\n")[0].split()
    if len(line) >= 6:
        # user nice system idle iowait irq softirq steal; what guests ran is in user and nice already
        ticks = [float(word) for word in line[1:9]]
        idle = ticks[3] + ticks[4]
        return CpuTimes(sum(ticks) - idle, idle)
    found = _psutil("cpu_times")
    return None if found is None else CpuTimes(sum(found[:8]) - found.idle, found.idle)


def cpu_memory(root: Path = Path("/")) -> tuple[float, float] | None:
    """Memory in use and memory there is, in GB of 1e9 bytes; None where nobody tells."""
    rows = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    found = {row[0]: 1024 * float(row[1]) for row in rows if len(row) >= 2}
    if "MemTotal:" in found and "MemAvailable:" in found:
        return (found["MemTotal:"] - found["MemAvailable:"]) / 1e9, found["MemTotal:"] / 1e9
    memory = _psutil("virtual_memory")
    return None if memory is None else ((memory.total - memory.available) / 1e9, memory.total / 1e9)


def cpu_temperature(root: Path = Path("/")) -> float | None:
    """The hottest sensor of the processor in °C; None where there is no such sensor, as in most virtual machines."""
    found = [
        degrees
        for chip in sorted((root / "sys/class/hwmon").glob("hwmon*"))
        if _text(chip / "name").strip() in _SENSORS
        for sensor in sorted(chip.glob("temp*_input"))
        if (degrees := _milli(sensor)) is not None
    ] or [
        degrees
        for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*"))
        if _text(zone / "type").strip() in _ZONES and (degrees := _milli(zone / "temp")) is not None
    ]
    return max(found, default=None)


@final
@dataclass(frozen=True)
class CudaStats:
    """One NVIDIA GPU at one moment; None is what it does not tell."""

    index: int
    """As nvidia-smi counts: all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES says."""
    memory_used_gb: float | None
    memory_total_gb: float | None
    use_percent: float | None
    power_w: float | None
    temperature_c: float | None

    def __str__(self) -> str:
        def part(format: str, *values: float | None) -> str:
            return "not available" if None in values else format.format(*values)

        memory = part("{:.2f}/{:.2f} GB", self.memory_used_gb, self.memory_total_gb)
        use, power = part("{:.0f} %", self.use_percent), part("{:.0f} W", self.power_w)
        return f"GPU #{self.index} - Memory {memory} - Usage {use} - Power {power} - Temperature " + part(
            "{:.0f} °C", self.temperature_c
        )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@final
class Nvml:
    """NVIDIA's management library, which the driver installs.

    `why_not` says in words why there is nothing to read; then `stats` is empty.
    """

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.why_not: str | None = None
        self._library: Any = None
        self._handles: list[ctypes.c_void_p] = []
        name = "nvml.dll" if platform.system() == "Windows" else "libnvidia-ml.so.1"
        try:
            self._library = load(name)
        except OSError:
            self.why_not = f"there is no NVIDIA driver here ({name} is not found)"
            return
        status = self._library.nvmlInit_v2()
        count = ctypes.c_uint()
        if status or (status := self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))):
            self.why_not = f"the NVIDIA driver does not answer (NVML status {status})"
            return
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if not self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)):
                self._handles.append(handle)
        if not self._handles:
            self.why_not = "the NVIDIA driver has no GPU"

    def stats(self) -> list[CudaStats]:
        """All GPUs now."""
        return [self._of(index, handle) for index, handle in enumerate(self._handles)]

    def _of(self, index: int, handle: ctypes.c_void_p) -> CudaStats:
        memory, use, power, degrees = _Memory(), _Use(), ctypes.c_uint(), ctypes.c_uint()
        library = self._library
        has_memory = not library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        has_use = not library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
        has_power = not library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power))
        core = ctypes.c_uint(0)
        has_degrees = not library.nvmlDeviceGetTemperature(handle, core, ctypes.byref(degrees))
        return CudaStats(
            index,
            memory.used / 1e9 if has_memory else None,
            memory.total / 1e9 if has_memory else None,
            float(use.gpu) if has_use else None,
            power.value / 1e3 if has_power else None,
            float(degrees.value) if has_degrees else None,
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _milli(path: Path) -> float | None:
    text = _text(path).strip()
    return int(text) / 1e3 if text.lstrip("-").isdigit() else None


def _psutil(name: str) -> Any:
    if platform.system() == "Linux":
        return None  # the kernel is asked itself
    try:
        return getattr(importlib.import_module("psutil"), name)()
    except (ImportError, OSError):
        return None
