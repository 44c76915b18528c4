"""A small training without BatchNorm: what one process and several must agree on."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from burn_torch import Device, Module, Tensor, seed
from burn_torch.data import DataLoader
from burn_torch.nn import (
    CrossEntropyLoss,
    Dropout,
    DropoutConfig,
    GaussianNoise,
    GaussianNoiseConfig,
    Linear,
    LinearConfig,
)
from burn_torch.optim import AdamConfig, CosineAnnealingLrSchedulerConfig, GradientClippingConfig
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    Ddp,
    Interrupter,
    Learner,
    LearningRateMetric,
    LossMetric,
    MetricMetadata,
    NumericMetric,
    Reading,
    SilentRenderer,
    SupervisedTraining,
    TrainOutput,
)

FEATURES, HIDDEN, CLASSES, ITEMS = 6, 16, 3, 38


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
    noise: GaussianNoise
    dropout: Dropout
    linear2: Linear

    def classify(self, batch: Batch) -> ClassificationOutput:
        hidden = self.noise.forward(self.linear1.forward(batch.inputs)).tanh()
        scores = self.linear2.forward(self.dropout.forward(hidden))
        loss = CrossEntropyLoss.new(None, scores.device).forward(scores, batch.targets)
        return ClassificationOutput(loss, scores, batch.targets)

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        item = self.classify(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Batch) -> ClassificationOutput:
        return self.classify(batch)


class Failing(Net):
    """Cannot go on in the third step."""

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        STEPS.append(1)
        if len(STEPS) == 3:
            raise ZeroDivisionError("mine")
        return super().train_step(batch)


STEPS: list[int] = []


class Stopping(NumericMetric):
    """Asks the run to stop, or to save, in the third step, on one process."""

    name = "Stopping"
    higher_is_better = True

    def __init__(self, interrupter: Interrupter, rank: str, saves: bool) -> None:
        super().__init__()
        self.saves = saves
        self.interrupter = interrupter
        self.rank = rank
        self.steps = 0

    def __deepcopy__(self, memo: Any) -> Stopping:
        return Stopping(self.interrupter, self.rank, self.saves)

    def measure(self, item: Any, metadata: MetricMetadata) -> Reading:
        self.steps += 1
        if self.steps == 3 and os.environ.get("RANK") == self.rank:
            if self.saves:
                self.interrupter.request_checkpoint()
            else:
                self.interrupter.stop("the third step")
        return Reading.of_mean(0.0)


def net(number: int = 5, place: str = "cpu", fused: bool = False) -> Net:
    bare = Device.cpu() if place == "cpu" else Device.cuda(int(place.removeprefix("cuda:")))
    device = (bare.fused() if fused else bare).autodiff()
    seed(number)
    return Net(
        LinearConfig(FEATURES, HIDDEN).init(device),
        GaussianNoiseConfig(0.1).init(),
        DropoutConfig(0.3).init(),
        LinearConfig(HIDDEN, CLASSES).init(device),
    )


def items(count: int, start: int = 0) -> list[tuple[Any, int]]:
    rng = np.random.default_rng(start)
    inputs = rng.normal(0, 1, (count, FEATURES))
    targets = (inputs[:, 0] + inputs[:, 1] > 0).astype(int) + (inputs[:, 2] > 0.5)
    return list(zip(inputs, targets, strict=True))


def training(options: dict[str, Any], strategy: Any) -> SupervisedTraining:
    """38 items in batches of 9: the last batch of an epoch has 2, which three processes cannot share out."""
    return (
        SupervisedTraining(
            options["dir"],
            DataLoader(items(options.get("items", ITEMS)), Batcher(), batch_size=9, shuffle=11),
            DataLoader(items(13, 1), Batcher(), batch_size=5),
        )
        .metrics(LossMetric(), AccuracyMetric())
        .metric_train(LearningRateMetric())
        .num_epochs(options.get("epochs", 2))
        .grads_accumulation(options.get("accumulation", 1))
        .compile(options.get("compiled", True))
        .resume(options.get("resume", False))
        .seed(7)
        .renderer(SilentRenderer())
        .with_training_strategy(strategy)
    )


def run(options: dict[str, Any], strategy: Any = None) -> dict[str, Any]:
    if strategy is None:
        strategy = Ddp(sharded=options.get("sharded", False), bucket_bytes=options.get("bucket_bytes", 300))
    optim = AdamConfig(grad_clipping=GradientClippingConfig.Norm(0.5)).init()
    model = net(place=options.get("place", "cpu"), fused=options.get("fused", False))
    if options.get("fails", "none") == os.environ.get("RANK"):
        model = Failing(model.linear1, model.noise, model.dropout, model.linear2)
    learner = Learner(model, optim, CosineAnnealingLrSchedulerConfig(0.02, num_iters=30))
    launched = training(options, strategy)
    for name in ("stops", "saves"):
        if name in options:
            launched = launched.metric_train(Stopping(launched.interrupter(), options[name], name == "saves"))
    result = launched.launch(learner)
    history = result.history
    series = {
        f"{split} {name} {epoch}": history.values(name, split, epoch)
        for split in ("train", "valid")
        for name in history.names(split)
        for epoch in history.epochs(split)
    }
    final = {
        f"{split} {name}": history.series(name, split) for split in ("train", "valid") for name in history.names(split)
    }
    values = {path: param.val().into_data().array.tolist() for path, param in result.model.named_params()}
    digest = hashlib.sha256(str(sorted(values.items())).encode()).hexdigest()
    states = result.learner.optim.to_record().states
    return {
        "status": result.status, "series": series, "final": final, "params": values, "digest": digest,
        "message": result.message, "states": len(states), "own": len(getattr(result.learner.optim, "mine", states)),
    }  # fmt: skip
