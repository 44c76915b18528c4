"""Metrics of the machine, read from files and a driver that these tests write."""

import copy
import importlib
import logging
import math
import platform
import re
from types import SimpleNamespace

import pytest

from burn_torch import ArgumentError
from burn_torch.monitor.machine import CpuTimes, Nvml, cpu_memory, cpu_temperature, cpu_times
from burn_torch.monitor.resources import Sampler
from burn_torch.train import CpuMemory, CpuTemperature, CpuUse, CudaMetric, CudaQuantity, Metric, ResumableMetric
from burn_torch.train.metric import hardware


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def stat(root, *ticks):
    write(root, "proc/stat", "cpu  " + " ".join(map(str, ticks)) + "\ncpu0 1 2 3 4\n")


@pytest.fixture(autouse=True)
def _always_read(monkeypatch, request):
    if "between" not in request.node.name:
        monkeypatch.setattr(hardware, "REFRESH_S", 0.0)


def test_cpu_use_is_busy_over_all_time(tmp_path, feed):
    stat(tmp_path, 100, 10, 50, 800, 40, 0, 0, 0, 5, 0)
    metric = CpuUse(tmp_path)
    # 60 user, 20 system, 5 stolen; 100 idle, 15 waiting: 85 of 200 busy; what guests ran is in user already
    stat(tmp_path, 160, 10, 70, 900, 55, 0, 0, 5, 65, 0)
    assert feed(metric, [None]) == [42.5]
    assert feed(metric, [None]) == [42.5]  # no time has passed: what it was
    stat(tmp_path, 160, 10, 70, 1000, 55, 0, 0, 5, 65, 0)
    assert feed(metric, [None]) == [0.0]
    assert metric.value() == pytest.approx((42.5 + 42.5 + 0.0) / 3)
    assert metric.describe() == "CPU Usage: 0.00 %"


def test_cpu_memory_is_what_is_not_available(tmp_path, feed):
    write(
        tmp_path, "proc/meminfo", "MemTotal:  16000000 kB\nMemFree: 1000 kB\nMemAvailable: 12000000 kB\nHugePages: 0\n"
    )
    metric = CpuMemory(tmp_path)
    assert feed(metric, [None]) == [pytest.approx(4.096)]
    assert metric.describe() == "CPU Memory: 4.10 / 16.38 GB"


def test_cpu_temperature_is_the_hottest_sensor(tmp_path, feed):
    write(tmp_path, "sys/class/hwmon/hwmon0/name", "nvme\n")
    write(tmp_path, "sys/class/hwmon/hwmon0/temp1_input", "99000\n")
    write(tmp_path, "sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n")
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", "51500\n")
    assert cpu_temperature(tmp_path) == 51.5
    write(tmp_path, "sys/class/hwmon/hwmon1/name", "coretemp\n")
    for number, text in enumerate(["47000\n", "49250\n", "no number\n"], start=1):
        write(tmp_path, f"sys/class/hwmon/hwmon1/temp{number}_input", text)
    metric = CpuTemperature(tmp_path)
    assert feed(metric, [None]) == [49.25]
    assert metric.describe() == "CPU Temperature: 49.25 °C"


