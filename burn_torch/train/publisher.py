"""The Publisher of a run: its events go to the log that outlives it, and to who watches in the same process."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, final

from burn_torch.core.errors import BurnTorchError, DataError
from burn_torch.core.reading import MAX_LINE, open_regular
from burn_torch.monitor import event as events
from burn_torch.monitor.capture import capturing, logging_to
from burn_torch.monitor.codec import DamagedLine, decode
from burn_torch.monitor.control import KILLED, ControlServer
from burn_torch.monitor.event import Event, EventReader
from burn_torch.monitor.live import Live, StampedReader
from burn_torch.monitor.log import EVENTS, EventLog, read_events
from burn_torch.monitor.resources import ResourceSampler
from burn_torch.train.interrupt import Interrupter
from burn_torch.train.logger.application import LOG

__all__ = ["Publisher"]


@final
class Publisher:
    """Hands on the events of one run.

    `publish` is for the loop: the readers get the event at once, in its thread.  `note` is for whatever happens beside
    it, in any thread: that goes to the log alone, and never fails.  Events published before `begin` wait for it.
    """

    def __init__(self, directory: Path, readers: Sequence[EventReader]) -> None:
        self.path: Final = directory / EVENTS
        self.run_id = ""
        self.earlier_id = ""
        """The name of the run that the log had before `begin`; empty if there was none, or its beginning is lost."""
        self._readers = list(readers)
        self._log: EventLog | None = None
        self._early: list[Event] = []
        self._asked = False
        self.told: frozenset[str] = frozenset()
        """The names of checkpoints that the log has told of already."""
        self.cut: frozenset[str] = frozenset()
        """The names of those that it had told of beyond the position."""

    def begin(self, position: tuple[int, int] | None) -> None:
        """Opens the log: a new one, or the one that a checkpoint has seen up to this position.

        Raises: ArtifactError if it cannot be written.
        """
        if position is None:
            self._log = EventLog(self.path)
        else:
            self.told, self.cut = _checkpoints_told(self.path, position[0])
            self._log = EventLog.resume(self.path, position)
            self.run_id = self.earlier_id = _run_id(self.path)
        self.run_id = self.run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        early, self._early = self._early, []
        for event in early:
            self._log.append(event)
        if self._log.missing_bytes:
            LOG.warning(
                "%s lacks %d bytes that the checkpoint had seen: views do not show those events",
                EVENTS,
                self._log.missing_bytes,
            )

    def publish(self, event: Event) -> None:
        """An event of the loop.  Raises: ArtifactError where the disk takes no more events."""
        if self._log is None:
            self._early.append(event)
        else:
            self._log.append(event)
        for reader in tuple(self._readers):
            try:
                reader.handle(event)
            except OSError as err:  # a closed pipe or terminal is no reason to lose the run
                self._readers.remove(reader)
                LOG.warning("nothing is shown any more: %s", err)

    def note(
        self, event: events.LogLine | events.Notice | events.Resources | events.StopRequested | events.RunEnded
    ) -> None:
        """Something beside the loop."""
        if self._log is not None:
            with suppress(BurnTorchError, OSError):  # the loop will hear of it
                self._log.append(event)

    def stop_requested(self, reason: str, how: str) -> None:
        """The run is going to stop; told once."""
        if not self._asked:
            self._asked = True
            self.note(events.StopRequested(reason, how))

    @property
    def position(self) -> tuple[int, int]:
        """Returns where the log is, for a checkpoint."""
        return (0, 0) if self._log is None else self._log.position

    def sync(self) -> None:
        """Writes to the disk all that a resume shows.  Raises: ArtifactError if it cannot be."""
        if self._log is not None:
            self._log.sync()

    def flush(self) -> None:
        """Writes to the log all that was published so far."""
        if self._log is not None:
            self._log.flush()

    def close(self) -> None:
        """Writes what waits."""
        if self._log is not None:
            self._log.close()

    @contextmanager
    def feeding(self, reader: StampedReader) -> Iterator[None]:
        """Until the block ends a thread feeds a reader with the whole log, from its first event on."""
        live = Live(self.path, reader, self._beside)
        live.start()
        try:
            yield
        finally:
            self.flush()
            live.close()

    def _beside(self, text: str) -> None:
        LOG.warning("%s", text, extra={"shown": True})
        self.note(events.Notice(text))

    @contextmanager
    def attended(self, interrupter: Interrupter, notice: Callable[[str], None]) -> Iterator[None]:
        """Until the block ends, what is printed, logged and used of the machine is told, and commands come in."""
        server = ControlServer(self.path.parent, interrupter, on_command=self._record_command, notice=notice)
        resources = ResourceSampler(self.note)
        with ExitStack() as stack:
            stack.enter_context(logging_to(self.note, LOG))
            stack.enter_context(capturing(self.note))
            stack.callback(server.close)  # first: an error while it starts leaves no socket behind
            server.start()
            resources.start()
            stack.callback(resources.close)
            yield

    def _record_command(self, how: str, reason: str) -> None:
        self.stop_requested(reason, how)
        if how == "kill":
            self.note(events.RunEnded("killed", None, KILLED, reason))
            if self._log is not None:
                self._log.flush()


def _checkpoints_told(path: Path, position: int) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the checkpoints that a log tells of before a position, and behind it."""
    names: set[str] = set()
    cut: set[str] = set()
    with suppress(OSError), open_regular(path) as file:
        at = 0
        while line := file.readline(MAX_LINE):
            if b'"kind":"checkpoint"' in line:
                with suppress(DamagedLine, DataError):
                    stamped = decode(line)
                    if stamped is not None and isinstance(stamped.event, events.CheckpointSaved):
                        (names if at < position else cut).add(Path(stamped.event.path).name)
            at += len(line)
    return frozenset(names), frozenset(cut)


def _run_id(path: Path) -> str:
    """The name of the run that began this log; empty if its beginning is lost."""
    with suppress(BurnTorchError):
        for stamped in read_events(path):
            if isinstance(stamped.event, events.RunStarted):
                return stamped.event.run_id
            if stamped.number > 1000:
                break
    return ""
