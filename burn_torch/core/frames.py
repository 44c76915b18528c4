"""Where in the user's code an error began."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Final

__all__ = ["PACKAGE_DIRECTORY", "user_line"]

PACKAGE_DIRECTORY: Final = str(Path(__file__).resolve().parents[1])


def user_line(skip: int = 1) -> str | None:
    """'file.py:12 in forward: <source>' of the nearest caller outside this package; None if there is none."""
    try:
        frame = sys._getframe(skip)
    except ValueError:
        return None
    while True:
        filename = frame.f_code.co_filename
        if not filename.startswith((PACKAGE_DIRECTORY, "<")):
            source = linecache.getline(filename, frame.f_lineno).strip()
            where = f"{filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            return f"{where}: {source}" if source else where
        if frame.f_back is None:
            return None
        frame = frame.f_back
