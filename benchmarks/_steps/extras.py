"""Measures what a time alone does not tell: the share of each op, the cost of the first call, the cost of the host."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import burn_torch
from benchmarks._steps.cases import Case, values_of
from benchmarks._steps.measure import CLOCKS, Failed, Local, Variant, sync, why
from benchmarks._steps.our_variants import Ours, optimizer
from benchmarks._steps.torch_variants import TorchStep
from burn_torch import Device, Module, Param, Tensor
from burn_torch.optim import GradientsParams

__all__ = ["cold_trace_ms", "first_call", "gpu_kernels", "host_us", "shares", "shares_table", "told"]


# -- shares -----------------------------------------------------------------------------------------------
def shares(variants: Sequence[Variant], steps: int = 30) -> dict[str, dict[str, float]]:
    """For each variant the share of each kernel in the time of its step; what no kernel takes is Python and dispatch.

    From torch.profiler over the loop that is timed: each kernel counts with the median of its own calls' times, the
    step with the median of its times.  The profiler makes a step longer, and what is outside kernels most of all.
    """
    by_variant = {}
    for variant in variants:
        if not isinstance(variant, Local):
            continue
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            seconds = statistics.median(variant.run(1) for _ in range(steps))
        times: dict[str, list[float]] = {}
        for event in profile.events() or ():
            if event.key.startswith("aten::"):
                times.setdefault(event.key.removeprefix("aten::"), []).append(event.self_cpu_time_total / 1e6)
        spent = {key: statistics.median(each) * len(each) for key, each in times.items()}
        # a timed step came after one that warms up; other programs lengthen kernels, but not processor time
        taken = max(2 * steps * seconds, sum(spent.values()))
        kernels = {key: total / taken for key, total in spent.items()}
        largest = sorted(kernels, key=lambda key: -kernels[key])[:12]
        by_variant[variant.name] = {key: kernels[key] for key in largest if kernels[key] >= 0.005}
        by_variant[variant.name]["outside kernels"] = max(0.0, 1 - sum(kernels.values()))
    return by_variant


def shares_table(by_variant: dict[str, dict[str, float]]) -> list[str]:
    """One line a variant."""
    return [
        f"  shares, {name}: " + ", ".join(f"{op} {100 * share:.0f} %" for op, share in rows.items())
        for name, rows in by_variant.items()
    ]


def gpu_kernels(variant: Variant, steps: int = 20) -> list[str]:
    """The kernels of a step by time: microseconds and launches a step."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        variant.run(steps)
    rows = [row for row in profile.key_averages() if row.self_device_time_total > 0 and row.device_type.name == "CUDA"]
    taken = steps + 1  # with the step that warms up
    total, launches = sum(row.self_device_time_total for row in rows) / taken, sum(row.count for row in rows) / taken
    largest = sorted(rows, key=lambda row: -row.self_device_time_total)[:48]
    return [f"  {variant.name}: {total:.1f} us in {launches:.1f} kernels a step"] + [
        f"  {row.self_device_time_total / taken:>10.1f} us{row.count / taken:>7.1f} x  {row.key[:100]}"
        for row in largest
    ]


# -- the first call -----------------------------------------------------------------------------------------
def first_call(case: Case, device: str, clock: str) -> float:
    """Milliseconds that the first compiled call of this process takes beyond a second one; torch itself is warm."""
    values = values_of(case)
    warm = TorchStep(case, values, device, "torch eager")
    warm.start()
    warm.numbers()
    ours = Ours(case, values, device, "burn_torch compiled")
    ours.start()
    times, now = [], CLOCKS[clock]
    for i in range(2):
        sync()
        begun = now()
        ours.step(i)
        sync()
        times.append(1e3 * (now() - begun))
    return times[0] - times[1]


def cold_trace_ms(script: Path, name: str, device: str, clock: str) -> float:
    """`first_call` in a fresh process, where every gradient rule is derived too; of three.  Raises: Failed."""
    command = [sys.executable, str(script), "--first-call", name, "--device", device, "--clock", clock]
    times = []
    for _ in range(3):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False
            )
        except subprocess.TimeoutExpired:
            raise Failed("the first call took over a minute") from None
        if done.returncode:
            raise Failed((done.stderr.strip().splitlines() or ["no word"])[-1])
        times.append(float(done.stdout.strip().splitlines()[-1]))
    return statistics.median(times)


# -- the host -----------------------------------------------------------------------------------------------
COUNT = 200


class Many(Module):
    """200 parameters of eight numbers."""

    params: tuple[Param, ...]

    def loss(self, x: Tensor) -> Tensor:
        return (Tensor.cat([param.val() for param in self.params], 0) * x).sum()


def through(model: Any, optim: Any, x: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
    """All the state passes through; next to nothing is computed."""
    return model, optim, x * lr


def stepped(model: Any, optim: Any, x: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
    """A true step."""
    loss = model.loss(x)
    gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


def host_us(device: str, adam: Any, rounds: int = 300) -> dict[str, Any]:
    """Microseconds until a compiled call returns, with 200 parameters and 400 moments as its state.

    "through": nothing is computed, so the time is that of keys, trees and donation.  "step": forward, backward and
    AdamW; on a GPU the call returns before the device is done, on a CPU the kernels are in it.
    """
    place = (Device.cpu() if device == "cpu" else Device.cuda(0)).autodiff()
    rows: dict[str, Any] = {}
    functions: dict[str, Callable[..., Any]] = {"through": through, "step": stepped}
    for name, function in functions.items():
        x = Tensor.ones((8 * COUNT,), place)
        model: Any = Many(tuple(Param(Tensor.ones((8,), place)) for _ in range(COUNT)))
        model, optim, _ = stepped(model, optimizer(adam), x, 1e-3)
        call = burn_torch.compile(function, donate=("model", "optim"))
        times = []
        for i in range(rounds + 20):
            if i % 10 == 0:
                sync()  # the queue of the device never fills
            begun = time.perf_counter()
            model, optim, _ = call(model, optim, x, 1e-3 * (1 + i))
            times.append(1e6 * (time.perf_counter() - begun))
        times = times[20:]
        rows[name] = {"median_us": statistics.median(times), "low_decile_us": statistics.quantiles(times, n=10)[0]}
        if device != "cpu":
            rows[name] |= _launch_us(call, model, optim, x)
    return rows


def _launch_us(call: Any, model: Any, optim: Any, x: Tensor) -> dict[str, Any]:
    """Measures the time that the driver takes to launch the recorded graph: a lower bound with the same kernels."""
    program = next(reversed(call._programs.values()))
    recorded = program.recorded._recorded
    times = []
    for i in range(200):
        if i % 10 == 0:
            sync()
        begun = time.perf_counter()
        for recording in recorded.recordings:
            recording.replay()
        times.append(1e6 * (time.perf_counter() - begun))
    return {"launch_us": statistics.median(times), "kernels": program.recorded.launches}


def told(measurement: Callable[[], Any]) -> tuple[Any, str]:
    """Returns what a measurement gives, or why it gives nothing."""
    try:
        return measurement(), ""
    except Exception as error:
        return None, why(error)
