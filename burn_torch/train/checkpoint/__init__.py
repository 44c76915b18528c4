"""Checkpoints: what they hold, where they lie, who writes them, which ones stay."""

from burn_torch.train.checkpoint.background import AsyncCheckpointer
from burn_torch.train.checkpoint.content import Checkpoint, Position
from burn_torch.train.checkpoint.file import Checkpointer, CheckpointFile, FileCheckpointer
from burn_torch.train.checkpoint.store import CheckpointEvery, CheckpointStore
from burn_torch.train.checkpoint.strategy import (
    CheckpointingStrategy,
    ComposedCheckpointingStrategy,
    KeepLastNCheckpoints,
    MetricCheckpointingStrategy,
)

__all__ = [
    "AsyncCheckpointer",
    "Checkpoint",
    "CheckpointEvery",
    "CheckpointFile",
    "CheckpointStore",
    "Checkpointer",
    "CheckpointingStrategy",
    "ComposedCheckpointingStrategy",
    "FileCheckpointer",
    "KeepLastNCheckpoints",
    "MetricCheckpointingStrategy",
    "Position",
]
