"""Measures what the training loop adds to a step: a run with its events, metrics, bar and a follower, beside loops by
hand.

The model is tiny (an MLP 32-32-10, batches of 16, Adam), so that a step is mostly Python.  Every loop reads its loss
each step.  One process, one thread, CPU time of the whole process (background threads too), warm steps left out, the
variants in a new order each round.  The bar: a run with a follower attached adds at most 60 us of CPU to a step.

Run: `python benchmarks/loop.py [--rounds N] [--steps N] [--out FILE.jsonl]`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from burn_torch import Device, Module, Tensor, compile, seed
from burn_torch.nn import CrossEntropyLoss, Linear, LinearConfig, Relu
from burn_torch.optim import AdamConfig
from burn_torch.train import (
    AccuracyMetric,
    BarRenderer,
    ClassificationOutput,
    Learner,
    LossMetric,
    Metric,
    SilentRenderer,
    SupervisedTraining,
    TrainOutput,
    fold,
    train_step,
)
from burn_torch.train.event import EventReader, StepDone

BAR_US: Final = 60.0
WARM: Final = 50
"""Steps before the clock starts: the first ones are traced and compiled."""

ROOT = Path(__file__).resolve().parents[1]
FOLLOWER = """
import sys
from burn_torch.monitor import Follower, RunView
import time
follower, view = Follower(sys.argv[1] + "/events.jsonl"), RunView()
print("up", flush=True)
while view.ended is None:
    for stamped in follower.poll():
        view.apply(stamped)
    time.sleep(0.1)
"""
"""Holds what the dashboard does all the time, without the drawing."""


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


def make_learner() -> Learner[Mlp]:
    """A fresh one, the same each time."""
    seed(1)
    device = Device.cpu().autodiff()
    model = Mlp(LinearConfig(32, 32).init(device), LinearConfig(32, 10).init(device), Relu())
    return Learner(model, AdamConfig().init(), 1e-3)


class Timed:
    """Takes the time between two steps of a run; the event of a step comes when all of it is done."""

    def __init__(self, steps: int) -> None:
        self.last = WARM + steps
        self.us_a_step = 0.0

    def handle(self, event: Any) -> None:
        """Takes the time."""
        if type(event) is StepDone:
            if event.batches_done == WARM:
                self.start = time.process_time()
            elif event.batches_done == self.last:
                self.us_a_step = (time.process_time() - self.start) / (self.last - WARM) * 1e6

    def close(self) -> None:
        """Nothing is open."""


def timed(step: Callable[[int], Any], steps: int) -> float:
    """Microseconds a step of a loop by hand."""
    for number in range(WARM):
        step(number)
    start = time.process_time()
    for number in range(WARM, WARM + steps):
        step(number)
    return (time.process_time() - start) / steps * 1e6


def torch_loop(arrays: tuple[Any, Any], steps: int) -> float:
    """Plain PyTorch: what the anchors were measured beside."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, targets = map(torch.from_numpy, arrays)

    def step(number: int) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        return loss.item()

    return timed(step, steps)


def eager_loop(batch: Batch, steps: int) -> float:
    """Four lines of ours."""
    learner = make_learner()
    state: list[Any] = [learner.model, learner.optim]

    def step(number: int) -> Any:
        model, grads, item = train_step(state[0], batch, fold(7, number))
        state[:] = state[1].step(1e-3, model, grads)
        return item.loss.into_scalar()

    return timed(step, steps)


def compiled_loop(batch: Batch, steps: int) -> float:
    """The same four lines, compiled: the program that a run executes, too."""
    learner = make_learner()
    state: list[Any] = [learner.model, learner.optim]

    def whole(model: Any, optim: Any, batch: Any, lr: float, key: int) -> Any:
        model, grads, item = train_step(model, batch, key)
        model, optim = optim.step(lr, model, grads)
        return model, optim, item

    program = compile(whole, donate=("model", "optim"))

    def step(number: int) -> Any:
        state[0], state[1], item = program(state[0], state[1], batch, 1e-3, fold(7, number))
        return item.loss.into_scalar()

    return timed(step, steps)


def run(batch: Batch, steps: int, metrics: Sequence[Metric], renderer: EventReader, *, follower: bool) -> float:
    """A run of SupervisedTraining, with all that it writes."""
    clock = Timed(steps)
    with tempfile.TemporaryDirectory() as folder, followed(folder if follower else None):
        training = SupervisedTraining(folder, [batch] * (WARM + steps), None).metrics(*metrics).renderer(renderer)
        training.with_event_reader(clock).launch(make_learner())
    return clock.us_a_step


@contextmanager
def followed(folder: str | None) -> Iterator[None]:
    """Another process follows the events of the run in this folder, as an attached dashboard does."""
    if folder is None:
        yield
        return
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, folder], env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def variants(steps: int) -> dict[str, Callable[[], float]]:
    """Returns what is measured, by name; each is compared with the compiled loop by hand."""
    rng = np.random.default_rng(0)
    device = Device.cpu().autodiff()
    arrays = rng.normal(0, 1, (16, 32)).astype(np.float32), rng.integers(0, 10, 16)
    batch = Batch(Tensor.from_data(arrays[0], device), Tensor.from_data(arrays[1], device))
    loss = [LossMetric()]
    both = [LossMetric(), AccuracyMetric()]
    return {
        "torch by hand": lambda: torch_loop(arrays, steps),
        "eager by hand": lambda: eager_loop(batch, steps),
        "compiled by hand": lambda: compiled_loop(batch, steps),
        "run": lambda: run(batch, steps, loss, SilentRenderer(), follower=False),
        "run, bar": lambda: run(batch, steps, loss, BarRenderer(io.StringIO()), follower=False),
        "run, bar, follower": lambda: run(batch, steps, loss, BarRenderer(io.StringIO()), follower=True),
        "run, bar, follower, accuracy": lambda: run(batch, steps, both, BarRenderer(io.StringIO()), follower=True),
    }


def main() -> int:
    """Prints medians and what each variant adds; gives 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, help="appends one line of JSON with all times")
    args = parser.parse_args()
    torch.set_num_threads(1)
    calls = variants(args.steps)
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(args.rounds):
        random.shuffle(order)
        for name in order:
            times[name].append(calls[name]())
    base = times["compiled by hand"]
    added = {name: statistics.median(a - b for a, b in zip(us, base, strict=True)) for name, us in times.items()}
    print(f"{'us a step':30s} {'median':>8s} {'least':>8s} {'adds':>8s}")
    for name, us in times.items():
        print(f"{name:30s} {statistics.median(us):8.1f} {min(us):8.1f} {added[name]:8.1f}")
    judged = added["run, bar, follower"]
    print(f"a run with a follower adds {judged:.1f} us: {'holds' if judged <= BAR_US else 'misses'} {BAR_US:.0f} us")
    if args.out is not None:
        row = {
            "date": str(date.today()),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "steps": args.steps,
            "rounds": args.rounds,
            "us_a_step": {name: [round(one, 2) for one in us] for name, us in times.items()},
            "adds_us_median": {name: round(us, 2) for name, us in added.items()},
        }
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return int(judged > BAR_US)


if __name__ == "__main__":
    sys.exit(main())
