"""Metrics: what a run measures."""

from burn_torch.train.metric.accumulate import AdditiveMetric, CollectingMetric
from burn_torch.train.metric.accuracy import HammingScore, TopKAccuracyMetric
from burn_torch.train.metric.base import (
    MergeableMetric,
    Metric,
    MetricMetadata,
    NumericMetric,
    Reading,
    ResumableMetric,
    Split,
    merge_states,
)
from burn_torch.train.metric.builtin import AccuracyMetric, IterationSpeedMetric, LossMetric
from burn_torch.train.metric.classification import FBetaScoreMetric, PrecisionMetric, RecallMetric
from burn_torch.train.metric.confusion import ClassificationMetricConfig, ClassReduction, ConfusionStats, DecisionRule
from burn_torch.train.metric.hardware import CpuMemory, CpuTemperature, CpuUse, CudaMetric, CudaQuantity
from burn_torch.train.metric.image import (
    DiceMetric,
    DiceMetricConfig,
    MsSsimMetric,
    MsSsimMetricConfig,
    PsnrMetric,
    PsnrMetricConfig,
    SsimMetric,
    SsimMetricConfig,
)
from burn_torch.train.metric.learning_rate import LearningRateMetric
from burn_torch.train.metric.ranking import AucPrMetric, AurocMetric
from burn_torch.train.metric.text import (
    BleuScore,
    BleuSmoothing,
    CharErrorRate,
    PerplexityMetric,
    RougeLScore,
    WordErrorRate,
)

__all__ = [
    "AccuracyMetric",
    "AdditiveMetric",
    "AucPrMetric",
    "AurocMetric",
    "BleuScore",
    "BleuSmoothing",
    "CharErrorRate",
    "ClassReduction",
    "ClassificationMetricConfig",
    "CollectingMetric",
    "ConfusionStats",
    "CpuMemory",
    "CpuTemperature",
    "CpuUse",
    "CudaMetric",
    "CudaQuantity",
    "DecisionRule",
    "DiceMetric",
    "DiceMetricConfig",
    "FBetaScoreMetric",
    "HammingScore",
    "IterationSpeedMetric",
    "LearningRateMetric",
    "LossMetric",
    "MergeableMetric",
    "Metric",
    "MetricMetadata",
    "MsSsimMetric",
    "MsSsimMetricConfig",
    "NumericMetric",
    "PerplexityMetric",
    "PrecisionMetric",
    "PsnrMetric",
    "PsnrMetricConfig",
    "Reading",
    "RecallMetric",
    "ResumableMetric",
    "RougeLScore",
    "Split",
    "SsimMetric",
    "SsimMetricConfig",
    "TopKAccuracyMetric",
    "WordErrorRate",
    "merge_states",
]
