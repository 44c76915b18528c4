"""Defines what the models and the loaders of the recipes share."""

from __future__ import annotations

from typing import Any

from burn_torch.cli.recipe import AnyConfig, AnyDataset, AnyLoader
from burn_torch.data import DataLoader
from burn_torch.module import Module
from burn_torch.tensor import Device
from burn_torch.train import TrainOutput

__all__ = ["RecipeModel", "loader_pair"]


class RecipeModel(Module):
    """A network that trains and validates by what it measures of a batch."""

    def measured(self, batch: Any) -> Any:
        """The loss of a batch, with the outputs that metrics read."""
        raise TypeError(f"{type(self).__name__} does not say what it measures; define measured")

    def train_step(self, batch: Any) -> TrainOutput[Any]:
        """Burn's TrainStep::step: loss and gradients of a batch."""
        item = self.measured(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Any) -> Any:
        """Burn's InferenceStep::step."""
        return self.measured(batch)


def loader_pair(
    config: AnyConfig, device: Device, train: AnyDataset, valid: AnyDataset, batcher: Any
) -> tuple[AnyLoader, AnyLoader]:
    """Shuffled training data on `device`, and validation data in its order on the inner device."""
    size, workers = config.batch_size, config.num_workers
    return (
        DataLoader(train, batcher, batch_size=size, num_workers=workers, shuffle=config.seed, device=device),
        DataLoader(valid, batcher, batch_size=size, num_workers=workers, device=device.inner()),
    )
