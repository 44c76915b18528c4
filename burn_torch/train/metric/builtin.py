"""The metrics that a first training needs: loss, accuracy, speed."""

from __future__ import annotations

import math
from typing import Self, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import changed, fitting_scores, not_padding, on_leaf
from burn_torch.train.metric.base import MetricMetadata, NumericMetric, Reading
from burn_torch.train.output import AccuracyInput, LossInput, adapt

__all__ = ["AccuracyMetric", "IterationSpeedMetric", "LossMetric"]


@final
class LossMetric(NumericMetric):
    """The mean loss over the items of the epoch: each batch counts as many times as it has items.

    With a pad token, a batch counts as many times as it has targets that are not the pad token; that is the mean over
    tokens if the loss itself leaves them out.
    """

    name = "Loss"
    higher_is_better = False
    pad_token: int | None = None

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving targets of this class out of the count."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """The loss of the item, and over how many items it is the mean."""
        values = adapt(item, LossInput, "LossMetric")
        count = values.count
        if self.pad_token is not None and values.targets is not None:
            count = not_padding(values.targets, self.pad_token).int().sum()
        return Reading.of_mean(on_leaf(values.loss), count)


@checked(error=ConfigError, but=("update", "measure"))
@final
class AccuracyMetric(NumericMetric):
    """Percent of items whose highest score is at the right class; the first of equal scores counts.

    Targets of the pad token, if one is set, are left out.
    """

    name = "Accuracy"
    unit = "%"
    higher_is_better = True
    pad_token: int | None = None

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving targets of this class out."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """How many items are right, of how many."""
        values = adapt(item, AccuracyInput, "AccuracyMetric")
        scores, targets = fitting_scores("AccuracyMetric", values.outputs, values.targets)
        best = scores.argmax(-1).reshape(targets.shape)
        right = best.equal(targets.cast(best.dtype))
        return percent_right(right, targets, self.pad_token)


@final
class IterationSpeedMetric(NumericMetric):
    """Batches a second: each reading over the time since the batch before, the epoch over the whole of it.

    The first batch of an epoch starts the clock and has no speed of its own.  With several workers it is the mean
    speed.
    """

    name = "Iteration Speed"
    unit = "iter/s"
    higher_is_better = True
    _before: float | None

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """The speed since the batch before."""
        now, before = metadata.time_s, self._before
        self._before = now
        if before is None or now <= before:
            return Reading.of_mean(math.nan, 0)
        return Reading.of_total(1.0, now - before)

    def clear(self) -> None:
        """Starts a new epoch."""
        super().clear()
        self._before = None


def percent_right(right: Tensor, targets: Tensor, pad_token: int | None) -> Reading:
    """Percent of the targets that are right, without those of the pad token."""
    if pad_token is None:
        return Reading.of_total(right.int().sum(), targets.spec.numel, scale=100.0)
    counted = not_padding(targets, pad_token)
    return Reading.of_total(right.bool_and(counted).int().sum(), counted.int().sum(), scale=100.0)
