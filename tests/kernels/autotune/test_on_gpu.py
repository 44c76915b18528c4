"""Tests that need a GPU: real candidates are tried, timed and chosen; captures and other streams stay as they were."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels import REGISTRY, Problem, cross_entropy, norm, softmax, verify
from burn_kernels.autotune import tune, using
from burn_kernels.autotune.clock import GpuClock
from burn_kernels.autotune.key import device_of
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import FILE, Store
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.autotune.tuner import Budget

pytestmark = pytest.mark.gpu


@pytest.fixture
def selector(own_cache: Path) -> Any:
    with selecting(Selector(Store(own_cache / FILE), budget=Budget(key_s=60.0, process_s=600.0))) as selector_in_use:
        yield selector_in_use


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_every_candidate_of_every_kernel_is_right_and_timed(name: str, selector: Selector) -> None:
    measurements = tune(name, [(1000, 4096), (7, 5001)])  # a warning, that one is disqualified, would be an error here
    assert measurements
    assert [measured.why_not for measured in measurements] == [""] * len(measurements)
    for timing in selector.store.all_timings():
        assert min(timing.samples_ms) > 0
        assert len(timing.samples_ms) >= (2 if timing.eliminated else 3)


def test_two_processes_that_tune_at_once_lose_nothing(own_cache: Path) -> None:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", "burn_kernels", "tune", "--workers", "0"]
    command += ["--only", "softmax,rms_norm", "--shapes", "1000x4096,7x5001,4096x1024"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(outputs)
    rows = {(timing.place.key, timing.candidate) for timing in Store(own_cache / FILE).all_timings()}
    expected, machine = set[tuple[str, str]](), device_of(0).machine
    for one_tunable in (tunable for name, tunable in TUNABLES.items() if name.startswith(("softmax", "rms_norm"))):
        for rows_of, cols in ((1000, 4096), (7, 5001), (4096, 1024)):
            for facts in one_tunable.problems(rows_of, cols, one_tunable.dtype):
                fitting = (
                    name
                    for name, config in one_tunable.named(facts, machine).items()
                    if one_tunable.supports(config, facts)
                )
                expected |= {(one_tunable.key(facts), name) for name in fitting}
    assert rows == expected


def test_times_are_those_of_the_device() -> None:
    clock, x = GpuClock(0), torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    small = x[: 1 << 20]
    large_ms = min(clock.milliseconds(x.zero_) for _ in range(5))
    small_ms = min(clock.milliseconds(small.zero_) for _ in range(5))
    assert 0 < small_ms < large_ms
    assert large_ms < 10


def test_measuring_leaves_inputs_and_random_state_alone(selector: Selector) -> None:
    x = torch.randn(999, 1000, device="cuda")
    before, cpu, gpu = x.clone(), torch.get_rng_state(), torch.cuda.get_rng_state()
    with using("full"):
        y = softmax.forward(x)
    assert selector.store.all_timings()
    torch.testing.assert_close(y, torch.softmax(before, -1))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), cpu)
    assert torch.equal(torch.cuda.get_rng_state(), gpu)


def test_a_capture_is_never_disturbed(selector: Selector) -> None:
    x, w = torch.randn(64, 1000, device="cuda"), torch.randn(1000, device="cuda")
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch is not typed there
    with using("cached"), torch.cuda.stream(side):
        norm.rms_norm(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with using("full"), torch.cuda.graph(graph):
        y, _ = norm.rms_norm(x, w)
    assert selector.store.there is False
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (1000,), w, 1e-5))


def test_a_launch_that_the_device_refuses_is_replaced(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(8, 30_000, device="cuda")
    chosen = cross_entropy.CHOICE
    # 64 warps: it compiles, but no device runs a program of 2048 threads
    refused = cross_entropy.Config(2048, 64)
    broken = dataclasses.replace(
        chosen, candidates=lambda facts, machine: [refused, *chosen.candidates(facts, machine)]
    )
    targets = torch.randint(0, 30_000, (8,), device="cuda")
    with pytest.raises(Exception, match=r"out of resource|Triton Error"):
        cross_entropy.forward(x, targets, config=refused)
    monkeypatch.setattr(cross_entropy, "CHOICE", broken)
    # at level off the first candidate runs; at others the cost model would see that another fills the machine better
    with using("off"), pytest.warns(RuntimeWarning, match=r"lanes=2048 warps=64 .*is quarantined"):
        loss, _ = cross_entropy.forward(x, targets)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x, targets))
    (fault,) = selector.store.all_faults()
    assert fault.kind == "quarantined"


def test_every_source_of_a_choice_gives_the_right_result(selector: Selector) -> None:
    problem = Problem((torch.randn(200, 1024, dtype=torch.float64),))
    for level in ("off", "cached", "on", "full"):
        with using(level):
            for _ in range(2):
                assert verify(REGISTRY["softmax"], problem, dtype=torch.bfloat16, device="cuda") == []


def test_the_device_is_named_with_its_figures() -> None:
    device = device_of(0)
    assert str(device).startswith(torch.cuda.get_device_name(0))
    assert device.machine.processors == torch.cuda.get_device_properties(0).multi_processor_count
