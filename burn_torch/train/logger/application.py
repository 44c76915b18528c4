"""The application log of a run: `experiment.log`, through Python's logging.

Only the logger `burn_torch` is touched, and only while a run lasts; the root logger and its handlers are the user's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, final, runtime_checkable

from burn_torch.core.belonging import hearing
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError, ConfigError

__all__ = ["LOG", "ApplicationLogger", "FileApplicationLogger", "installed"]

LOG: Final = logging.getLogger("burn_torch.train")
"""Holds what the training loop writes to."""

_CHANGING: Final = threading.Lock()
_LEVELS: Final[list[int]] = []
"""The level of LOG before each run that goes on: the first one is back when the last run has ended."""

# without any handler Python would write our warnings and tracebacks to stderr, beside what the caller does with them
logging.getLogger("burn_torch").addHandler(logging.NullHandler())


@runtime_checkable
class ApplicationLogger(Protocol):
    """Makes the handler that follows a run."""

    def handler(self) -> logging.Handler:
        """A fresh handler; it is closed when the run is over."""
        ...


class _File(logging.FileHandler):
    """A file whose faults are no tracebacks on the screen: a full disk is told once, by whatever needs the room."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Nothing: the record is lost."""

    def close(self) -> None:
        """Closes the file; what it could not write is lost."""
        with suppress(OSError):
            super().close()


@checked(error=ConfigError)
@final
class FileApplicationLogger:
    """Appends lines with time, level and text to a file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def handler(self) -> logging.Handler:
        """A handler that appends to the file.  Raises: ArtifactError if it cannot be opened."""
        try:
            handler = _File(self.path, encoding="utf-8")
        except OSError as err:
            raise ArtifactError(
                "the application log cannot be written",
                given=f"{self.path}: {err.strerror or err}",
                expected="a file that can be appended to",
                mend="name another path, or switch it off: with_application_logger(None)",
            ) from err
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        return handler


@contextmanager
def installed(logger: ApplicationLogger | None) -> Iterator[None]:
    """The handler hangs on the logger `burn_torch` until the block ends; messages from INFO up reach it.

    Not those of threads that work for another run.
    """
    if logger is None:
        yield
        return
    target = logging.getLogger("burn_torch")
    handler = logger.handler()
    handler.setLevel(logging.INFO)
    concerns = hearing()
    handler.addFilter(lambda record: concerns())
    target.addHandler(handler)
    with _CHANGING:
        _LEVELS.append(LOG.level)
        if not LOG.isEnabledFor(logging.INFO):
            LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        with _CHANGING:
            first = _LEVELS[0]
            _LEVELS.pop()
            if not _LEVELS:  # runs in other threads may still log
                LOG.setLevel(first)
        target.removeHandler(handler)
        handler.close()
