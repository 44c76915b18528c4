"""Defines what this machine has to tell: use, memory and temperature of its processors, through no package but Python
itself.

On Linux the kernel says it in /proc and /sys, and NVIDIA's driver in its library NVML, which comes with it; on other
systems the processors' figures come from psutil where that is installed.  A missing figure is None.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from burn_torch.monitor.event import GpuUse

__all__ = ["CpuTimes", "Nvml", "cpu_memory", "cpu_temperature", "cpu_times"]

_SENSORS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_ZONES: Final = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal")


@final
@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Holds what all processors did since the machine was started, in seconds or ticks: only differences mean
    anything.
    """

    busy: float
    idle: float

    def percent_since(self, before: CpuTimes) -> float | None:
        """Percent of the time between that they were busy; None if none has passed."""
        busy, idle = self.busy - before.busy, self.idle - before.idle
        # waiting for a disk is counted as idle, and the kernel may take some of that back
        return min(max(100.0 * busy / (busy + idle), 0.0), 100.0) if busy + idle > 0 else None


def cpu_times(root: Path = Path("/")) -> CpuTimes | None:
    """The times of all processors together; None where nobody tells."""
    words = next(iter(_lines(root / "proc/stat", 1)), "").split()
    if len(words) >= 6:
        # user nice system idle iowait irq softirq steal; what guests ran is in user and nice already
        ticks = [float(word) for word in words[1:9]]
        idle = ticks[3] + ticks[4]
        return CpuTimes(sum(ticks) - idle, idle)
    times = _psutil("cpu_times")
    return None if times is None else CpuTimes(sum(times[:8]) - times.idle, times.idle)


def cpu_memory(root: Path = Path("/")) -> tuple[int, int] | None:
    """Bytes of memory that no program could still have, and all there are; None where nobody tells."""
    sizes = {}
    for line in _lines(root / "proc/meminfo", 8):
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            sizes[name] = 1024 * int(rest.split()[0])
    if len(sizes) == 2:
        return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
    memory = _psutil("virtual_memory")
    return None if memory is None else (int(memory.total - memory.available), int(memory.total))


def cpu_temperature(root: Path = Path("/")) -> float | None:
    """The hottest sensor of the processor in °C; None where there is no such sensor, as in most virtual machines."""
    temperatures = [
        degrees
        for chip in sorted((root / "sys/class/hwmon").glob("hwmon*"))
        if _word(chip / "name") in _SENSORS
        for sensor in sorted(chip.glob("temp*_input"))
        if (degrees := _milli(sensor)) is not None
    ] or [
        degrees
        for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*"))
        if _word(zone / "type") in _ZONES and (degrees := _milli(zone / "temp")) is not None
    ]
    return max(temperatures, default=None)


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@final
class Nvml:
    """NVIDIA's management library, which the driver installs.

    `why_not` says in words why there is nothing to read; then `gpus` is empty.
    """

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.why_not: str | None = None
        self._library: Any = None
        self._handles: list[tuple[int, str, ctypes.c_void_p]] = []
        name = "nvml.dll" if platform.system() == "Windows" else "libnvidia-ml.so.1"
        try:
            self._library = load(name)
        except OSError:
            self.why_not = f"there is no NVIDIA driver here ({name} is not found)"
            return
        count = ctypes.c_uint()
        status = self._library.nvmlInit_v2() or self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if status:
            self.why_not = f"the NVIDIA driver does not answer (NVML status {status})"
            return
        for index in range(count.value):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if not self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)):
                self._library.nvmlDeviceGetName(handle, text, ctypes.c_uint(len(text)))
                self._handles.append((index, text.value.decode("utf-8", "replace"), handle))
        if not self._handles:
            self.why_not = "the NVIDIA driver has no GPU"

    def gpus(self) -> tuple[GpuUse, ...]:
        """All GPUs of the machine now, as nvidia-smi counts them, whatever CUDA_VISIBLE_DEVICES says."""
        return tuple([self._of(*each) for each in self._handles])

    def _of(self, index: int, name: str, handle: ctypes.c_void_p) -> GpuUse:
        memory, use, milliwatts, degrees = _Memory(), _Use(), ctypes.c_uint(), ctypes.c_uint()
        library = self._library
        has_use = not library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
        has_memory = not library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        has_degrees = not library.nvmlDeviceGetTemperature(handle, ctypes.c_uint(0), ctypes.byref(degrees))
        has_power = not library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts))
        return GpuUse(
            index,
            name,
            float(use.gpu) if has_use else None,
            int(memory.used) if has_memory else None,
            int(memory.total) if has_memory else None,
            float(degrees.value) if has_degrees else None,
            milliwatts.value / 1e3 if has_power else None,
        )


def _lines(path: Path, most: int) -> list[str]:
    """The first lines of a file, none of one that is not there."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line for _, line in zip(range(most), file, strict=False)]
    except OSError:
        return []


def _word(path: Path) -> str:
    return "".join(_lines(path, 1)).strip()


def _milli(path: Path) -> float | None:
    text = _word(path)
    return int(text) / 1e3 if text.lstrip("-").isdigit() else None


def _psutil(name: str) -> Any:
    if platform.system() == "Linux":
        return None  # the kernel is asked itself
    try:
        return getattr(importlib.import_module("psutil"), name)()
    except (ImportError, OSError):
        return None
