"""Says where the values of metrics are written: files, as in the Burn book, or memory."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final, Protocol, final, runtime_checkable

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError, ConfigError, DataError
from burn_torch.core.files import append_to, make_folder, remove, write_atomic
from burn_torch.core.reading import read_bounded
from burn_torch.train.history import EpochSummary, History, MetricDefinition, MetricValue
from burn_torch.train.metric.base import Split

__all__ = ["FileMetricLogger", "InMemoryMetricLogger", "MetricLogger"]

FLUSH_EVERY_S: Final = 1.0
"""How old a line may be before `tail -f` shows it."""
MAX_NEW: Final = 512
"""Steps whose values wait to be written."""
_MAX_BYTES: Final = 32 << 20
"""The bound on the values of an epoch that are read: as floats they take up to sixteen times that."""


@runtime_checkable
class MetricLogger(Protocol):
    """Takes every value of every metric of a run."""

    def log_metric_definition(self, split: Split, definition: MetricDefinition, /) -> None:
        """A metric that will come."""
        ...

    def log(self, split: Split, epoch: int, values: tuple[MetricValue, ...], /) -> None:
        """The values of one batch."""
        ...

    def log_epoch_summary(self, summary: EpochSummary, /) -> None:
        """The values of an epoch that is over."""
        ...

    def read_numeric(self, name: str, epoch: int, split: Split, /) -> list[float]:
        """The values of a metric in an epoch, one a batch."""
        ...

    def restore(self, history: History, /) -> None:
        """Holds these values and no others: a run goes on from a checkpoint, and what came after it never was."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


@checked(error=ConfigError)
@final
class InMemoryMetricLogger:
    """Keeps the values; `history` has them."""

    def __init__(self) -> None:
        self.history = History()
        self.definitions: dict[Split, list[MetricDefinition]] = {}

    def log_metric_definition(self, split: Split, definition: MetricDefinition, /) -> None:
        """A metric that will come."""
        self.definitions.setdefault(split, []).append(definition)

    def log(self, split: Split, epoch: int, values: tuple[MetricValue, ...], /) -> None:
        """The values of one batch."""
        self.history.add(split, epoch, values)

    def log_epoch_summary(self, summary: EpochSummary, /) -> None:
        """The values of an epoch that is over."""
        self.history.finish(summary)

    def read_numeric(self, name: str, epoch: int, split: Split, /) -> list[float]:
        """The values of a metric in an epoch, one a batch."""
        return self.history.values(name, split, epoch)

    def restore(self, history: History, /) -> None:
        """Holds a copy of these values."""
        self.history = History.from_state(*history.to_state())

    def close(self) -> None:
        """Nothing is open."""


