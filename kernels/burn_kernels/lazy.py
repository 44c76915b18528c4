"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["public_names"]


def public_names(
    package: str, exports: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], object]]:
    """A package's `__all__` and `__getattr__`.

    exports   public names by the module of the package that has them
    modules   modules of the package that are public themselves
    """
    homes = {name: home for home, names in exports.items() for name in names}
    names = sorted([*homes, *modules])

    def get(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        elif name in modules:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return names, get
