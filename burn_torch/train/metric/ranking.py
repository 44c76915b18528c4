"""Areas under curves: how well scores put what is true before what is not, whatever the threshold.

They depend on the order of all scores of the epoch, so the scores are kept, on the host: 4 bytes a score and 1 a label.
Equal scores are in no order: AUROC counts such a pair as one half, and the precision-recall curve has one point there.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, Self, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor
from burn_torch.tensor.activation import softmax
from burn_torch.train.metric._tensors import changed, on_leaf, same_shape
from burn_torch.train.metric.accumulate import Array, CollectingMetric
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.metric.confusion import ClassReduction, counted_labels, positive_column
from burn_torch.train.output import ConfusionStatsInput, adapt

__all__ = ["AucPrMetric", "AurocMetric", "areas_under_roc", "average_precisions"]

_MOST_AT_ONCE: Final = 4_000_000
"""Scores: a few hundred megabytes on the way to their areas."""


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
        """For one class and its opposite.

        Scores (items, 1), or (items, 2) with the class in question last: then its score less the other one orders the
        items, which is the order of the probabilities whether the scores are probabilities or logits.
        """
        return cls(binary=True)

    @classmethod
    def multiclass(cls, class_reduction: ClassReduction | str = ClassReduction.Macro) -> Self:
        """For classes that exclude each other, each against the rest; scores are probabilities, see with_softmax."""
        return cls(class_reduction)

    @classmethod
    def multilabel(cls, class_reduction: ClassReduction | str = ClassReduction.Macro) -> Self:
        """For labels that do not exclude each other."""
        return cls(class_reduction)

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving out rows of this class, or single labels of this value."""
        return changed(self, pad_token=index)

    def with_softmax(self, softmax: bool = True) -> Self:
        """The same metric for logits of classes that exclude each other: items are compared by their probabilities."""
        return changed(self, from_logits=softmax)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """Scores and labels of the batch, and which of them count."""
        reader = type(self).__name__
        values = adapt(item, ConfusionStatsInput, reader)
        scores, targets = on_leaf(values.predictions), on_leaf(values.targets)
        same_shape(reader, scores, targets, ndim=2, shape="(items, classes)")
        if scores.dtype not in (DType.F32, DType.F64):
            scores = scores.cast(DType.F32)
        counted = counted_labels(reader, values, self.pad_token)
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

    def count(self, rows: Mapping[str, Array], /) -> float:
        """The rows in which a label counts."""
        return float(rows["counts"].any(-1).sum()) if "counts" in rows else super().count(rows)

    def compute(self, rows: Mapping[str, Array], /) -> float:
        """The area, of all classes together or the mean over the classes where it is defined; NaN if it is in none."""
        scores, true = rows["score"], rows["true"]
        counts = rows.get("counts")
        if counts is None:
            counts = np.ones_like(true, dtype=bool)
        if self.class_reduction is ClassReduction.Micro:
            scores, true, counts = (array.reshape(-1, 1) for array in (scores, true, counts))
        areas = np.concatenate(
            [self.areas(scores[:, block], true[:, block], counts[:, block]) for block in _blocks(*scores.shape)]
        )
        defined = areas[~np.isnan(areas)]
        return 100.0 * float(defined.mean()) if defined.size else math.nan

    @staticmethod
    @abstractmethod
    def areas(scores: Array, true: Array, counts: Array) -> Array:
        """The area of each class.  Shapes: scores, and true and counts in bool, (items, classes) -> (classes,)."""


@checked(error=ConfigError, but=("update", "measure"))
@final
class AurocMetric(_RankingMetric):
    """Percent of the pairs of a true and an untrue item in which the true one has the higher score.

    That is the area under the curve of recall over the rate of false alarms.
    """

    title = "AUROC"

    @staticmethod
    def areas(scores: Array, true: Array, counts: Array) -> Array:
        """See `areas_under_roc`."""
        return areas_under_roc(scores, true, counts)


