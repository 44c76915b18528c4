"""What a recipe is: data, a model and settings that train together.  Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from burn_torch.config import Config
from burn_torch.core.errors import ConfigError, explain

if TYPE_CHECKING:
    from burn_torch.data import DataLoader
    from burn_torch.module import Module
    from burn_torch.tensor import Device

__all__ = ["Prediction", "Recipe"]


@dataclass(frozen=True)
class Prediction:
    """What a model says of one input: the best class and how sure it is (0 to 1)."""

    source: str
    label: str
    confidence: float


class Recipe(ABC):
    """One file in `cli/recipes/`, or a file of the user's, defines `RECIPE`, an instance of a subclass.

    `config` is the class of the settings, with defaults for all; `--set` changes them, `config.json` keeps them.
    It has at least the fields recipe (the name), seed, num_epochs, data_dir and optimizer (lr and algorithm), and says
    in `__post_init__` which values are out of range.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    config: ClassVar[type[Config]]

    @abstractmethod
    def loaders(self, config: Any, device: Device) -> tuple[DataLoader[Any, Any], DataLoader[Any, Any]]:
        """The training data on `device` and the validation data on its inner device."""

    @abstractmethod
    def model(self, config: Any, device: Device) -> Module:
        """A freshly initialised model."""

    def example_inputs(self, config: Any, device: Device) -> tuple[Any, ...]:
        """What the model's forward takes, for `burn-torch export --to onnx`: a batch of 2 of the right shapes.

        Raises: ConfigError in a recipe that does not say so.
        """
        raise ConfigError(
            explain(
                f"the recipe {self.name} does not say what its model takes",
                given=f"{type(self).__name__} without example_inputs",
                expected="a method example_inputs(config, device) that gives the inputs of the model's forward",
                mend="define it, or export the model in Python: burn_torch.onnx.export(model, inputs, path)",
            )
        )

    @abstractmethod
    def predict(self, config: Any, model: Module, inputs: Sequence[Path]) -> list[Prediction]:
        """What a trained model says of files.  Raises: DataError for a file that it cannot read."""
