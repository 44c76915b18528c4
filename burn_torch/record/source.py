"""The bytes of a record: mapped from a file, or in memory.

Nothing of a file is read before it is asked for, and what was read is given back to the system with the array that
showed it: a record of many tensors never lies in memory as a whole.  A tensor may keep the pages of the file as its
own: it sees the file's until it writes, then copies that it alone has, and the file never changes.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape
from burn_torch.record.block_sum import BlockSum
from burn_torch.record.faults import Unsound

__all__ = ["WINDOW", "Source"]

WINDOW: Final = 8 << 20
"""How many bytes are hashed, checked or written at a time."""
MIN_LENT: Final = 1 << 20
"""Bytes below which a copy is cheaper than pages of one's own."""
ALIGNMENT: Final = 64
"""Says where torch's own memory begins: elsewhere a matrix product may round otherwise, and a resumed run differ."""


@final
class Source:
    """Bytes with a name for messages."""

    def __init__(
        self, name: str, data: bytes | memoryview | mmap.mmap, path: Path | None = None, own: mmap.mmap | None = None
    ) -> None:
        self.name = name
        self.path = path
        self._map = data if isinstance(data, mmap.mmap) else None
        self._own = own
        self._lent: set[tuple[int, int]] = set()
        self._lock = Lock()
        self.bytes = memoryview(data)
        self.marked = False
        """Says whether it has a checksum of ours."""
        self.sealed = False
        """Says whether that fits."""
        self.version = ""
        """Says which version of its format it says that it is of."""
        self.trusting = False
        """Says whether checksums are left unread: for those who show what a file says of itself, and use none of it."""

    @staticmethod
    def open(path: Path) -> Source:
        """Maps a file.  Raises: OSError as the system words it; Unsound for what is no regular file."""
        _require_file(path.stat(), path)  # before it is opened: a device may do something then
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not make us wait
        try:
            status = os.fstat(descriptor)
            _require_file(status, path)
            data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b""
            lends = status.st_size >= MIN_LENT and os.name == "posix"  # elsewhere a mapped file cannot be replaced
            own = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) if lends else None
        finally:
            os.close(descriptor)
        return Source(str(path), data, path, own)

    def __len__(self) -> int:
        return len(self.bytes)

    def array(self, start: int, end: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The elements between two offsets, as a read-only view of one axis."""
        elements = np.frombuffer(self.bytes[start:end], dtype)
        with self._lock:
            if self._own is not None and not self._lent:
                _release(self._own, start, end)  # it was read there for the checksum
        if self._map is not None and end - start >= mmap.PAGESIZE:
            weakref.finalize(elements, _release, self._map, start, end).atexit = False
        return elements

    def tensor(self, start: int, end: int, dtype: DType, shape: Shape) -> TensorData:
        """The tensor between two offsets, little-endian and in row-major order."""
        array = self.array(start, end, dtype.numpy.newbyteorder("<"))
        with self._lock:
            if self._own is not None and (start, end) not in self._lent:  # no two tensors overlap
                _release(self._own, start, end)
        return TensorData(array.astype(dtype.numpy, copy=False).reshape(shape), dtype)

    def lend(self, start: int, end: int, dtype: DType, shape: Shape) -> TensorData | None:
        """The same in memory of the caller's own, without a copy; None where there is none, or another has it."""
        if self._own is None or end - start < MIN_LENT or start % ALIGNMENT or sys.byteorder != "little":
            return None
        with self._lock:
            if (start, end) in self._lent:
                return None
            self._lent.add((start, end))
        elements = np.frombuffer(self._own, dtype.numpy, (end - start) // dtype.itemsize, start)
        weakref.finalize(elements, _release, self._own, start, end).atexit = False  # with what was written there
        return TensorData(elements.reshape(shape), dtype)

    def digest(self, hole: tuple[int, int]) -> str:
        """The checksum of all bytes, with text zeros in the place of those between two offsets."""
        digest = BlockSum()
        start, end = hole
        # read where a tensor may keep it: the pages are there then
        content = np.frombuffer(self.bytes if self._own is None else self._own, np.uint8)
        digest.update(content[:start])
        digest.update(b"0" * (end - start))
        digest.update_from(lambda start, end: content[start:end], end, len(self))
        return digest.hexdigest()


def _require_file(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, os.strerror(21), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise Unsound("it is no regular file")


def _release(mapped: mmap.mmap, start: int, end: int) -> None:
    """Takes whole pages out of this process; the system still has them, and reads them again if they are asked for."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = end // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first and hasattr(mapped, "madvise") and not mapped.closed:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)
