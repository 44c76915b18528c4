"""Writing a file so that a reader sees the old bytes or the new ones, never half of them.

The bytes go to a temporary name in the same folder (a rename across file systems would be a copy), are flushed to
the disk, take the final name in one step, and then the folder itself is flushed: after the call returns, a power cut
loses nothing.

Every step that a crash may come between is a method of `Disk`; a test puts another one in its place with `using`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

__all__ = ["Disk", "append_to", "make_folder", "remove", "replacing_file", "using", "write_atomic"]

_NO_FOLDER_FLUSH: Final = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EISDIR}
"""Errors of systems whose folders cannot be opened or flushed; the rename stands all the same."""


class Disk:
    """The operations on files, each as the operating system has it.  They raise OSError as it words it."""

    def create(self, path: Path) -> IO[bytes]:
        """Opens a new file for writing; it must not exist."""
        return path.open("xb")

    def append(self, path: Path) -> IO[str]:
        """Opens a text for lines at its end; it is made where it is absent."""
        return path.open("a", encoding="utf-8")

    def flush(self, file: IO[bytes]) -> None:
        """The content of an open file is on the disk when this returns."""
        file.flush()
        os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name, in the place of whatever had it."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Removes a file, if it is there."""
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        """Makes one folder, if it is not there."""
        path.mkdir(exist_ok=True)

    def flush_folder(self, path: Path) -> None:
        """The names in a folder are on the disk when this returns, where the file system can do that at all."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as err:
            if err.errno not in _NO_FOLDER_FLUSH:
                raise


_disk = Disk()


@contextmanager
def using(disk: Disk) -> Iterator[None]:
    """Files are written by this one, in every thread, until the block ends."""
    global _disk
    before, _disk = _disk, disk
    try:
        yield
    finally:
        _disk = before


@contextmanager
def replacing_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Opens a temporary neighbour of `path` for writing; it becomes `path` when the block ends without an error.

    After an error the neighbour is removed and `path` is as it was; only if the very last step fails, the flush of the
    folder, `path` is the new one, and a power cut may bring the old one back.  The folder must exist.  Without
    `durable` nothing is flushed, which costs milliseconds: for what can be made again, a cache.
    Raises: OSError as the operating system words it; the caller knows what the file was for.  A device, pipe or socket,
    which a rename would put a file in the place of, is one too: so root once replaced /dev/null.
    """
    target, disk = Path(path), _disk
    _require_no_device(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with disk.create(temporary) as file:
            yield file
            if durable:
                disk.flush(file)
        if target.exists():
            shutil.copymode(target, temporary)
        disk.rename(temporary, target)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            disk.remove(temporary)
        raise
    if durable:
        disk.flush_folder(target.parent)


def _require_no_device(path: Path) -> None:
    """Raises: OSError where there is something that is neither a file nor a folder, behind a link too."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a device, pipe or socket is there, no file", str(path))


def write_atomic(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> None:
    """Writes `data` to `path`, whole or not at all; see `replacing_file`."""
    with replacing_file(path, durable=durable) as file:
        file.write(data)


def append_to(path: str | os.PathLike[str]) -> IO[str]:
    """Opens a text to add lines at its end: for what is written again from elsewhere after a crash."""
    return _disk.append(Path(path))


def remove(path: str | os.PathLike[str]) -> None:
    """Removes a file, if it is there.  Raises: OSError as the operating system words it."""
    _disk.remove(Path(path))


def make_folder(path: str | os.PathLike[str]) -> None:
    """Makes a folder and those above it where they are absent; a power cut does not lose their names.

    Raises: OSError as the operating system words it.
    """
    folder, disk = Path(path), _disk
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(absent):
        disk.make_folder(place)
    if not absent and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    for place in absent:
        disk.flush_folder(place.parent)