@checked(error=ConfigError)
@final
class FileMetricLogger:
    """`<dir>/<split>/epoch-<n>/<Metric>.log`: one value a line, one line a batch.

    Numbers are written so that reading them gives the same float64.  Spaces in names become `_`.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._open: dict[tuple[Split, str], IO[str]] = {}
        self._epochs: dict[Split, int] = {}
        self._new: list[tuple[Split, int, tuple[MetricValue, ...]]] = []
        self._flushed = time.monotonic()

    def log_metric_definition(self, split: Split, definition: MetricDefinition, /) -> None:
        """The name of the file says it all."""

    def log(self, split: Split, epoch: int, values: tuple[MetricValue, ...], /) -> None:
        """Takes the values of one batch, and writes once a second.  Raises: ArtifactError where it cannot."""
        self._new.append((split, epoch, values))
        now = time.monotonic()
        if now - self._flushed > FLUSH_EVERY_S or len(self._new) >= MAX_NEW:
            self._flushed = now
            with self._explain_failures():
                self._write(flush=True)

    def _write(self, *, flush: bool = False) -> None:
        """Writes what waits: a step only hands its values over."""
        new, self._new = self._new, []
        lines: dict[tuple[Split, str], list[str]] = {}
        for split, epoch, values in new:
            if self._epochs.get(split) != epoch:
                self._append(lines)
                lines.clear()
                self._close(split)
                self._epochs[split] = epoch
            for value in values:
                lines.setdefault((split, value.name), []).append(f"{value.value!r}\n")
        self._append(lines)
        if flush:
            for file in self._open.values():
                file.flush()

    def _append(self, lines: Mapping[tuple[Split, str], list[str]]) -> None:
        for (split, name), texts in lines.items():
            file = self._open.get((split, name))
            if file is None:
                file = self._open[split, name] = self._file(split, self._epochs[split], name)
            file.write("".join(texts))

    def log_epoch_summary(self, summary: EpochSummary, /) -> None:
        """The files of the epoch are whole now.  Raises: ArtifactError where they cannot be."""
        with self._explain_failures():
            self._write()
            self._close(summary.split)

    def read_numeric(self, name: str, epoch: int, split: Split, /) -> list[float]:
        """The values in a file; none if it does not exist."""
        with self._explain_failures():
            self._write()
        file = self._open.get((split, name))
        if file is not None:
            file.flush()
        path = self.path(split, epoch, name)
        try:
            return [float(line) for line in io.BytesIO(read_bounded(path, _MAX_BYTES))]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as err:
            raise DataError(
                f"the values of {name} cannot be read",
                given=f"{path}: {getattr(err, 'strerror', None) or err}",
                expected="one number a line",
                mend="remove the file; a resume writes it again",
            ) from err

    def restore(self, history: History, /) -> None:
        """Writes the files again from these values, and removes those of later epochs."""
        self.close()
        with self._explain_failures():
            self._restore(history)

    def _restore(self, history: History) -> None:
        for split in Split:
            kept = set(history.epochs(split))
            for folder in (self.directory / str(split)).glob("epoch-*"):
                if folder.name.removeprefix("epoch-") not in map(str, kept):
                    shutil.rmtree(folder)
            for epoch in kept:
                self._rewrite(history, split, epoch)

    def _rewrite(self, history: History, split: Split, epoch: int) -> None:
        wanted = {
            self.path(split, epoch, name): "".join(f"{value!r}\n" for value in history.values(name, split, epoch))
            for name in history.names(split)
        }
        folder = self.directory / str(split) / f"epoch-{epoch}"
        make_folder(folder)
        for path in folder.glob("*.log"):
            if not wanted.get(path):
                remove(path)
        for path, text in wanted.items():
            if text and not _holds(path, text.encode()):
                write_atomic(path, text.encode())

    def close(self) -> None:
        """Closes all files.  Raises: ArtifactError where what waits cannot be written."""
        try:
            with self._explain_failures():
                self._write()
        finally:
            self._epochs.clear()
            with self._explain_failures():
                self._close_files(list(self._open))

    def path(self, split: Split, epoch: int, name: str) -> Path:
        """The file of a metric."""
        return self.directory / str(split) / f"epoch-{epoch}" / f"{file_name(name)}.log"

    def _file(self, split: Split, epoch: int, name: str) -> IO[str]:
        path = self.path(split, epoch, name)
        make_folder(path.parent)
        return append_to(path)

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise ArtifactError(
                "the metrics cannot be written",
                given=f"{self.directory}: {err.strerror or err}",
                expected="a folder that can be written, with room for them",
                mend="make room or change its rights, then resume the run",
            ) from err

    def _close(self, split: Split) -> None:
        self._close_files([key for key in self._open if key[0] is split])

    def _close_files(self, keys: Iterable[tuple[Split, str]]) -> None:
        """Closes these files, all of them, whatever one of them says."""
        with ExitStack() as stack:
            for key in keys:
                stack.callback(self._open.pop(key).close)


def file_name(name: str) -> str:
    """The name of a metric as the name of a file: no spaces, no separators."""
    return "".join("_" if char in ' /\\:*?"<>|' else char for char in name)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_bounded(path, len(content)) == content
    except OSError:  # absent, or longer
        return False
