"""A small training that has everything a resume can lose: dropout, batch norm, Adam, a schedule, shuffled data.

The tests import it, and run it as a process: `python program.py '{"dir": ..., "epochs": 3}'`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from burn_torch import Device, Module, Param, RunningState, Tensor, ops, seed
from burn_torch.data import DataLoader
from burn_torch.module.scope import draw
from burn_torch.optim import AdamConfig, LinearLrSchedulerConfig
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    Learner,
    LearningRateMetric,
    LossMetric,
    PlainRenderer,
    SilentRenderer,
    SupervisedTraining,
    TrainOutput,
)

FEATURES, HIDDEN, CLASSES = 6, 8, 3


@dataclass(frozen=True)
class Batch:
    inputs: Tensor
    targets: Tensor


class Batcher:
    def batch(self, items: list[Any], device: Device) -> Batch:
        return Batch(
            Tensor.from_data(np.stack([item[0] for item in items]).astype(np.float32), device),
            Tensor.from_data(np.array([item[1] for item in items], np.int64), device),
        )


class Net(Module):
    weight1: Param
    gamma: Param
    beta: Param
    mean: RunningState
    variance: RunningState
    weight2: Param

    def forward(self, x: Tensor) -> Tensor:
        h = x.matmul(self.weight1.val())
        if x.device.is_autodiff():
            h, mean, variance = ops.batch_norm(h, self.gamma.val(), self.beta.val(), 1e-5)
            for state, new in ((self.mean, mean), (self.variance, variance)):
                state.update(state.value() * 0.9 + new.inner() * 0.1)
            h = ops.dropout(ops.relu(h), 0.25, *draw(self))
        else:
            args = (self.gamma.val(), self.beta.val(), self.mean.value(), self.variance.value(), 1e-5)
            h = ops.relu(ops.batch_norm_inference(h, *args))
        return h.matmul(self.weight2.val())

    def classify(self, batch: Batch) -> ClassificationOutput:
        output = self.forward(batch.inputs)
        loss = ops.cross_entropy(output, batch.targets, None, None).mean()
        return ClassificationOutput(loss, output, batch.targets)

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        item = self.classify(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Batch) -> ClassificationOutput:
        return self.classify(batch)


def make_net(hidden: int = HIDDEN, cls: type[Net] = Net, device: Device | None = None) -> Net:
    rng = np.random.default_rng(5)
    device = Device.cpu().autodiff() if device is None else device
    inner = device.inner()

    def param(*shape: int) -> Param:
        return Param.from_data(rng.normal(0, 0.5, shape).astype(np.float32), device)

    return cls(
        param(FEATURES, hidden),
        Param.from_data(np.ones(hidden, np.float32), device),
        Param.from_data(np.zeros(hidden, np.float32), device),
        RunningState(Tensor.from_data(np.zeros(hidden, np.float32), inner)),
        RunningState(Tensor.from_data(np.ones(hidden, np.float32), inner)),
        param(hidden, CLASSES),
    )


def make_items(count: int, start: int = 0) -> list[tuple[Any, int]]:
    rng = np.random.default_rng(start)
    inputs = rng.normal(0, 1, (count, FEATURES))
    targets = (inputs[:, 0] + inputs[:, 1] > 0).astype(int) + (inputs[:, 2] > 0.5)
    return list(zip(inputs, targets, strict=True))


def make_loaders(workers: int = 0, train: int = 37, batch_size: int = 8) -> tuple[Any, Any]:
    return (
        DataLoader(make_items(train), Batcher(), batch_size=batch_size, shuffle=11, num_workers=workers),
        DataLoader(make_items(13, 1), Batcher(), batch_size=5, num_workers=workers),
    )


def make_learner(net: Net | None = None) -> Learner[Net]:
    schedule = LinearLrSchedulerConfig(initial_lr=0.05, final_lr=0.001, num_iters=18)
    return Learner(make_net() if net is None else net, AdamConfig().init(), schedule)


def make_training(directory: Any, epochs: int = 3, workers: int = 0) -> SupervisedTraining:
    return (
        SupervisedTraining(directory, *make_loaders(workers))
        .metrics(LossMetric(), AccuracyMetric())
        .metric_train(LearningRateMetric())
        .num_epochs(epochs)
        .seed(7)
        .renderer(SilentRenderer())
    )


def digest(module: Module) -> str:
    """A hash of every bit of a model's parameters and statistics."""
    found = hashlib.sha256()
    for path, entry in module.into_record().entries.items():
        found.update(path.encode())
        found.update(entry.read().array.tobytes())
    return found.hexdigest()


class Slow(Net):
    """Says when it starts a step, and takes a while for it, so that a signal meets it there."""

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        print("step", flush=True)
        time.sleep(0.1)
        return super().train_step(batch)


def kill_in_write(epoch: int) -> None:
    """From now on: flushing the checkpoint of this epoch to the disk is the last thing that this process does."""
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        if f".epoch-{epoch}.safetensors" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = flush


def main(options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
    seed(3)
    if options.get("kill_in_write"):
        kill_in_write(options["kill_in_write"])
    training = make_training(options["dir"], options["epochs"], options.get("workers", 0))
    training = training.resume(options.get("resume", False))
    if options.get("plain"):
        training = training.renderer(PlainRenderer()).summary()
    cls = Slow if options.get("slow") else Net
    result = training.launch(make_learner(make_net(cls=cls)))
    print(json.dumps({"status": result.status, "digest": digest(result.model)}))
    raise SystemExit({"interrupted": 130, "terminated": 143}.get(result.status, 0))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
