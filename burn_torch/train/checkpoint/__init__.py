"""Checkpoints: what they hold, where they lie, which ones stay."""

from burn_torch.train.checkpoint.content import Checkpoint, Position
from burn_torch.train.checkpoint.store import CheckpointFile, CheckpointStore
from burn_torch.train.checkpoint.strategy import (
    CheckpointingStrategy,
    ComposedCheckpointingStrategy,
    KeepLastNCheckpoints,
    MetricCheckpointingStrategy,
)

__all__ = [
    "Checkpoint",
    "CheckpointFile",
    "CheckpointStore",
    "CheckpointingStrategy",
    "ComposedCheckpointingStrategy",
    "KeepLastNCheckpoints",
    "MetricCheckpointingStrategy",
    "Position",
]
