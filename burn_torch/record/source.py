"""The bytes of a record: mapped from a file, or in memory.

Nothing of a file is read before it is asked for, and what was read is given back to the system with the array that
showed it: a record of many tensors never lies in memory as a whole.
"""

from __future__ import annotations

import mmap
import os
import stat
import weakref
from pathlib import Path
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


@final
class Source:
    """Bytes with a name for messages."""

    def __init__(self, name: str, data: bytes | memoryview | mmap.mmap, path: Path | None = None) -> None:
        self.name = name
        self.path = path
        self._map = data if isinstance(data, mmap.mmap) else None
        self.bytes = memoryview(data)
        self.sealed = False
        """Whether it has a checksum of ours, and that fits."""

    @staticmethod
    def open(path: Path) -> Source:
        """Maps a file.  Raises: OSError as the system words it; Unsound for what is no regular file."""
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not make us wait
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(21, os.strerror(21), str(path))
            if not stat.S_ISREG(status.st_mode):
                raise Unsound("it is no regular file")
            data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b""
        finally:
            os.close(descriptor)
        return Source(str(path), data, path)

    def __len__(self) -> int:
        return len(self.bytes)

    def array(self, start: int, end: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The elements between two offsets, as a read-only view of one axis."""
        found = np.frombuffer(self.bytes[start:end], dtype)
        if self._map is not None and end - start >= mmap.PAGESIZE:
            weakref.finalize(found, _release, self._map, start, end).atexit = False
        return found

    def tensor(self, start: int, end: int, dtype: DType, shape: Shape) -> TensorData:
        """The tensor between two offsets, little-endian and in row-major order."""
        array = self.array(start, end, dtype.numpy.newbyteorder("<"))
        return TensorData(array.astype(dtype.numpy, copy=False).reshape(shape), dtype)

    def digest(self, hole: tuple[int, int]) -> str:
        """The checksum of all bytes, with text zeros in the place of those between two offsets."""
        digest = BlockSum()
        start, end = hole
        self._update(digest, 0, start)
        digest.update(b"0" * (end - start))
        self._update(digest, end, len(self))
        return digest.hexdigest()

    def _update(self, digest: BlockSum, start: int, end: int) -> None:
        for at in range(start, end, WINDOW):
            digest.update(self.array(at, min(at + WINDOW, end), np.dtype(np.uint8)))


def _release(mapped: mmap.mmap, start: int, end: int) -> None:
    """Takes whole pages out of this process; the system still has them, and reads them again if they are asked for."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = end // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first and hasattr(mapped, "madvise") and not mapped.closed:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)
