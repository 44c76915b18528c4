"""Reading a file that a stranger may have written: regular files alone, and never more bytes than were agreed on.

A pipe without a writer would make the reader wait for ever, a device may never end, and a sparse file of some bytes on
the disk may say that it has terabytes.  All refusals are OSErrors, so one `except` has them with those of the system.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

__all__ = ["MAX_CONFIG_BYTES", "MAX_LINE", "open_regular", "read_bounded", "read_lines"]

MAX_LINE: Final = 16 << 20
"""Characters of one line of text: a row of a table with a million cells has half of that."""
MAX_CONFIG_BYTES: Final = 4 << 20
"""Bytes of a configuration: as objects they take twenty to fifty times that."""


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Opens a regular file for reading.

    Raises: OSError as the operating system words it, or for what is a pipe, a device or a socket.
    """
    name = Path(path)
    _require_regular(name.stat(), name)  # before it is opened: opening a device may have an effect
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _require_regular(os.fstat(descriptor), name)  # the name may mean another file by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """All bytes of a regular file.  Raises: OSError, also for a file of more than `limit_bytes`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit_bytes + 1) if size <= limit_bytes else b""
    if size > limit_bytes or len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"it has more than {limit_bytes} bytes", str(path))
    return data


def read_lines(
    file: IO[bytes], encoding: str = "utf-8-sig", *, newline: str | None = None, limit: int | None = None
) -> Iterator[str]:
    """The lines of an open file, of which one is in memory at a time; `newline` is that of `open`.

    Raises: OSError for a line of more than MAX_LINE characters, or a text of more than `limit`; UnicodeDecodeError.
    """
    text = io.TextIOWrapper(file, encoding, newline=newline)
    total = number = 0
    try:
        while line := text.readline(MAX_LINE + 1):
            number, total = number + 1, total + len(line)
            if len(line) > MAX_LINE:
                raise OSError(errno.EFBIG, f"line {number} has more than {MAX_LINE} characters")
            if limit is not None and total > limit:
                raise OSError(errno.EFBIG, f"it has more than {limit} characters")
            yield line
    finally:
        with suppress(ValueError):  # the caller, whose file it is, has closed it already
            text.detach()


def _require_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
