"""Defines what came of loading: each key of the module and of the file, and what became of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final, final

from burn_torch.record.faults import shortened

__all__ = ["ApplyError", "ApplyResult"]

_MANY: Final = 5_000
"""Keys beyond which no similar names are looked for: that takes the product of both counts."""


@final
@dataclass(frozen=True)
class ApplyError:
    """One value that cannot be loaded.  kind: "shape", "dtype" or "load"."""

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


@final
@dataclass(frozen=True)
class ApplyResult:
    """Keys of the module that were loaded, left, missing or wrong, and keys of the file that nobody wanted."""

    applied: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Left as they were by the filter."""
    missing: tuple[tuple[str, str], ...] = ()
    """Paths of the module with the modules above them."""
    unused: tuple[str, ...] = ()
    """Keys of the file, in the names that they got."""
    errors: tuple[ApplyError, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    """Keys of the file that are one value."""

    def is_success(self) -> bool:
        """Returns whether all that was found could be loaded."""
        return not self.errors

    def closest(self, path: str) -> str | None:
        """The unused key that looks most like a missing path."""
        if len(self.unused) > _MANY:
            return None
        close = difflib.get_close_matches(path, self.unused, 1)
        return close[0] if close else None

    def lines(self, partial: bool = False) -> list[str]:
        """Every fault in words: those of values, then missing keys, with the closest names."""
        faults = [str(error) for error in self.errors]
        for path, _ in () if partial else self.missing:
            near = self.closest(path)
            faults.append(f"missing {path}" + (f" (is it {near}?)" if near else ""))
        return faults

    def __str__(self) -> str:
        counts = (
            f"{len(self.applied)} applied, {len(self.skipped)} skipped, {len(self.missing)} missing,"
            f" {len(self.unused)} unused, {len(self.errors)} wrong"
        )
        lines = shortened(self.lines()) + shortened([f"unused {key}" for key in self.unused])
        lines += [f"tied {' = '.join(keys)}" for keys in self.tied]
        return "\n  ".join([counts, *lines])
