"""Shows where the time of a run goes, as seen by a thread that looks at another one's stack every few milliseconds.

    with Sampled() as sampled:
        tune()
    sampled.lines()             seconds by operation, by function with all that it called, by innermost line

It costs nothing that matters, and sees time within calls of CUDA and of compilers too, as of the line that made them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any

__all__ = ["Sampled"]

EVERY_S = 0.01
MOST_LINES = 40


class Sampled:
    """Watches the thread that opens it, until it is closed."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._ended = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.by_op: Counter[str] = Counter()
        self.by_function: Counter[tuple[str, str]] = Counter()
        self.by_line: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Sampled:
        self._watched = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(self._every_s):
            frame = sys._current_frames().get(self._watched)
            now = time.monotonic()
            if frame is not None:
                self._count(frame, now - before)
            before = now

    def _count(self, frame: FrameType, seconds: float) -> None:
        places, op, innermost = list[str](), "", f"{_name(frame)}:{frame.f_lineno}"
        at: FrameType | None = frame
        while at is not None:
            places.append(_name(at))
            if not op and at.f_code.co_name == "_measure" and "tunable" in at.f_locals:
                op = str(getattr(at.f_locals["tunable"], "name", ""))
            at = at.f_back
        op = op or "(waiting)"
        self.by_op[op] += seconds  # type: ignore[assignment]  # a Counter counts in any numbers
        self.by_line[op, innermost] += seconds  # type: ignore[assignment]  # a Counter counts in any numbers
        for place in set(places):
            self.by_function[op, place] += seconds  # type: ignore[assignment]  # a Counter counts in any numbers

    def lines(self) -> list[str]:
        """The report."""
        lines = [f"{seconds:8.2f} s {op}" for op, seconds in self.by_op.most_common()]
        for title, counted in (("with what it called", self.by_function), ("innermost", self.by_line)):
            lines += ["", f"{title}:"]
            lines += [f"{seconds:8.2f} s {op}: {place}" for (op, place), seconds in counted.most_common(MOST_LINES)]
        return lines


def _name(frame: FrameType) -> str:
    code: Any = frame.f_code
    return f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"
