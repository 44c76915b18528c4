"""What a model must be able to do to be trained and validated.

In Burn both traits have one method `step`; a Python class cannot have two methods of one name, so they are
`train_step` (Burn's `TrainStep::step`) and `valid_step` (Burn's `InferenceStep::step`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

from burn_torch.module import Module
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Gradients

__all__ = ["InferenceStep", "TrainOutput", "TrainStep"]

Batch = TypeVar("Batch", contravariant=True)
Item = TypeVar("Item", covariant=True)


@final
@dataclass(frozen=True)
class TrainOutput(Generic[Item]):
    """What one training step gives: the gradients of the parameters, and the item that metrics read."""

    grads: GradientsParams
    item: Item

    @staticmethod
    def new(model: Module, grads: Gradients | GradientsParams, item: Any) -> TrainOutput[Any]:
        """From the result of `loss.backward()`; the gradients of the model's parameters move out of it."""
        if isinstance(grads, Gradients):
            grads = GradientsParams.from_grads(grads, model)
        return TrainOutput(grads, item)


@runtime_checkable
class TrainStep(Protocol[Batch, Item]):
    """A model that can be trained.

    def train_step(self, batch: MnistBatch) -> TrainOutput[ClassificationOutput]:
        item = self.forward_classification(batch.images, batch.targets)
        return TrainOutput.new(self, item.loss.backward(), item)
    """

    def train_step(self, batch: Batch, /) -> TrainOutput[Item]:
        """Forward, loss and backward of one batch; changes nothing."""
        ...


@runtime_checkable
class InferenceStep(Protocol[Batch, Item]):
    """A model that can be validated.

    def valid_step(self, batch: MnistBatch) -> ClassificationOutput:
        return self.forward_classification(batch.images, batch.targets)
    """

    def valid_step(self, batch: Batch, /) -> Item:
        """Forward and loss of one batch, on the device without gradients."""
        ...
