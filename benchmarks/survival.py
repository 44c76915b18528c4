"""Measures what surviving costs: how long a checkpoint holds up the step it is taken after, and what watching for NaN
adds.

`python benchmarks/survival.py checkpoint` trains a model of 200 MB (Adam: 600 MB a checkpoint) with a checkpoint in the
middle of an epoch, written by the loop itself or beside it: wall time, and what the thread of the loop computes.
`python benchmarks/survival.py anomaly` takes steps of some models with and without `detect_anomaly`, in turn: time of
the processor.  One process, one thread for torch.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from burn_torch import Device, Module, Tensor, seed
from burn_torch.nn import CrossEntropyLoss, Linear, LinearConfig, Relu
from burn_torch.optim import AdamConfig
from burn_torch.train import ClassificationOutput, Learner, LossMetric, SupervisedTraining, TrainOutput


@dataclass(frozen=True)
class Batch:
    """Inputs (rows, d_input) and their classes (rows,)."""

    inputs: Tensor
    targets: Tensor


class Mlp(Module):
    """Linear layers with ReLU between them."""

    layers: tuple[Linear, ...]
    activation: Relu

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        """See TrainStep."""
        x = batch.inputs
        for layer in self.layers[:-1]:
            x = self.activation.forward(layer.forward(x))
        output = self.layers[-1].forward(x)
        loss = CrossEntropyLoss.new(None, output.device).forward(output, batch.targets)
        return TrainOutput.new(self, loss.backward(), ClassificationOutput(loss, output, batch.targets))


class Clock:
    """Takes the time of each training step."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.times = [now()]

    def handle(self, event: Any) -> None:
        """Takes the time."""
        kind = type(event).__name__
        if kind == "SplitStarted":
            self.times = [self.now()]
        if kind == "StepDone":
            self.times.append(self.now())

    def close(self) -> None:
        """Nothing is open."""

    @property
    def steps(self) -> list[float]:
        """Milliseconds of each step."""
        return [(b - a) * 1e3 for a, b in itertools.pairwise(self.times)]


def make_learner(widths: list[int]) -> Learner[Mlp]:
    """A fresh one, the same each time."""
    seed(1)
    device = Device.cpu().autodiff()
    layers = [LinearConfig(a, b).init(device) for a, b in itertools.pairwise(widths)]
    return Learner(Mlp(tuple(layers), Relu()), AdamConfig().init(), 1e-4)


def make_batch(rows: int, widths: list[int]) -> Batch:
    """Random rows."""
    rng = np.random.default_rng(0)
    device = Device.cpu().autodiff()
    inputs = rng.normal(0, 1, (rows, widths[0])).astype(np.float32)
    return Batch(Tensor.from_data(inputs, device), Tensor.from_data(rng.integers(0, widths[-1], rows), device))


def steps_of(
    widths: list[int], rows: int, count: int, change: Any, now: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Milliseconds of each step of a run."""
    clock = Clock(now)
    with tempfile.TemporaryDirectory() as folder:
        training = SupervisedTraining(folder, [make_batch(rows, widths)] * count, None).metrics(LossMetric())
        change(training.renderer(clock)).launch(make_learner(widths))
    return clock.steps


def checkpoint() -> None:
    """A checkpoint after step 10 of 30."""
    widths, rows, count = [5000, 5000, 5000, 10], 32, 30
    variants = {
        "no checkpoint": lambda training: training,
        "written by the loop": lambda training: training.checkpoint_every(steps=10).async_checkpoints(False),
        "written beside it": lambda training: training.checkpoint_every(steps=10),
    }
    for title, now in (("wall, ms a step", time.perf_counter), ("thread of the loop", time.thread_time)):
        print(f"{title:22s} {'median':>8s} {'the step after':>15s} {'other steps, most':>18s}")
        for name, change in variants.items():
            times = steps_of(widths, rows, count, change, now)[2:]  # tracing
            held = max(times[8], times[9])
            others = times[:8] + times[10:18]
            print(f"{name:22s} {statistics.median(others):8.0f} {held:15.0f} {max(others):18.0f}")


def _watch(flag: bool, training: SupervisedTraining) -> SupervisedTraining:
    return training.detect_anomaly(flag)


def anomaly() -> None:
    """Steps with and without the watch."""
    models = {
        "0.1 M parameters": ([256, 256, 128, 10], 64, 400),
        "2 M parameters": ([1024, 1024, 1024, 10], 64, 120),
        "12 M parameters": ([2048, 2048, 2048, 2048, 10], 64, 60),
    }
    print(f"{'us a step':18s} {'without':>9s} {'with':>9s} {'ratio':>6s}")
    for name, (widths, rows, count) in models.items():
        totals: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(7):
            for flag in (False, True):
                change = partial(_watch, flag)
                times = steps_of(widths, rows, count, change, time.process_time)
                totals[flag].append(statistics.fmean(times[4:]) * 1e3)
        without, watched = min(totals[False]), min(totals[True])
        print(f"{name:18s} {without:9.0f} {watched:9.0f} {watched / without:6.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"checkpoint": checkpoint, "anomaly": anomaly}[sys.argv[1]]()
