"""The user's code and ours: the line at which an error began, and blocks in which nothing of the user's runs."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from burn_torch.core.errors import BurnTorchError, explain

__all__ = [
    "PACKAGE_DIRECTORY",
    "at_user_line",
    "called_name",
    "is_users",
    "mark_generated",
    "told",
    "unwatched",
    "user_frame",
    "user_level",
    "user_line",
    "warn_user",
]

E = TypeVar("E", bound=BurnTorchError)

PACKAGE_DIRECTORY: Final = str(Path(__file__).resolve().parents[1])
_ours: tuple[str, ...] = (PACKAGE_DIRECTORY + os.sep, "<")
_PROGRAMS: Final = tuple(
    os.path.join(PACKAGE_DIRECTORY, "cli", name)  # noqa: PTH118  # compared with what frames say, as text
    for name in ("recipes" + os.sep, "recipe_model.py", "image_classification.py", "tabular.py")
)
"""Models and steps of the recipes: programs over this package, whose lines say where a number came from."""


def is_users(filename: str) -> bool:
    """Tells if code lies outside this package, or in a recipe; generated code ("<string>", a program's file) does
    not.
    """
    return not filename.startswith(_ours) or filename.startswith(_PROGRAMS)


def mark_generated(folder: str) -> None:
    """Says that a folder holds generated code: no line of it is the user's."""
    global _ours
    if not folder.startswith(_ours):
        _ours = (*_ours, folder + os.sep)


def user_frame(frame: FrameType) -> tuple[FrameType, int]:
    """The nearest frame of the user's from this one outwards, else the outermost; and how far it is, 1 for this one."""
    level = 1
    while not is_users(frame.f_code.co_filename) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return frame, level


def user_line(skip: int = 1) -> str | None:
    """'file.py:12 in forward: <source>' of the nearest caller outside this package; None if there is none."""
    try:
        frame, _ = user_frame(sys._getframe(skip))
    except ValueError:
        return None
    filename = frame.f_code.co_filename
    if not is_users(filename):
        return None
    source = linecache.getline(filename, frame.f_lineno).strip()
    where = f"{filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    return f"{where}: {source}" if source else where


def user_level() -> int:
    """The `stacklevel` with which a function of this package warns at the nearest caller outside it."""
    return user_frame(sys._getframe(1))[1]


def warn_user(kind: type[Warning], what: str, *, given: str, expected: str, mend: str) -> None:
    """Warns at the nearest caller outside of this package, in the three parts of an error."""
    text = explain(what, given=given, expected=expected, mend=mend)
    warnings.warn(text, kind, stacklevel=user_level())


def called_name(skip: int = 1) -> str:
    """The name of the function of this package that the user called, in whose words an error is told."""
    frame = sys._getframe(skip)
    while frame.f_back is not None and not is_users(frame.f_back.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_name


def told(error: type[BurnTorchError], what: str, *, given: str, expected: str, mend: str) -> BurnTorchError:
    """The error of a method or function: named for what the user called, with a note of the user's line."""
    return at_user_line(error(explain(f"{called_name(2)}: {what}", given=given, expected=expected, mend=mend)))


def at_user_line(error: E) -> E:
    """The error with a note of the user's line, where there is one."""
    where = user_line()
    if where is not None:
        error.add_note(f"at {where}")
    return error


class unwatched:  # noqa: N801  # reads as what it does: with unwatched()
    """A block without the watcher of this thread's trace, if there is one; other profilers go on.

    A profile function in Python costs some 0.3 us at each call and return; half of a trace runs in such blocks, in
    which nothing of the user's runs.
    """

    __slots__ = ("_watcher",)

    def __enter__(self) -> None:
        watcher: Any = sys.getprofile()
        self._watcher = watcher if watcher is not None and getattr(watcher, "watches_trace", False) else None
        if self._watcher is not None:
            sys.setprofile(None)

    def __exit__(self, *exc_info: object) -> None:
        if self._watcher is not None:
            sys.setprofile(self._watcher)
