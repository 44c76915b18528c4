"""`burn-torch train image-folder --data DIR`: a folder of pictures for each class.

    DIR/cat/1.png, DIR/dog/2.png, ...                         a share of the pictures validates
    DIR/train/cat/1.png, ..., DIR/valid/cat/2.png, ...        these do (`val` and `test` are read too)

Pictures are read in grey and brought to one size.  .png and .jpg need Pillow; .pgm and .npy need nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from burn_torch import nn
from burn_torch.cli.image_classification import ClassificationConfig, ImageBatcher, ImageClassifier
from burn_torch.cli.recipe import AnyConfig, AnyLoader, Prediction, Recipe
from burn_torch.cli.recipe_model import loader_pair
from burn_torch.config import replace
from burn_torch.config.rules import Rules
from burn_torch.core.errors import DataError
from burn_torch.data import DataLoader, Dataset, permutation
from burn_torch.data.source.image_file import PICTURES, read_grey_image, resized
from burn_torch.module import Module
from burn_torch.tensor import Device, Tensor, activation
from burn_torch.train import AccuracyMetric, LossMetric, Metric

VALIDATION: Final = ("valid", "val", "test")
SAMPLE: Final = 500
"""The number of pictures that mean and deviation are taken from."""


class ImageFolderConfig(ClassificationConfig):
    """Pictures of `size` x `size` pixels; `validation` is the share that validates where no folder does."""

    recipe: Literal["image-folder"] = "image-folder"
    dropout: float = 0.2
    size: int = 32
    channels: int = 16
    validation: float = 0.2
    classes: tuple[str, ...] | None = None
    """The names of the folders."""
    mean: float = 0.5
    std: float = 0.25

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        rules = super().rules().at_least(8, "size").at_least(1, "channels")
        return rules.between_zero_and_one("validation").positive("std")


@dataclass(frozen=True, eq=False)
class Picture:
    """image (size, size), 0 to 1, and its class."""

    image: NDArray[np.float32]
    label: int


class PictureDataset(Dataset[Picture]):
    """Pictures that are read when they are asked for."""

    def __init__(self, paths: Sequence[tuple[Path, int]], size: int) -> None:
        self.paths = paths
        self.size = size

    def get(self, index: int) -> Picture:
        """The picture at a position."""
        path, label = self.paths[index]
        return Picture(resized(read_grey_image(path), self.size, self.size), label)

    def __len__(self) -> int:
        return len(self.paths)


class ImageFolderModel(ImageClassifier):
    """Three 3 x 3 convolutions with batch norm, pooled to 4 x 4 whatever the size, one linear layer."""

    convs: tuple[nn.Conv2d, ...]
    norms: tuple[nn.BatchNorm, ...]
    halve: nn.MaxPool2d
    pool: nn.AdaptiveAvgPool2d
    dropout: nn.Dropout
    output: nn.Linear
    activation: nn.Relu

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, height, width) -> logits (batch, classes)."""
        batch, height, width = images.dims()
        x = images.reshape([batch, 1, height, width])
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = x if number == 0 else self.halve.forward(x)
            x = self.activation.forward(norm.forward(conv.forward(x)))
        x = self.pool.forward(x).reshape([batch, -1])
        return self.output.forward(self.dropout.forward(x))


