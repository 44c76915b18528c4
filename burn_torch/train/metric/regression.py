"""Errors of regressions: how far off the values are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import exact, same_shape
from burn_torch.train.metric.accumulate import AdditiveMetric, Array, ratio
from burn_torch.train.metric.base import MetricMetadata, NumericMetric, Reading
from burn_torch.train.output import RegressionInput, adapt

__all__ = ["MaeMetric", "RmseMetric"]


@checked(error=ConfigError, but=("update", "measure"))
@final
class MaeMetric(NumericMetric):
    """The mean over all values of |output - target|.  scikit-learn: mean_absolute_error."""

    name = "MAE"
    higher_is_better = False

    def measure(self, item: Any, metadata: MetricMetadata, /) -> Reading:
        """The sum of the distances, and how many they are."""
        errors = _errors("MaeMetric", item)
        return Reading.of_total(errors.abs().sum(), errors.spec.numel)


@checked(error=ConfigError, but=("update", "measure"))
@final
class RmseMetric(AdditiveMetric):
    """The root of the mean over all values of the epoch of (output - target)^2, which is no mean of batches.

    scikit-learn: root_mean_squared_error.
    """

    name = "RMSE"
    higher_is_better = False

    def measure(self, item: Any, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The sum of the squares, and how many they are."""
        errors = _errors("RmseMetric", item)
        return {"squares": errors.square().sum(), "items": errors.spec.numel}

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The root of the mean."""
        return math.sqrt(ratio(sums["squares"], sums["items"]))


def _errors(reader: str, item: object) -> Tensor:
    """How far each output is from its target, off the tape."""
    values = adapt(item, RegressionInput, reader)
    outputs, targets = exact(values.outputs), exact(values.targets)
    same_shape(reader, outputs, targets, ndim=1, shape="(items, *values)")
    return outputs - targets
