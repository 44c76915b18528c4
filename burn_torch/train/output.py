"""Defines what a step shows to metrics, and how a metric reads it.

A metric asks an item for its own input, `adapt(item, AccuracyInput)`.  The outputs here answer for the usual tasks; an
item of your own answers with a method `adapt(self, kind)` that returns `kind(...)`, or None for what it does not have.
An input is an item as well: a step may return a `DiceInput`.

Burn has an input type for each metric.  Here metrics that read the same data share one, under each of Burn's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from burn_torch.core.annotations import OR_OF_TORCH
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError, ShapeError
from burn_torch.tensor import Tensor

__all__ = [
    "AccuracyInput",
    "BleuInput",
    "CerInput",
    "ClassificationOutput",
    "ConfusionStatsInput",
    "DiceInput",
    "HammingScoreInput",
    "LossInput",
    "MsSsimInput",
    "MultiLabelClassificationOutput",
    "PerplexityInput",
    "PsnrInput",
    "RegressionInput",
    "RegressionOutput",
    "RougeLInput",
    "SequenceOutput",
    "SsimInput",
    "TopKAccuracyInput",
    "WerInput",
]

Input = TypeVar("Input")
Values: TypeAlias = Annotated[Tensor, OR_OF_TORCH]


# -- inputs ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LossInput:
    """Holds what the loss metric reads: a mean loss, and over how many items it is the mean.

    `targets` are the targets of those items, for a metric that leaves out padding.
    """

    loss: Values
    count: Values | float
    targets: Values | None = None


@dataclass(frozen=True)
class _Compared:
    outputs: Values
    targets: Values


@dataclass(frozen=True)
class AccuracyInput(_Compared):
    """Holds what accuracy, top-k accuracy and perplexity read: scores (*items, classes) and the right classes
    (*items,).
    """


TopKAccuracyInput: TypeAlias = AccuracyInput
PerplexityInput: TypeAlias = AccuracyInput


@dataclass(frozen=True)
class ConfusionStatsInput:
    """Holds what precision, recall, F-beta and the areas under curves read: scores and what is true, class by class.

    Shapes: predictions (items, classes); targets (items, classes), bool or 0 and 1; labels as the step had them,
    (items,) classes or (items, classes), for a metric that leaves out padding.
    """

    predictions: Values
    targets: Values
    labels: Values | None = None


@dataclass(frozen=True)
class HammingScoreInput(_Compared):
    """Holds what the Hamming score reads: scores and labels of 0 and 1, both (items, labels)."""


@dataclass(frozen=True)
class CerInput(_Compared):
    """Holds what the metrics of token sequences read: predicted and true tokens, both (batch, seq), int.

    The two may differ in length.
    """


WerInput: TypeAlias = CerInput
BleuInput: TypeAlias = CerInput
RougeLInput: TypeAlias = CerInput


@dataclass(frozen=True)
class PsnrInput(_Compared):
    """Holds what PSNR, SSIM and MS-SSIM read: images and the true ones, both (batch, channels, height, width)."""


SsimInput: TypeAlias = PsnrInput
MsSsimInput: TypeAlias = PsnrInput


@dataclass(frozen=True)
class RegressionInput(_Compared):
    """Holds what the errors of a regression read: values and the true ones, both (items, *values)."""


@dataclass(frozen=True)
class DiceInput(_Compared):
    """Holds what the Dice metric reads: masks of 0 and 1 and the true ones, both (batch, classes, *space), one-hot.

    With several classes the first one is the background.
    """


# -- outputs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Supervised:
    loss: Values
    output: Values
    targets: Values
    count: Values | float | None = None


@dataclass(frozen=True)
class ClassificationOutput(_Supervised):
    """The output of a classifier.

    Shapes: loss () or (1,), the mean over the items; output (*items, classes), its scores; targets (*items,), int.
    `count` is over how many items the loss is the mean: all targets by default; say it where padding is left out.
    """

    def adapt(self, kind: type[object]) -> Any:
        """LossInput, AccuracyInput or ConfusionStatsInput; None for another."""
        if kind is LossInput:
            return LossInput(self.loss, _count(self.count, self.targets.spec.numel), self.targets)
        if kind is AccuracyInput:
            return AccuracyInput(self.output, self.targets)
        return _of_classes(self.output, self.targets) if kind is ConfusionStatsInput else None


@dataclass(frozen=True)
class MultiLabelClassificationOutput(_Supervised):
    """The output of a classifier whose labels do not exclude each other.

    Shapes: loss () or (1,), the mean over the items; output (items, labels), its scores; targets the same, 0 or 1.
    `count` is over how many items the loss is the mean: the rows by default.
    """

    def adapt(self, kind: type[object]) -> Any:
        """LossInput, HammingScoreInput or ConfusionStatsInput; None for another."""
        if kind is LossInput:
            return LossInput(self.loss, _count(self.count, _rows(self.targets)), self.targets)
        if kind is HammingScoreInput:
            return HammingScoreInput(self.output, self.targets)
        if kind is ConfusionStatsInput:
            return ConfusionStatsInput(self.output, self.targets.equal(1), self.targets)
        return None


@dataclass(frozen=True)
class RegressionOutput(_Supervised):
    """The output of a regression.

    Shapes: loss () or (1,), the mean over the items; output and targets (items, *values).
    `count` is over how many items the loss is the mean: the first axis of the targets by default.
    """

    def adapt(self, kind: type[object]) -> Any:
        """LossInput, RegressionInput, or PsnrInput of images; None for another."""
        if kind is RegressionInput:
            return RegressionInput(self.output, self.targets)
        if kind is PsnrInput and self.targets.ndim == 4:
            return PsnrInput(self.output, self.targets)
        return (
            LossInput(self.loss, _count(self.count, _rows(self.targets)), self.targets) if kind is LossInput else None
        )


@dataclass(frozen=True)
class SequenceOutput:
    """The output of a model of token sequences.

    Shapes: loss () or (1,), the mean over the tokens; logits (batch, seq, vocab); targets (batch, seq), int;
    predictions (batch, seq'), int: what a decoder chose, by default the token with the highest logit at each place.
    `count` is over how many tokens the loss is the mean: all targets by default; say it where padding is left out.
    """

    loss: Values
    logits: Values
    targets: Values
    predictions: Values | None = None
    count: Values | float | None = None

    def adapt(self, kind: type[object]) -> Any:
        """LossInput, AccuracyInput or CerInput; None for another."""
        if kind is LossInput:
            return LossInput(self.loss, _count(self.count, self.targets.spec.numel), self.targets)
        if kind is AccuracyInput:
            return AccuracyInput(self.logits, self.targets)
        if kind is CerInput:
            chosen = self.predictions
            return CerInput(self.logits.argmax(-1).squeeze_dim(-1) if chosen is None else chosen, self.targets)
        return None


def input_of(item: object, kind: type[Input]) -> Input | None:
    """The item as the input of a metric; None where it has none."""
    if isinstance(item, kind):
        return item
    method = getattr(item, "adapt", None)
    values = None if method is None else method(kind)
    return values if isinstance(values, kind) else None


def adapt(item: object, kind: type[Input], reader: str) -> Input:
    """The item as the input of a metric.  Raises: ConfigError, naming the `reader`, for an item that has none."""
    values = input_of(item, kind)
    if values is not None:
        return values
    name = type(item).__name__
    raise ConfigError(
        f"{reader} cannot read what the step returns",
        given=f"{name}, which gives no {kind.__name__}",
        expected=f"an item whose adapt({kind.__name__}) returns one, such as ClassificationOutput",
        mend=f"return another item from the step, give {name} a method adapt(self, kind), or leave {reader} out",
    )


def _count(count: Tensor | float | None, default: int) -> Tensor | float:
    return default if count is None else count


def _rows(x: Tensor) -> int:
    return x.shape[0] if x.ndim else 1


def _of_classes(output: Tensor, targets: Tensor) -> ConfusionStatsInput:
    """Scores (*items, classes) beside one-hot rows of the classes; a class that does not exist is a row of False."""
    if output.ndim != targets.ndim + 1 or output.shape[:-1] != targets.shape:
        raise ShapeError(
            "ClassificationOutput: the scores do not fit the targets",
            given=f"output {output.shape}, targets {targets.shape}",
            expected="output (*items, classes) and targets (*items,)",
            mend="give class indices as targets, or return a MultiLabelClassificationOutput",
        )
    items, classes = targets.spec.numel, output.shape[-1]
    labels = targets.reshape(items)
    column = labels.cast(DType.I64).reshape(items, 1)
    one_hot = column.equal(1) if classes == 1 else column.equal(Tensor.arange(classes, (labels.device, column.dtype)))
    return ConfusionStatsInput(output.reshape(items, classes), one_hot, labels)