class ImageFolderRecipe(Recipe):
    """See the module."""

    name = "image-folder"
    help = "pictures of your own, a folder for each class"
    config = ImageFolderConfig
    inputs = "IMAGE"

    def prepare(self, config: ImageFolderConfig) -> ImageFolderConfig:
        """See `Recipe.prepare`: classes, mean and deviation."""
        root = self.folder(config)
        train = root / "train" if (root / "train").is_dir() else root
        classes = tuple(sorted(path.name for path in train.iterdir() if path.is_dir() and pictures_in(path)))
        if len(classes) < 2:
            raise DataError(
                f"{train}: there are no two classes",
                given=f"{', '.join(classes) or 'no folder'} with pictures",
                expected=f"a folder for each class, with files {', '.join(PICTURES)}",
                mend="put the pictures of each class into a folder of its name",
            )
        config = replace(config, classes=classes, data_dir=str(root.absolute()))
        paths, _ = self.pictures(config)
        chosen = permutation(len(paths), config.seed, 0)[:SAMPLE].tolist()
        pixels = np.stack([PictureDataset(paths, config.size).get(i).image for i in chosen])
        return replace(config, mean=float(pixels.mean()), std=max(float(pixels.std()), 1e-3))

    def folder(self, config: ImageFolderConfig) -> Path:
        """The folder that --data names.  Raises: DataError."""
        if config.data_dir is not None and Path(config.data_dir).is_dir():
            return Path(config.data_dir)
        words = "no --data" if config.data_dir is None else f"{config.data_dir}, which is no folder"
        raise DataError(
            "image-folder: there are no pictures",
            given=words,
            expected="a folder with a folder of pictures for each class",
            mend="burn-torch train image-folder --data DIR",
        )

    def pictures(self, config: ImageFolderConfig) -> tuple[list[tuple[Path, int]], list[tuple[Path, int]]]:
        """Paths and classes of the pictures that train and of those that validate.  Raises: DataError."""
        root = self.folder(config)
        held = next((root / name for name in VALIDATION if (root / name).is_dir()), None)
        pictures = labelled(root / "train" if (root / "train").is_dir() else root, config.classes or ())
        if (root / "train").is_dir() and held is not None:
            return pictures, labelled(held, config.classes or ())
        order = permutation(len(pictures), config.seed, 1)
        count = min(max(1, round(len(pictures) * config.validation)), len(pictures) - 1)
        train, valid = sorted(order[count:].tolist()), sorted(order[:count].tolist())
        return [pictures[i] for i in train], [pictures[i] for i in valid]

    def loaders(self, config: ImageFolderConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """See `Recipe.loaders`."""
        train, valid = (PictureDataset(paths, config.size) for paths in self.pictures(config))
        return loader_pair(config, device, train, valid, ImageBatcher(config.mean, config.std))

    def evaluation(self, config: AnyConfig, device: Device, *, given: bool) -> Mapping[str, AnyLoader]:
        """See `Recipe.evaluation`: of another folder all pictures below its classes."""
        if not given:
            return super().evaluation(config, device, given=False)
        pictures = PictureDataset(labelled(self.folder(config), config.classes or ()), config.size)
        batcher, size = ImageBatcher(config.mean, config.std), config.batch_size
        return {"given": DataLoader(pictures, batcher, batch_size=size, num_workers=config.num_workers, device=device)}

    def model(self, config: ImageFolderConfig, device: Device) -> ImageFolderModel:
        """A fresh model."""
        sizes = [1, config.channels, 2 * config.channels, 4 * config.channels]
        same = nn.PaddingConfig2d.Same
        return ImageFolderModel(
            tuple(nn.Conv2dConfig(pair, (3, 3), padding=same).init(device) for pair in itertools.pairwise(sizes)),
            tuple(nn.BatchNormConfig(size).init(device) for size in sizes[1:]),
            nn.MaxPool2dConfig((2, 2)).init(),
            nn.AdaptiveAvgPool2dConfig((4, 4)).init(),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(sizes[-1] * 4 * 4, len(config.classes or ())).init(device),
            nn.Relu(),
        )

    def example_inputs(self, config: ImageFolderConfig, device: Device) -> tuple[Tensor]:
        """See `Recipe.example_inputs`: two pictures of noise, as the batcher gives them."""
        images = np.random.default_rng(config.seed).standard_normal((2, config.size, config.size))
        return (Tensor.from_data(images.astype(np.float32), device),)

    def metrics(self, config: ImageFolderConfig) -> Sequence[Metric]:
        """See `Recipe.metrics`."""
        return [AccuracyMetric(), LossMetric()]

    def predict(self, config: ImageFolderConfig, model: Module, inputs: Sequence[str]) -> Iterator[Prediction]:
        """The class of each picture, or of each picture in a folder."""
        assert isinstance(model, ImageFolderModel)
        paths = [path for word in inputs for path in (pictures_in(Path(word)) or [Path(word)])]
        for path in paths:
            image = resized(read_grey_image(path), config.size, config.size)
            scaled = ((image - np.float32(config.mean)) / np.float32(config.std))[None]
            logits = model.forward(Tensor.from_data(scaled, model.devices()[0]))
            row = activation.softmax(logits, 1).into_data().values[0]
            yield Prediction.of_class(str(path), (config.classes or ())[int(row.argmax())], float(row.max()))


def pictures_in(folder: Path) -> list[Path]:
    """The pictures below a folder, in the order of their paths; none if it is no folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES and path.is_file())


def labelled(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """The pictures of all classes below a folder.  Raises: DataError if there are too few to learn from."""
    pictures = [(path, label) for label, name in enumerate(classes) for path in pictures_in(folder / name)]
    if len(pictures) < 2:
        raise DataError(
            f"{folder}: too few pictures",
            given=f"{len(pictures)} in {', '.join(classes)}",
            expected="two pictures at least",
            mend="check the folder",
        )
    return pictures


RECIPE = ImageFolderRecipe()
