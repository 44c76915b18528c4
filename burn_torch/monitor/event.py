"""Events: what happens in a run, as plain values.

Renderers, loggers and every other view are readers of events; none of them is known to the loop.  Events hold numbers
and text only, so that a reader in another process gets the same ones from a file (`codec.py`, `log.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, final, runtime_checkable

from burn_torch.core.annotations import Measured

__all__ = [
    "CheckpointSaved",
    "Direction",
    "EpochDone",
    "EpochSummary",
    "Event",
    "EventReader",
    "GpuUse",
    "LogLine",
    "MetricDefinition",
    "MetricValue",
    "Notice",
    "Resources",
    "RunEnded",
    "RunStarted",
    "Split",
    "SplitDone",
    "SplitStarted",
    "Stamped",
    "StepDone",
    "StopRequested",
]


# -- the plain values that events hold -------------------------------------------------------------
class Split(StrEnum):
    """A part of the data.  The value is its folder in the artifact directory."""

    TRAIN = "train"
    VALID = "valid"


class Direction(StrEnum):
    """Says which end of a metric's values is looked for."""

    LOWEST = "lowest"
    HIGHEST = "highest"

    def better(self, value: float, than: float) -> bool:
        """Returns whether one value beats another; a NaN beats nothing, and anything else beats it."""
        if math.isnan(value) or math.isnan(than):
            return math.isnan(than) and not math.isnan(value)
        return value < than if self is Direction.LOWEST else value > than


@final
@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """Holds what loggers and renderers know of a metric."""

    name: str
    unit: str | None
    higher_is_better: bool


@final
@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value of one metric: of a batch, with its weight, or of an epoch."""

    name: str
    value: Measured
    count: float = 1.0


@final
@dataclass(frozen=True, slots=True)
class EpochSummary:
    """The values of all metrics over the items of one epoch of a split."""

    split: Split
    epoch: int
    values: tuple[MetricValue, ...]


@final
@dataclass(frozen=True, slots=True)
class GpuUse:
    """Holds what one GPU is doing.  None for what it does not say."""

    index: int
    name: str
    percent: Measured | None = None
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: Measured | None = None
    power_w: Measured | None = None


# -- the events ----------------------------------------------------------------------------------------
@final
@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on.  Items are None where a loader does not know them."""

    total_epochs: int
    starting_epoch: int
    train_items: int | None
    valid_items: int | None
    train_metrics: tuple[MetricDefinition, ...]
    valid_metrics: tuple[MetricDefinition, ...]
    run_id: str = ""
    """The same for all parts of a run that was stopped and resumed."""
    config: str | None = None
    """The configuration as JSON text, if the run was given one."""
    resumed_from: str | None = None
    """The name of the checkpoint that it goes on from."""
    versions: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class SplitStarted:
    """An epoch of a split begins; after a resume perhaps in its middle."""

    split: Split
    epoch: int
    batches_done: int
    batches_total: int | None
    items_done: int
    items_total: int | None


@final
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
    """The values of this batch alone; their means weighted by `count` are those of the epoch so far."""


@final
@dataclass(frozen=True, slots=True)
class SplitDone:
    """An epoch of a split is over."""

    summary: EpochSummary


@final
@dataclass(frozen=True, slots=True)
class EpochDone:
    """Training and validation of an epoch are over."""

    epoch: int


@final
@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on the disk."""

    path: str
    epoch: int
    complete: bool
    """Says whether the epoch is over; else the run stopped in its middle."""


@final
@dataclass(frozen=True, slots=True)
class Notice:
    """One line that the user should see."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that the user's code printed, or that went to the application log.

    stream: "stdout", "stderr" or "log".
    """

    text: str
    stream: str


@final
@dataclass(frozen=True, slots=True)
class Resources:
    """Holds what the machine is doing.  None for what it does not say."""

    cpu_percent: Measured | None
    """The use of all processors together, 0 to 100."""
    memory_bytes: int | None
    """In use on the machine."""
    process_memory_bytes: int | None
    gpus: tuple[GpuUse, ...] = ()
    memory_total_bytes: int | None = None
    process_cpu_percent: Measured | None = None
    """In percent of one processor: 200 is two of them busy."""


@final
@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user or a signal asked the run to stop.

    how: "stop" (finish the step and save), "kill" (at once), "signal" (Ctrl-C, SIGTERM).
    """

    reason: str
    how: str


@final
@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over.  `summary` is the text of the summary table, if one was asked.

    status: as in LearningResult, or "failed", "diverged", "aborted", "killed".
    """

    status: str
    summary: str | None
    exit_code: int = 0
    message: str | None = None
    """Why it stopped or failed."""


Event: TypeAlias = (
    RunStarted
    | SplitStarted
    | StepDone
    | SplitDone
    | EpochDone
    | CheckpointSaved
    | Notice
    | LogLine
    | Resources
    | StopRequested
    | RunEnded
)


@final
@dataclass(slots=True)
class Stamped:
    """An event as it stands in the log: its number in the run, from 0, and when it happened, in seconds since 1970."""

    number: int
    time: float
    event: Event


@runtime_checkable
class EventReader(Protocol):
    """Whatever follows a run."""

    def handle(self, event: Event, /) -> None:
        """Takes notice of an event, in the thread of the loop: be quick."""
        ...

    def close(self) -> None:
        """The run is over, also by an error; called once."""
        ...
