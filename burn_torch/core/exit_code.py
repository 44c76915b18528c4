"""Exit codes of a run, for scripts: of an error, and of a run that was stopped.

0  done                             4  the loss became NaN or infinite
1  an error in the user's code      5  a checkpoint or record that is damaged or of another model
2  usage or configuration         130  interrupted (Ctrl-C)
3  data                           143  terminated (SIGTERM)
"""

from __future__ import annotations

from typing import Final

from burn_torch.core.errors import ArtifactError, ConfigError, DataError, DeviceError, NonFiniteError, RecordError

__all__ = ["EXIT_INTERRUPTED", "EXIT_TERMINATED", "EXIT_USAGE", "exit_code", "exit_code_of"]

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
_OF_STATUS: Final = {"interrupted": EXIT_INTERRUPTED, "terminated": EXIT_TERMINATED}


def exit_code(error: BaseException) -> int:
    """The exit code of an error; 1 for those that are not ours."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1 if error.code else 0
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def exit_code_of(status: str) -> int:
    """The exit code of a run that ended with this status; see LearningResult."""
    return _OF_STATUS.get(status, 0)
