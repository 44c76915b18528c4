"""Read by the type checker alone: what users write, with the types they get.

Strict mode reports an ignore that ignores nothing, so each `type: ignore` here also says that the mistake is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from burn_torch import Config, Device, Distribution, Gradients, Module, Param, Tensor, TensorData, nn, optim
from burn_torch.config import apply_overrides, replace
from burn_torch.data import DataLoader, InMemDataset
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    Learner,
    LearningResult,
    LossMetric,
    SupervisedTraining,
    TrainOutput,
)


class NetConfig(Config):
    """A configuration with a required field, a default, and one inside another."""

    d_input: int
    dropout: float = 0.5
    hidden: nn.LinearConfig = nn.LinearConfig(8, 16)

    def init(self, device: Device) -> Net:
        """Builds the network."""
        return Net(nn.LinearConfig(self.d_input, 16).init(device), nn.DropoutConfig(self.dropout).init(), (3,))


class Net(Module):
    """A module with layers and a static field."""

    linear: nn.Linear
    dropout: nn.Dropout
    sizes: tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, d_input) -> (batch, 16)."""
        return self.dropout.forward(self.linear.forward(x))

    def train_step(self, batch: Batch) -> TrainOutput[ClassificationOutput]:
        """Loss and gradients."""
        item = self.valid_step(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Batch) -> ClassificationOutput:
        """The loss."""
        logits = self.forward(batch.images)
        loss = nn.loss.CrossEntropyLossConfig().init(logits.device).forward(logits, batch.targets)
        return ClassificationOutput(loss, logits, batch.targets)


@dataclass(frozen=True)
class Batch:
    """Holds what a step takes."""

    images: Tensor
    targets: Tensor


class Batcher:
    """Makes batches."""

    def batch(self, items: Sequence[tuple[list[float], int]], device: Device) -> Batch:
        """One batch."""
        images = Tensor.from_data([image for image, _ in items], device)
        return Batch(images, Tensor.from_data([label for _, label in items], device))


def configs() -> None:
    """Configurations."""
    config = NetConfig(8, dropout=0.1)
    assert_type(config.dropout, float)
    assert_type(config.hidden.d_input, int)
    assert_type(replace(config, dropout=0.2), NetConfig)
    assert_type(apply_overrides(config, ["dropout=0.3"]), NetConfig)
    assert_type(NetConfig.load(Path("config.json")), NetConfig)
    NetConfig()  # type: ignore[call-arg]  # d_input is required
    NetConfig("eight")  # type: ignore[arg-type]
    NetConfig(8, droput=0.1)  # type: ignore[call-arg]
    config.dropout = 0.2  # type: ignore[misc]  # frozen


def modules(device: Device) -> None:
    """Modules."""
    model = NetConfig(8).init(device)
    assert_type(model.linear, nn.Linear)
    assert_type(model.linear.weight, Param)
    assert_type(model.valid(), Net)
    assert_type(model.to_device(device), Net)
    assert_type(model.load_file("model.safetensors"), Net)
    assert_type(model.num_params(), int)
    Net(model.linear)  # type: ignore[call-arg]
    Net(model.dropout, model.dropout, ())  # type: ignore[arg-type]
    model.linear = model.linear  # type: ignore[misc]  # immutable


def tensors(device: Device) -> None:
    """Tensors and gradients."""
    x = Tensor.random((2, 3), Distribution.Uniform(-1.0, 1.0), device).require_grad()
    y = (2.0 * x + x[0] - 1).matmul(x.transpose()).square().mean()
    assert_type(y, Tensor)
    assert_type(x.dims(), tuple[int, ...])
    grads = y.backward()
    assert_type(grads, Gradients)
    assert_type(x.grad(grads), Tensor | None)
    assert_type(x.into_data(), TensorData)
    x.no_such_method()  # type: ignore[attr-defined]


def training(device: Device) -> None:
    """Training, by hand and with the learner."""
    model = NetConfig(8).init(device)
    adam = optim.AdamConfig().init()
    batch = Batcher().batch([([0.0] * 8, 1)], device)
    grads = optim.GradientsParams.from_grads(model.valid_step(batch).loss.backward(), model)
    model, adam = adam.step(1e-3, model, grads)
    assert_type(model, Net)
    assert_type(adam, optim.Adam)

    items: InMemDataset[tuple[list[float], int]] = InMemDataset([([0.0] * 8, 1)])
    loader: DataLoader[Any, Batch] = DataLoader(items, Batcher(), batch_size=4, shuffle=1)
    learner = Learner(model, adam, 1e-3)
    assert_type(learner, Learner[Net])
    result = (
        SupervisedTraining("run", loader, None).metrics(AccuracyMetric(), LossMetric()).num_epochs(1).launch(learner)
    )
    assert_type(result, LearningResult[Net])
    assert_type(result.model, Net)
