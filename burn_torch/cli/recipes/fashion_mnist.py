"""`burn-torch train fashion-mnist`: a small convolutional network on clothing.

The data is read from --data, $BURN_TORCH_DATA/fashion-mnist or the cache; --download fetches it.
"""

from __future__ import annotations

from typing import Literal

from burn_torch import nn
from burn_torch.cli.idx_images import IdxRecipe
from burn_torch.cli.image_classification import ClassificationConfig, ImageClassifier
from burn_torch.config.rules import Rules
from burn_torch.data import FashionMnistDataset
from burn_torch.tensor import Device, Tensor


class FashionMnistConfig(ClassificationConfig):
    """5 epochs of Adam at 1e-3; the guide's network, with its dropout between convolutions, learns this data slowly."""

    recipe: Literal["fashion-mnist"] = "fashion-mnist"
    num_epochs: int = 5
    dropout: float = 0.2
    channels: int = 16
    hidden: int = 128

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        return super().rules().at_least(1, "channels", "hidden")


class FashionMnistModel(ImageClassifier):
    """Two 3 x 3 convolutions with batch norm and pooling, two linear layers."""

    conv1: nn.Conv2d
    norm1: nn.BatchNorm
    conv2: nn.Conv2d
    norm2: nn.BatchNorm
    pool: nn.MaxPool2d
    dropout: nn.Dropout
    linear1: nn.Linear
    linear2: nn.Linear
    activation: nn.Relu

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, 28, 28) -> logits (batch, 10)."""
        batch, height, width = images.dims()
        x = images.reshape([batch, 1, height, width])
        x = self.pool.forward(self.activation.forward(self.norm1.forward(self.conv1.forward(x))))
        x = self.pool.forward(self.activation.forward(self.norm2.forward(self.conv2.forward(x))))
        x = self.dropout.forward(x.reshape([batch, -1]))
        x = self.dropout.forward(self.activation.forward(self.linear1.forward(x)))
        return self.linear2.forward(x)


class FashionMnistRecipe(IdxRecipe):
    """See the module."""

    name = "fashion-mnist"
    help = "clothing, 28 x 28, 60,000 images"
    config = FashionMnistConfig
    dataset = FashionMnistDataset
    mean = 0.2860 * 255
    std = 0.3530 * 255
    classes = FashionMnistDataset.CLASS_NAMES

    def model(self, config: FashionMnistConfig, device: Device) -> FashionMnistModel:
        """A fresh model."""
        c = config.channels
        same = nn.PaddingConfig2d.Same
        return FashionMnistModel(
            nn.Conv2dConfig((1, c), (3, 3), padding=same).init(device),
            nn.BatchNormConfig(c).init(device),
            nn.Conv2dConfig((c, 2 * c), (3, 3), padding=same).init(device),
            nn.BatchNormConfig(2 * c).init(device),
            nn.MaxPool2dConfig((2, 2)).init(),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(2 * c * 7 * 7, config.hidden).init(device),
            nn.LinearConfig(config.hidden, 10).init(device),
            nn.Relu(),
        )


RECIPE = FashionMnistRecipe()
