"""Objects by name, "module:name": a lower floor's table says who serves it, and imports that when it first needs it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

__all__ = ["named"]


@functools.cache
def named(path: str) -> Any:
    """The object of a name in a module, which is imported."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
