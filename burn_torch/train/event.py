"""Events: what happens in a run, as plain values.

Renderers and loggers are readers of events; none of them is known to the loop.  A later reader may get the same events
from a file: they hold numbers and text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from burn_torch.train.history import EpochSummary, MetricDefinition, MetricValue
from burn_torch.train.metric.base import Split

__all__ = [
    "CheckpointSaved",
    "EpochDone",
    "Event",
    "EventReader",
    "Notice",
    "RunEnded",
    "RunStarted",
    "SplitDone",
    "SplitStarted",
    "StepDone",
]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on.  Items are None where a loader does not know them."""

    total_epochs: int
    starting_epoch: int
    train_items: int | None
    valid_items: int | None
    train_metrics: tuple[MetricDefinition, ...]
    valid_metrics: tuple[MetricDefinition, ...]


@dataclass(frozen=True, slots=True)
class SplitStarted:
    """An epoch of a split begins; after a resume perhaps in its middle."""

    split: Split
    epoch: int
    batches_done: int
    batches_total: int | None
    items_done: int
    items_total: int | None


@dataclass(frozen=True, slots=True)
class StepDone:
    """A batch is done and measured."""

    split: Split
    epoch: int
    iteration: int
    """Batches of this split so far in the whole run."""
    batches_done: int
    items_done: int
    values: tuple[MetricValue, ...]
    """Of this batch alone; their means weighted by `count` are those of the epoch so far."""


@dataclass(frozen=True, slots=True)
class SplitDone:
    """An epoch of a split is over."""

    summary: EpochSummary


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Training and validation of an epoch are over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on the disk."""

    path: str
    epoch: int
    complete: bool
    """Whether the epoch is over; else the run stopped in its middle."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that the user should see."""

    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over.  status as in LearningResult; `summary` is the text of the summary table, if one was asked."""

    status: str
    summary: str | None


Event: TypeAlias = RunStarted | SplitStarted | StepDone | SplitDone | EpochDone | CheckpointSaved | Notice | RunEnded


@runtime_checkable
class EventReader(Protocol):
    """Whatever follows a run."""

    def handle(self, event: Event, /) -> None:
        """Takes notice of an event, in the thread of the loop: be quick."""
        ...

    def close(self) -> None:
        """The run is over, also by an error; called once."""
        ...
