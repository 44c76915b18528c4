"""`burn-torch train fashion-mnist`: the guide's network on clothing.

The data is downloaded unless --data-dir or the cache has it.
"""

from __future__ import annotations

from typing import Any, Literal

from burn_torch.cli.recipes._guide import GuideConfig, GuideRecipe
from burn_torch.data import Dataset, FashionMnistDataset


class FashionMnistConfig(GuideConfig):
    """The guide's settings."""

    recipe: Literal["fashion-mnist"] = "fashion-mnist"


class FashionMnistRecipe(GuideRecipe):
    """See the module."""

    name = "fashion-mnist"
    help = "clothing, 28 x 28, 60,000 images"
    config = FashionMnistConfig
    mean = 0.2860 * 255
    std = 0.3530 * 255
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip

    def datasets(self, config: GuideConfig) -> tuple[Dataset[Any], Dataset[Any]]:
        """The 60,000 training and 10,000 test images."""
        return FashionMnistDataset.train(config.data_dir), FashionMnistDataset.test(config.data_dir)


RECIPE = FashionMnistRecipe()
