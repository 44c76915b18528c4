"""Copies what a program prints during a run into the run's log; the terminal still gets it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast, final

from burn_torch.core.belonging import hearing
from burn_torch.monitor.event import LogLine

__all__ = ["capturing", "logging_to"]

MAX_LINE: Final = 4000
"""Characters of a line that are kept."""

Publish = Callable[[LogLine], None]


@contextmanager
def capturing(publish: Publish) -> Iterator[None]:
    """Whole lines that the process prints to stdout and stderr until the block ends go to `publish` as well.

    Printed text reaches its stream first, as if there were no listener, and a stream that was put in place meanwhile
    stays.  The output of threads of other runs is theirs.  `publish` is called in the thread that prints and must not
    raise.
    """
    tees = {name: _Tee(stream, name, publish) for name in ("stdout", "stderr") if (stream := getattr(sys, name))}
    for name, tee in tees.items():
        setattr(sys, name, tee)
    try:
        yield
    finally:
        for name, tee in tees.items():
            tee.end()
            if getattr(sys, name) is tee:
                setattr(sys, name, tee.beneath())


@final
class _Tee:
    """A text stream that tells of its lines.  The stream itself answers all other questions."""

    def __init__(self, stream: TextIO, name: str, publish: Publish) -> None:
        self.stream = stream
        self._name = name
        self._publish: Publish | None = publish
        self._line = ""
        self._concerns = hearing()
        self._lock = threading.RLock()  # a signal handler may print in the middle of a print

    def write(self, text: str) -> int:
        count = self.stream.write(text)
        if self._publish is not None and text and self._concerns():
            self._take(text)
        return count

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def end(self) -> None:
        """From now on it only hands on: somebody may have kept it, as handlers of logging do."""
        with self._lock:
            if self._line:
                self._tell(self._line)
            self._publish, self._line = None, ""

    def beneath(self) -> TextIO:
        """The stream without those tees over it that have ended, as of another run that was there before this one."""
        stream: object = self.stream
        while isinstance(stream, _Tee) and stream._publish is None:
            stream = stream.stream
        return cast(TextIO, stream)

    def _take(self, text: str) -> None:
        with self._lock:
            *lines, rest = text.split("\n")
            if lines:
                self._tell(self._line + lines[0])
                for line in lines[1:]:
                    self._tell(line)
                self._line = rest
            else:
                self._line += rest
            if len(self._line) > MAX_LINE:
                self._line = self._line.rpartition("\r")[2][-MAX_LINE:]

    def _tell(self, line: str) -> None:
        if self._publish is not None:  # of a line that is drawn again and again, its last state
            self._publish(LogLine(line.rstrip("\r").rpartition("\r")[2][:MAX_LINE], self._name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stream)


@contextmanager
def logging_to(publish: Publish, logger: logging.Logger) -> Iterator[None]:
    """Records of the logger, from INFO up, go to `publish` until the block ends.

    Those with the attribute `shown` are left out: they are events already.  So are those of threads of other runs.
    """
    handler = _LogLines(publish)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@final
class _LogLines(logging.Handler):
    def __init__(self, publish: Publish) -> None:
        super().__init__(logging.INFO)
        self._publish = publish
        self._concerns = hearing()

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "shown", False) and self._concerns():
            for line in self.format(record).splitlines():
                self._publish(LogLine(line[:MAX_LINE], "log"))
