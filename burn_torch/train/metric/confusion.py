"""Counts of right and wrong decisions, class by class.

                          true            not true
    decided               true positive   false positive
    not decided           false negative  true negative

A decision is a score above a threshold, or one of the k highest scores of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import not_padding, on_leaf, same_shape
from burn_torch.train.output import ConfusionStatsInput

__all__ = [
    "ClassReduction",
    "ClassificationMetricConfig",
    "ConfusionStats",
    "DecisionRule",
    "counted_labels",
    "positive_column",
    "require_classes",
]


class ClassReduction(Enum):
    """How the classes become one number."""

    Micro = "micro"
    """The counts of all classes are added, then there is one value."""
    Macro = "macro"
    """Each class has its value; the result is their mean.  A class whose value is 0 / 0 is left out of it."""

    @classmethod
    def of(cls, value: object) -> ClassReduction:
        """The member itself, or the one of this name.  Raises: ArgumentError with the names there are."""
        for member in cls:
            if value in (member, member.name, member.value):
                return member
        raise ArgumentError(
            "there is no such ClassReduction",
            given=repr(value),
            expected="'micro' or 'macro'",
            mend="write ClassReduction.Micro or ClassReduction.Macro",
        )


@checked(error=ConfigError, but=("update", "measure"))
@final
@dataclass(frozen=True)
class DecisionRule:
    """When a class counts as decided: `DecisionRule.Threshold(0.5)` or `DecisionRule.TopK(1)`."""

    kind: str
    limit: float

    @staticmethod
    def Threshold(threshold: float) -> DecisionRule:  # noqa: N802, a member of Burn's enum
        """Its score is above a number."""
        return DecisionRule("Threshold", float(threshold))

    @staticmethod
    def TopK(top_k: int) -> DecisionRule:  # noqa: N802, a member of Burn's enum
        """Its score is among the k highest of its row; the first of equal ones counts.  Raises: ArgumentError."""
        if top_k < 1:
            raise ArgumentError(
                "DecisionRule.TopK: too small",
                given=f"top_k={top_k}",
                expected="1 or more",
                mend="give top_k=1 for the highest score alone",
            )
        return DecisionRule("TopK", int(top_k))

    def decide(self, scores: Tensor) -> Tensor:
        """Returns which classes are decided.  Shapes: scores (items, classes) -> bool (items, classes)."""
        if self.kind == "Threshold":
            return scores.greater(self.limit)
        k, classes = int(self.limit), scores.shape[-1]
        require_classes("DecisionRule.TopK", k, classes)
        best = scores.argmax(-1) if k == 1 else scores.argsort_descending(-1).narrow(-1, 0, k)
        decided = best.unsqueeze_dim(-1).equal(Tensor.arange(classes, (scores.device, best.dtype)))
        return decided.any_dim(1).squeeze_dim(1)

    def __str__(self) -> str:
        return f"{self.kind}({self.limit:g})"


@final
@dataclass(frozen=True)
class ClassificationMetricConfig:
    """Holds what precision, recall and F-beta have in common."""

    decision_rule: DecisionRule = DecisionRule("Threshold", 0.5)
    class_reduction: ClassReduction = ClassReduction.Macro


@checked(error=ConfigError, but=("update", "measure"))
@final
class ConfusionStats:
    """The four counts of a batch, as tensors on its device.

    Shapes: each count is (1,) under `Micro` and (classes,) under `Macro`.  Dtypes: i64.
    """

    def __init__(
        self, input: ConfusionStatsInput, config: ClassificationMetricConfig, *, counted: Tensor | None = None
    ) -> None:
        scores, targets = on_leaf(input.predictions), on_leaf(input.targets)
        same_shape("ConfusionStats", scores, targets, ndim=2, shape="(items, classes)")
        self._config = config
        self._decided = config.decision_rule.decide(scores)
        self._true = targets if targets.dtype is DType.BOOL else targets.not_equal(0)
        self._counted = None if counted is None else counted.expand(scores.shape)

    def true_positive(self) -> Tensor:
        """Decided and true."""
        return self._sum(self._decided.bool_and(self._true))

    def true_negative(self) -> Tensor:
        """Not decided and not true."""
        return self._sum(self._decided.bool_or(self._true).bool_not())

    def false_positive(self) -> Tensor:
        """Decided but not true."""
        return self._sum(self._decided.bool_and(self._true.bool_not()))

    def false_negative(self) -> Tensor:
        """True but not decided."""
        return self._sum(self._true.bool_and(self._decided.bool_not()))

    def positive(self) -> Tensor:
        """True."""
        return self.true_positive() + self.false_negative()

    def negative(self) -> Tensor:
        """Not true."""
        return self.true_negative() + self.false_positive()

    def predicted_positive(self) -> Tensor:
        """Decided."""
        return self.true_positive() + self.false_positive()

    def support(self) -> Tensor:
        """All that counts."""
        return self.positive() + self.negative()

    def ratio_of_support(self, metric: Tensor) -> Tensor:
        """A count as a part of the support.  Dtypes: f32."""
        return metric.cast(DType.F32) / self.support().cast(DType.F32)

    def _sum(self, mask: Tensor) -> Tensor:
        kept = (mask if self._counted is None else mask.bool_and(self._counted)).int()
        return kept.sum() if self._config.class_reduction is ClassReduction.Micro else kept.sum_dim(0).squeeze_dim(0)


def require_classes(reader: str, k: int, classes: int) -> None:
    """Raises: ArgumentError for more than there are."""
    if k > classes:
        raise ArgumentError(
            f"{reader}: k is larger than the number of classes",
            given=f"k={k}, scores of {classes} classes",
            expected=f"k from 1 to {classes}",
            mend="lower k, or give the scores of all classes",
        )


def counted_labels(reader: str, values: ConfusionStatsInput, pad_token: int | None) -> Tensor | None:
    """Returns which labels count, (items, 1) or (items, classes); None if all do."""
    if pad_token is None:
        return None
    if values.labels is None:
        raise ArgumentError(
            f"{reader}: no labels to find padding in",
            given="a ConfusionStatsInput without labels",
            expected="labels (items,) or (items, classes)",
            mend="give ConfusionStatsInput(predictions, targets, labels)",
        )
    counted = not_padding(values.labels, pad_token)
    return counted.unsqueeze_dim(-1) if counted.ndim == 1 else counted


def positive_column(
    reader: str, values: ConfusionStatsInput, counted: Tensor | None
) -> tuple[ConfusionStatsInput, Tensor | None]:
    """The class in question alone: the only column, or the second of two."""
    _, classes = values.predictions.shape if values.predictions.ndim == 2 else (0, 0)
    if classes not in (1, 2):
        raise ShapeError(
            f"{reader}: binary classification has one class and its opposite",
            given=f"scores {values.predictions.shape}",
            expected="scores (items, 1), or (items, 2) with the class in question last",
            mend=f"use {reader}.multiclass or {reader}.multilabel",
        )
    last = [x.narrow(-1, classes - 1, 1) for x in (values.predictions, values.targets)]
    if counted is not None and counted.shape[-1] == 2:
        counted = counted.narrow(-1, 1, 1)
    return ConfusionStatsInput(last[0], last[1], values.labels), counted
