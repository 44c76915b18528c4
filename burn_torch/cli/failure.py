"""From an exception to what the user reads and the exit code that scripts read.

0  done                             4  the loss became NaN or infinite
1  an error in the user's code      5  a checkpoint or record of another model
2  usage or configuration         130  interrupted (Ctrl-C)
3  data                           143  terminated (SIGTERM)
"""

from __future__ import annotations

import sys
import traceback
from typing import Final, TextIO

from burn_torch.core.errors import (
    ArtifactError,
    BurnTorchError,
    ConfigError,
    DataError,
    DeviceError,
    NonFiniteError,
    RecordError,
)
from burn_torch.core.frames import PACKAGE_DIRECTORY

__all__ = ["EXIT_INTERRUPTED", "EXIT_TERMINATED", "EXIT_USAGE", "exit_code", "report"]

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143

_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (ConfigError, EXIT_USAGE),
    (DeviceError, EXIT_USAGE),
    (ArtifactError, EXIT_USAGE),
    (DataError, 3),
    (NonFiniteError, 4),
    (RecordError, 5),
    (KeyboardInterrupt, EXIT_INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    """The exit code of an error; 1 for those that are not ours."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def report(error: BaseException, *, debug: bool, stream: TextIO | None = None) -> int:
    """Writes what went wrong and gives the exit code.

    A mistake shows our message alone; an error in the user's code shows the user's frames; `debug` shows all.
    """
    out = stream or sys.stderr
    code = exit_code(error)
    if debug:
        traceback.print_exception(error, file=out)
    elif isinstance(error, KeyboardInterrupt):
        print("interrupted", file=out)
    elif isinstance(error, BurnTorchError) and code != 1:
        print(f"error: {error}", file=out)
        for note in getattr(error, "__notes__", ()):
            print(f"  {note}", file=out)
    else:
        _print_users_frames(error, out)
    return code


def _print_users_frames(error: BaseException, out: TextIO) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith((PACKAGE_DIRECTORY, "<"))]
    users = [frame for frame in users if "/lib/python" not in frame.filename] or frames[-1:]
    print("error in the code that was run (--debug shows every frame):", file=out)
    for line in traceback.format_list(users):
        print(line, end="", file=out)
    print("".join(traceback.format_exception_only(error)), end="", file=out)
