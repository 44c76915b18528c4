"""Defines what the image recipes share: batches, steps of training and validation, prediction from files."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from burn_torch.cli.recipe import AnyConfig, AnyDataset, AnyLoader, Prediction, Recipe
from burn_torch.cli.recipe_model import RecipeModel, loader_pair
from burn_torch.cli.run_config import OptimizerSettings, RunConfig
from burn_torch.config.rules import Rules
from burn_torch.core.wording import counted
from burn_torch.data.source.image_file import Images, read_grey_images
from burn_torch.module import Module
from burn_torch.nn import CrossEntropyLossConfig
from burn_torch.tensor import Device, Tensor, activation
from burn_torch.train import AccuracyMetric, ClassificationOutput, LossMetric, Metric

__all__ = ["ClassificationConfig", "ImageBatch", "ImageBatcher", "ImageClassifier", "ImageRecipe", "OptimizerSettings"]


PREDICT_BATCH: Final = 256
"""The number of images at once: a file may hold more than fit into memory with all that is computed of them."""


class ClassificationConfig(RunConfig):
    """Holds what a run on images can be told."""

    dropout: float = 0.5

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        return super().rules().below_one("dropout")


@dataclass(frozen=True)
class ImageBatch:
    """images (batch, height, width) float, targets (batch,) int."""

    images: Tensor
    targets: Tensor


class ImageBatcher:
    """Stacks items with `.image` and `.label`, and brings pixels to zero mean and unit variance."""

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = np.float32(mean), np.float32(std)

    def batch(self, items: Sequence[Any], device: Device) -> ImageBatch:
        """One batch on `device`."""
        images = (np.stack([item.image for item in items]) - self.mean) / self.std
        targets = np.array([item.label for item in items], dtype=np.int64)
        return ImageBatch(Tensor.from_data(images, device), Tensor.from_data(targets, device))


class ImageClassifier(RecipeModel):
    """A network from images (batch, height, width) to logits (batch, classes)."""

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch."""
        raise TypeError(f"{type(self).__name__} does not say how it computes; define forward")

    def classify(self, batch: ImageBatch) -> ClassificationOutput:
        """Logits and their mean cross entropy."""
        logits = self.forward(batch.images)
        loss = CrossEntropyLossConfig().init(logits.device).forward(logits, batch.targets)
        return ClassificationOutput(loss, logits, batch.targets)

    def measured(self, batch: ImageBatch) -> ClassificationOutput:
        """See `classify`."""
        return self.classify(batch)


class ImageRecipe(Recipe):
    """A recipe over a data set of small grey images."""

    size: ClassVar[tuple[int, int]]
    white: ClassVar[float]
    mean: ClassVar[float]
    std: ClassVar[float]
    classes: ClassVar[tuple[str, ...]]
    inputs = "IMAGE"

    @abstractmethod
    def datasets(self, config: AnyConfig) -> tuple[AnyDataset, AnyDataset]:
        """Training and validation data."""

    def loaders(self, config: ClassificationConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """See `Recipe.loaders`."""
        train, valid = self.datasets(config)
        return loader_pair(config, device, train, valid, ImageBatcher(self.mean, self.std))

    def metrics(self, config: ClassificationConfig) -> Sequence[Metric]:
        """See `Recipe.metrics`."""
        return [AccuracyMetric(), LossMetric()]

    def example_inputs(self, config: ClassificationConfig, device: Device) -> tuple[Tensor]:
        """See `Recipe.example_inputs`: two images of noise, as the batcher gives them."""
        images = np.random.default_rng(config.seed).standard_normal((2, *self.size)).astype(np.float32)
        return (Tensor.from_data(images, device),)

    dark_ground = True
    """Says whether the images it was trained on are light on dark."""

    def predict(self, config: ClassificationConfig, model: Module, inputs: Sequence[str]) -> list[Prediction]:
        """See `Recipe.predict`."""
        predictions: list[Prediction] = []
        paths = [Path(path) for path in inputs]
        for path, images in zip(paths, read_grey_images(paths, self.size, self.white), strict=True):
            if self.dark_ground and (light := _light_borders(images)):
                print(
                    f"warning: {path}: {counted(light, 'image')} with a light border; the model was trained on light"
                    " strokes on a dark ground, so its answer means little: invert the picture",
                    file=sys.stderr,
                )
            for start in range(0, len(images), PREDICT_BATCH):
                for i, row in enumerate(self._classify(model, images[start : start + PREDICT_BATCH]), start):
                    source = str(path) if len(images) == 1 else f"{path}[{i}]"
                    best = int(row.argmax())
                    predictions.append(Prediction.of_class(source, self.classes[best], float(row[best])))
        return predictions

    def _classify(self, model: Module, images: Images) -> Any:
        device = model.devices()[0]
        batch = Tensor.from_data((images - np.float32(self.mean)) / np.float32(self.std), device)
        logits = model.forward(batch)  # type: ignore[attr-defined]  # an ImageClassifier, or a user's with forward
        return activation.softmax(logits, 1).into_data().values


def _light_borders(images: Images) -> int:
    """How many images have an outermost ring that is nearer to their lightest value than to their darkest."""
    values = np.asarray(images, np.float32).reshape(len(images), -1, *images.shape[-2:])[:, 0]
    ring = np.concatenate([values[:, 0], values[:, -1], values[:, :, 0], values[:, :, -1]], axis=1)
    low, high = values.min((1, 2)), values.max((1, 2))
    return int(((high > low) & (np.median(ring, axis=1) > (low + high) / 2)).sum())
