"""Metrics: what a run measures."""

from burn_torch.train.metric.base import Metric, MetricMetadata, NumericMetric, Reading, ResumableMetric, Split
from burn_torch.train.metric.builtin import AccuracyMetric, IterationSpeedMetric, LearningRateMetric, LossMetric

__all__ = [
    "AccuracyMetric",
    "IterationSpeedMetric",
    "LearningRateMetric",
    "LossMetric",
    "Metric",
    "MetricMetadata",
    "NumericMetric",
    "Reading",
    "ResumableMetric",
    "Split",
]
