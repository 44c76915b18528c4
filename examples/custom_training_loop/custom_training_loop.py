"""A training loop of one's own: no Learner, every line in sight.

Handwritten digits that come with the package, a small network, Adam.  A few seconds on a CPU.

    python examples/custom_training_loop/custom_training_loop.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import burn_torch
from burn_torch import Config, Device, Module, StepScope, Tensor
from burn_torch.data import DataLoader, DigitsDataset, DigitsItem
from burn_torch.nn import CrossEntropyLoss, Dropout, DropoutConfig, Linear, LinearConfig, Relu
from burn_torch.optim import AdamConfig, GradientsParams
from burn_torch.train import fold


@dataclass(frozen=True)
class DigitsBatch:
    """images (batch, 64) in [0, 1], targets (batch,)."""

    images: Tensor
    targets: Tensor


class DigitsBatcher:
    """Stacks items into a batch."""

    def batch(self, items: list[DigitsItem], device: Device) -> DigitsBatch:
        """The batch of some items, on a device."""
        images = np.stack([item.image.reshape(64) for item in items]) / np.float32(16)
        targets = np.array([item.label for item in items], np.int64)
        return DigitsBatch(Tensor.from_data(images, device), Tensor.from_data(targets, device))


class Model(Module):
    """Two layers with dropout between them."""

    linear1: Linear
    linear2: Linear
    dropout: Dropout
    activation: Relu

    def forward(self, images: Tensor) -> Tensor:
        """Scores. Shapes: images (batch, 64) -> (batch, 10)."""
        x = self.activation.forward(self.linear1.forward(images))
        return self.linear2.forward(self.dropout.forward(x))


class TrainingConfig(Config):
    """Holds what a run is made of."""

    num_epochs: int = 12
    batch_size: int = 32
    hidden_size: int = 64
    learning_rate: float = 5e-3
    seed: int = 42


def accuracy(output: Tensor, targets: Tensor) -> float:
    """Percent of items whose highest score is at their class."""
    right = output.argmax(1).squeeze_dim(1).equal(targets).int().sum()
    return 100.0 * float(right.into_scalar()) / targets.shape[0]


def run(config: TrainingConfig, device: Device) -> tuple[Model, float]:
    """Trains and validates; gives the model and its accuracy on the test images."""
    burn_torch.seed(config.seed)
    batcher = DigitsBatcher()
    train = DataLoader(DigitsDataset.train(), batcher, batch_size=config.batch_size, shuffle=config.seed, device=device)
    test = DataLoader(DigitsDataset.test(), batcher, batch_size=config.batch_size, device=device.inner())

    model = Model(
        LinearConfig(64, config.hidden_size).init(device),
        LinearConfig(config.hidden_size, 10).init(device),
        DropoutConfig(0.2).init(),
        Relu(),
    )
    optim = AdamConfig().init()
    loss_of = CrossEntropyLoss.new(None, device)
    step, correct = 0, 0.0

    for epoch in range(config.num_epochs):
        for batch in train.epoch(epoch):
            with StepScope(fold(config.seed, step), model):  # dropout draws from this key
                output = model.forward(batch.images)
                loss = loss_of.forward(output, batch.targets)
                gradients = GradientsParams.from_grads(loss.backward(), model)
            model, optim = optim.step(config.learning_rate, model, gradients)
            if step % 30 == 0:
                print(
                    f"epoch {epoch + 1}  step {step:3d}  loss {loss.into_scalar():.3f}"
                    f"  accuracy {accuracy(output.inner(), batch.targets.inner()):.1f} %"
                )
            step += 1

        valid = model.valid()  # no tape, no dropout
        sums = [(accuracy(valid.forward(b.images), b.targets), b.targets.shape[0]) for b in test.epoch(0)]
        correct = sum(percent * items for percent, items in sums) / sum(items for _, items in sums)
        print(f"epoch {epoch + 1}  test accuracy {correct:.2f} %")
    return model, correct


if __name__ == "__main__":
    _, reached = run(TrainingConfig(), Device.cpu().autodiff())
    print(f"done: {reached:.2f} % of the test images")
