"""The network of the Burn book's guide, for images of 28 x 28 pixels."""

from __future__ import annotations

from typing import Any

from burn_torch.cli.image_classification import ClassificationConfig, ImageClassifier, ImageRecipe
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

__all__ = ["GuideConfig", "GuideModel", "GuideRecipe"]


class GuideConfig(ClassificationConfig):
    """The guide's settings: 10 epochs of Adam at 1e-3 in batches of 64."""

    hidden: int = 512

    def limits(self) -> dict[str, tuple[Any, bool, str]]:
        """See `ClassificationConfig.limits`."""
        return super().limits() | {"hidden": (self.hidden, self.hidden >= 1, "1 or more")}


class GuideModel(ImageClassifier):
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


class GuideRecipe(ImageRecipe):
    """A data set of 28 x 28 images in ten classes, with the guide's network."""

    size = (28, 28)
    white = 255.0

    def model(self, config: GuideConfig, device: Device) -> GuideModel:
        """A fresh model."""
        return GuideModel(
            Conv2dConfig((1, 8), (3, 3)).init(device),
            Conv2dConfig((8, 16), (3, 3)).init(device),
            AdaptiveAvgPool2dConfig((8, 8)).init(),
            DropoutConfig(config.dropout).init(),
            LinearConfig(16 * 8 * 8, config.hidden).init(device),
            LinearConfig(config.hidden, len(self.classes)).init(device),
            Relu(),
        )
