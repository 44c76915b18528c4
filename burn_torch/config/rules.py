"""Rules: what the numbers of a configuration must be, said for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from burn_torch.config.base import Config
from burn_torch.core.faults import Place

__all__ = ["Rules"]

_LARGEST = 1 << 62


class Rules:
    """Collects what is wrong with the fields of a configuration; `stop` raises ConfigError for all of it at once.

    A dotted name is a field of a field: "optimizer.lr".
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._place = Place()

    def at_least(self, least: int, *names: str) -> Rules:
        """Each of these numbers, or all members of a tuple of them, are `least` or more."""
        for name in names:
            value = self._value(name)
            members = value if isinstance(value, tuple) else (value,)
            if any(member < least for member in members):
                self.fault(name, "too small", f"{least} or more", f"give {name} of {least} or more")
            elif any(member >= _LARGEST for member in members):
                self.fault(name, "too large", "a number below 2^62", f"check how {name} was computed")
        return self

    def within(self, least: int, most: int, *names: str) -> Rules:
        """Each of these numbers is from `least` to `most`."""
        mend = "give {} such a number"
        return self._each(names, lambda value: least <= value <= most, "out of range", f"{least} to {most}", mend)

    def at_most(self, most: float, *names: str) -> Rules:
        """Each of these is `most` or less."""
        mend = f"give {{}} of {most} or less"
        return self._each(names, lambda value: value <= most, "too large", f"{most} or less", mend)

    def fraction(self, *names: str) -> Rules:
        """Each of these is a number from 0 to 1, or None."""
        expected = "a number from 0 to 1"
        return self._each(
            names, lambda value: value is None or 0 <= value <= 1, "no fraction", expected, "0.5 is one half"
        )

    def below_one(self, *names: str) -> Rules:
        """Each of these is a number from 0 to below 1."""
        expected = "a number of 0 or more, below 1"
        return self._each(names, lambda value: 0 <= value < 1, "out of range", expected, "give {} below 1")

    def between_zero_and_one(self, *names: str) -> Rules:
        """Each of these is a number above 0 and below 1."""
        expected = "a number above 0 and below 1"
        return self._each(names, lambda value: 0 < value < 1, "out of range", expected, "0.2 is one fifth")

    def positive(self, *names: str) -> Rules:
        """Each of these is a number above 0, or None."""
        expected = "a number above 0"
        return self._each(names, lambda value: value is None or value > 0, "not above 0", expected, "give {} above 0")

    def _each(self, names: Iterable[str], fits: Callable[[Any], bool], what: str, expected: str, mend: str) -> Rules:
        for name in names:
            if not fits(self._value(name)):
                self.fault(name, what, expected, mend.format(name))
        return self

    def divides(self, divisor: str, name: str) -> Rules:
        """The field `divisor` divides the field `name`, every member of it if it is a tuple."""
        by, value = self._value(divisor), self._value(name)
        members = value if isinstance(value, tuple) else (value,)
        if by > 0 and any(member % by for member in members):
            self.fault(
                divisor,
                f"does not divide {name} {list(value) if isinstance(value, tuple) else value}",
                f"a divisor of {name}",
                f"change {divisor} or {name}",
            )
        return self

    def fault(self, name: str, what: str, expected: str, mend: str) -> None:
        """Notes that a field is wrong."""
        self._place.at(name).fault(what, given=f"= {self._value(name)}", expected=expected, mend=mend)

    def _value(self, name: str) -> Any:
        return attrgetter(name)(self._config)

    def stop(self) -> None:
        """Raises: ConfigError if anything was noted."""
        self._place.raise_noted(type(self._config).__name__)
