"""Defines what is wrong with a record file, in one form for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from burn_torch.core.errors import RecordError

__all__ = ["COPY_AGAIN", "Foreign", "Unsound", "cannot_load", "cannot_save", "shortened", "worded"]

COPY_AGAIN: Final = "use an earlier checkpoint, or copy the file again"
SHOWN: Final = 20


class Unsound(Exception):
    """A fault that a parser met; the format that called it words it with the file's name."""


class Foreign(Unsound):
    """A file that is sound, and nothing that is read here; `mend` says what to do with it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what)
        self.mend = mend


def worded(name: str, fault: Unsound, kind: str) -> RecordError:
    """The error for a fault that a parser met."""
    if isinstance(fault, Foreign):
        return cannot_load(name, str(fault), kind, fault.mend)
    return cannot_load(name, f"it is damaged: {fault}", kind)


def cannot_load(name: str, faults: str | Sequence[str], kind: str, mend: str = COPY_AGAIN) -> RecordError:
    """The error for a file that is not loaded: its name, everything that is wrong with it, and what to do."""
    listed = faults if isinstance(faults, str) else "\n            ".join(shortened(faults))
    return RecordError(
        "the record cannot be loaded", given=f"{name}: {listed}", expected=f"a sound {kind} file", mend=mend
    )


def cannot_save(what: str, *, expected: str, mend: str) -> RecordError:
    """The error for a record that a format cannot hold."""
    return RecordError("the record cannot be saved", given=what, expected=expected, mend=mend)


def shortened(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are."""
    left = len(lines) - SHOWN
    return [*lines[:SHOWN], f"and {left} more"] if left > 0 else list(lines)
