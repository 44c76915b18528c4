"""Keep-masks of dropout, remembered as bits.

A mask is a pure function of (threshold, key, stream, start, count), and a training step wants each one twice: forward
and backward.  On the CPU drawing it costs 6 ns an element, unpacking it from one bit an element 0.15 ns
(benchmarks/notes/random.md); so the tape saves no mask, and nothing is drawn twice.
A mask is forgotten when it is wanted the second time; a third use, as in a second backward, draws it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.ops.sampling import Map, on_host

__all__ = ["ENTRY_BYTES", "MASKS", "PackedMasks"]

ENTRY_BYTES: Final = 600
"""The array, its name of five numbers and their place, beside the mask itself: 550 measured, Python 3.11."""


@final
class PackedMasks:
    """At most `limit_bytes` of masks and what holds them, the oldest dropped first.  Safe for many threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.held_bytes = 0
        self._masks: Final[OrderedDict[tuple[int, ...], NDArray[np.uint8]]] = OrderedDict()
        self._lock: Final = threading.Lock()

    def keep(self, limit: int, key: int, stream: int, count: int, start: int = 0) -> NDArray[np.uint8]:
        """1 for each of `count` words of the stream from `start` on that is below `limit`, else 0; the array is the
        caller's.
        """
        name = (limit, key, stream, count, start)
        with self._lock:
            packed = self._masks.pop(name, None)
            if packed is not None:
                self.held_bytes -= packed.nbytes + ENTRY_BYTES
        if packed is not None:
            return np.unpackbits(packed, count=count)
        below: Any = Map(1, lambda words, math: words < limit)
        keep = on_host(below, key, stream, start, count, np.dtype(np.bool_))
        self._remember(name, np.packbits(keep))
        return keep.view(np.uint8)

    def _remember(self, name: tuple[int, ...], packed: NDArray[np.uint8]) -> None:
        if packed.nbytes > self.limit_bytes:
            return
        with self._lock:
            if name not in self._masks:
                self._masks[name] = packed
                self.held_bytes += packed.nbytes + ENTRY_BYTES
            while self.held_bytes > self.limit_bytes:
                self.held_bytes -= self._masks.popitem(last=False)[1].nbytes + ENTRY_BYTES

    def clear(self) -> None:
        """Forgets all masks; they are drawn again when they are wanted."""
        with self._lock:
            self._masks.clear()
            self.held_bytes = 0


MASKS: Final = PackedMasks(16 << 20)
"""The masks of this process: 16 MiB are 134 million elements."""
