"""Metrics of the machine: processor use, memory and temperature, and what the NVIDIA GPUs do.

Each reads the machine at most every 200 ms and gives the same number in between; an epoch is the mean over its batches.
If a number is not to be had, the value is NaN over no items, which is shown nowhere, and the log says once why.
"""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ConfigError
from burn_torch.monitor.event import GpuUse
from burn_torch.monitor.machine import Nvml, cpu_memory, cpu_temperature, cpu_times
from burn_torch.train.metric.base import MetricMetadata, NumericMetric, Reading

__all__ = ["CpuMemory", "CpuTemperature", "CpuUse", "CudaMetric", "CudaQuantity"]

REFRESH_S: Final = 0.2

_LOG: Final = logging.getLogger("burn_torch.train")


class _MachineMetric(NumericMetric):
    """A number of the machine, read now and then."""

    higher_is_better = False

    def __init__(self) -> None:
        super().__init__()
        self._read_at = -math.inf
        self._number: float | None = None
        self._said = False

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """The newest number."""
        now = time.monotonic()
        if now - self._read_at >= REFRESH_S:
            self._read_at = now
            self._number = self.read()
        if self._number is None:
            self._say()
            return Reading.of_mean(math.nan, 0)
        return Reading.of_mean(self._number)

    @abstractmethod
    def read(self) -> float | None:
        """Asks the machine; None if it does not tell."""

    def why_not(self) -> str:
        """Why the machine does not tell."""
        return "this system does not tell it"

    def describe(self) -> str:
        """The newest number as text, or that it is not available and why."""
        number = self.read()
        return f"{self.name}: " + (f"not available, {self.why_not()}" if number is None else self.format(number))

    def format(self, number: float) -> str:
        """A number with its unit."""
        return f"{number:.2f} {self.unit}"

    def _say(self) -> None:
        if not self._said:
            self._said = True
            _LOG.info("%s", self.describe())


@checked(error=ConfigError, but=("update", "measure"))
@final
class CpuUse(_MachineMetric):
    """Percent of the time since the last reading in which the processors were busy, the mean over all of them."""

    name = "CPU Usage"
    unit = "%"

    def __init__(self, root: str | Path = "/") -> None:
        super().__init__()
        self._root = Path(root)
        self._before = cpu_times(self._root)
        self._last: float | None = None

    def read(self) -> float | None:
        """The use since the reading before; that one again if no time has passed."""
        now = cpu_times(self._root)
        if now is None or self._before is None:
            self._before = now
            return None
        use = now.percent_since(self._before)
        if use is not None:
            self._before, self._last = now, use
        return self._last


@checked(error=ConfigError, but=("update", "measure"))
@final
class CpuMemory(_MachineMetric):
    """Memory of the machine in use, in GB of 1e9 bytes: what is there less what a program could still have."""

    name = "CPU Memory"
    unit = "GB"

    def __init__(self, root: str | Path = "/") -> None:
        super().__init__()
        self._root = Path(root)
        self.total_gb: float | None = None

    def read(self) -> float | None:
        """The memory in use."""
        memory = cpu_memory(self._root)
        if memory is None:
            return None
        used, total = memory
        self.total_gb = total / 1e9
        return used / 1e9

    def format(self, number: float) -> str:
        """Beside all there is."""
        return f"{number:.2f} / {self.total_gb:.2f} GB"


@checked(error=ConfigError, but=("update", "measure"))
@final
class CpuTemperature(_MachineMetric):
    """The hottest sensor of the processor, in °C."""

    name = "CPU Temperature"
    unit = "°C"

    def __init__(self, root: str | Path = "/") -> None:
        super().__init__()
        self._root = Path(root)

    def read(self) -> float | None:
        """The hottest sensor."""
        return cpu_temperature(self._root)

    def why_not(self) -> str:
        """Virtual machines have no sensors."""
        return "no sensor of the processor is to be found, as in most virtual machines"


class CudaQuantity(Enum):
    """Holds what a CudaMetric measures."""

    Memory = "memory"
    """GB of 1e9 bytes in use, all GPUs together."""
    Usage = "usage"
    """Percent of the time in which a kernel ran, the mean over the GPUs."""
    Power = "power"
    """Watts, all GPUs together."""
    Temperature = "temperature"
    """°C of the hottest GPU."""


