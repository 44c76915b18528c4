"""A GAN inside the Learner: two networks, two optimizers with rates of their own, alternating updates.

A generator draws handwritten digits, a critic tells them from real ones.  `train_step` yields twice: first the critic
learns, then the generator learns against the critic that has just learnt.  Checkpoints, events, metrics and resumes are
those of any run.  About ten seconds on a CPU.

    python examples/gan/gan.py artifacts/gan
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

import burn_torch
from burn_torch import Device, Distribution, Module, Tensor
from burn_torch.data import DataLoader, DigitsDataset, DigitsItem
from burn_torch.nn import LeakyRelu, LeakyReluConfig, Linear, LinearConfig
from burn_torch.optim import AdamConfig, GroupedLrScheduler, GroupedOptimizer, ParamGroup
from burn_torch.tensor.activation import softplus
from burn_torch.train import Learner, LearningResult, LossInput, LossMetric, SupervisedTraining, TrainOutput

NOISE, PIXELS = 16, 64


@dataclass(frozen=True)
class Batch:
    """images (batch, 64) in [-1, 1]."""

    images: Tensor


class Batcher:
    """Stacks images into a batch."""

    def batch(self, items: list[DigitsItem], device: Device) -> Batch:
        """The batch of some items, on a device."""
        images = np.stack([item.image.reshape(PIXELS) for item in items]) / np.float32(8) - np.float32(1)
        return Batch(Tensor.from_data(images.astype(np.float32), device))


class Network(Module):
    """Three layers."""

    layers: list[Linear]
    activation: LeakyRelu

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x (batch, inputs) -> (batch, outputs)."""
        for layer in self.layers[:-1]:
            x = self.activation.forward(layer.forward(x))
        return self.layers[-1].forward(x)


def make_network(inputs: int, outputs: int, device: Device) -> Network:
    """A network of three layers, 128 features wide."""
    sizes = [(inputs, 128), (128, 128), (128, outputs)]
    return Network(
        [LinearConfig(one, other).init(device) for one, other in sizes], LeakyReluConfig(negative_slope=0.2).init()
    )


class Gan(Module):
    """A generator and its critic."""

    generator: Network
    critic: Network

    def draw(self, count: int) -> Tensor:
        """Images out of noise. Shapes: () -> (count, 64)."""
        device = self.critic.layers[0].weight.device
        noise = Tensor.random((count, NOISE), Distribution.Normal(0.0, 1.0), device)
        return self.generator.forward(noise).tanh()

    def critic_loss(self, real: Tensor, drawn: Tensor) -> Tensor:
        """-log sigmoid(critic(real)) - log(1 - sigmoid(critic(drawn))), the mean over the batch."""
        return (softplus(-self.critic.forward(real)) + softplus(self.critic.forward(drawn))).mean()

    def train_step(self, batch: Batch) -> Generator[TrainOutput[LossInput], Gan, LossInput]:
        """The critic's update, then the generator's."""
        count = batch.images.shape[0]
        critic_loss = self.critic_loss(batch.images, self.draw(count).detach())
        item = LossInput(critic_loss.detach(), count)
        # the model comes back with its new critic
        model = yield TrainOutput.several({"critic": (self.critic, critic_loss.backward())}, item)
        generator_loss = softplus(-model.critic.forward(model.draw(count))).mean()
        yield TrainOutput.several({"generator": (model.generator, generator_loss.backward())}, item)
        return LossInput(generator_loss.detach(), count)

    def valid_step(self, batch: Batch) -> LossInput:
        """How far the mean of drawn images is from that of the real ones, pixel by pixel."""
        difference = self.draw(512).mean_dim(0) - batch.images.mean_dim(0)
        return LossInput(difference.abs().mean(), batch.images.shape[0])


def run(directory: str, epochs: int = 20, training: Any = None) -> LearningResult[Gan]:
    """Trains; the metric of validation is the distance between mean images."""
    device = Device.cpu().autodiff()
    burn_torch.seed(3)
    model = Gan(make_network(NOISE, PIXELS, device), make_network(PIXELS, 1, device))
    adam = AdamConfig(beta_1=0.5)
    groups = {
        "generator": (ParamGroup.from_path("generator"), adam.init()),
        "critic": (ParamGroup.from_path("critic"), adam.init()),
    }
    optim = GroupedOptimizer.of(model, groups)
    rates = GroupedLrScheduler({"generator": 2e-3, "critic": 2e-3})
    loaders = [
        DataLoader(DigitsDataset.train(), Batcher(), batch_size=32, shuffle=1),
        DataLoader(DigitsDataset.test(), Batcher(), batch_size=512),
    ]
    launched = SupervisedTraining(directory, *loaders).metrics(LossMetric()).num_epochs(epochs).seed(5)
    if training is not None:
        launched = training(launched)
    return launched.launch(Learner(model, optim, rates))


def show(image: Tensor) -> str:
    """An image in characters."""
    rows = image.into_data().array.reshape(8, 8)
    return "\n".join("".join(" .:-=+*#%@"[int(np.clip((pixel + 1) * 5, 0, 9))] * 2 for pixel in row) for row in rows)


if __name__ == "__main__":
    result = run(sys.argv[1] if len(sys.argv) > 1 else "artifacts/gan")
    burn_torch.seed(11)
    for image in result.model.draw(4).chunk(4, 0):
        print(show(image), "\n")
