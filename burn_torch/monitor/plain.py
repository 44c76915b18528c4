"""Lines of plain text: for pipes, files, continuous integration and terminals that can do nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.monitor import event as events
from burn_torch.monitor.event import Event, Split
from burn_torch.monitor.progress import Progress, format_duration, format_rate

__all__ = ["PlainRenderer", "SilentRenderer", "epoch_line", "pace"]


@checked(error=ConfigError)
@final
class PlainRenderer:
    """One line an epoch, and in long epochs one line every tenth of it, 10 seconds apart at least.

    Writes no control characters.
    """

    def __init__(
        self, stream: TextIO | None = None, *, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._interval_s = interval_s
        self._clock = clock
        self._progress = Progress(clock)
        self._said = (clock(), 0.0)
        self._parts: list[str] = []

    def handle(self, event: Event, /) -> None:
        """Writes a line where the event is worth one."""
        progress = self._progress
        progress.handle(event)
        match event:
            case events.RunStarted() if 1 < event.starting_epoch <= event.total_epochs:
                self._write(f"epoch {event.starting_epoch}/{event.total_epochs}  the run goes on")
            case events.SplitStarted():
                self._said = (self._clock(), progress.fraction or 0.0)
                if event.split is Split.TRAIN:
                    self._parts = []
            case events.StepDone():
                self._step()
            case events.SplitDone():
                values = progress.summary(event.summary.split, event.summary.values)
                if values:
                    self._parts.append("  ".join([str(event.summary.split), *values]))
            case events.EpochDone():
                self._write(epoch_line(progress, self._parts, self._clock() - progress.epoch_started))
            case events.Notice():
                self._write(event.text)
            case events.RunEnded() if event.summary is not None:
                self._write(event.summary)

    def _step(self) -> None:
        now, fraction = self._clock(), self._progress.fraction
        at, before = self._said
        if fraction is None or fraction >= 1.0 or now - at < self._interval_s or fraction - before < 0.1:
            return
        self._said = (now, fraction)
        progress = self._progress
        parts = [
            f"{head(progress)} {progress.split}",
            f"{100 * fraction:3.0f} %",
            f"{progress.done}/{progress.total} {progress.unit}",
            *pace(progress),
            *progress.values(),
        ]
        self._write("  ".join(parts))

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is open."""


@final
class SilentRenderer:
    """Shows nothing."""

    def handle(self, event: Event, /) -> None:
        """Does nothing with it."""

    def close(self) -> None:
        """Nothing is open."""


def head(progress: Progress) -> str:
    """Returns which epoch of how many."""
    total = 0 if progress.run is None else progress.run.total_epochs
    return f"epoch {progress.epoch}/{total}"


def pace(progress: Progress) -> list[str]:
    """Rate and time to the end, as far as they are known."""
    rate, eta = progress.rate, progress.eta_s()
    parts = [] if rate is None else [format_rate(rate, progress.unit)]
    return parts if eta is None else [*parts, f"ETA {format_duration(eta)}"]


def epoch_line(progress: Progress, parts: list[str], seconds: float) -> str:
    """Returns what remains of an epoch: the metrics of its splits and how long it took."""
    return "  ".join([head(progress), *parts, f"({format_duration(seconds)})"])
