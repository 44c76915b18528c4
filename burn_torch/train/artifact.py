"""The artifact directory of a run.

<dir>/events.jsonl                    what happened, for views: burn_torch.monitor
<dir>/control.json, control.sock      while it runs: where commands go
<dir>/experiment.log                  what happened, in words
<dir>/config.json                     the configuration, if the run was given one
<dir>/checkpoint/epoch-3.safetensors  all that a resume needs
<dir>/train/epoch-1/Loss.log          one value a line, one line a batch; the same under valid/
<dir>/model.safetensors               the model after the last epoch
<dir>/result.json                     how the run ended
<dir>/anomaly/step-7.safetensors      with detect_anomaly: what led to the first NaN, to be replayed
<dir>/autotune.lock                   on a GPU: which configs of kernels the run uses
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Final, final

from burn_torch.core.errors import ArtifactError
from burn_torch.core.files import make_folder, remove, write_atomic

__all__ = ["ArtifactDir"]

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has none: there two runs in one directory are not noticed
    fcntl = None

_OF_A_RUN: Final = ("checkpoint/*.safetensors", "train/*", "valid/*", "model.safetensors")
_TOUCHED: Final = ".lock"
"""Left by every run, also by one that was ended before it had written anything else."""
_LOOK_EVERY_S: Final = 0.5


@final
class ArtifactDir:
    """Paths of a run's files, and the right to write them: one run at a time holds a directory."""

    def __init__(self, path: str | os.PathLike[str], *, writes: bool = True) -> None:
        """The directory at a path.  Without `writes`, which another process has, it is only read."""
        self.path = Path(path)
        self._writes = writes
        self.checkpoints = self.path / "checkpoint"
        self.log = self.path / "experiment.log"
        self.config = self.path / "config.json"
        self.model = self.path / "model.safetensors"
        self.result = self.path / "result.json"
        self.anomalies = self.path / "anomaly"
        self.tuning = self.path / "autotune.lock"
        self._lock: IO[bytes] | None = None
        self._holders = 0
        self._counting = threading.Lock()
        self._made: list[Path] = []
        self._identity: tuple[int, int] | None = None
        """Says which folder it is, as the file system knows it: another of this name is not ours."""
        self._looked_at = 0.0

    def claim(self, *, resume: bool) -> None:
        """Makes the directory and takes it for this process, before any work is done.

        Raises: ArtifactError if it cannot be written, if another run holds it, if it has a run in it and
        this is no resume, or if this is a resume and it holds none.
        """
        if not self._writes:
            return
        if resume and not (self.has_run() or (self.path / _TOUCHED).exists()):
            raise ArtifactError(
                "there is no run to resume",
                given=f"{self.path}" + ("" if self.path.is_dir() else ", which does not exist"),
                expected="the artifact directory of a run that was started before",
                mend="check the path, or start the run without resuming",
            )
        if not resume:
            self._require_unused()
        touched = self.path / _TOUCHED
        self._made = [path for path in (touched, self.path, *self.path.parents) if not path.exists()]
        try:
            make_folder(self.path)
            self._lock = self._open_lock()
            self._identity = _identity(self.path)
            self._holders = 1
            write_atomic(self.path / ".probe", b"")
            remove(self.path / ".probe")
        except ArtifactError:
            raise
        except OSError as err:
            self.discard()
            raise self._unwritable(err) from err
        except BaseException:
            self.release()
            raise
        if not resume:
            try:
                self._require_unused()  # another process may have been quicker
            except ArtifactError:
                self.release()
                raise

    def has_run(self) -> bool:
        """Returns whether a run has left anything here."""
        return bool(self._contents())

    def hold(self) -> Callable[[], None]:
        """Keeps the directory for whoever writes into it when the run is over; calling the result lets it go."""
        with self._counting:
            self._holders += 1
        return self._let_go

    def release(self) -> None:
        """Gives the directory back, unless somebody holds it: then with the last of those."""
        self._let_go()

    def _let_go(self) -> None:
        with self._counting:
            self._holders -= 1
            if self._holders > 0 or self._lock is None:
                return
            self._lock.close()  # the lock goes with the file
            self._lock = None

    def require_held(self, say: Callable[[str], None], *, at_once: bool = False) -> None:
        """Looks twice a second, or at once, whether the directory is still this run's; takes a lost lock again.

        Raises: ArtifactError where it was removed, replaced or taken by another run: nothing more is written then.
        """
        now = time.monotonic()
        if self._lock is None or (now - self._looked_at < _LOOK_EVERY_S and not at_once):
            return
        self._looked_at = now
        if _identity(self.path) != self._identity:
            raise self._lost_error("it was removed, moved or replaced")
        if _identity(self.path / _TOUCHED) == _identity_of(os.fstat(self._lock.fileno())):
            return
        try:
            lock = self._open_lock()
        except (ArtifactError, OSError) as err:
            raise self._lost_error("its .lock was removed, and another run has taken it") from err
        self._lock.close()
        self._lock = lock
        say(f"{self.path / _TOUCHED}, which keeps other runs out, was removed; it is there again")

    def _lost_error(self, how: str) -> ArtifactError:
        return ArtifactError(
            "the artifact directory is no longer this run's",
            given=f"{self.path}: {how} while the run was at work",
            expected="a directory that stays where it is, with its .lock, until the run ends",
            mend="resume the run from its checkpoints where the directory is now, or start it in another directory",
        )

    def discard(self) -> None:
        """Gives the directory back as `claim` found it, for a run that could not begin."""
        for path in self._made:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir() if path.is_dir() else path.unlink()
        self._made = []
        self.release()

    def write_result(self, result: Mapping[str, object]) -> None:
        """Writes result.json, whole or not at all."""
        self._write(self.result, (json.dumps(result, indent=2) + "\n").encode())

    def write_config(self, text: str) -> None:
        """Writes config.json, whole or not at all."""
        self._write(self.config, text.encode())

    def clear_result(self) -> None:
        """Removes what said how an earlier part of this run ended."""
        if not self._writes:
            return
        try:
            remove(self.result)
        except OSError as err:
            raise self._unwritable(err) from err

    def _require_unused(self) -> None:
        contents = self._contents()
        if contents:
            raise ArtifactError(
                "the artifact directory holds another run",
                given=f"{self.path} with {', '.join(contents)}",
                expected="an empty directory, or one that does not exist yet",
                mend="go on with that run (resume(), --resume), name another directory, or remove this one",
            )

    def _write(self, path: Path, content: bytes) -> None:
        if not self._writes or (self._identity is not None and _identity(self.path) != self._identity):
            return  # the run has lost its directory, and what ended it has told so
        try:
            write_atomic(path, content)
        except OSError as err:
            raise self._unwritable(err) from err

    def _contents(self) -> list[str]:
        return [pattern.partition("/")[0] for pattern in _OF_A_RUN if any(self.path.glob(pattern))]

    def _open_lock(self) -> IO[bytes]:
        file = (self.path / _TOUCHED).open("ab")
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            file.close()
            raise ArtifactError(
                "another run holds this artifact directory",
                given=f"{self.path}",
                expected="one run at a time, until its last checkpoint is written",
                mend="wait for it, stop it, or name another directory",
            ) from err
        return file

    def _unwritable(self, err: OSError) -> ArtifactError:
        return ArtifactError(
            "the artifact directory cannot be written",
            given=f"{self.path}: {err.strerror or err}",
            expected="a directory that exists or can be made, with room and the right to write",
            mend="name another directory, or change its rights",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _identity_of(path.stat())
    except OSError:
        return None


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
