"""`burn-torch train mnist`: the guide's network on MNIST.

The data is downloaded unless --data-dir or the cache has it.
"""

from __future__ import annotations

from typing import Any, Literal

from burn_torch.cli.recipes._guide import GuideConfig, GuideRecipe
from burn_torch.data import Dataset, MnistDataset


class MnistConfig(GuideConfig):
    """The guide's settings."""

    recipe: Literal["mnist"] = "mnist"


class MnistRecipe(GuideRecipe):
    """See the module."""

    name = "mnist"
    help = "handwritten digits, 28 x 28, 60,000 images"
    config = MnistConfig
    mean = 0.1307 * 255
    std = 0.3081 * 255
    classes = tuple("0123456789")

    def datasets(self, config: GuideConfig) -> tuple[Dataset[Any], Dataset[Any]]:
        """The 60,000 training and 10,000 test images."""
        return MnistDataset.train(config.data_dir), MnistDataset.test(config.data_dir)


RECIPE = MnistRecipe()
