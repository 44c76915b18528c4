"""Keeping the memory of a program between its calls.

torch takes CPU memory from the C library, and glibc gives large blocks back to the kernel when they are freed: each
step of a program then pays for its pages again.  At batch 64 a step of the MNIST network took 2,700 page faults, 18.8
ms instead of 13.4; at batch 512 as many as 18,400, 27 to 39 ms of system time (x86, one thread, glibc 2.36).

Two thresholds decide: blocks below the one come from the heap, and the heap's end is given back beyond the other.  So
glibc is told to keep as much as the program needs, which is what an arena of its own would hold; unlike one it serves
convolutions too, which torch cannot have write into given memory, and nothing in it can outlive its use.  Writing into
an arena with `out=` besides was measured at 1 to 8 % of chains of additions, and at nothing in whole steps.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Final

__all__ = ["keep_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_SMALLEST: Final = 128 << 10
"""Programs that need less than glibc's first threshold are served from the heap as it is."""
_LARGEST: Final = 2**31 - 1
"""What an int of C holds."""
_USERS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
"""Variables by which a user has decided for himself."""

_lock: Final = threading.Lock()
_kept = 0


def _is_glibc() -> bool:
    try:  # not platform.libc_ver, which reads through the whole interpreter
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # absent on Windows; an unknown name elsewhere
        return False


def keep_memory(peak_bytes: int) -> int:
    """Has glibc keep twice `peak_bytes` for this process, if it keeps less so far; returns how much is kept.

    Twice, since kernels have work space that no plan knows.  0 under another C library, or where the environment
    already says what to keep.
    """
    global _kept
    if peak_bytes < _SMALLEST or any(name in os.environ for name in _USERS) or not _is_glibc():
        return _kept
    wanted = min(2 * peak_bytes, _LARGEST)
    with _lock:
        if wanted > _kept:
            mallopt = ctypes.CDLL(None).mallopt
            if mallopt(_MMAP_THRESHOLD, wanted) != 1:  # older ones take 32 MiB at most
                mallopt(_MMAP_THRESHOLD, min(wanted, 32 << 20))
            mallopt(_TRIM_THRESHOLD, wanted)
            _kept = wanted
    return _kept
