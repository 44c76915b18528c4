"""What the training loop costs a step beside a loop written by hand, on a tiny model.

Both take the same steps with the same functions; the hand-written one reads the loss and does nothing else.  One
process, one thread, process time, the variants in a new order each round.  Run: `python benchmarks/train_overhead.py`.
"""

from __future__ import annotations

import io
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from burn_torch import Device, Module, Tensor, seed
from burn_torch.nn import CrossEntropyLoss, Linear, LinearConfig, Relu
from burn_torch.optim import AdamConfig
from burn_torch.train import (
    AccuracyMetric,
    BarRenderer,
    ClassificationOutput,
    Learner,
    LossMetric,
    MetricsRenderer,
    SilentRenderer,
    SupervisedTraining,
    TrainOutput,
    fold,
    train_step,
)

STEPS, ROUNDS = 400, 15


@dataclass(frozen=True)
class Batch:
    """Inputs (16, 32) and their classes (16,)."""

    inputs: Tensor
    targets: Tensor


class Mlp(Module):
    """Two layers."""

    linear1: Linear
    linear2: Linear
    activation: Relu

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        """See TrainStep."""
        output = self.linear2.forward(self.activation.forward(self.linear1.forward(batch.inputs)))
        loss = CrossEntropyLoss.new(None, output.device).forward(output, batch.targets)
        return TrainOutput.new(self, loss.backward(), ClassificationOutput(loss, output, batch.targets))


class Timed:
    """Hands events on and takes the time of the training split."""

    def __init__(self, inner: MetricsRenderer) -> None:
        self.inner = inner
        self.us_a_step = 0.0

    def handle(self, event: Any) -> None:
        """Takes the time."""
        kind = type(event).__name__
        if kind == "SplitStarted":
            self.start = time.process_time()
        if kind == "SplitDone":
            self.us_a_step = (time.process_time() - self.start) / STEPS * 1e6
        self.inner.handle(event)

    def close(self) -> None:
        """Closes what is inside."""
        self.inner.close()


def make_learner() -> Learner[Mlp]:
    """A fresh one, the same each time."""
    seed(1)
    device = Device.cpu().autodiff()
    model = Mlp(LinearConfig(32, 32).init(device), LinearConfig(32, 10).init(device), Relu())
    return Learner(model, AdamConfig().init(), 1e-3)


def by_hand(batch: Batch) -> float:
    """Microseconds a step of a loop of four lines."""
    learner = make_learner()
    model, optim = learner.model, learner.optim
    start = time.process_time()
    for step in range(STEPS):
        model, grads, item = train_step(model, batch, fold(7, step))
        model, optim = optim.step(1e-3, model, grads)
        item.loss.into_scalar()
    return (time.process_time() - start) / STEPS * 1e6


def supervised(batch: Batch, metrics: list[Any], renderer: MetricsRenderer) -> float:
    """Microseconds a step of a run, with logs and events."""
    timed = Timed(renderer)
    with tempfile.TemporaryDirectory() as folder:
        training = SupervisedTraining(folder, [batch] * STEPS, None).metrics(metrics).renderer(timed)
        training.launch(make_learner())
    return timed.us_a_step


def main() -> None:
    """Prints medians and what each variant adds."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    device = Device.cpu().autodiff()
    batch = Batch(
        Tensor.from_data(rng.normal(0, 1, (16, 32)).astype(np.float32), device),
        Tensor.from_data(rng.integers(0, 10, 16), device),
    )
    variants = {
        "by hand": lambda: by_hand(batch),
        "no metric": lambda: supervised(batch, [], SilentRenderer()),
        "loss": lambda: supervised(batch, [LossMetric()], SilentRenderer()),
        "loss, bar": lambda: supervised(batch, [LossMetric()], BarRenderer(io.StringIO())),
        "loss, accuracy, bar": lambda: supervised(batch, [LossMetric(), AccuracyMetric()], BarRenderer(io.StringIO())),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            times[name].append(variants[name]())
    base = times["by hand"]
    print(f"{'us a step':22s} {'median':>8s} {'least':>8s} {'adds':>8s} {'least':>8s}")
    for name, found in times.items():
        median, least = statistics.median(found), min(found)
        print(f"{name:22s} {median:8.1f} {least:8.1f} {median - statistics.median(base):8.1f} {least - min(base):8.1f}")


if __name__ == "__main__":
    main()
