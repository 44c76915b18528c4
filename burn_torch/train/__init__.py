"""Training: the Learner, its metrics, logs, checkpoints and renderers."""

from burn_torch.train.builder import BookLearner, LearnerBuilder
from burn_torch.train.checkpoint import (
    AsyncCheckpointer,
    CheckpointEvery,
    CheckpointingStrategy,
    ComposedCheckpointingStrategy,
    FileCheckpointer,
    KeepLastNCheckpoints,
    MetricCheckpointingStrategy,
)
from burn_torch.train.early_stopping import (
    EarlyStoppingStrategy,
    MetricEarlyStoppingStrategy,
    NoImprovementSince,
)
from burn_torch.train.event import EventReader
from burn_torch.train.history import Aggregate, Direction, EpochSummary, History, MetricDefinition, MetricValue
from burn_torch.train.interrupt import Interrupter
from burn_torch.train.learner import Learner
from burn_torch.train.logger import (
    ApplicationLogger,
    FileApplicationLogger,
    FileMetricLogger,
    InMemoryMetricLogger,
    MetricLogger,
)
from burn_torch.train.loop import GradientWindow, fold, train_step, valid_step
from burn_torch.train.metric import (
    AccuracyMetric,
    IterationSpeedMetric,
    LearningRateMetric,
    LossMetric,
    Metric,
    MetricMetadata,
    NumericMetric,
    Reading,
    ResumableMetric,
    Split,
)
from burn_torch.train.metric.group_learning_rate import GroupLearningRateMetric
from burn_torch.train.output import AccuracyInput, ClassificationOutput, LossInput, RegressionOutput
from burn_torch.train.renderer import BarRenderer, MetricsRenderer, PlainRenderer, SilentRenderer, default_renderer
from burn_torch.train.step import InferenceStep, TrainOutput, TrainStep
from burn_torch.train.strategies import (
    Ddp,
    ExecutionStrategy,
    MultiDevice,
    MultiDeviceOptim,
    Peers,
    SingleDevice,
    StepFunctions,
    Stepper,
    SteppingStrategy,
)
from burn_torch.train.summary import LearnerSummary
from burn_torch.train.supervised import LearningResult, SupervisedTraining
from burn_torch.train.torch_model import TorchModel

__all__ = [
    "AccuracyInput",
    "AccuracyMetric",
    "Aggregate",
    "ApplicationLogger",
    "AsyncCheckpointer",
    "BarRenderer",
    "BookLearner",
    "CheckpointEvery",
    "CheckpointingStrategy",
    "ClassificationOutput",
    "ComposedCheckpointingStrategy",
    "Ddp",
    "Direction",
    "EarlyStoppingStrategy",
    "EpochSummary",
    "EventReader",
    "ExecutionStrategy",
    "FileApplicationLogger",
    "FileCheckpointer",
    "FileMetricLogger",
    "GradientWindow",
    "GroupLearningRateMetric",
    "History",
    "InMemoryMetricLogger",
    "InferenceStep",
    "Interrupter",
    "IterationSpeedMetric",
    "KeepLastNCheckpoints",
    "Learner",
    "LearnerBuilder",
    "LearnerSummary",
    "LearningRateMetric",
    "LearningResult",
    "LossInput",
    "LossMetric",
    "Metric",
    "MetricCheckpointingStrategy",
    "MetricDefinition",
    "MetricEarlyStoppingStrategy",
    "MetricLogger",
    "MetricMetadata",
    "MetricValue",
    "MetricsRenderer",
    "MultiDevice",
    "MultiDeviceOptim",
    "NoImprovementSince",
    "NumericMetric",
    "Peers",
    "PlainRenderer",
    "Reading",
    "RegressionOutput",
    "ResumableMetric",
    "SilentRenderer",
    "SingleDevice",
    "Split",
    "StepFunctions",
    "Stepper",
    "SteppingStrategy",
    "SupervisedTraining",
    "TorchModel",
    "TrainOutput",
    "TrainStep",
    "default_renderer",
    "fold",
    "train_step",
    "valid_step",
]
