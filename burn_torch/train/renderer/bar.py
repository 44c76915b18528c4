"""A progress bar on a terminal: one line that is written again and again, and one line that stays for each epoch."""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import Final, TextIO, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.monitor.plain import epoch_line, pace
from burn_torch.monitor.progress import Progress
from burn_torch.train.event import EpochDone, Event, Notice, RunEnded, SplitDone, SplitStarted, StepDone
from burn_torch.train.metric.base import Split

__all__ = ["BarRenderer"]

MIN_BAR: Final = 6
MAX_BAR: Final = 30
_ERASE: Final = "\r\x1b[K"
_COLOURS: Final = {Split.TRAIN: "\x1b[91m", Split.VALID: "\x1b[94m"}  # light red and light blue, as in Burn
_RESET: Final = "\x1b[0m"


@checked(error=ConfigError)
@final
class BarRenderer:
    """`2/10 train ━━━━━━━━───── 62% Loss 0.2134 Accuracy 93.12 % ETA 12 s 3210 items/s 901/1437 items`

    What does not fit the terminal is left out from the right, the bar first; the line never wraps.  Colour is only on
    the word for the split, and not where NO_COLOR is set.  The cursor is never hidden, so a crash leaves no trace.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        interval_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        colour: bool | None = None,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._interval_s = interval_s
        self._clock = clock
        self._colour = not os.environ.get("NO_COLOR") if colour is None else colour
        self._full, self._empty = ("━", "─") if _can_write(self._stream, "━─") else ("#", "-")
        self._progress = Progress(clock)
        self._drawn: float | None = None
        self._parts: list[str] = []

    def handle(self, event: Event, /) -> None:
        """Draws the line again where enough time has passed, and writes what stays."""
        self._progress.handle(event)
        if type(event) is StepDone:
            if self._drawn is None or self._clock() - self._drawn >= self._interval_s:
                self._draw()
            return
        match event:
            case SplitStarted():
                if event.split is Split.TRAIN:
                    self._parts = []
                self._draw()
            case SplitDone():
                values = self._progress.summary(event.summary.split, event.summary.values)
                if values:
                    self._parts.append("  ".join([str(event.summary.split), *values]))
            case EpochDone():
                seconds = self._clock() - self._progress.epoch_started
                self._write_above(epoch_line(self._progress, self._parts, seconds))
            case Notice():
                self._write_above(event.text)
                self._draw()
            case RunEnded() if event.summary is not None:
                self._write_above(event.summary)

    def close(self) -> None:
        """Removes the line."""
        self._erase()

    def _draw(self) -> None:
        line = self._line(max(_columns(self._stream) - 1, 1))  # the last column would wrap on some terminals
        self._stream.write(_ERASE + line)
        self._stream.flush()
        self._drawn = self._clock()

    def _write_above(self, text: str) -> None:
        self._erase()
        self._stream.write(text + "\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn is not None:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._drawn = None

    def _line(self, width: int) -> str:
        progress = self._progress
        fraction = progress.fraction
        epochs = 0 if progress.run is None else progress.run.total_epochs
        start = f"{progress.epoch}/{epochs} "
        percent = "" if fraction is None else f"{100 * fraction:.0f}%"
        count = f"{progress.done}/{progress.total}" if progress.total else f"{progress.done}"
        wanted = [*progress.values(), *reversed(pace(progress)), f"{count} {progress.unit}"]
        used = _width(start) + len(progress.split) + 1 + len(percent)
        texts: list[str] = []
        for text in wanted:
            if used + 1 + _width(text) > width:
                break
            texts.append(text)
            used += 1 + _width(text)
        bar = ""
        if fraction is not None and width - used - 1 >= MIN_BAR:
            size = min(MAX_BAR, width - used - 1)
            full = int(size * fraction)
            bar = self._full * full + self._empty * (size - full) + " "
        if used > width:  # not even the start fits
            return f"{start}{progress.split} {percent}"[:width]
        split = str(progress.split)
        if self._colour:
            split = f"{_COLOURS[progress.split]}{split}{_RESET}"
        return " ".join([f"{start}{split} {bar}{percent}", *texts])


def _columns(stream: TextIO) -> int:
    if not os.environ.get("COLUMNS"):
        try:
            return os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError, AttributeError):
            pass
    return shutil.get_terminal_size().columns


def _width(text: str) -> int:
    """Columns of a text: East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
