"""Metrics: what a run measures."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.metric.accumulate import AdditiveMetric as AdditiveMetric
from burn_torch.train.metric.accumulate import CollectingMetric as CollectingMetric
from burn_torch.train.metric.accuracy import HammingScore as HammingScore
from burn_torch.train.metric.accuracy import TopKAccuracyMetric as TopKAccuracyMetric
from burn_torch.train.metric.base import *
from burn_torch.train.metric.builtin import *
from burn_torch.train.metric.classification import *
from burn_torch.train.metric.confusion import ClassificationMetricConfig as ClassificationMetricConfig
from burn_torch.train.metric.confusion import ClassReduction as ClassReduction
from burn_torch.train.metric.confusion import ConfusionStats as ConfusionStats
from burn_torch.train.metric.confusion import DecisionRule as DecisionRule
from burn_torch.train.metric.hardware import *
from burn_torch.train.metric.image import *
from burn_torch.train.metric.learning_rate import LearningRateMetric as LearningRateMetric
from burn_torch.train.metric.ranking import AucPrMetric as AucPrMetric
from burn_torch.train.metric.ranking import AurocMetric as AurocMetric
from burn_torch.train.metric.regression import *
from burn_torch.train.metric.text import *

_list_exports(globals())
