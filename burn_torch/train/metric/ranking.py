"""Areas under curves: how well scores put what is true before what is not, whatever the threshold.

They depend on the order of all scores of the epoch, so the scores are kept, on the host: 4 bytes a score and 1 a label.
Equal scores are in no order: AUROC counts such a pair as one half, and the precision-recall curve has one point there.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self, final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.tensor import Tensor
from burn_torch.tensor.activation import softmax
from burn_torch.train.metric._tensors import changed, on_leaf, same_shape
from burn_torch.train.metric.accumulate import Array, CollectingMetric
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.metric.confusion import ClassReduction, counted_labels, positive_column
from burn_torch.train.output import ConfusionStatsInput, adapt

__all__ = ["AucPrMetric", "AurocMetric", "area_under_roc", "average_precision"]


class _RankingMetric(CollectingMetric):
    """An area under a curve of the scores of the epoch, in percent."""

    unit = "%"
    higher_is_better = True
    title: str
    pad_token: int | None = None
    from_logits = False

    def __init__(self, class_reduction: ClassReduction | str = ClassReduction.Macro, *, binary: bool = False) -> None:
        super().__init__()
        self.class_reduction = ClassReduction.of(class_reduction)
        self._binary = binary
        self.name = f"{self.title} [{self.class_reduction.name}]"

    @classmethod
    def binary(cls) -> Self:
        """Of one class and its opposite.

        Scores (items, 1), or (items, 2) with the class in question last: then its score less the other one orders the
        items, which is the order of the probabilities whether the scores are probabilities or logits.
        """
        return cls(binary=True)

    @classmethod
    def multiclass(cls, class_reduction: ClassReduction | str = ClassReduction.Macro) -> Self:
        """Of classes that exclude each other, each one against the rest; scores are probabilities, see with_softmax."""
        return cls(class_reduction)

    @classmethod
    def multilabel(cls, class_reduction: ClassReduction | str = ClassReduction.Macro) -> Self:
        """Of labels that do not exclude each other."""
        return cls(class_reduction)

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving out rows of this class, or single labels of this value."""
        return changed(self, pad_token=index)

    def with_softmax(self, softmax: bool = True) -> Self:
        """The same metric for logits of classes that exclude each other: items are compared by their probabilities."""
        return changed(self, from_logits=softmax)

    def measure(self, item: Any, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """Scores and labels of the batch, and which of them count."""
        reader = type(self).__name__
        found = adapt(item, ConfusionStatsInput, reader)
        scores, targets = on_leaf(found.predictions), on_leaf(found.targets)
        same_shape(reader, scores, targets, ndim=2, shape="(items, classes)")
        if scores.dtype not in (DType.F32, DType.F64):
            scores = scores.cast(DType.F32)
        counted = counted_labels(reader, found, self.pad_token)
        if self._binary:
            scores, targets, counted = _of_last(reader, scores, targets, counted)
        elif self.from_logits:
            scores = softmax(scores, 1)
        rows: dict[str, Tensor | float] = {
            "score": scores,
            "true": targets.not_equal(0) if _is_number(targets) else targets,
        }
        if counted is not None:
            rows["counts"] = counted.expand(scores.shape)
        return rows

    def count(self, found: Mapping[str, Array], /) -> float:
        """The rows in which a label counts."""
        return float(found["counts"].any(-1).sum()) if "counts" in found else super().count(found)

    def compute(self, found: Mapping[str, Array], /) -> float:
        """The area, of all classes together or the mean over the classes where it is defined; NaN if it is in none."""
        scores, true = found["score"].astype(np.float64), found["true"].astype(bool)
        counts = found.get("counts", np.ones_like(true))
        if self.class_reduction is ClassReduction.Micro:
            areas = [self.area(scores[counts], true[counts])]
        else:
            columns = range(scores.shape[-1])
            areas = [self.area(scores[counts[:, c], c], true[counts[:, c], c]) for c in columns]
        defined = [area for area in areas if not math.isnan(area)]
        return 100.0 * math.fsum(defined) / len(defined) if defined else math.nan

    @staticmethod
    @abstractmethod
    def area(scores: Array, true: Array) -> float:
        """The area of one class.  Shapes: scores (n,), true (n,) bool."""


@final
class AurocMetric(_RankingMetric):
    """Percent of the pairs of a true and an untrue item in which the true one has the higher score.

    That is the area under the curve of recall over the rate of false alarms.
    """

    title = "AUROC"

    @staticmethod
    def area(scores: Array, true: Array) -> float:
        """See `area_under_roc`."""
        return area_under_roc(scores, true)


@final
class AucPrMetric(_RankingMetric):
    """Average precision in percent: the mean, over the true items, of the precision among what scores as high.

    AP = sum_n (R_n - R_(n-1)) P_n        over the distinct scores, downwards
    """

    title = "AUC-PR"

    @staticmethod
    def area(scores: Array, true: Array) -> float:
        """See `average_precision`."""
        return average_precision(scores, true)


def area_under_roc(scores: Array, true: Array) -> float:
    """The area under the receiver operating characteristic; NaN without a true and an untrue item, or for NaN scores.

    Mann and Whitney's statistic, (the ranks of the true ones - p (p + 1) / 2) / (p n); equal scores share their ranks.
    """
    positives = int(true.sum())
    negatives = true.size - positives
    if not positives or not negatives or np.isnan(scores).any():
        return math.nan
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    shared = np.cumsum(counts) - (counts - 1) / 2.0
    ranks = float(shared[inverse][true].sum())
    return (ranks - positives * (positives + 1) / 2.0) / (positives * negatives)


def average_precision(scores: Array, true: Array) -> float:
    """Average precision; NaN without a true item, where recall is 0 / 0, or for NaN scores."""
    positives = int(true.sum())
    if not positives or np.isnan(scores).any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    lasts = np.append(np.flatnonzero(np.diff(scores[order])), true.size - 1)  # where a score is followed by another
    right = np.cumsum(true[order])[lasts]
    return float((np.diff(right, prepend=0) * right / (lasts + 1)).sum() / positives)


def _of_last(
    reader: str, scores: Tensor, targets: Tensor, counted: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    found, counted = positive_column(reader, ConfusionStatsInput(scores, targets), counted)
    if scores.shape[-1] == 1:
        return scores, targets, counted
    wide = scores.cast(DType.F64) if scores.device.supports_dtype(DType.F64) else scores
    return wide.narrow(-1, 1, 1) - wide.narrow(-1, 0, 1), found.targets, counted


def _is_number(x: Tensor) -> bool:
    return x.dtype is not DType.BOOL
