"""Defines what a recipe is: data, a model and settings that train together.  Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from burn_torch.config import Config
from burn_torch.core.errors import ConfigError

if TYPE_CHECKING:
    from burn_torch.cli.data_files import DataFiles
    from burn_torch.data import DataLoader, Dataset
    from burn_torch.module import Module
    from burn_torch.tensor import Device
    from burn_torch.train import Learner, Metric

__all__ = ["AnyConfig", "AnyDataset", "AnyLoader", "Prediction", "Recipe"]

AnyConfig: TypeAlias = Any
"""The settings of a recipe, of its own class."""

AnyLoader: TypeAlias = "DataLoader[Any, Any]"
AnyDataset: TypeAlias = "Dataset[Any]"


@dataclass(frozen=True)
class Prediction:
    """Holds what a model says of one input: a line for people, and facts that JSON can hold."""

    source: str
    shown: str
    facts: Mapping[str, Any]

    @staticmethod
    def of_class(source: str, label: str, confidence: float) -> Prediction:
        """The best class and how sure the model is (0 to 1)."""
        return Prediction(source, f"{source}: {label} ({confidence:.1%})", {"label": label, "confidence": confidence})


class Recipe(ABC):
    """One file in `cli/recipes/`, or a file of the user's, defines `RECIPE`, an instance of a subclass.

    `config` is the class of the settings, with defaults for all; files, the environment and `--set` change them, and
    `config.json` keeps them.  It has at least the fields recipe (the name), seed, num_epochs, data_dir, num_workers and
    optimizer (lr and algorithm), as `burn_torch.cli.run_config.RunConfig` has, and says in `__post_init__` which values
    are out of range.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    config: ClassVar[type[Config]]
    inputs: ClassVar[str] = "INPUT"
    """Holds what `predict` is given, in a word: IMAGE, TEXT, PROMPT, FILE.csv."""

    def prepare(self, config: AnyConfig) -> Any:
        """The settings with what only the data can say: classes, columns, the vocabulary.  For a run that is new.

        The settings that it fills in are kept with the others, so nothing else has to be stored beside the model.
        Raises: DataError where the data is not there; it is never downloaded here.
        """
        return config

    def data_files(self) -> DataFiles | None:
        """The files of its data set; None if it comes with the package, or is the user's own."""
        return None

    def download(self, config: AnyConfig) -> None:
        """Fetches the data into the cache, for `--download`.  Raises: ConfigError for a recipe that cannot."""
        raise ConfigError(
            f"{self.name}: there is nothing to download",
            given="--download",
            expected="mnist or fashion-mnist, whose files have a checksum",
            mend="leave --download out; --data names a folder with the files",
        )

    @abstractmethod
    def loaders(self, config: AnyConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """The training data on `device` and the validation data on its inner device."""

    @abstractmethod
    def model(self, config: AnyConfig, device: Device) -> Module:
        """A freshly initialised model."""

    def learner(self, config: AnyConfig, device: Device) -> Learner[Any]:
        """The model with its optimizer and learning rate."""
        from burn_torch.train import Learner

        return Learner(self.model(config, device), config.optimizer.algorithm.init(), config.optimizer.lr)

    def metrics(self, config: AnyConfig) -> Sequence[Metric]:
        """Returns what is measured in training, validation and evaluation: the loss, unless a recipe says more."""
        from burn_torch.train import LossMetric

        return [LossMetric()]

    def evaluation(self, config: AnyConfig, device: Device, *, given: bool) -> Mapping[str, AnyLoader]:
        """Returns what `burn-torch evaluate` measures, by name, on a device without gradients.

        The validation data; with `given`, `config.data_dir` is what --data named, and not the data that was trained on.
        """
        return {"valid": self.loaders(config, device.autodiff())[1].to_device(device)}

    def example_inputs(self, config: AnyConfig, device: Device) -> tuple[Any, ...]:
        """Returns what the model's forward takes, for `burn-torch export --to onnx`: a batch of 2 of the right shapes.

        Raises: ConfigError in a recipe that does not say so.
        """
        raise ConfigError(
            f"the recipe {self.name} does not say what its model takes",
            given=f"{type(self).__name__} without example_inputs",
            expected="a method example_inputs(config, device) that gives the inputs of the model's forward",
            mend="define it, or export the model in Python: burn_torch.onnx.export(model, inputs, path)",
        )

    @abstractmethod
    def predict(self, config: AnyConfig, model: Module, inputs: Sequence[str]) -> Iterable[Prediction]:
        """Returns what a trained model says of paths or texts.  Raises: DataError for what it cannot read."""
