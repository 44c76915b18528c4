"""Defines what a run is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from burn_torch.backend.base import capabilities
from burn_torch.graph.passes import Precision
from burn_torch.tensor import Device
from burn_torch.train.artifact import ArtifactDir
from burn_torch.train.checkpoint import CheckpointStore
from burn_torch.train.early_stopping import EarlyStoppingStrategy
from burn_torch.train.interrupt import Deadline, Interrupter
from burn_torch.train.loading import Batches
from burn_torch.train.logger.metric import MetricLogger
from burn_torch.train.metric.base import Metric
from burn_torch.train.publisher import Publisher
from burn_torch.train.strategies.base import ExecutionStrategy
from burn_torch.train.strategies.peers import ALONE, Peers

__all__ = ["Parts"]


def _nothing_chosen() -> str | None:
    """The choices between kernels of a run that makes none."""
    return None


@final
@dataclass(frozen=True)
class Parts:
    """Holds what a run is made of, apart from the learner."""

    artifact: ArtifactDir
    train: Batches
    valid: Batches | None
    device: Device
    train_metrics: Sequence[Metric]
    valid_metrics: Sequence[Metric]
    num_epochs: int
    accumulation: int
    execution: ExecutionStrategy
    compiled: bool
    precision: Precision
    fuse: bool | None
    store: CheckpointStore
    early_stopping: EarlyStoppingStrategy | None
    publisher: Publisher
    loggers: Sequence[MetricLogger]
    interrupter: Interrupter
    config: str | None
    show_summary: bool
    deadline: Deadline | None = None
    watched: bool = False
    """Says whether NaN and infinities are followed to where they came from."""
    tuning: Callable[[], str | None] = _nothing_chosen
    """Gives the choices between kernels so far."""
    peers: Peers = ALONE

    @property
    def fused(self) -> bool:
        """Returns whether its compiled steps are to run in generated kernels."""
        if self.fuse is not None:
            return self.fuse
        return (
            self.compiled and self.device.is_fused() and capabilities(self.device.backend).generates(self.device.place)
        )
