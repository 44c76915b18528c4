"""Faults of a configuration or an argument list, gathered place by place and told in one error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Final, NoReturn

from burn_torch.core.errors import BurnTorchError, ConfigError

__all__ = ["INVALID", "Fault", "Invalid", "Place", "listed", "mend_name", "nearest", "raise_faults", "shown"]


class Invalid:
    """The value of a place that has a fault; the one instance is `INVALID`."""

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = Invalid()


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, in the three parts of an error."""

    what: str
    given: str
    expected: str
    mend: str


class Place:
    """A dotted path into a configuration, with the list that collects the faults of all places.

    >>> root = Place()
    >>> root.at("optimizer").at("lr").path
    'optimizer.lr'
    """

    __slots__ = ("faults", "path")

    def __init__(self, path: str = "", faults: list[Fault] | None = None) -> None:
        self.path = path
        self.faults: list[Fault] = [] if faults is None else faults

    def at(self, key: str | int) -> Place:
        """The place of a field, key or position below this one."""
        return Place(f"{self.path}.{key}" if self.path else str(key), self.faults)

    def fault(self, what: str, *, given: str, expected: str, mend: str) -> Invalid:
        """Notes a fault of this place and returns the mark that stands for its value."""
        self.faults.append(Fault(what, f"{self.path} {given}" if self.path else given, expected, mend))
        return INVALID

    def wrong_type(self, value: object, expected: str) -> Invalid:
        """Notes that the value of this place is not of the type expected here."""
        name = self.path or "the configuration"
        return self.fault("wrong type", given=shown(value), expected=expected, mend=f"give {name} a value of that type")

    def refused(self, error: BurnTorchError) -> Invalid:
        """Notes an error that has its three parts: what a config class had against its values, say."""
        what, _, rest = str(error).partition("\n")
        parts = re.fullmatch(r"  given:    (.*)\n  expected: (.*)\n  mend:     (.*)", rest, re.DOTALL)
        if parts is None:
            return self.fault(what, given="as it stands", expected="values that the class accepts", mend="change them")
        shown, expected, mend = parts.groups()
        self.faults.append(Fault(what, f"in {self.path}: {shown}" if self.path else shown, expected, mend))
        return INVALID

    def raise_noted(self, subject: str, *, error: type[BurnTorchError] = ConfigError) -> None:
        """Raises one error that tells the faults of all places, if there are any."""
        if self.faults:
            raise_faults(subject, self.faults, error=error)


def raise_faults(subject: str, faults: Sequence[Fault], *, error: type[BurnTorchError] = ConfigError) -> NoReturn:
    """Raises one error that tells all faults, numbered when there are several."""
    if len(faults) == 1:
        (fault,) = faults
        what = fault.what if fault.what.startswith(f"{subject}: ") else f"{subject}: {fault.what}"
        raise error(what, given=fault.given, expected=fault.expected, mend=fault.mend)
    raise error(
        f"{subject}: {len(faults)} faults",
        given=_number_lines(f"{fault.given}: {fault.what}" for fault in faults),
        expected=_number_lines(fault.expected for fault in faults),
        mend=_number_lines(fault.mend for fault in faults),
    )


def nearest(name: str, options: Iterable[str]) -> str | None:
    """The option that looks most like `name`, whatever the case; None when none is near.

    >>> nearest("optimiser", ["model", "optimizer"])
    'optimizer'
    """
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def mend_name(name: str, options: Sequence[str], *, otherwise: str) -> str:
    """The advice for an unknown name: the nearest known one, else `otherwise`."""
    near = nearest(name, options)
    return f"did you mean {near!r}?" if near is not None else otherwise


def shown(value: object) -> str:
    """A value and its type, short enough for a message."""
    if value is None:
        return "= null"
    return f"= {_short.repr(value)} ({type(value).__name__})"


def listed(names: Iterable[str]) -> str:
    """Names for a message, or the word for their absence."""
    return ", ".join(names) or "none"


def _number_lines(lines: Iterable[str]) -> str:
    return "\n            ".join(f"[{number}] {line}" for number, line in enumerate(lines, start=1))


_short = Repr()
_short.maxstring = _short.maxother = 80
_short.maxlevel = 3
