"""Packages that are optional: each comes with an extra of ours, and is imported where it is used."""

from __future__ import annotations

import importlib
from typing import Any

from burn_torch.core.errors import BurnTorchError, explain

__all__ = ["load_extra"]


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
            explain(
                f"{purpose} needs the package {module.partition('.')[0]}",
                given=str(err),
                expected=f"a Python with the extra {extra}",
                mend=f"pip install 'burn-torch[{extra}]'" + (f", or {instead}" if instead else ""),
            )
        ) from err
