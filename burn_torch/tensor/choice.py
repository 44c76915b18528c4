"""Choices by name: every one is accepted as its enum or as its name."""

from __future__ import annotations

from enum import Enum
from typing import Self

from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told

__all__ = ["Choice"]


class Choice(Enum):
    """An enum whose members are written as texts too."""

    @classmethod
    def of(cls, value: object) -> Self:
        """The member itself, or the one of this name.  Raises: ArgumentError with the names there are."""
        if isinstance(value, cls):
            return value
        for member in cls:
            if isinstance(value, str) and value in (member.value, member.name):
                return member
        names = ", ".join(repr(member.value) for member in cls)
        raise told(
            ArgumentError,
            f"there is no such {cls.__name__}",
            given=repr(value),
            expected=names,
            mend=f"write {cls.__name__}.{next(iter(cls)).name}, or its name as a text",
        )
