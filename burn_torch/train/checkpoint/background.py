"""Checkpoints written by a thread of their own, while the run goes on."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from burn_torch.core.belonging import carried
from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.module import ModuleRecord
from burn_torch.train.checkpoint.content import Checkpoint, Position
from burn_torch.train.checkpoint.file import Checkpointer, CheckpointFile, ReadingBlock, do_nothing
from burn_torch.train.logger.application import LOG

__all__ = ["MAX_WAITING", "AsyncCheckpointer"]

MAX_WAITING: Final = 2
"""Checkpoints that may be handed over and not written yet: each holds a copy of parameters and optimizer."""
_PATIENCE_S: Final = 0.5
"""How long `close` waits for the one that is being written."""


@checked(error=ConfigError)
@final
class AsyncCheckpointer:
    """Hands checkpoints to a thread that writes them, one after the other, through another checkpointer.

    The values handed over do not change any more: a record of immutable values, or of copies where a compiled step
    would write over them.  So `save` costs that copy and nothing else, unless the disk is slower than the run: when
    MAX_WAITING are not written yet it waits for one, and says so in the log.

    An error of the thread is raised by the next call: `finished`, which a run asks after each step, `save` or `wait`.
    The thread does not keep the process from ending; `wait` does.

    A run that is broken off closes this without `wait`: what is not begun is dropped, and the one that is being written
    ends in its own time, after which `close` says so to whoever holds the folder for it.
    """

    def __init__(self, inner: Checkpointer) -> None:
        self.inner: Final = inner
        self._changed: Final = threading.Condition()
        self._waiting: deque[tuple[Path, Callable[[], Path]]] = deque()
        """Holds what is to be written; the first one is being written."""
        self._finished: list[Path] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._writing = False
        """Says whether the thread is at work on the first of those that wait."""
        self._closed = False
        self._then: list[Callable[[], None]] = []
        """Who is to hear that nothing is written any more."""

    def save(
        self, record: ModuleRecord, position: Position, superseded: Sequence[Path] = (), reading: ReadingBlock = None
    ) -> Path:
        """Hands a checkpoint over; gives the path that it will have.  Raises: what writing an earlier one raised."""
        path = self.inner.path(position)
        with self._changed:
            self._raise()
            begun = time.monotonic()
            while len(self._waiting) >= MAX_WAITING and self._error is None:
                self._changed.wait()
            self._raise()
            waited = time.monotonic() - begun
            self._waiting.append((path, lambda: self.inner.save(record, position, superseded, reading)))
            if self._thread is None:
                self._thread = threading.Thread(target=carried(self._write), name="checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if waited > 1:
            LOG.warning("the run waited %.1f s for the disk: checkpoints come faster than they can be written", waited)
        return path

    def restore(self, epoch: int) -> tuple[Path, Checkpoint]:
        """See `FileCheckpointer.restore`; of what is written then."""
        self.wait()
        return self.inner.restore(epoch)

    def newest(self, notice: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
        """See `FileCheckpointer.newest`; of what is written then."""
        self.wait()
        return self.inner.newest(notice)

    def delete(self, epoch: int) -> None:
        """Removes the checkpoint of an epoch that is over, also one that is being written."""
        self.wait()
        self.inner.delete(epoch)

    def files(self) -> list[CheckpointFile]:
        """Returns what there is, and what is handed over; the oldest first."""
        files = {file.path: file for file in self.inner.files()}
        for path in self.waiting:
            file = CheckpointFile.of(path)
            if file is not None:
                files[path] = file
        return sorted(files.values(), key=lambda file: file.key)

    def path(self, position: Position) -> Path:
        """Returns where the checkpoint of a position lies, or will."""
        return self.inner.path(position)

    @property
    def waiting(self) -> list[Path]:
        """Returns what is handed over and not written yet."""
        with self._changed:
            return [path for path, _ in self._waiting]

    def finished(self) -> list[Path]:
        """Returns what has been written since this was last asked.  Raises: what writing one raised."""
        if not self._finished and self._error is None:  # asked after each step, and mostly nothing has happened
            return []
        with self._changed:
            self._raise()
            paths, self._finished = self._finished, []
            return paths

    def wait(self) -> None:
        """Waits until all is written.  Raises: what writing one raised."""
        with self._changed:
            while self._waiting and self._error is None:
                self._changed.wait()
            self._raise()

    def close(self, then: Callable[[], None] = do_nothing) -> None:
        """Drops what is not begun, and waits a moment for what is being written.

        `then` is called once nothing will be written any more: now, or later by the thread that writes.
        """
        with self._changed:
            while len(self._waiting) > self._writing:
                dropped, _ = self._waiting.pop()
                LOG.warning("%s is not written: the run was broken off", dropped.name)
            self._closed = True
            self._then.append(then)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._writing, _PATIENCE_S)
            if not self._writing:
                self._end()

    def _end(self) -> None:
        """Nothing is written any more; the lock is held, so that nobody goes on before all have heard of it."""
        while self._then:
            self._then.pop()()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    self._end()
                    return
                path, job = self._waiting[0]
                self._writing = True
            error: BaseException | None = None
            try:
                job()
            except BaseException as err:
                err.add_note(f"while {path.name} was written beside the training")
                error = err
            with self._changed:
                self._writing = False
                if error is None:
                    self._waiting.popleft()
                    self._finished.append(path)
                else:
                    self._error = error
                    self._waiting.clear()
                self._changed.notify_all()

    def _raise(self) -> None:
        """Raises: what the thread met, once."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
