"""The events of a run, under the names of training; they live in `burn_torch.monitor.event`, which needs no torch."""

from __future__ import annotations

from burn_torch.monitor.event import (
    CheckpointSaved,
    EpochDone,
    Event,
    EventReader,
    GpuUse,
    LogLine,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    SplitDone,
    SplitStarted,
    StepDone,
    StopRequested,
)

__all__ = [
    "CheckpointSaved",
    "EpochDone",
    "Event",
    "EventReader",
    "GpuUse",
    "LogLine",
    "Notice",
    "Resources",
    "RunEnded",
    "RunStarted",
    "SplitDone",
    "SplitStarted",
    "StepDone",
    "StopRequested",
]
