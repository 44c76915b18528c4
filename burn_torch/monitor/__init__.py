"""What a view of a run needs: its events, their log, what they fold into, and commands back.  Imports no torch."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.monitor.codec import DamagedLine, decode, encode
from burn_torch.monitor.control import ControlClient, ControlServer, is_alive
from burn_torch.monitor.event import (
    CheckpointSaved,
    Direction,
    EpochDone,
    EpochSummary,
    Event,
    EventReader,
    GpuUse,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    Split,
    SplitDone,
    SplitStarted,
    Stamped,
    StepDone,
    StopRequested,
)
from burn_torch.monitor.log import EVENTS, EventFile, EventLog, Follower, follow, read_events, read_outline
from burn_torch.monitor.series import Series
from burn_torch.monitor.view import MetricView, RunView, SplitView, SummaryRow

__all__ = [
    "EVENTS",
    "CheckpointSaved",
    "ControlClient",
    "ControlServer",
    "DamagedLine",
    "Direction",
    "EpochDone",
    "EpochSummary",
    "Event",
    "EventFile",
    "EventLog",
    "EventReader",
    "Follower",
    "GpuUse",
    "LogLine",
    "MetricDefinition",
    "MetricValue",
    "MetricView",
    "Notice",
    "Resources",
    "RunEnded",
    "RunStarted",
    "RunView",
    "Series",
    "Split",
    "SplitDone",
    "SplitStarted",
    "SplitView",
    "Stamped",
    "StepDone",
    "StopRequested",
    "SummaryRow",
    "decode",
    "encode",
    "follow",
    "is_alive",
    "read_events",
    "read_outline",
]

_check_exports(globals(), hot=("RunView.apply", "Series.add"))