@checked(error=ConfigError, but=("update", "measure"))
@final
class CudaMetric(_MachineMetric):
    """Holds what the NVIDIA GPUs of the machine do: their memory, or another quantity; `describe` tells all of each.

    `index` picks one GPU, as nvidia-smi counts them; without it the quantity says how they become one number.
    Burn shows a text, `describe`; a metric here is a number, so that it can be plotted.
    """

    UNITS: ClassVar = {
        CudaQuantity.Memory: "GB",
        CudaQuantity.Usage: "%",
        CudaQuantity.Power: "W",
        CudaQuantity.Temperature: "°C",
    }

    def __init__(
        self,
        quantity: CudaQuantity | str = CudaQuantity.Memory,
        index: int | None = None,
        *,
        nvml: Callable[[], Nvml] = Nvml,
    ) -> None:
        super().__init__()
        self.quantity: Final = _quantity(quantity)
        self.index: Final = index
        self._open = nvml
        self._nvml: Nvml | None = None
        self.name = f"CUDA {self.quantity.name}" + ("" if index is None else f" #{index}")

    @property
    def unit(self) -> str:  # type: ignore[override]  # it follows the quantity
        """GB, %, W or °C."""
        return self.UNITS[self.quantity]

    def __deepcopy__(self, memo: object) -> CudaMetric:
        return CudaMetric(self.quantity, self.index, nvml=self._open)  # handles of the driver are not copied

    def stats(self) -> list[GpuUse]:
        """The GPUs that are measured, now; none where there is no driver."""
        gpus = self._library().gpus()
        return [one for one in gpus if self.index in (None, one.index)]

    def read(self) -> float | None:
        """The quantity over the GPUs that tell it."""
        field, scale, reduce = _FIELDS[self.quantity]
        values = [value / scale for one in self.stats() if (value := getattr(one, field)) is not None]
        return reduce(values) if values else None

    def why_not(self) -> str:
        """That there is no driver or no such GPU, or that it keeps silent."""
        library = self._library()
        if library.why_not is not None:
            return library.why_not
        if not self.stats():
            return f"there is no GPU #{self.index}"
        return "the driver does not tell it of this GPU"

    def describe(self) -> str:
        """All quantities of each GPU."""
        gpus = self.stats()
        if not gpus:
            return f"{self.name}: not available, {self.why_not()}"
        return "CUDA Stats: " + "; ".join(map(_line, gpus))

    def _library(self) -> Nvml:
        if self._nvml is None:
            self._nvml = self._open()
        return self._nvml


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


_FIELDS: Final[dict[CudaQuantity, tuple[str, float, Callable[[list[float]], float]]]] = {
    CudaQuantity.Memory: ("memory_bytes", 1e9, math.fsum),
    CudaQuantity.Usage: ("percent", 1.0, _mean),
    CudaQuantity.Power: ("power_w", 1.0, math.fsum),
    CudaQuantity.Temperature: ("temperature_c", 1.0, max),
}


def _line(gpu: GpuUse) -> str:
    def part(format: str, *values: float | None, scale: float = 1.0) -> str:
        known = [value / scale for value in values if value is not None]
        return format.format(*known) if len(known) == len(values) else "not available"

    memory = part("{:.2f}/{:.2f} GB", gpu.memory_bytes, gpu.memory_total_bytes, scale=1e9)
    use, power, heat = (
        part("{:.0f} %", gpu.percent),
        part("{:.0f} W", gpu.power_w),
        part("{:.0f} °C", gpu.temperature_c),
    )
    return f"GPU #{gpu.index} {gpu.name} - Memory {memory} - Usage {use} - Power {power} - Temperature {heat}"


def _quantity(value: CudaQuantity | str) -> CudaQuantity:
    for member in CudaQuantity:
        if value in (member, member.name, member.value):
            return member
    raise ArgumentError(
        "there is no such CudaQuantity",
        given=repr(value),
        expected=", ".join(repr(member.value) for member in CudaQuantity),
        mend="write CudaMetric(CudaQuantity.Memory)",
    )
