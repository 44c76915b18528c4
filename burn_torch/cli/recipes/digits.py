"""`burn-torch train digits`: a small convolutional network on the handwritten digits that come with the package.

UCI digits, 1,797 images of 8 x 8 pixels; 1,437 train, 360 validate.  Needs no network and no GPU.
"""

from __future__ import annotations

from typing import Literal

from burn_torch import nn
from burn_torch.cli.image_classification import ClassificationConfig, ImageClassifier, ImageRecipe, OptimizerSettings
from burn_torch.cli.recipe import AnyDataset
from burn_torch.config.rules import Rules
from burn_torch.core.errors import ConfigError
from burn_torch.data import DigitsDataset
from burn_torch.tensor import Device, Tensor


class DigitsConfig(ClassificationConfig):
    """Defaults of the recipe: 20 epochs take some seconds, and learn to about 99 %."""

    recipe: Literal["digits"] = "digits"
    num_epochs: int = 20
    dropout: float = 0.3
    channels: int = 32
    hidden: int = 128
    optimizer: OptimizerSettings = OptimizerSettings(lr=2e-3)
    split: Literal["stratified", "file-order"] = "stratified"
    """Says which 360 images validate: the same share of each class, or the last rows of the file, of other writers."""

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        return super().rules().at_least(1, "channels", "hidden")


class DigitsModel(ImageClassifier):
    """Three 3 x 3 convolutions with batch norm, two poolings, two linear layers."""

    conv1: nn.Conv2d
    norm1: nn.BatchNorm
    conv2: nn.Conv2d
    norm2: nn.BatchNorm
    conv3: nn.Conv2d
    norm3: nn.BatchNorm
    pool: nn.MaxPool2d
    dropout: nn.Dropout
    linear1: nn.Linear
    linear2: nn.Linear
    activation: nn.Relu

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, 8, 8) -> logits (batch, 10)."""
        batch = images.dims()[0]
        x = images.reshape([batch, 1, 8, 8])
        x = self.activation.forward(self.norm1.forward(self.conv1.forward(x)))
        x = self.pool.forward(self.activation.forward(self.norm2.forward(self.conv2.forward(x))))
        x = self.pool.forward(self.activation.forward(self.norm3.forward(self.conv3.forward(x))))
        x = self.dropout.forward(x.reshape([batch, -1]))
        x = self.dropout.forward(self.activation.forward(self.linear1.forward(x)))
        return self.linear2.forward(x)


class DigitsRecipe(ImageRecipe):
    """See the module."""

    name = "digits"
    help = "handwritten digits, 8 x 8, that come with the package"
    config = DigitsConfig
    size = (8, 8)
    white = 16.0
    mean = 4.884  # of the training pixels, 0 to 16
    std = 6.017
    classes = tuple("0123456789")

    def datasets(self, config: DigitsConfig) -> tuple[AnyDataset, AnyDataset]:
        """The embedded data."""
        if config.data_dir is not None:
            raise ConfigError(
                "digits: the data comes with the package",
                given=f"--data {config.data_dir}",
                expected="no data directory",
                mend="leave --data out, or train mnist",
            )
        return DigitsDataset.train(split=config.split), DigitsDataset.test(split=config.split)

    def model(self, config: DigitsConfig, device: Device) -> DigitsModel:
        """A fresh model."""
        c = config.channels

        def conv(channels_in: int, channels_out: int) -> nn.Conv2d:
            return nn.Conv2dConfig((channels_in, channels_out), (3, 3), padding=nn.PaddingConfig2d.Same).init(device)

        return DigitsModel(
            conv(1, c),
            nn.BatchNormConfig(c).init(device),
            conv(c, c),
            nn.BatchNormConfig(c).init(device),
            conv(c, 2 * c),
            nn.BatchNormConfig(2 * c).init(device),
            nn.MaxPool2dConfig((2, 2)).init(),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(2 * c * 2 * 2, config.hidden).init(device),
            nn.LinearConfig(config.hidden, 10).init(device),
            nn.Relu(),
        )


RECIPE = DigitsRecipe()
