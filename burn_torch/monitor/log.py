"""The event log of a run: `events.jsonl`, to which one process appends and which any number of others follow.

Events are written in whole lines, at most 0.2 s after they happened.  A kill leaves one torn last line at most.  A run
that goes on from a checkpoint first cuts off the events after that checkpoint: they never were.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Final, Self, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError, DataError
from burn_torch.core.reading import MAX_LINE, open_regular
from burn_torch.monitor.codec import DamagedLine, decode, encode
from burn_torch.monitor.event import Event, Stamped

__all__ = ["EVENTS", "EventFile", "EventLog", "Follower", "follow", "read_events", "read_outline", "short_lines"]

EVENTS: Final = "events.jsonl"
"""The name of the log in the artifact directory."""

FLUSH_EVERY_S: Final = 0.2
MAX_NEW: Final = 10_000
"""Events that wait for the next flush; one more flushes at once."""
MAX_LEFT: Final = 64 << 20
"""Bytes that wait for a disk that takes none; past them the run ends, as its next checkpoint could not be written."""
_CHUNK: Final = 1 << 20


@checked
@final
class EventLog:
    """Appends events to a file.  Any thread may; a forked child may not, and what it appends is dropped.

    `EventLog(path)` begins an empty log, `EventLog.resume(path, position)` goes on with one.
    A disk that is full is tried again with the next flush; `sync`, which a checkpoint calls, says so at last.

    Raises: ArtifactError if the file cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        flush_every_s: float = FLUSH_EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self._open((0, 0), flush_every_s, clock)

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        position: tuple[int, int],
        *,
        flush_every_s: float = FLUSH_EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Goes on at a position that a checkpoint has kept; what the file holds beyond it is cut off.

        If the file is shorter, as after a loss, it goes on behind its last whole line; `missing_bytes` says so.
        """
        log = cls.__new__(cls)
        log.path = Path(path)
        log._open(position, flush_every_s, clock)
        return log

    def _open(self, position: tuple[int, int], flush_every_s: float, clock: Callable[[], float]) -> None:
        try:
            self._descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666
            )
            self._written = self._cut(position[0])
        except OSError as err:
            raise self._unwritable(err) from err
        self.missing_bytes = max(position[0] - self._written, 0)
        """How much of what the checkpoint had seen is no longer there."""
        self._clock = clock
        self._new: deque[tuple[Event, float]] = deque()
        """Events that are not lines yet: a step only puts its own here, and many at a time become lines."""
        self._number = position[1]
        self._left = b""
        """Lines that the disk has not taken."""
        self._failed: OSError | None = None
        self._lock = threading.RLock()  # of those who write; to append takes none, a signal handler may do it
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._flush_every_s = flush_every_s
        self._flusher = threading.Thread(target=self._flush_now_and_then, name="burn-torch-events", daemon=True)
        self._flusher.start()

    def _cut(self, wanted: int) -> int:
        """Cuts the file off at the end of the last whole line up to `wanted`."""
        size = os.fstat(self._descriptor).st_size
        end = min(wanted, size)
        while end > 0:
            start = max(end - _CHUNK, 0)
            os.lseek(self._descriptor, start, os.SEEK_SET)
            newline = os.read(self._descriptor, end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)
        return end

    # -- writing ---------------------------------------------------------------------------------------
    def append(self, event: Event) -> None:
        """Takes an event; a background thread writes it.

        Raises: ArtifactError where the disk has taken nothing for so long that too much waits.
        """
        self._new.append((event, self._clock()))
        if len(self._new) > MAX_NEW:
            self.flush()
        if self._failed is not None and len(self._left) > MAX_LEFT and os.getpid() == self._pid:
            raise self._unwritable(self._failed)

    def flush(self) -> None:
        """Hands what waits to the operating system, which keeps it whatever happens to this process.

        The rest waits on.
        """
        if os.getpid() != self._pid:  # a forked child: the lock may be held by a thread that it does not have
            self._new.clear()
            return
        with self._lock:
            data = self._lines()
            if not data or self._descriptor < 0:
                return
            try:
                while data:
                    taken = os.write(self._descriptor, data)
                    self._written += taken
                    data = data[taken:]
                self._failed = None
            except OSError as err:
                self._failed = err
            self._left = data

    def _lines(self) -> bytes:
        """All that waits, as lines; the lock is held."""
        new = self._new
        if new:
            lines = [self._left]
            while new:
                event, time = new.popleft()
                lines.append(encode(event, self._number, time))
                self._number += 1
            self._left = b"".join(lines)
        return self._left

    def sync(self) -> None:
        """Everything so far is on the disk when this returns.  Raises: ArtifactError if it cannot be.

        Any thread may call it, also while another closes the log; appending and flushing go on meanwhile.
        """
        self.flush()
        with self._lock:
            failed, descriptor = self._failed, -1
            if failed is None and self._descriptor >= 0:
                descriptor = os.dup(self._descriptor)
        try:
            if descriptor >= 0:
                os.fsync(descriptor)
        except OSError as err:
            failed = err
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if failed is not None:
            raise self._unwritable(failed)

    @property
    def position(self) -> tuple[int, int]:
        """How many bytes and how many events have been appended, those that wait included; for `resume`."""
        with self._lock:
            return self._written + len(self._lines()), self._number

    def close(self) -> None:
        """Writes what waits, to the disk as far as it can, and closes the file."""
        self._closed.set()
        if threading.current_thread() is not self._flusher and os.getpid() == self._pid:
            self._flusher.join(timeout=5.0)
        with suppress(ArtifactError):  # what tells of the run's end is no reason to end it with an error
            self.sync()
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _flush_now_and_then(self) -> None:
        while not self._closed.wait(self._flush_every_s):
            if self._new or self._left:
                self.flush()

    def _unwritable(self, err: OSError) -> ArtifactError:
        return ArtifactError(
            "the events of the run cannot be written",
            given=f"{self.path}: {err.strerror or err}",
            expected="a file that can be appended to, with room",
            mend="make room or change its rights, then resume the run",
        )


# -- reading -------------------------------------------------------------------------------------------
@checked
@final
class Follower:
    """Reads a log that may still grow: `poll` gives what is new since the last one.

    If the log was cut off, because its run went back to a checkpoint, everything is given again from the start: a
    number that is not greater than the last one says so.

    Raises: DataError from `poll`, for events of a newer version, or a path that is no file.
    """

    def __init__(self, path: str | os.PathLike[str], *, watches: bool = True) -> None:
        self.path = Path(path)
        self._watches = watches
        """Says whether the file may be cut off while it is read; else a gap in the numbers is damage and no more."""
        self.damaged = 0
        """Lines that hold no event."""
        self.skipped = 0
        """Lines of a kind that this version does not know."""
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._rest = b""
        self._passing = False
        """Says whether a line is passed over that has no end yet, and is longer than any event."""
        self._size = 0
        self._file: tuple[int, int] | None = None
        self._last: int | None = None

    def poll(self, max_bytes: int | None = None) -> list[Stamped]:
        """The events that were added since the last call, of at most so many bytes; none while there is no file."""
        if max_bytes is None:
            events = self.poll(_CHUNK)
            while self.is_ahead:
                events += self.poll(_CHUNK)
            return events
        try:
            with open_regular(self.path) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                if self._file not in (None, identity) or status.st_size < self._offset:
                    self._restart()
                self._file = identity
                file.seek(self._offset)
                data = file.read(max_bytes)
                self._size = status.st_size
        except FileNotFoundError:
            self._size = 0  # it was removed: nothing is ahead
            return []
        except OSError as err:
            raise DataError(
                "the events of the run cannot be read",
                given=f"{self.path}: {err.strerror or err}",
                expected=f"the {EVENTS} of a run",
                mend="name the artifact directory of a run, and check the rights of the file",
            ) from err
        self._offset += len(data)
        return self._lines(data)

    def _lines(self, data: bytes) -> list[Stamped]:
        if self._passing:
            _, newline, data = data.partition(b"\n")
            self._passing = not newline
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE:
            self._rest, self._passing = b"", True
            self.damaged += 1
        events = []
        first, last, lost, newer = True, self._last, 0, False
        for line in lines:
            try:
                event = decode(line)
            except DataError:  # of a newer version; one such line alone is a flipped bit
                if newer or (self._last is None and len(lines) == 1):
                    raise
                newer = True
                self.damaged += 1
                lost += 1
                continue
            except DamagedLine:
                self.damaged += 1
                lost += 1
                continue
            newer = False
            if event is None:
                self.skipped += 1
                lost += 1
                continue
            if first and self._watches and last is not None and not last < event.number <= last + 1 + lost:
                # it was cut off and has grown past where we were: what came is of another past
                self._restart()
                return self.poll()
            first, last = False, event.number
            events.append(event)
        self._last = last
        return events

    @property
    def is_ahead(self) -> bool:
        """Returns whether the file had more bytes at the last poll than were read: a poll of damaged lines gives no
        event.
        """
        return self._offset < self._size

    def _restart(self) -> None:
        self._forget()
        self.damaged = self.skipped = 0


@checked
@final
class EventFile(Iterator[Stamped]):
    """Events of a file that is read once; `damaged` and `skipped` count what was passed over so far."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._follower = Follower(path, watches=False)
        if not self._follower.path.exists():
            raise DataError(
                "there are no events of a run",
                given=f"{path}, which does not exist",
                expected=f"the {EVENTS} in the artifact directory of a run",
                mend="check the path",
            )
        self._events: Iterator[Stamped] = self._read()

    def _read(self) -> Iterator[Stamped]:
        size = self._follower.path.stat().st_size
        while self._follower._offset < size:
            before = self._follower._offset
            yield from self._follower.poll(_CHUNK)
            if self._follower._offset <= before:
                return

    def __next__(self) -> Stamped:
        return next(self._events)

    @property
    def damaged(self) -> int:
        """Lines so far that hold no event."""
        return self._follower.damaged

    @property
    def skipped(self) -> int:
        """Lines so far of a kind that this version does not know."""
        return self._follower.skipped


