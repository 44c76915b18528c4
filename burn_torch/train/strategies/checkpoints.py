"""Checkpoints of several processes: one writes them, all go on from the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from burn_torch.core.errors import ArtifactError
from burn_torch.module import ModuleRecord
from burn_torch.train.checkpoint import Checkpoint, CheckpointStore, Position
from burn_torch.train.checkpoint.file import Checkpointer, CheckpointFile, FileCheckpointer, ReadingBlock, do_nothing
from burn_torch.train.strategies.peers import Peers

__all__ = ["shared_store"]


@final
class _Shared:
    """A checkpointer of which process 0 writes, and chooses what to go on from."""

    def __init__(self, inner: Checkpointer, peers: Peers) -> None:
        self._inner: Final = inner
        self._peers: Final = peers

    def save(
        self, record: ModuleRecord, position: Position, superseded: Sequence[Path] = (), reading: ReadingBlock = None
    ) -> Path:
        if self._peers.is_main:
            return self._inner.save(record, position, superseded, reading)
        return self._inner.path(position)

    def restore(self, epoch: int) -> tuple[Path, Checkpoint]:
        return self._inner.restore(epoch)

    def newest(self, notice: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
        checkpoint = self._inner.newest(notice) if self._peers.is_main else None
        name = self._peers.from_main(None if checkpoint is None else str(checkpoint[0].resolve()))
        if checkpoint is not None or name is None:
            return checkpoint
        path = Path(name)
        if not path.exists():
            raise ArtifactError(
                "this process cannot see the checkpoint that process 0 goes on from",
                given=f"{path}",
                expected="an artifact directory that all processes can read",
                mend="put it on a file system that all machines share",
            )
        return path, Checkpoint.from_record(ModuleRecord.load(path))

    def delete(self, epoch: int) -> None:
        if self._peers.is_main:
            self._inner.delete(epoch)

    def files(self) -> list[CheckpointFile]:
        return self._inner.files() if self._peers.is_main else []

    def path(self, position: Position) -> Path:
        return self._inner.path(position)

    def finished(self) -> list[Path]:
        return self._inner.finished() if self._peers.is_main else []

    def wait(self) -> None:
        if self._peers.is_main:
            self._inner.wait()

    def close(self, then: Callable[[], None] = do_nothing) -> None:
        self._inner.close(then)


def shared_store(store: CheckpointStore, peers: Peers) -> CheckpointStore:
    """A store whose files process 0 writes, and all processes read."""
    if peers.size == 1:
        return store
    inner = store.checkpointer if peers.is_main else FileCheckpointer(_folder(store.checkpointer))
    return CheckpointStore(_Shared(inner, peers), store.strategy, store.every)


def _folder(checkpointer: Checkpointer) -> Path:
    return checkpointer.path(Position()).parent
