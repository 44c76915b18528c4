"""A recipe of a user's own: digits with a network of two layers, and faults on demand."""

from __future__ import annotations

from typing import Any, Literal

from burn_torch import Device, Tensor, nn
from burn_torch.cli.image_classification import ClassificationConfig, ImageBatch, ImageClassifier, ImageRecipe
from burn_torch.data import Dataset, DigitsDataset
from burn_torch.train import ClassificationOutput, TrainOutput

steps = 0
fault = "none"


class OwnConfig(ClassificationConfig):
    recipe: Literal["own"] = "own"
    num_epochs: int = 2
    fault: Literal["none", "nan", "error", "shape"] = "none"


class OwnModel(ImageClassifier):
    hidden: nn.Linear
    output: nn.Linear

    def forward(self, images: Tensor) -> Tensor:
        x = images.reshape([images.dims()[0], 64])
        return self.output.forward(self.hidden.forward(x).tanh())

    def train_step(self, batch: ImageBatch) -> TrainOutput[ClassificationOutput]:
        global steps
        steps += 1
        if steps == 30:  # in the second epoch
            batch = break_something(batch)
        return super().train_step(batch)


def break_something(batch: ImageBatch) -> ImageBatch:
    if fault == "error":
        raise KeyError("a mistake of the user")
    if fault == "shape":
        return ImageBatch(batch.images.narrow(1, 0, 7), batch.targets)
    if fault == "nan":
        return ImageBatch(batch.images * float("nan"), batch.targets)
    return batch


class OwnRecipe(ImageRecipe):
    name = "own"
    help = "a recipe of the tests"
    config = OwnConfig
    size = (8, 8)
    white = 16.0
    mean = 5.0
    std = 6.0
    classes = tuple("0123456789")

    def datasets(self, config: OwnConfig) -> tuple[Dataset[Any], Dataset[Any]]:
        return DigitsDataset.train(), DigitsDataset.test()

    def model(self, config: OwnConfig, device: Device) -> OwnModel:
        global fault
        fault = config.fault
        return OwnModel(nn.LinearConfig(64, 16).init(device), nn.LinearConfig(16, 10).init(device))


RECIPE = OwnRecipe()
