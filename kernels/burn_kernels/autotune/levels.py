"""How much selection may do, and when it must keep still.

    off      the default config of each kernel, whatever was measured
    cached   what a lockfile, measured timings, the shipped table or the cost model say; never measures (the default)
    on       as cached; a key without timings is measured at its second use, within the budgets
    full     as on, but at the first use, and every candidate to the last round

The level is that of the process: autograd runs backwards on threads of its own, and they must choose alike.
`BURN_KERNELS_AUTOTUNE` names the first one, or a file does: see `settings`.  In deterministic mode (torch's, or
`deterministic(True)`) nothing is measured, and only a lockfile chooses anything but the default: bits must not depend
on timings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from burn_kernels.arguments import checked
from burn_kernels.autotune.settings import setting
from burn_kernels.errors import KernelArgumentError

__all__ = ["EPOCH", "LEVELS", "deterministic", "is_deterministic", "level", "set_level", "using"]

LEVELS = ("off", "cached", "on", "full")

EPOCH = [0]
"""Counts how often all decisions were forgotten, or another selector made them."""

_level: str | None = None
_forced: bool | None = None
_watchers: list[Callable[[], None]] = []


def level() -> str:
    """The level that holds now.

    Raises: KernelArgumentError if BURN_KERNELS_AUTOTUNE, or `burn.toml`, names none.
    """
    global _level
    if _level is None:
        name, source = setting("level")
        _level = _require_choice(name or "cached", source)
    return _level


@checked
def set_level(name: str) -> None:
    """Sets the level of the process.

    >>> set_level("off"); level()
    'off'
    >>> set_level("cached")
    """
    global _level
    _level = _require_choice(name, "")
    for watcher in _watchers:
        watcher()


@checked
@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Sets the level of the process for a block.

    >>> with using("off"):
    ...     level()
    'off'
    """
    before = level()
    set_level(name)
    try:
        yield
    finally:
        set_level(before)


def is_deterministic() -> bool:
    """Tells if bits may not depend on timings now."""
    return torch.are_deterministic_algorithms_enabled() if _forced is None else _forced


@checked
@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Turns deterministic choices on or off for a block, whatever torch.use_deterministic_algorithms says.

    >>> with deterministic(True):
    ...     is_deterministic()
    True
    """
    global _forced
    before, _forced = _forced, wanted
    try:
        yield
    finally:
        _forced = before


def watch(watcher: Callable[[], None]) -> None:
    """Calls `watcher` whenever the level is set."""
    _watchers.append(watcher)


def _require_choice(name: str, prefix: str) -> str:
    if name not in LEVELS:
        raise KernelArgumentError(
            "autotune: no such level",
            given=f"{prefix}{name!r}",
            expected=f"one of {', '.join(LEVELS)}",
            mend="cached, the default, never measures; off always takes the default config",
        )
    return name
