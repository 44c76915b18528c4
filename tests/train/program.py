"""A small training that has everything a resume can lose: dropout, batch norm, Adam, a schedule, shuffled data.

The tests import it, and run it as a process: `python program.py '{"dir": ..., "epochs": 3}'`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from burn_torch import Device, Module, Tensor, seed
from burn_torch.core import files
from burn_torch.data import DataLoader
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    CrossEntropyLoss,
    Dropout,
    DropoutConfig,
    Linear,
    LinearConfig,
    Relu,
)
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
from burn_torch.train.event import StepDone

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
    linear1: Linear
    norm: BatchNorm
    dropout: Dropout
    activation: Relu
    linear2: Linear

    def forward(self, x: Tensor) -> Tensor:
        h = self.activation.forward(self.norm.forward(self.linear1.forward(x)))
        return self.linear2.forward(self.dropout.forward(h))

    def classify(self, batch: Batch) -> ClassificationOutput:
        output = self.forward(batch.inputs)
        loss = CrossEntropyLoss.new(None, output.device).forward(output, batch.targets)
        return ClassificationOutput(loss, output, batch.targets)

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        item = self.classify(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Batch) -> ClassificationOutput:
        return self.classify(batch)


def make_net(hidden: int = HIDDEN, cls: type[Net] = Net) -> Net:
    device = Device.cpu().autodiff()
    seed(5)
    return cls(
        LinearConfig(FEATURES, hidden).init(device),
        BatchNormConfig(hidden).init(device),
        DropoutConfig(0.25).init(),
        Relu(),
        LinearConfig(hidden, CLASSES).init(device),
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
    checksum = hashlib.sha256()
    for path, entry in module.into_record().entries.items():
        checksum.update(path.encode())
        checksum.update(entry.read().array.tobytes())
    return checksum.hexdigest()


class Slow(Net):
    """Says when it starts a step, and takes a while for it, so that a signal meets it there."""

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        print("step", flush=True)
        time.sleep(0.1)
        return super().train_step(batch)


class Poison(Net):
    """Fails at once."""

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        raise ZeroDivisionError("mine")


def kill_in_write(epoch: int) -> None:
    """From now on: flushing the checkpoint of this epoch to the disk is the last thing that this process does."""
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        if f".epoch-{epoch}.safetensors" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = flush


class Killer(SilentRenderer):
    """Kills this process a moment after the n-th step of a split."""

    def __init__(self, split: str, after: int, delay_s: float) -> None:
        self.split, self.left, self.delay_s = split, after, delay_s

    def handle(self, event: Any) -> None:
        if isinstance(event, StepDone) and event.split == self.split:
            self.left -= 1
            if self.left == 0:
                threading.Timer(self.delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()


class KillingDisk(files.Disk):
    """Kills this process at the n-th operation on files of checkpoints, in the middle of a write."""

    def __init__(self, at: int) -> None:
        self.left = at

    def count(self, path: Path, half: Any = lambda: None) -> None:
        if "epoch-" in path.name and path.parent.name == "checkpoint":
            self.left -= 1
            if self.left == 0:
                half()
                os.kill(os.getpid(), signal.SIGKILL)

    def create(self, path: Path) -> Any:
        file = super().create(path)
        write = file.write

        def counted(data: Any) -> int:
            self.count(path, lambda: (write(bytes(data)[: len(data) // 2]), file.flush()))
            return write(data)

        return Counted(file, counted)

    def flush(self, file: Any) -> None:
        self.count(Path(file.name))
        super().flush(file)

    def rename(self, old: Path, new: Path) -> None:
        self.count(new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self.count(path)
        super().remove(path)


class Counted:
    """A file with another `write`."""

    def __init__(self, file: Any, write: Any) -> None:
        self.file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def main(options: dict[str, Any]) -> None:
    with ExitStack() as stack:
        run(options, stack)


def run(options: dict[str, Any], stack: ExitStack) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
    if options.get("kill_in_write"):
        kill_in_write(options["kill_in_write"])
    training = make_training(options["dir"], options["epochs"], options.get("workers", 0))
    training = training.resume(options.get("resume", False))
    if options.get("plain"):
        training = training.renderer(PlainRenderer()).summary()
    if options.get("every"):
        training = training.checkpoint_every(steps=options["every"])
    kill = options.get("kill", {})
    if kill.get("where") == "write":
        stack.enter_context(files.using(KillingDisk(kill["after"])))
    elif kill:
        training = training.renderer(Killer(kill["where"], kill["after"], kill["delay_s"]))
    if options.get("no_log"):
        training = training.with_application_logger(None)
    if options.get("slow"):
        training = training.compile(False)  # a compiled step runs its Python once
    cls = Slow if options.get("slow") else Poison if options.get("poison") else Net
    result = training.launch(make_learner(make_net(cls=cls)))
    print(json.dumps({"status": result.status, "digest": digest(result.model)}))
    raise SystemExit({"interrupted": 130, "terminated": 143}.get(result.status, 0))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