@pytest.mark.parametrize("make", [CpuUse, CpuMemory, CpuTemperature])
def test_absent_hardware_is_not_available_and_said_once(make, tmp_path, feed, caplog, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    metric = make(tmp_path)
    with caplog.at_level(logging.INFO, "burn_torch.train"):
        assert all(map(math.isnan, feed(metric, [None, None])))
    assert math.isnan(metric.value())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{metric.name}: not available, ")


def test_elsewhere_psutil_is_asked(tmp_path, monkeypatch):
    asked = {
        "cpu_times": lambda: type("Times", (tuple,), {"idle": 30.0})((10.0, 30.0, 5.0)),
        "virtual_memory": lambda: SimpleNamespace(total=8e9, available=6e9),
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(**asked))
    assert cpu_times(tmp_path) == CpuTimes(busy=15.0, idle=30.0)
    assert cpu_memory(tmp_path) == (2 * 10**9, 8 * 10**9)

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    assert cpu_times(tmp_path) is None
    assert cpu_memory(tmp_path) is None


def test_the_sampler_of_a_run_reads_the_same(tmp_path):
    stat(tmp_path, 100, 10, 50, 800, 40, 0, 0, 0, 5, 0)
    write(tmp_path, "proc/meminfo", "MemTotal: 2000000 kB\nMemFree: 1 kB\nMemAvailable: 1500000 kB\n")
    sampler = Sampler(tmp_path)
    stat(tmp_path, 160, 10, 70, 900, 55, 0, 0, 5, 65, 0)
    sample = sampler.sample()
    assert (sample.cpu_percent, sample.memory_bytes, sample.memory_total_bytes) == (42.5, 512_000_000, 2_048_000_000)
    assert sample.process_memory_bytes is None
    (tmp_path / "proc/stat").unlink()
    assert sampler.sample().cpu_percent is None


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_this_machine(feed):
    use, memory = CpuUse(), CpuMemory()
    sum(range(300_000))
    assert 0 <= feed(use, [None])[0] <= 100 or math.isnan(use.value())
    (used,) = feed(memory, [None])
    assert 0 < used < memory.total_gb
    for metric in (use, memory, CpuTemperature(), CudaMetric()):
        assert isinstance(metric, Metric)
        assert isinstance(metric, ResumableMetric)
        assert not metric.higher_is_better
        feed(copy.deepcopy(metric), [None])


def test_the_machine_is_read_at_most_every_200_ms_and_its_number_kept_in_between(tmp_path, feed):
    write(tmp_path, "proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n")
    metric = CpuMemory(tmp_path)
    first = feed(metric, [None])
    (tmp_path / "proc/meminfo").unlink()
    assert feed(metric, [None, None]) == first * 2


class Library:
    """A driver with two GPUs; the second tells neither power nor use."""

    def __init__(self, status=0):
        self.status = status

    def nvmlInit_v2(self):  # noqa: N802
        return self.status

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):  # noqa: N802
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetName(self, handle, text, size):  # noqa: N802
        assert size.value >= 96
        text.value = b"H100"
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle, memory):  # noqa: N802
        memory._obj.total, memory._obj.used = 80 * 10**9, (handle.value - 99) * 10**9
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, use):  # noqa: N802
        use._obj.gpu = 87
        return 0 if handle.value == 100 else 3

    def nvmlDeviceGetPowerUsage(self, handle, power):  # noqa: N802
        power._obj.value = 312_500
        return 0 if handle.value == 100 else 3

    def nvmlDeviceGetTemperature(self, handle, sensor, degrees):  # noqa: N802
        assert sensor.value == 0
        degrees._obj.value = handle.value - 50
        return 0


def driver(status=0):
    return lambda: Nvml(lambda name: Library(status))


@pytest.mark.parametrize(
    ("quantity", "index", "name", "unit", "value"),
    [
        (CudaQuantity.Memory, None, "CUDA Memory", "GB", 3.0),
        ("memory", 1, "CUDA Memory #1", "GB", 2.0),
        ("usage", None, "CUDA Usage", "%", 87.0),
        ("power", None, "CUDA Power", "W", 312.5),
        ("temperature", None, "CUDA Temperature", "°C", 51.0),
        ("Temperature", 0, "CUDA Temperature #0", "°C", 50.0),
    ],
)
def test_cuda(quantity, index, name, unit, value, feed):
    metric = CudaMetric(quantity, index, nvml=driver())
    assert (metric.name, metric.unit) == (name, unit)
    assert feed(metric, [None]) == [value]
    again = copy.deepcopy(metric)  # each split has its own
    assert feed(again, [None]) == [value]
    assert again.value() == value


def test_cuda_describes_each_gpu():
    assert CudaMetric(nvml=driver()).describe() == (
        "CUDA Stats: GPU #0 H100 - Memory 1.00/80.00 GB - Usage 87 % - Power 312 W - Temperature 50 °C; "
        "GPU #1 H100 - Memory 2.00/80.00 GB - Usage not available - Power not available - Temperature 51 °C"
    )


def no_driver():
    def load(name):
        raise OSError(name)

    return Nvml(load)


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (lambda: CudaMetric(nvml=no_driver), r"not available, there is no NVIDIA driver here \(.+ is not found\)"),
        (lambda: CudaMetric(nvml=driver(9)), r"not available, the NVIDIA driver does not answer \(NVML status 9\)"),
        (lambda: CudaMetric("power", 7, nvml=driver()), r"not available, there is no GPU #7"),
    ],
)
def test_cuda_is_not_available(metric, why, feed, caplog):
    meter = metric()
    with caplog.at_level(logging.INFO, "burn_torch.train"):
        assert all(map(math.isnan, feed(meter, [None, None])))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{meter.name}: not available")
    assert re.search(why, line)


def test_cuda_that_is_silent_on_one_quantity(feed):
    metric = CudaMetric("power", 1, nvml=driver())
    assert math.isnan(feed(metric, [None])[0])
    assert metric.why_not() == "the driver does not tell it of this GPU"


def test_the_real_library_is_loaded_by_its_name():
    names = []

    def load(name):
        names.append(name)
        raise OSError

    assert Nvml(load).gpus() == ()
    assert names == ["nvml.dll" if platform.system() == "Windows" else "libnvidia-ml.so.1"]


def test_no_such_quantity():
    with pytest.raises(
        ArgumentError, match=r"no such CudaQuantity\n  given:    'heat'\n  expected: 'memory', 'usage', 'po"
    ):
        CudaMetric("heat")