@checked(error=ConfigError, but=("update", "measure"))
@final
class AucPrMetric(_RankingMetric):
    """Average precision in percent: the mean, over the true items, of the precision among what scores as high.

    AP = sum_n (R_n - R_(n-1)) P_n        over the distinct scores, downwards
    """

    title = "AUC-PR"

    @staticmethod
    def areas(scores: Array, true: Array, counts: Array) -> Array:
        """See `average_precisions`."""
        return average_precisions(scores, true, counts)


def areas_under_roc(scores: Array, true: Array, counts: Array) -> Array:
    """The area under the receiver operating characteristic of each column.

    NaN without a true and an untrue item, or for NaN scores.  Mann and Whitney's statistic: for each true item, how
    many untrue ones lie below it, and half of those beside it.
    Shapes: scores, and true and counts in bool, (items, classes) -> (classes,).
    """
    order = np.argsort(scores, axis=0, kind="stable")
    starts, ends = _equal_scores(np.take_along_axis(scores, order, 0))
    positive, negative = (np.take_along_axis(mask, order, 0) for mask in (true & counts, ~true & counts))
    up_to = np.cumsum(negative, axis=0)
    below: Array = np.take_along_axis(up_to - negative, starts, 0)
    pairs = (positive * (below + np.take_along_axis(up_to, ends, 0))).sum(0) / 2.0
    return _divide_defined(pairs, positive.sum(0) * negative.sum(0), scores, counts)


def average_precisions(scores: Array, true: Array, counts: Array) -> Array:
    """The average precision of each column; NaN without a true item, where recall is 0 / 0, or for NaN scores.

    For each true item, the part of true ones among all whose score is as high or higher.
    Shapes: scores, and true and counts in bool, (items, classes) -> (classes,).
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    _, ends = _equal_scores(np.take_along_axis(scores, order, 0))
    positive, counted = (np.take_along_axis(mask, order, 0) for mask in (true & counts, counts))
    right, all_of_them = (np.take_along_axis(np.cumsum(mask, axis=0), ends, 0) for mask in (positive, counted))
    precisions = (positive * right / np.maximum(all_of_them, 1)).sum(0)
    return _divide_defined(precisions, positive.sum(0), scores, counts)


def _equal_scores(ordered: Array) -> tuple[Array, Array]:
    """For each place in ordered columns, the first and the last place with the same score."""
    items = np.arange(len(ordered))[:, None]
    edge = np.ones((1, ordered.shape[1]), bool)
    change = ordered[1:] != ordered[:-1]
    starts = np.maximum.accumulate(np.where(np.concatenate([edge, change]), items, 0), axis=0)
    lasts = np.where(np.concatenate([change, edge]), items, len(ordered))
    return starts, np.minimum.accumulate(lasts[::-1], axis=0)[::-1]


def _divide_defined(top: Array, bottom: Array, scores: Array, counts: Array) -> Array:
    known = (bottom > 0) & ~(np.isnan(scores) & counts).any(0)
    return np.where(known, top / np.maximum(bottom, 1), math.nan)


def _blocks(items: int, classes: int) -> list[slice]:
    """Some columns at a time, so that what is computed on the way fits any memory that holds the scores."""
    width = max(1, _MOST_AT_ONCE // max(items, 1))
    return [slice(start, start + width) for start in range(0, classes, width)]


def _of_last(
    reader: str, scores: Tensor, targets: Tensor, counted: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    values, counted = positive_column(reader, ConfusionStatsInput(scores, targets), counted)
    if scores.shape[-1] == 1:
        return scores, targets, counted
    wide = scores.cast(DType.F64) if scores.device.supports_dtype(DType.F64) else scores
    return wide.narrow(-1, 1, 1) - wide.narrow(-1, 0, 1), values.targets, counted


def _is_number(x: Tensor) -> bool:
    return x.dtype is not DType.BOOL
