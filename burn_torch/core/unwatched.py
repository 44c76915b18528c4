"""A block in which nothing of the user's runs, so that the watcher of a trace may look away.

A profile function in Python costs some 0.3 us at each call and return; half of a trace runs in such blocks.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["unwatched"]


class unwatched:  # noqa: N801  # reads as what it does: with unwatched()
    """A block without the watcher of this thread's trace, if there is one; other profilers go on."""

    __slots__ = ("_watcher",)

    def __enter__(self) -> None:
        watcher: Any = sys.getprofile()
        self._watcher = watcher if watcher is not None and getattr(watcher, "watches_trace", False) else None
        if self._watcher is not None:
            sys.setprofile(None)

    def __exit__(self, *exc_info: object) -> None:
        if self._watcher is not None:
            sys.setprofile(self._watcher)
