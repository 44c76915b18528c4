"""Training: the Learner, its metrics, logs, checkpoints and renderers."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.anomaly import Replay as Replay
from burn_torch.train.anomaly import Replayed as Replayed
from burn_torch.train.anomaly import replay as replay
from burn_torch.train.builder import *
from burn_torch.train.checkpoint import AsyncCheckpointer as AsyncCheckpointer
from burn_torch.train.checkpoint import CheckpointEvery as CheckpointEvery
from burn_torch.train.checkpoint import CheckpointingStrategy as CheckpointingStrategy
from burn_torch.train.checkpoint import ComposedCheckpointingStrategy as ComposedCheckpointingStrategy
from burn_torch.train.checkpoint import FileCheckpointer as FileCheckpointer
from burn_torch.train.checkpoint import KeepLastNCheckpoints as KeepLastNCheckpoints
from burn_torch.train.checkpoint import MetricCheckpointingStrategy as MetricCheckpointingStrategy
from burn_torch.train.early_stopping import *
from burn_torch.train.evaluator import *
from burn_torch.train.event import EventReader as EventReader
from burn_torch.train.history import *
from burn_torch.train.interrupt import Interrupter as Interrupter
from burn_torch.train.learner import Learner as Learner
from burn_torch.train.logger import *
from burn_torch.train.loop import GradientWindow as GradientWindow
from burn_torch.train.loop import fold as fold
from burn_torch.train.loop import train_step as train_step
from burn_torch.train.loop import valid_step as valid_step
from burn_torch.train.metric import *
from burn_torch.train.metric.learning_rate import GroupLearningRateMetric as GroupLearningRateMetric
from burn_torch.train.output import *
from burn_torch.train.renderer import *
from burn_torch.train.step import InferenceStep as InferenceStep
from burn_torch.train.step import TrainOutput as TrainOutput
from burn_torch.train.step import TrainStep as TrainStep
from burn_torch.train.strategies import *
from burn_torch.train.summary import *
from burn_torch.train.supervised import *
from burn_torch.train.torch_model import TorchModel as TorchModel

_list_exports(globals())
_check_exports(
    globals(),
    hot=("Peers.check", "TrainOutput", "TrainOutput.new"),
    but=("History.from_state", "SupervisedTraining.launch"),  # in words of their own
)
