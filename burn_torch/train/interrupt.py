"""Stopping a run from outside: by a call, by Ctrl-C, by the system's wish to end the process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, final

__all__ = ["Deadline", "Interrupter", "stopping_on_signals"]


@final
class Interrupter:
    """A handle that asks a run to stop: it finishes the step, writes a checkpoint and returns.

    Any thread may hold it.  `status` is what the result of the run will say: "stopped", or for signals "interrupted"
    (Ctrl-C) and "terminated" (SIGTERM), for a time limit "time_limit".
    """

    def __init__(self) -> None:
        self._asked: tuple[str, str] | None = None
        self._saves = False

    def stop(self, reason: str = "the interrupter was asked to stop", *, status: str = "stopped") -> None:
        """Asks for the stop; the first reason stays."""
        if self._asked is None:
            self._asked = (reason, status)

    def reset(self) -> None:
        """Takes the wish back."""
        self._asked = None

    def should_stop(self) -> bool:
        """Returns whether a stop was asked for."""
        return self._asked is not None

    def request_checkpoint(self) -> None:
        """Asks for a checkpoint after the training step that runs, or the next one; the run goes on."""
        self._saves = True

    def takes_checkpoint(self) -> bool:
        """Returns whether one was asked for; the loop asks this, and then writes it."""
        asked, self._saves = self._saves, False
        return asked

    def get_message(self) -> str | None:
        """The reason; None if no stop was asked for."""
        asked = self._asked
        return None if asked is None else asked[0]

    @property
    def status(self) -> str | None:
        """Returns what the result will say; None if no stop was asked for."""
        asked = self._asked
        return None if asked is None else asked[1]


@final
class Deadline:
    """A limit of time, which begins when this is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds: Final = seconds
        self._end: Final = time.monotonic() + seconds

    def is_over(self) -> bool:
        """Returns whether the time is up."""
        return time.monotonic() >= self._end

    def __str__(self) -> str:
        hours, minutes, seconds = int(self.seconds // 3600), int(self.seconds // 60) % 60, self.seconds % 60
        parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
        limit = " ".join(f"{value:g} {unit}" for value, unit in parts if value)
        return f"the time limit of {limit or '0 s'}"


_SIGNALS: Final = {signal.SIGINT: ("Ctrl-C", "interrupted"), signal.SIGTERM: ("SIGTERM", "terminated")}


@contextmanager
def stopping_on_signals(interrupter: Interrupter) -> Iterator[None]:
    """Ctrl-C or SIGTERM asks the interrupter to stop; a second one ends the process's work at once.

    Only the main thread can set handlers; elsewhere this does nothing.  A signal that the process was started to
    ignore (nohup, a background job) stays ignored.  The handlers of before are back when the block ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def asked(number: int, frame: FrameType | None) -> None:
        name, status = _SIGNALS[signal.Signals(number)]
        if interrupter.status in ("interrupted", "terminated"):  # the second one
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        interrupter.reset()  # a wish to stop that is not done yet gives way to the stronger one
        interrupter.stop(name, status=status)

    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_IGN, None):
            before[number] = handler
    try:
        for number in before:
            signal.signal(number, asked)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
