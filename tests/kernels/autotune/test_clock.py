"""A sample is taken again where the device did not wait for the host: on a stand-in of CUDA's events."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from burn_kernels.autotune import clock


class Device:
    """A stream as a queue in time: what the host does costs it `host_s`, a sweep costs the device `sweep_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host_s: float, sweep_s: float = 1.0) -> None:
        self.host, self.device, self.host_s, self.calls = 0.0, 0.0, host_s, 0
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                outer.device = self.at = max(outer.device, outer.host)

            def query(self) -> bool:
                return self.at <= outer.host

            def synchronize(self) -> None:
                outer.host = max(outer.host, self.at)

            def elapsed_time(self, other: Any) -> float:
                return float(other.at - self.at)

        def zero() -> None:
            self.device = max(self.device, self.host) + sweep_s

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: self.host / 1000))
        self.made = clock.GpuClock.__new__(clock.GpuClock)
        self.made._sweep, self.made._sweeps = SimpleNamespace(zero_=zero), clock.LEAST_SWEEPS  # type: ignore[assignment]  # a stand-in
        monkeypatch.setattr(clock.GpuClock, "aside", lambda self: nullcontext())

    def call(self) -> None:
        """Two launches, each after `host_s` of the host, of 0.5 on the device."""
        self.calls += 1
        for _ in range(2):
            self.host += self.host_s
            self.device = max(self.device, self.host) + 0.5


def test_a_call_that_the_host_is_ahead_of_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, host_s=1.0)
    assert device.made.milliseconds(device.call) == 1.0
    assert device.calls == 1


def test_host_time_is_never_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, host_s=5.0)
    assert device.made.milliseconds(device.call) == 1.0
    assert device.calls == 3  # 4 sweeps, 8, 16
    assert device.made.milliseconds(device.call) == 1.0
    assert device.calls == 4  # it is remembered


def test_a_call_that_compiles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, host_s=5000.0)
    assert device.made.milliseconds(device.call) > 1000
    assert device.calls == 1
    device = Device(monkeypatch, host_s=9.0, sweep_s=0.1)  # 18 ms, which no number of sweeps covers
    assert device.made.milliseconds(device.call) > 1.0
    assert device.calls == 6
