"""Times and intervals as people write them: "90 s", "10 minutes", "1h30m", "1:30:00", "500 steps"."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["seconds_of", "steps_or_seconds"]

_UNITS: Final = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0,
                 "hour": 3600.0, "d": 86400.0, "day": 86400.0}  # fmt: skip
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)")
_CLOCK: Final = re.compile(r"(\d+):([0-5]?\d):([0-5]?\d)")
_STEPS: Final = re.compile(r"\s*(\d+)\s*(?:steps?)?\s*")


def seconds_of(text: str) -> float | None:
    """How many seconds a text says, above 0; None if it says no time.

    >>> seconds_of("90 s"), seconds_of("1h30m"), seconds_of("1:30:00"), seconds_of("2.5 minutes"), seconds_of("7")
    (90.0, 5400.0, 5400.0, 150.0, None)
    """
    clock = _CLOCK.fullmatch(text.strip())
    if clock is not None:
        hours, minutes, seconds = map(int, clock.groups())
        return float(hours * 3600 + minutes * 60 + seconds) or None
    lower, at, total = text.lower().rstrip(), 0, 0.0
    while at < len(lower):
        part = _PART.match(lower, at)
        unit = None if part is None else _UNITS.get(part[2], _UNITS.get(part[2].removesuffix("s")))
        if part is None or unit is None:
            return None
        total += float(part[1]) * unit
        at = part.end()
    return total or None


def steps_or_seconds(text: str) -> tuple[int | None, float | None] | None:
    """A number of steps, or of seconds, above 0; None if a text says neither.

    >>> steps_or_seconds("500 steps"), steps_or_seconds("10 minutes"), steps_or_seconds("often")
    ((500, None), (None, 600.0), None)
    """
    steps = _STEPS.fullmatch(text.lower())
    if steps is not None:
        return (int(steps[1]), None) if int(steps[1]) else None
    seconds = seconds_of(text)
    return None if seconds is None else (None, seconds)
