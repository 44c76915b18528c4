"""Defines what a run wrote as its last act, for views of a run whose last event was lost."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from burn_torch.core.exit_code import exit_code_of
from burn_torch.core.reading import read_bounded
from burn_torch.monitor.event import RunEnded

__all__ = ["end_of"]

_MOST_BYTES: Final = 16 << 20
"""A result.json that is longer is none of ours."""
_STATUS: Final = re.compile("[A-Za-z_]{1,40}")
_CODES: Final = {"failed": 1, "diverged": 4}


def end_of(directory: Path) -> RunEnded | None:
    """The end that result.json tells of; None where there is none, or it is damaged."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_bounded(directory / "result.json", _MOST_BYTES))
        status = content.get("status") if isinstance(content, dict) else None
        if isinstance(status, str) and _STATUS.fullmatch(status):
            return RunEnded(status, None, _CODES.get(status, exit_code_of(status)), None)
    return None
