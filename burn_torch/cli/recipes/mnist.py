"""`burn-torch train mnist`: the network of the Burn book's guide on MNIST.

The data is read from --data, $BURN_TORCH_DATA/mnist or the cache; --download fetches it.
"""

from __future__ import annotations

from typing import Literal

from burn_torch.cli.idx_images import IdxRecipe
from burn_torch.cli.image_classification import ClassificationConfig, ImageClassifier
from burn_torch.config.rules import Rules
from burn_torch.data import MnistDataset
from burn_torch.nn import (
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dConfig,
    Conv2d,
    Conv2dConfig,
    Dropout,
    DropoutConfig,
    Linear,
    LinearConfig,
    Relu,
)
from burn_torch.tensor import Device, Tensor


class MnistConfig(ClassificationConfig):
    """The guide's settings: 10 epochs of Adam at 1e-3 in batches of 64."""

    recipe: Literal["mnist"] = "mnist"
    hidden: int = 512

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        return super().rules().at_least(1, "hidden")


class MnistModel(ImageClassifier):
    """Two convolutions, 1 to 8 and 8 to 16 channels, pooled to 8 x 8, two linear layers."""

    conv1: Conv2d
    conv2: Conv2d
    pool: AdaptiveAvgPool2d
    dropout: Dropout
    linear1: Linear
    linear2: Linear
    activation: Relu

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, height, width) -> logits (batch, classes)."""
        batch, height, width = images.dims()
        x = self.conv1.forward(images.reshape([batch, 1, height, width]))
        x = self.conv2.forward(self.dropout.forward(x))
        x = self.pool.forward(self.activation.forward(self.dropout.forward(x)))
        x = self.linear1.forward(x.reshape([batch, 16 * 8 * 8]))
        return self.linear2.forward(self.activation.forward(self.dropout.forward(x)))


class MnistRecipe(IdxRecipe):
    """See the module."""

    name = "mnist"
    help = "handwritten digits, 28 x 28, 60,000 images"
    config = MnistConfig
    dataset = MnistDataset
    mean = 0.1307 * 255
    std = 0.3081 * 255
    classes = MnistDataset.CLASS_NAMES

    def model(self, config: MnistConfig, device: Device) -> MnistModel:
        """A fresh model."""
        return MnistModel(
            Conv2dConfig((1, 8), (3, 3)).init(device),
            Conv2dConfig((8, 16), (3, 3)).init(device),
            AdaptiveAvgPool2dConfig((8, 8)).init(),
            DropoutConfig(config.dropout).init(),
            LinearConfig(16 * 8 * 8, config.hidden).init(device),
            LinearConfig(config.hidden, 10).init(device),
            Relu(),
        )


RECIPE = MnistRecipe()
