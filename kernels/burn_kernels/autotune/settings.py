"""Settings of selection that a project keeps in a file: `burn.toml`, in the folder of the process or one above it.

    [autotune]
    level = "on"               # BURN_KERNELS_AUTOTUNE
    lock = "kernels.lock"      # BURN_KERNELS_LOCK; relative to the file
    lock_mode = "append"       # BURN_KERNELS_LOCK_MODE

A variable of the environment stands above the file.  Other tables are other programs'.  The file names no folder of
compiled kernels: a folder that a process happens to start in decides what is measured, never what code is run.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

from burn_kernels.errors import KernelArgumentError

__all__ = ["FILE", "setting"]

FILE: Final = "burn.toml"
_VARIABLES: Final = {
    "level": "BURN_KERNELS_AUTOTUNE",
    "lock": "BURN_KERNELS_LOCK",
    "lock_mode": "BURN_KERNELS_LOCK_MODE",
}
_MOST_BYTES: Final = 1 << 16


def setting(name: str) -> tuple[str | None, str]:
    """The value of a setting, None where it has none, and its source: "BURN_KERNELS_LOCK=", "burn.toml: lock = ".

    Raises: KernelArgumentError for a file that is no TOML, or has a table [autotune] with other keys or values.
    """
    variable = _VARIABLES[name]
    value = os.environ.get(variable)
    if value:
        return value, f"{variable}="
    path = _find_file()
    value = None if path is None else _read_table(path).get(name)
    if value is not None and name == "lock":
        assert path is not None
        value = str(path.parent / value)
    return value, f"{FILE}: {name} = "


def _find_file() -> Path | None:
    """The nearest file, from the folder of the process upwards."""
    try:
        folder = Path.cwd()
    except OSError:  # it was removed
        return None
    return next((path for place in (folder, *folder.parents) if (path := place / FILE).is_file()), None)


def _read_table(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise _fault(path, f"more than {_MOST_BYTES} bytes")
        table = tomllib.loads(text.decode()).get("autotune", {})
    except (OSError, ValueError, RecursionError) as err:  # a TOMLDecodeError and a UnicodeDecodeError are ValueErrors
        if isinstance(err, KernelArgumentError):
            raise
        raise _fault(path, str(err)) from None
    if not isinstance(table, dict):
        raise _fault(path, f"autotune = {table!r:.60}")
    wrong = {key: value for key, value in table.items() if key not in _VARIABLES or value.__class__ is not str}
    if wrong:
        raise _fault(path, "[autotune] " + ", ".join(f"{key} = {value!r:.60}" for key, value in wrong.items()))
    return table


def _fault(path: Path, given: str) -> KernelArgumentError:
    return KernelArgumentError(
        f"autotune: {path} has no settings of selection",
        given=given,
        expected=f"TOML with a table [autotune] of texts: {', '.join(_VARIABLES)}",
        mend=f"correct the file, or rename it; {', '.join(_VARIABLES.values())} stand above it",
    )
