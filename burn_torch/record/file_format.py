"""Defines what the formats share: files that are whole or not there, and errors with the file's name."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError
from burn_torch.core.files import replacing_file
from burn_torch.module.record import ModuleRecord
from burn_torch.record.faults import Unsound, cannot_load, worded
from burn_torch.record.source import Source

__all__ = ["FileFormat", "open_source", "writing"]


@checked
class FileFormat(ABC):
    """A format of one file: `write` puts a record into it, `read` finds one there."""

    kind: str
    """Its name in messages."""

    @abstractmethod
    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes to an empty file that can be sought in.  Raises: RecordError for what the format cannot hold."""

    @abstractmethod
    def read(self, source: Source) -> ModuleRecord:
        """Checks the file and reads what it says of its tensors.  Raises: Unsound, or RecordError."""

    def save(self, record: ModuleRecord, path: Path) -> None:
        """Writes a file, whole or not at all.  Raises: ArtifactError where it cannot."""
        with writing(path), replacing_file(path) as file:
            self.write(record, file)

    def load(self, path: Path) -> ModuleRecord:
        """Reads a file; values are read when they are asked for.  Raises: RecordError."""
        return self.read_from(open_source(path, self.kind))

    def dump(self, record: ModuleRecord) -> bytes:
        """The bytes of the file."""
        file = io.BytesIO()
        self.write(record, file)
        return file.getvalue()

    def parse(self, data: bytes, name: str = "the given bytes") -> ModuleRecord:
        """A record from the bytes of a file.  Raises: RecordError."""
        return self.read_from(Source(name, data))

    def read_from(self, source: Source) -> ModuleRecord:
        """`read`, with faults worded.  Raises: RecordError."""
        try:
            return self.read(source)
        except Unsound as err:
            raise worded(source.name, err, self.kind) from err
        except (RecursionError, MemoryError, OverflowError) as err:
            raise cannot_load(source.name, f"it is damaged: {type(err).__name__} {err}".rstrip(), self.kind) from err


@contextmanager
def writing(path: Path, what: str = "the record cannot be written") -> Iterator[None]:
    """Words what the system says where a file cannot be written."""
    try:
        yield
    except ArtifactError:
        raise
    except OSError as err:
        raise ArtifactError(
            what,
            given=f"{path}: {err.strerror or err}",
            expected="an existing folder that can be written to, with room for the file",
            mend="choose another path",
        ) from err


def open_source(path: Path, kind: str) -> Source:
    """The bytes of a file.  Raises: RecordError where there are none to read."""
    try:
        return Source.open(path)
    except FileNotFoundError as err:
        raise cannot_load(str(path), "there is no such file", kind, "check the path") from err
    except Unsound as err:
        raise cannot_load(str(path), str(err), kind, "give the path of a file") from err
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or err
        raise cannot_load(str(path), f"it cannot be read: {reason}", kind, "check the path and its rights") from err
