"""The public names of a package, listed once: in its imports.

    from burn_torch.nn.linear import *              every name of the module's `__all__`
    from burn_torch.nn.padding import A as A        one name of a module that has others too

    list_exports(globals())                         `__all__`, for `import *` and for readers
    export_lazily(globals(), {"Linear": "linear"})  a name of a module that is imported when the name is first used

Type checkers take both forms of import for public names (PEP 484), so no list and no stub repeats them.
"""

from __future__ import annotations
import __future__

import importlib
from collections.abc import Mapping
from types import ModuleType

__all__ = ["export_lazily", "list_exports"]


def list_exports(scope: dict[str, object], *modules: str) -> None:
    """Sets a package's `__all__`: what it has imported so far, but modules and names that begin with an underscore.

    Constants come first, then classes, then functions.

    modules     those that the package exports all the same
    """
    names = [
        name
        for name, value in scope.items()
        if name in modules or not (name.startswith("_") or isinstance(value, ModuleType | __future__._Feature))
    ]
    scope["__all__"] = sorted(names, key=_in_order)


def export_lazily(scope: dict[str, object], homes: Mapping[str, str]) -> None:
    """Gives a package names whose modules, here relative to it, are imported when a name is first used.

    Set at run time: type checkers read the imports of these names under TYPE_CHECKING.  Call it after `list_exports`.
    """
    package, listed = scope["__name__"], scope["__all__"]
    if isinstance(listed, list):
        listed[:] = sorted({*listed, *homes}, key=_in_order)

    def resolve(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        scope[name] = value = getattr(importlib.import_module(f"{package}.{home}"), name)
        return value

    scope["__getattr__"] = resolve
    scope["__dir__"] = lambda: sorted({*scope, *homes})


def _in_order(name: str) -> tuple[int, str]:
    if len(name) > 1 and name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
