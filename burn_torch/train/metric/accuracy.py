"""Right answers: among the k highest scores, and label by label."""

from __future__ import annotations

from typing import Self, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor
from burn_torch.tensor.activation import sigmoid
from burn_torch.train.metric._tensors import changed, fitting_scores, on_leaf, require_positive, same_shape
from burn_torch.train.metric.base import MetricMetadata, NumericMetric, Reading
from burn_torch.train.metric.builtin import percent_right
from burn_torch.train.metric.confusion import require_classes
from burn_torch.train.output import HammingScoreInput, TopKAccuracyInput, adapt

__all__ = ["HammingScore", "TopKAccuracyMetric", "flat_scores"]


@checked(error=ConfigError, but=("update", "measure"))
@final
class TopKAccuracyMetric(NumericMetric):
    """Percent of items whose right class is among the k highest scores; of equal scores the first ones are.

    Targets of the pad token, if one is set, are left out.
    """

    unit = "%"
    higher_is_better = True
    pad_token: int | None = None

    def __init__(self, k: int = 1) -> None:
        require_positive("TopKAccuracyMetric", k=k)
        super().__init__()
        self.k = k
        self.name = f"Top-K Accuracy @ TopK({k})"

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving targets of this class out."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """How many items are right, of how many."""
        scores, targets = flat_scores("TopKAccuracyMetric", adapt(item, TopKAccuracyInput, "TopKAccuracyMetric"))
        require_classes("TopKAccuracyMetric", self.k, scores.shape[-1])
        column, exists = class_column(scores, targets)
        of_target = scores.gather(1, column)
        # not <= rather than >: a score that is NaN is ahead of every other, and has none behind it
        ahead = scores.lower_equal(of_target).bool_not()
        first = scores.equal(of_target).bool_and(
            Tensor.arange(scores.shape[-1], (scores.device, column.dtype)).lower(column)
        )
        rank = ahead.bool_or(first).int().sum_dim(1).squeeze_dim(1)
        right = rank.lower(self.k).bool_and(exists)
        return percent_right(right, targets, self.pad_token)


@checked(error=ConfigError, but=("update", "measure"))
@final
class HammingScore(NumericMetric):
    """Percent of single labels that are decided as they are, a score above the threshold being a yes.

    The mean is over labels, so each row counts as much as any other.
    """

    unit = "%"
    higher_is_better = True
    pad_token: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.threshold = 0.5
        self.sigmoid = False

    @property
    def name(self) -> str:  # type: ignore[override]  # it follows the threshold
        """With the threshold in it, as two of them may be in one run."""
        return f"Hamming Score @ Threshold({self.threshold:g})"

    def with_threshold(self, threshold: float) -> Self:
        """The same metric with another threshold than 0.5."""
        return changed(self, threshold=threshold)

    def with_sigmoid(self, sigmoid: bool = True) -> Self:
        """The same metric for logits: the threshold is for their sigmoid."""
        return changed(self, sigmoid=sigmoid)

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving single labels of this value out."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """How many labels are right, of how many."""
        values = adapt(item, HammingScoreInput, "HammingScore")
        scores, targets = on_leaf(values.outputs), on_leaf(values.targets)
        same_shape("HammingScore", scores, targets, ndim=2, shape="(items, labels)")
        if self.sigmoid:
            scores = sigmoid(scores)
        true = targets if targets.dtype is DType.BOOL else targets.equal(1)
        right = scores.greater(self.threshold).bool_xor(true).bool_not()
        return percent_right(right, targets, self.pad_token)


def flat_scores(reader: str, values: TopKAccuracyInput) -> tuple[Tensor, Tensor]:
    """Scores (n, classes) in f32 or f64 and targets (n,) in i64, off the tape.  Raises: ShapeError."""
    scores, targets = fitting_scores(reader, values.outputs, values.targets)
    n = targets.spec.numel
    wide = scores if scores.dtype in (DType.F32, DType.F64) else scores.cast(DType.F32)
    return wide.reshape(n, scores.shape[-1]), targets.cast(DType.I64).reshape(n)


def class_column(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """An index (n, 1) that is in the data for every target, and which targets (n,) are classes at all."""
    last = scores.shape[-1] - 1
    inside = targets.clamp(0, last)
    return inside.reshape(targets.shape[0], 1), inside.equal(targets)
