"""What a step shows to metrics, and how a metric reads it.

A metric asks an item for its own input, `adapt(item, AccuracyInput)`.  The outputs here answer for the usual tasks; an
item of your own answers with a method `adapt(self, kind)` that returns `kind(...)`, or None for what it does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from burn_torch.core.errors import ConfigError, explain
from burn_torch.tensor import Tensor

__all__ = ["AccuracyInput", "ClassificationOutput", "LossInput", "RegressionOutput", "adapt"]

Input = TypeVar("Input")


@dataclass(frozen=True)
class LossInput:
    """What the loss metric reads: a mean loss, and over how many items it is the mean.

    `targets` are the targets of those items, for a metric that leaves out padding.
    """

    loss: Tensor
    count: Tensor | float
    targets: Tensor | None = None


@dataclass(frozen=True)
class AccuracyInput:
    """What the accuracy metric reads: scores (*items, classes) and the right classes (*items,)."""

    outputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class ClassificationOutput:
    """The output of a classifier.

    Shapes: loss () or (1,), the mean over the items; output (*items, classes), its scores; targets (*items,), int.
    `count` is over how many items the loss is the mean: all targets by default; say it where padding is left out.
    """

    loss: Tensor
    output: Tensor
    targets: Tensor
    count: Tensor | float | None = None

    def adapt(self, kind: type[Any]) -> Any:
        """The input of a metric: LossInput or AccuracyInput; None for another."""
        if kind is LossInput:
            count = self.targets.spec.numel if self.count is None else self.count
            return LossInput(self.loss, count, self.targets)
        return AccuracyInput(self.output, self.targets) if kind is AccuracyInput else None


@dataclass(frozen=True)
class RegressionOutput:
    """The output of a regression.

    Shapes: loss () or (1,), the mean over the items; output and targets (items, *values).
    `count` is over how many items the loss is the mean: the first axis of the targets by default.
    """

    loss: Tensor
    output: Tensor
    targets: Tensor
    count: Tensor | float | None = None

    def adapt(self, kind: type[Any]) -> Any:
        """The input of a metric: LossInput; None for another."""
        if kind is not LossInput:
            return None
        items = self.targets.shape[0] if self.targets.ndim else 1
        return LossInput(self.loss, items if self.count is None else self.count, self.targets)


def adapt(item: Any, kind: type[Input], reader: str) -> Input:
    """The item as the input of a metric.  Raises: ConfigError, naming the `reader`, for an item that has none."""
    if isinstance(item, kind):
        return item
    method = getattr(item, "adapt", None)
    found = None if method is None else method(kind)
    if isinstance(found, kind):
        return found
    name = type(item).__name__
    raise ConfigError(
        explain(
            f"{reader} cannot read what the step returns",
            given=f"{name}, which gives no {kind.__name__}",
            expected=f"an item whose adapt({kind.__name__}) returns one, such as ClassificationOutput",
            mend=f"return another item from the step, give {name} a method adapt(self, kind), or leave {reader} out",
        )
    )
