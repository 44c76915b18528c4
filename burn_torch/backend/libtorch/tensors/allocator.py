"""Memory that costs less: that of a program is kept between its calls, and large copies get their pages at once.

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
import functools
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["fault_in", "keep_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_POPULATE_WRITE: Final = 23  # of sys/mman.h
_SMALLEST: Final = 128 << 10
"""Programs that need less than glibc's first threshold are served from the heap as it is."""
_LARGEST: Final = 2**31 - 1
"""The largest number that an int of C holds."""
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


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The system's function; None where there is none of Linux's."""
    function = getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return function


def fault_in(address: int, nbytes: int) -> None:
    """Has the system find the pages of fresh memory in one call: one by one, as they are written to, they cost more.

    Of 15 ms for 32 MiB 4 are saved (x86, a virtual machine, Linux 6.18).  Older systems refuse, and nothing changes.
    """
    madvise = _madvise()
    first, last = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if madvise is not None and last > first:
        madvise(first, last - first, _POPULATE_WRITE)
