"""MNIST and data sets in its files: where they are, how they are fetched when somebody asks for it."""

from __future__ import annotations

from typing import Any, ClassVar

from burn_torch.cli.data_files import DataFiles
from burn_torch.cli.image_classification import ClassificationConfig, ImageRecipe
from burn_torch.cli.recipe import AnyConfig, AnyDataset
from burn_torch.data import MnistDataset, cache_dir

__all__ = ["IdxRecipe"]


class IdxRecipe(ImageRecipe):
    """A recipe over a data set of 28 x 28 images in the four files of MNIST."""

    size = (28, 28)
    white = 255.0
    dataset: ClassVar[type[MnistDataset]]

    def data_files(self) -> DataFiles:
        """The four files, packed or not."""
        names = [file.name for files in self.dataset.FILES.values() for file in files]
        return DataFiles(
            self.name,
            {name: (name, f"{name}.gz") for name in names},
            f"burn-torch train {self.name} --download fetches them once, checksums included",
            cache_dir(self.dataset.NAME),
        )

    def prepare(self, config: AnyConfig) -> Any:
        """See `Recipe.prepare`."""
        return self.data_files().located(config)

    def download(self, config: object) -> None:
        """See `Recipe.download`."""
        self.dataset.train()
        self.dataset.test()

    def datasets(self, config: ClassificationConfig) -> tuple[AnyDataset, AnyDataset]:
        """The 60,000 training and 10,000 test images."""
        folder = self.data_files().folder(config.data_dir)
        return self.dataset.train(folder), self.dataset.test(folder)
