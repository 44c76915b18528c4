"""Writing a file so that a reader sees the old bytes or the new ones, never half of them.

The bytes go to a temporary name in the same folder (a rename across file systems would be a copy), are flushed to
the disk, take the final name in one step, and then the folder itself is flushed: after the call returns, a power cut
loses nothing.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = ["make_folder", "replacing_file", "write_atomic"]


@contextmanager
def replacing_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Opens a temporary neighbour of `path` for writing; it becomes `path` when the block ends without an error.

    After an error the neighbour is removed and `path` is as it was.  The folder must exist.  Without `durable` nothing
    is flushed, which costs milliseconds: for what can be made again, a cache.
    Raises: OSError as the operating system words it; the caller knows what the file was for.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _flush_folder(target.parent)


def write_atomic(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> None:
    """Writes `data` to `path`, whole or not at all; see `replacing_file`."""
    with replacing_file(path, durable=durable) as file:
        file.write(data)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Makes a folder and those above it where they are absent; a power cut does not lose their names.

    Raises: OSError as the operating system words it.
    """
    folder = Path(path)
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in absent:
        _flush_folder(place.parent)


def _flush_folder(folder: Path) -> None:
    with suppress(OSError):  # not every file system lets a folder be opened or flushed; the rename stands all the same
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
