"""The run that a dashboard shows: its events, read a little at a time, and commands back to it."""

from __future__ import annotations

import gc
import os
import signal as signals
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from burn_torch.core.errors import ArtifactError, DataError
from burn_torch.core.reading import open_regular
from burn_torch.core.wording import first_line
from burn_torch.monitor.codec import DamagedLine, decode
from burn_torch.monitor.control import ControlClient
from burn_torch.monitor.event import Stamped
from burn_torch.monitor.log import EVENTS, Follower, short_lines
from burn_torch.monitor.view import RunView

__all__ = ["Source"]

_LONG: Final = 2 << 20
"""Bytes of a log that takes so long to read that the first look takes a sample of it."""
_SAMPLE: Final = 3000
"""Steps of a sample, besides the newest ones."""
_NEWEST: Final = 2000
_CHUNK: Final = 256 << 10
_STEP: Final = b'"kind":"step"'
_SIGNALS: Final = {"stop": signals.SIGINT, "kill": getattr(signals, "SIGKILL", signals.SIGTERM)}


@final
class Source:
    """Follows the run in an artifact directory.

    `view` is what to show.  After `look` it covers the whole run at once: of a long one a sample of its older steps,
    so that nobody waits, and every other event; `reading` says how much of it has been read in full since.  `poll`
    reads on, and once all is read `view` is exact.

    The process that started the run knows better than its files whether it goes on (`lives`), and may send signals to
    it (`signal`) if it takes no commands.

    Raises: DataError from `look` and `poll` where the events cannot be read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        lives: Callable[[], bool] | None = None,
        signal: Callable[[int], None] | None = None,
    ) -> None:
        self.directory: Final = Path(directory)
        self._lives = lives
        self._signal = signal
        self._path = self.directory / EVENTS
        self._follower = Follower(self._path)
        self._exact = RunView(self.directory)
        self._read = 0
        self._end = 0
        self.view = self._exact

    @property
    def reading(self) -> float | None:
        """How much of the log has been read in full, 0 to 1; None when all of it."""
        return None if self.view is self._exact else min(self._read / max(self._end, 1), 1.0)

    @property
    def runs(self) -> bool:
        """Returns whether the run goes on."""
        return self.view.status == "running" if self._lives is None else self._lives()

    def look(self) -> None:
        """Reads enough to show the whole run."""
        with suppress(OSError):
            self._end = self._path.stat().st_size
        if self._end <= _LONG:
            self.poll(None)
        else:
            self.view = self._sample()

    def poll(self, budget_s: float | None, heard: Callable[[Stamped], None] | None = None) -> bool:
        """Reads what is new, for about so many seconds at most; whether there was any.  `heard` gets each event."""
        began, is_new = time.monotonic(), False
        collecting = gc.isenabled()
        gc.disable()  # events are many, small and without cycles: a third of the time would go into looking for those
        try:
            while (events := self._follower.poll(_CHUNK)) or self._follower.is_ahead:
                is_new = is_new or bool(events)
                for event in events:
                    self._exact.apply(event)
                    if heard is not None:
                        heard(event)
                self._read += _CHUNK
                if budget_s is not None and time.monotonic() - began > budget_s:
                    return is_new
        finally:
            if collecting:
                gc.enable()
        self._exact.damaged = self._follower.damaged
        if self.view is not self._exact:
            self.view, is_new = self._exact, True
        return is_new

    def command(self, name: str) -> str:
        """Sends "stop", "kill" or "checkpoint"; gives the answer in words, also that nobody took it."""
        try:
            return str(ControlClient(self.directory).send(name)["text"])
        except ArtifactError as err:
            number = _SIGNALS.get(name)
            if self._signal is None or number is None or not self.runs:
                return first_line(err)
            self._signal(number)
            return f"the run takes no commands; it got the signal {number.name} instead"

    def _sample(self) -> RunView:
        """The view of all events but steps, of the newest steps, and of one in so many of the older ones."""
        view = RunView(self.directory)
        with suppress(OSError), open_regular(self._path) as file:
            count = sum(1 for _ in short_lines(file))
            file.seek(0)
            newest, every = count - _NEWEST, max((count - _NEWEST) // _SAMPLE, 1)
            for number, line in enumerate(short_lines(file)):
                if number < newest and number % every and _STEP in line:
                    continue
                with suppress(DamagedLine, DataError):  # a newer version is told by the poll that reads everything
                    event = decode(line)
                    if event is not None:
                        view.apply(event)
        return view
