"""Checkpoints in a folder: one file for each, whole or not there.

    checkpoint/epoch-3.safetensors             epoch 3 is over
    checkpoint/epoch-4-batch-120.safetensors   120 batches of epoch 4

Burn writes three files an epoch (model-3, optim-3, scheduler-3), so a crash can leave two of them.  Here a checkpoint
is written under a temporary name in this folder, flushed to the disk, renamed, and the folder flushed; only when that
is done are older ones removed.  A checksum over everything tells a damaged file, and the one before it is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias, final, runtime_checkable

from burn_torch.core import files
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError, ConfigError, RecordError
from burn_torch.module import ModuleRecord
from burn_torch.train.checkpoint.content import Checkpoint, Position
from burn_torch.train.logger.application import LOG

__all__ = ["CheckpointFile", "Checkpointer", "FileCheckpointer"]

ReadingBlock: TypeAlias = AbstractContextManager[None] | None
"""A block in which the values of a record can be read; None where they always can."""

_NAME: Final = re.compile(r"epoch-(\d+)(?:-batch-(\d+))?\.safetensors")


def do_nothing() -> None:
    """For whoever need not hear of an end."""


@final
@dataclass(frozen=True)
class CheckpointFile:
    """A file of the folder, by its name alone."""

    path: Path
    epoch: int
    batch: float
    """Infinite if the epoch is over."""

    @property
    def complete(self) -> bool:
        """Returns whether the epoch is over."""
        return math.isinf(self.batch)

    @property
    def key(self) -> tuple[int, float]:
        """A later one is greater."""
        return self.epoch, self.batch

    @staticmethod
    def of(path: Path) -> CheckpointFile | None:
        """Returns what the name of a file says; None if it is no checkpoint's."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            return None
        return CheckpointFile(path, int(match[1]), math.inf if match[2] is None else int(match[2]))


@runtime_checkable
class Checkpointer(Protocol):
    """Says where checkpoints lie, and who writes them."""

    def save(
        self, record: ModuleRecord, position: Position, superseded: Sequence[Path] = (), reading: ReadingBlock = None
    ) -> Path:
        """Writes a checkpoint, then removes those that it supersedes; gives the path that it has, or will have.

        The values of the record are read inside `reading`.
        """
        ...

    def restore(self, epoch: int) -> tuple[Path, Checkpoint]:
        """Path and content of the checkpoint of an epoch that is over.  Raises: RecordError if it is not sound."""
        ...

    def newest(self, notice: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
        """The newest sound one; None if there is none at all.  `notice` is told of each that is passed over."""
        ...

    def delete(self, epoch: int) -> None:
        """Removes the checkpoint of an epoch that is over, if it is there."""
        ...

    def files(self) -> list[CheckpointFile]:
        """Returns what there is, or will be when all that was handed over is written; the oldest first."""
        ...

    def path(self, position: Position) -> Path:
        """Returns where the checkpoint of a position lies."""
        ...

    def finished(self) -> list[Path]:
        """Returns what has been written since this was last asked.  Raises: what writing one raised."""
        ...

    def wait(self) -> None:
        """Waits until all that was handed over is written; `finished` tells of it."""
        ...

    def close(self, then: Callable[[], None] = do_nothing) -> None:
        """Nothing more will be handed over; `then` is called once nothing is written any more, perhaps later."""
        ...


@checked(error=ConfigError)
@final
class FileCheckpointer:
    """The files of one folder, written while the caller waits."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._finished: list[Path] = []

    def files(self) -> list[CheckpointFile]:
        """Returns what there is, the oldest first."""
        files = map(CheckpointFile.of, self.folder.glob("epoch-*.safetensors"))
        return sorted([file for file in files if file is not None], key=lambda file: file.key)

    def path(self, position: Position) -> Path:
        """Returns where the checkpoint of a position lies."""
        batch = "" if position.complete else f"-batch-{position.batch}"
        return self.folder / f"epoch-{position.epoch}{batch}.safetensors"

    def save(
        self, record: ModuleRecord, position: Position, superseded: Sequence[Path] = (), reading: ReadingBlock = None
    ) -> Path:
        """Writes a checkpoint, then removes those that it supersedes.

        Raises: ArtifactError if it cannot be written; then the earlier ones are all still there.
        """
        path = self.path(position)
        try:
            files.make_folder(self.folder)
        except OSError as err:
            raise ArtifactError(
                "the folder of the checkpoints cannot be made",
                given=f"{self.folder}: {err.strerror or err}",
                expected="an artifact directory that can be written, with room",
                mend="make room or change its rights, then resume the run",
            ) from err
        with reading or nullcontext():
            record.save(path)
        for old in superseded:
            _remove(old)
        self._finished.append(path)
        return path

    def restore(self, epoch: int) -> tuple[Path, Checkpoint]:
        """Path and content of the checkpoint of an epoch that is over.

        Raises: RecordError if there is none, or it is damaged.
        """
        path = self.path(Position(epoch=epoch, complete=True))
        if not path.exists():
            there = ", ".join(str(file.epoch) for file in self.files() if file.complete)
            raise RecordError(
                f"there is no checkpoint of epoch {epoch}",
                given=f"{self.folder} with " + (f"epochs {there}" if there else "none"),
                expected="an epoch that was kept",
                mend="name one of those, or resume from the newest one: resume()",
            )
        return path, Checkpoint.from_record(ModuleRecord.load(path))

    def newest(self, notice: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
        """The newest checkpoint that is sound; None if there is none at all.

        Tells `notice` in one line of each damaged one that it passes over.
        Raises: RecordError if there are some and all are damaged.
        """
        faults: list[str] = []
        for file in reversed(self.files()):
            try:
                return file.path, Checkpoint.from_record(ModuleRecord.load(file.path))
            except RecordError as err:
                reason = _reason(err)
                faults.append(f"{file.path.name}: {reason}")
                notice(f"checkpoint {file.path.name} is passed over: {reason}")
        if not faults:
            return None
        raise RecordError(
            "no checkpoint of this run can be read",
            given=f"{self.folder}:\n            " + "\n            ".join(faults),
            expected="one sound checkpoint at least",
            mend="restore one from a copy, or start the run again in another directory",
        )

    def delete(self, epoch: int) -> None:
        """Removes the checkpoint of an epoch that is over, if it is there."""
        _remove(self.path(Position(epoch=epoch, complete=True)))

    def remove_leftovers(self) -> None:
        """Removes what a process that was killed while it wrote has left."""
        for path in self.folder.glob(".epoch-*.part"):
            _remove(path)

    def finished(self) -> list[Path]:
        """Returns what has been written since this was last asked."""
        paths, self._finished = self._finished, []
        return paths

    def wait(self) -> None:
        """Nothing is ever under way."""

    def close(self, then: Callable[[], None] = do_nothing) -> None:
        """Nothing is open."""
        then()


def _remove(path: Path) -> None:
    try:
        files.remove(path)
    except OSError as err:  # one file too many is no reason to end a run
        LOG.warning("%s cannot be removed: %s", path.name, err)


def _reason(err: RecordError) -> str:
    """The line of an error that says what is wrong, without the path that every line has anyway."""
    for line in str(err).splitlines():
        if line.strip().startswith("given:"):
            return line.partition("given:")[2].strip().rpartition(".safetensors: ")[2]
    return str(err).partition("\n")[0]
