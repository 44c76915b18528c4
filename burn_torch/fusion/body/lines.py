"""The users' lines that generated kernels come from: comments at the end of their files.

A kernel is named for what it computes, and two programs that compute the same share its file, so the lines are those of
the program that was planned first.  They stand behind the kernel: no line of it moves, which Triton's cache would take
for another kernel, and nothing in the file but comments may differ.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

__all__ = ["commented", "is_kernel", "known_lines", "remember_lines"]

_MOST: Final = 4096
_SHOWN: Final = 24

_known: Final[OrderedDict[str, tuple[str, ...]]] = OrderedDict()
"""Lines by the text of a body, see `row.text_of`."""

_lock: Final = threading.Lock()


def remember_lines(text: str, lines: Sequence[str]) -> None:
    """Says where a body comes from; who said it first is right."""
    if lines:
        with _lock:
            _known.setdefault(text, tuple(lines))
            while len(_known) > _MOST:
                _known.popitem(last=False)


def known_lines(text: str) -> tuple[str, ...]:
    """Returns the lines that a body comes from; none if unknown, as for a graph from a file."""
    return _known.get(text, ())


def commented(source: str, lines: Sequence[str], mark: str = "#") -> str:
    """The source of a kernel with these lines behind it."""
    if not lines:
        return source
    shown = [*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]
    words = ["where it was planned first:", *(f"  {_printable(line)}" for line in shown)]
    return f"{source}\n" + "".join(f"{mark} {word}\n" for word in words)


def is_kernel(text: str, source: str) -> bool:
    """Asks whether the text of a file is this source, with comments behind it at most."""
    rest = text.removeprefix(source)
    return text.startswith(source) and all(not line or line.startswith("# ") for line in rest.splitlines())


def _printable(line: str) -> str:
    """On one line whatever it holds, and in UTF-8: bytes in names of files that are none are no characters either."""
    return "".join(c if c.isprintable() else " " for c in line)
