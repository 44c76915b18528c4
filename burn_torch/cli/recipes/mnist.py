"""`burn-torch train mnist`: the network of the Burn book's guide on MNIST.

The data is read from --data, $BURN_TORCH_DATA/mnist or the cache; --download fetches it.
"""

from __future__ import annotations

from typing import Literal

from burn_torch import nn
from burn_torch.cli.idx_images import IdxRecipe
from burn_torch.cli.image_classification import ClassificationConfig, ImageClassifier
from burn_torch.config.rules import Rules
from burn_torch.data import MnistDataset
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

    conv1: nn.Conv2d
    conv2: nn.Conv2d
    pool: nn.AdaptiveAvgPool2d
    dropout: nn.Dropout
    linear1: nn.Linear
    linear2: nn.Linear
    activation: nn.Relu

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
            nn.Conv2dConfig((1, 8), (3, 3)).init(device),
            nn.Conv2dConfig((8, 16), (3, 3)).init(device),
            nn.AdaptiveAvgPool2dConfig((8, 8)).init(),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(16 * 8 * 8, config.hidden).init(device),
            nn.LinearConfig(config.hidden, 10).init(device),
            nn.Relu(),
        )


RECIPE = MnistRecipe()
