"""From an exception to what the user reads and the exit code that scripts read, which `core/exit_code.py` lists.

129 says that the terminal of a dashboard is gone, while its run goes on.
141 says that nobody reads the output any more, as the shell has it for SIGPIPE.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any, Final, TextIO

from burn_torch.core.errors import BurnTorchError, explain
from burn_torch.core.exit_code import EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_USAGE, exit_code
from burn_torch.core.frames import PACKAGE_DIRECTORY
from burn_torch.core.wording import VisibleText

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_HANGUP",
    "EXIT_INTERRUPTED",
    "EXIT_TERMINATED",
    "EXIT_USAGE",
    "exit_code",
    "report",
]

EXIT_HANGUP: Final = 129
EXIT_BROKEN_PIPE: Final = 141

_KERNELS: Final = str(Path(PACKAGE_DIRECTORY).parent / "kernels" / "burn_kernels")
_NOT_THE_USERS: Final = tuple(
    {PACKAGE_DIRECTORY, _KERNELS, "<"}
    | {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Says where code lies that the user has not written: ours, Python's, other packages'."""


def report(error: BaseException, *, debug: bool, stream: TextIO | None = None) -> int:
    """Writes what went wrong and gives the exit code.

    A mistake shows our message alone; an error in the user's code shows the user's frames; `debug` shows all.
    """
    out: Any = VisibleText(stream or sys.stderr)
    code = exit_code(error)
    if debug:
        traceback.print_exception(error, file=out)
    elif isinstance(error, KeyboardInterrupt):
        print("interrupted", file=out)
    elif isinstance(error, BurnTorchError) and (code != 1 or not _frames_of_users(error)):
        print(f"error: {error}", file=out)
        for note in getattr(error, "__notes__", ()):
            print(f"  {note}", file=out)
    else:
        _print_users_frames(error, out)
    return code


def _frames_of_users(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]


def _print_users_frames(error: BaseException, out: TextIO) -> None:
    users = _frames_of_users(error)
    message = "".join(traceback.format_exception_only(error))
    if users or isinstance(error, SyntaxError):  # a SyntaxError names file and line itself
        print("error in the code that was run (--debug shows every frame):", file=out)
        print("".join(traceback.format_list(users)) + message, end="", file=out)
        return
    text = explain(
        "an error that burn-torch does not explain itself",
        given=message.strip().replace("\n", "\n            "),
        expected="a run without an error, or one of the errors that it explains",
        mend="--debug shows where it began; if the fault is burn_torch's, please report it with that",
    )
    print(f"error: {text}", file=out)
