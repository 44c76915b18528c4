"""Imports by need: objects by name, and optional packages, each with an extra of ours."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from burn_torch.core.errors import BurnTorchError

__all__ = ["load_extra", "named"]


@functools.cache
def named(path: str) -> Any:
    """The object of a name in a module, "module:name", which is imported.

    A lower floor's table says who serves it, and imports that when it first needs it.
    """
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def load_extra(
    module: str, extra: str, purpose: str, *, error: type[BurnTorchError], instead: str = ""
) -> Any:  # the package's own types are not here where the package is not
    """Imports a module of an optional package; `instead` says what else the user can do.

    Raises: `error`, with the extra that installs the package.
    """
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise error(
            f"{purpose} needs the package {module.partition('.')[0]}",
            given=str(err),
            expected=f"a Python with the extra {extra}",
            mend=f"pip install 'burn-torch[{extra}]'" + (f", or {instead}" if instead else ""),
        ) from err
