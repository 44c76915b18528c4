"""Precision, recall and F-beta, from counts of right and wrong decisions class by class.

                          true          not true
    decided               tp            fp              precision = tp / (tp + fp)
    not decided           fn            tn              recall    = tp / (tp + fn)

    F_beta = (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp)

The counts of all batches are added, and the value of the epoch is that of the sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, Self, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import changed, require_positive
from burn_torch.train.metric.accumulate import AdditiveMetric, Array
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.metric.confusion import (
    ClassificationMetricConfig,
    ClassReduction,
    ConfusionStats,
    DecisionRule,
    counted_labels,
    positive_column,
)
from burn_torch.train.output import ConfusionStatsInput, adapt

__all__ = ["FBetaScoreMetric", "PrecisionMetric", "RecallMetric"]


@checked(error=ConfigError, but=("update", "measure"))
class _ConfusionMetric(AdditiveMetric):
    """A ratio of counts of decisions, in percent."""

    unit = "%"
    higher_is_better = True
    title: str
    pad_token: int | None = None

    def __init__(self, config: ClassificationMetricConfig | None = None, *, binary: bool = False) -> None:
        super().__init__()
        self.config = ClassificationMetricConfig() if config is None else config
        self._binary = binary
        self.name = f"{self.title} @ {self.config.decision_rule} [{self.config.class_reduction.name}]"

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving out rows of this class, or single labels of this value."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The counts of the batch."""
        values = adapt(item, ConfusionStatsInput, type(self).__name__)
        counted = counted_labels(type(self).__name__, values, self.pad_token)
        if self._binary:
            values, counted = positive_column(type(self).__name__, values, counted)
        stats = ConfusionStats(values, self.config, counted=counted)
        rows: Tensor | float = values.predictions.shape[0]
        if counted is not None:
            rows = counted.int().max_dim(-1).sum() if rows else 0  # a row counts if any label of it does
        return {
            "true positive": stats.true_positive(),
            "false positive": stats.false_positive(),
            "false negative": stats.false_negative(),
            "items": rows,
        }

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The ratio of the sums; under `Macro` its mean over the classes where it is not 0 / 0."""
        tp, fp, fn = (sums[name].astype(np.float64) for name in ("true positive", "false positive", "false negative"))
        top, bottom = self.fraction(tp, fp, fn)
        defined = bottom > 0
        return float(100.0 * np.mean(top[defined] / bottom[defined])) if defined.any() else float("nan")

    @abstractmethod
    def fraction(self, tp: Array, fp: Array, fn: Array) -> tuple[Array, Array]:
        """Returns what is divided by what."""


@checked(error=ConfigError, but=("update", "measure"))
@final
class PrecisionMetric(_ConfusionMetric):
    """Percent of the decisions that are true: tp / (tp + fp)."""

    title = "Precision"

    @staticmethod
    def binary(threshold: float = 0.5) -> PrecisionMetric:
        """For one class and its opposite; scores (items, 1), or (items, 2) with the class in question last."""
        return PrecisionMetric(_config(DecisionRule.Threshold(threshold)), binary=True)

    @staticmethod
    def multiclass(top_k: int = 1, class_reduction: ClassReduction | str = ClassReduction.Macro) -> PrecisionMetric:
        """For classes that exclude each other; the `top_k` highest scores of a row are its decisions."""
        return PrecisionMetric(_config(DecisionRule.TopK(top_k), class_reduction))

    @staticmethod
    def multilabel(
        threshold: float = 0.5, class_reduction: ClassReduction | str = ClassReduction.Macro
    ) -> PrecisionMetric:
        """For labels that do not exclude each other; scores above `threshold` are decisions."""
        return PrecisionMetric(_config(DecisionRule.Threshold(threshold), class_reduction))

    def fraction(self, tp: Array, fp: Array, fn: Array) -> tuple[Array, Array]:
        """True decisions of all decisions."""
        return tp, tp + fp


@checked(error=ConfigError, but=("update", "measure"))
@final
class RecallMetric(_ConfusionMetric):
    """Percent of what is true that was decided: tp / (tp + fn)."""

    title = "Recall"

    @staticmethod
    def binary(threshold: float = 0.5) -> RecallMetric:
        """For one class and its opposite; scores (items, 1), or (items, 2) with the class in question last."""
        return RecallMetric(_config(DecisionRule.Threshold(threshold)), binary=True)

    @staticmethod
    def multiclass(top_k: int = 1, class_reduction: ClassReduction | str = ClassReduction.Macro) -> RecallMetric:
        """For classes that exclude each other; the `top_k` highest scores of a row are its decisions."""
        return RecallMetric(_config(DecisionRule.TopK(top_k), class_reduction))

    @staticmethod
    def multilabel(
        threshold: float = 0.5, class_reduction: ClassReduction | str = ClassReduction.Macro
    ) -> RecallMetric:
        """For labels that do not exclude each other; scores above `threshold` are decisions."""
        return RecallMetric(_config(DecisionRule.Threshold(threshold), class_reduction))

    def fraction(self, tp: Array, fp: Array, fn: Array) -> tuple[Array, Array]:
        """True decisions of all that is true."""
        return tp, tp + fn


@checked(error=ConfigError, but=("update", "measure"))
@final
class FBetaScoreMetric(_ConfusionMetric):
    """The mean of precision and recall where recall weighs beta times as much, in percent; beta 1 is F1."""

    title = "FBetaScore"

    def __init__(
        self, beta: float = 1.0, config: ClassificationMetricConfig | None = None, *, binary: bool = False
    ) -> None:
        require_positive("FBetaScoreMetric", beta=beta)
        self.beta: Final = beta
        self.title = f"FBetaScore ({beta:g})"
        super().__init__(config, binary=binary)

    @staticmethod
    def binary(beta: float = 1.0, threshold: float = 0.5) -> FBetaScoreMetric:
        """For one class and its opposite; scores (items, 1), or (items, 2) with the class in question last."""
        return FBetaScoreMetric(beta, _config(DecisionRule.Threshold(threshold)), binary=True)

    @staticmethod
    def multiclass(
        beta: float = 1.0, top_k: int = 1, class_reduction: ClassReduction | str = ClassReduction.Macro
    ) -> FBetaScoreMetric:
        """For classes that exclude each other; the `top_k` highest scores of a row are its decisions."""
        return FBetaScoreMetric(beta, _config(DecisionRule.TopK(top_k), class_reduction))

    @staticmethod
    def multilabel(
        beta: float = 1.0, threshold: float = 0.5, class_reduction: ClassReduction | str = ClassReduction.Macro
    ) -> FBetaScoreMetric:
        """For labels that do not exclude each other; scores above `threshold` are decisions."""
        return FBetaScoreMetric(beta, _config(DecisionRule.Threshold(threshold), class_reduction))

    def fraction(self, tp: Array, fp: Array, fn: Array) -> tuple[Array, Array]:
        """(1 + beta^2) tp, and that with beta^2 fn + fp."""
        square = self.beta**2
        return (1 + square) * tp, (1 + square) * tp + square * fn + fp


def _config(rule: DecisionRule, reduction: ClassReduction | str = ClassReduction.Macro) -> ClassificationMetricConfig:
    return ClassificationMetricConfig(rule, ClassReduction.of(reduction))
