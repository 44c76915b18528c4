"""Checkpoints: what they hold, where they lie, who writes them, which ones stay."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.checkpoint.background import AsyncCheckpointer as AsyncCheckpointer
from burn_torch.train.checkpoint.content import Checkpoint as Checkpoint
from burn_torch.train.checkpoint.content import Position as Position
from burn_torch.train.checkpoint.file import *
from burn_torch.train.checkpoint.store import *
from burn_torch.train.checkpoint.strategy import CheckpointingStrategy as CheckpointingStrategy
from burn_torch.train.checkpoint.strategy import ComposedCheckpointingStrategy as ComposedCheckpointingStrategy
from burn_torch.train.checkpoint.strategy import KeepLastNCheckpoints as KeepLastNCheckpoints
from burn_torch.train.checkpoint.strategy import MetricCheckpointingStrategy as MetricCheckpointingStrategy

_list_exports(globals())