@checked
def read_events(path: str | os.PathLike[str]) -> EventFile:
    """The events that a file holds now.  A torn last line is left out; damaged ones are counted, never fatal.

    Raises: DataError for a file that is absent or unreadable, or of a newer version.
    """
    return EventFile(path)


@checked
def read_outline(path: str | os.PathLike[str]) -> Iterator[Stamped]:
    """The events that a file holds now, of steps in a row only the newest; what is damaged is passed over.

    Raises: DataError as `read_events` does.
    """
    read_events(path)
    step = b""
    newer = True  # of the first line, and of two in a row: one line alone is a flipped bit
    with open_regular(path) as file:
        for line in chain(short_lines(file), [b""]):
            if b'"kind":"step"' in line:
                step = line
                continue
            for each in filter(None, (step, line)):
                try:
                    stamped = decode(each)
                except DamagedLine:
                    continue
                except DataError:
                    if newer:
                        raise
                    newer = True
                    continue
                newer = False
                if stamped is not None:
                    yield stamped
            step = b""


def short_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file but those of more than MAX_LINE bytes, which hold no event."""
    while line := file.readline(MAX_LINE):
        if line.endswith(b"\n") or len(line) < MAX_LINE:
            yield line
            continue
        while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
            pass


@checked
def follow(
    path: str | os.PathLike[str], stop: threading.Event | Callable[[], bool], *, every_s: float = 0.1
) -> Iterator[Stamped]:
    """Events as they come, from the first one, until `stop`; see Follower."""
    follower = Follower(path)
    stopped = stop.is_set if isinstance(stop, threading.Event) else stop
    while True:
        ended = stopped()  # asked before the read: what was there when it said so is still given
        yield from follower.poll()
        if ended:
            return
        if isinstance(stop, threading.Event):
            stop.wait(every_s)
        else:
            time.sleep(every_s)
