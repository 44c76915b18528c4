"""The terminal: whether a dashboard can be shown on it, and its state afterwards."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from burn_torch.monitor.dashboard.chart import ASCII, BLOCKS, BRAILLE, Glyphs

__all__ = ["glyphs", "obstacle", "restored"]

termios: ModuleType | None
try:
    import termios
except ImportError:  # Windows
    termios = None

_LEAVE: Final = "".join(
    [
        "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l",  # no reports of the mouse
        "\x1b[?2004l\x1b[?1004l\x1b[?2048l",  # nor of pasting, focus, size
        "\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h",  # lines wrap, plain letters, the normal screen, the cursor
    ]
)


def obstacle() -> str | None:
    """Why no dashboard can be shown here, in words for the user; None if one can."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return "input and output are not both a terminal"
    if os.environ.get("TERM", "dumb") == "dumb":
        return "the terminal cannot move its cursor (TERM is dumb or not set)"
    if _in_background():
        return "it runs in the background of its terminal"
    if importlib.util.find_spec("textual") is None:
        return "textual is not installed: pip install 'burn-torch[tui]'"
    return None


def _in_background() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except (OSError, ValueError, AttributeError):  # Windows knows no such thing
        return False


def glyphs() -> Glyphs:
    """Returns what the terminal's letters can draw: braille, blocks on the Linux console, ASCII where they are not
    Unicode.
    """
    encoding = (getattr(sys.__stdout__, "encoding", None) or "ascii").lower().replace("-", "")
    if encoding != "utf8":
        return ASCII
    return BLOCKS if os.environ.get("TERM") == "linux" else BRAILLE


@contextmanager
def restored() -> Iterator[None]:
    """However the block ends, the terminal is again as it was: its modes, its screen, its cursor.

    Only a SIGKILL cannot be helped; `reset` mends the terminal then.
    """
    stream = sys.__stderr__  # where textual draws
    attributes = _attributes()
    try:
        yield
    finally:
        try:
            if stream is not None and stream.isatty():
                stream.write(_LEAVE)
                stream.flush()
            elif attributes is not None:
                _write_nowhere()
        except (OSError, ValueError):
            _write_nowhere()
        if attributes is not None and termios is not None:
            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.__stdin__, termios.TCSANOW, attributes)


def _write_nowhere() -> None:
    """The terminal is gone: what is still buffered must not make the end of the process an error."""
    with Path(os.devnull).open("wb") as nothing, suppress(OSError):
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)


def _attributes() -> list[object] | None:
    if termios is None or sys.__stdin__ is None:
        return None
    try:
        attributes: list[Any] = termios.tcgetattr(sys.__stdin__)
    except (OSError, ValueError, termios.error):  # no terminal
        return None
    return attributes
