"""The checkpoints of one run: when one is due, and which ones stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.module import Module
from burn_torch.train.checkpoint.background import AsyncCheckpointer
from burn_torch.train.checkpoint.content import Checkpoint
from burn_torch.train.checkpoint.file import Checkpointer, CheckpointFile, FileCheckpointer
from burn_torch.train.checkpoint.strategy import CheckpointingStrategy

__all__ = ["CheckpointEvery", "CheckpointStore"]


@checked(error=ConfigError)
@final
@dataclass(frozen=True)
class CheckpointEvery:
    """How often a run writes a checkpoint inside of an epoch: after so many steps, or so many seconds, or both.

    A step is a batch.  With gradient accumulation the checkpoint waits for the end of the window.
    Raises: ConfigError for neither, or for what is not above 0.
    """

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        limits = [value for value in (self.steps, self.seconds) if value is not None]
        if not limits or not all(value > 0 for value in limits):
            raise ConfigError(
                "CheckpointEvery: the interval must be above 0",
                given=f"steps={self.steps}, seconds={self.seconds}",
                expected="a number of steps or of seconds above 0",
                mend="CheckpointEvery(steps=500) or CheckpointEvery(seconds=600)",
            )


@final
class CheckpointStore:
    """The checkpoints of one run, as its loop sees them."""

    def __init__(
        self, checkpointer: Checkpointer, strategy: CheckpointingStrategy, every: CheckpointEvery | None = None
    ) -> None:
        self.checkpointer: Final = checkpointer
        self.strategy: Final = strategy
        self.every: Final = every
        self._at = (0, time.monotonic())
        """Step and time of the last one."""

    # -- when ------------------------------------------------------------------------------------
    def begin(self, iteration: int) -> None:
        """Counts from here: the run starts, or goes on."""
        self._at = (iteration, time.monotonic())

    def is_due(self, iteration: int) -> bool:
        """Returns whether one is due after this many steps of the run.

        Steps are counted from the start of the run, so that a resumed run saves after the steps of one that was not.
        """
        every = self.every
        if every is None:
            return False
        step, at = self._at
        if every.steps is not None and iteration // every.steps > step // every.steps:
            return True
        return every.seconds is not None and iteration > step and time.monotonic() - at >= every.seconds

    # -- saving ------------------------------------------------------------------------------------
    def save(self, checkpoint: Checkpoint, model: Module, reading: AbstractContextManager[None] | None = None) -> Path:
        """Writes a checkpoint, or hands it over to be written, and settles now which older ones it supersedes.

        Raises: ArtifactError if it cannot be written; then the earlier ones are all still there.
        """
        self.begin(checkpoint.position.iteration)
        superseded = self._paths_superseded_by(checkpoint)
        return self.checkpointer.save(checkpoint.to_record(model), checkpoint.position, superseded, reading)

    def finished(self) -> list[Path]:
        """Returns what has been written since this was last asked.  Raises: ArtifactError for what could not be
        written.
        """
        return self.checkpointer.finished()

    def wait(self) -> None:
        """Waits until all is written."""
        self.checkpointer.wait()

    def close(self, then: Callable[[], None]) -> None:
        """Nothing more will be saved; `then` is called once nothing is written any more."""
        self.checkpointer.close(then)

    # -- loading -----------------------------------------------------------------------------------
    def load(self, epoch: int) -> tuple[Path, Checkpoint]:
        """That of an epoch that is over.  Raises: RecordError if there is none, or it is damaged."""
        return self.checkpointer.restore(epoch)

    def newest(self, notice: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
        """The newest that is sound; None if there is none at all.  Raises: RecordError if all are damaged."""
        return self.checkpointer.newest(notice)

    # -- which ones stay -----------------------------------------------------------------------------
    def _paths_superseded_by(self, checkpoint: Checkpoint) -> list[Path]:
        """Returns what a checkpoint makes needless once it is on the disk.

        The checkpoints of finished epochs that the strategy does not keep.  Inside of an epoch the one before stays as
        well, for the case that the new one turns out to be damaged, and after its end until two epochs are there.
        Checkpoints that lie ahead are from a future that was given up.
        """
        position = checkpoint.position
        path = self.checkpointer.path(position)
        now = CheckpointFile.of(path)
        assert now is not None
        before = [file for file in self.checkpointer.files() if file.key < now.key]
        complete = [file.epoch for file in before if file.complete] + [now.epoch] * now.complete
        kept = set(self.strategy.keep(complete, checkpoint.history)) if complete else set()
        stays = {file.path for file in before if file.complete and file.epoch in kept}
        parts = [file for file in before if not file.complete]
        if parts and (not stays or (not now.complete and parts[-1].epoch == now.epoch)):
            stays.add(parts[-1].path)
        return [file.path for file in self.checkpointer.files() if file.path not in (path, *stays)]


def file_store(
    folder: Path,
    strategy: CheckpointingStrategy,
    every: CheckpointEvery | None,
    *,
    background: bool,
    cleans: bool = True,
) -> CheckpointStore:
    """The store of a folder, after what a killed process has left there is removed."""
    checkpointer = FileCheckpointer(folder)
    if cleans:
        checkpointer.remove_leftovers()
    return CheckpointStore(AsyncCheckpointer(checkpointer) if background else checkpointer, strategy, every)
