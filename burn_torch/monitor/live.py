"""A reader that follows a run in a thread of the run's own process, at its leisure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, final

from burn_torch.core.belonging import carried
from burn_torch.core.wording import first_line
from burn_torch.monitor.event import Stamped
from burn_torch.monitor.log import Follower

__all__ = ["Live", "StampedReader"]

EVERY_S: Final = 1.0


class StampedReader(Protocol):
    """Something that is fed the events of a log in order: TensorBoardWriter, RunView.

    A number that is not greater than the one before it says that the run went back and everything comes again.
    """

    def apply(self, stamped: Stamped, /) -> None:
        """The next event."""
        ...

    def close(self) -> None:
        """Nothing comes any more."""
        ...


@final
class Live:
    """Feeds a reader with what a log holds and gets, until it is closed; `close` gives it the rest.

    A reader that fails ends here: `notice` hears why, in one line, and the run goes on.
    """

    def __init__(self, path: Path, reader: StampedReader, notice: Callable[[str], None], *, every_s: float = EVERY_S):
        self._follower = Follower(path)
        self._reader = reader
        self._notice = notice
        self._every_s = every_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=carried(self._work), name="burn-torch-live", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Gives the reader what is left and closes it."""
        self._closed.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            ended = False
            while not ended:
                ended = self._closed.wait(self._every_s)
                for stamped in self._follower.poll():
                    self._reader.apply(stamped)
            self._reader.close()
        except Exception as err:
            self._notice(f"{type(self._reader).__name__} has failed, the run goes on without it: {first_line(err)}")
