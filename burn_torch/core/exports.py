"""The public names of a package, listed once: in its imports.

    from burn_torch.nn.linear import *              every name of the module's `__all__`
    from burn_torch.nn.padding import A as A        one name of a module that has others too

    list_exports(globals())                         `__all__`, for `import *` and for readers

Type checkers take both forms of import for public names (PEP 484), so no list and no stub repeats them.
"""

from __future__ import annotations
import __future__

from types import ModuleType

__all__ = ["list_exports"]


def list_exports(scope: dict[str, object]) -> None:
    """Sets a package's `__all__`: what it has imported so far, but modules and names that begin with an underscore.

    Constants come first, then classes, then functions.
    """
    names = [
        name
        for name, value in scope.items()
        if not name.startswith("_") and not isinstance(value, ModuleType | __future__._Feature)
    ]
    scope["__all__"] = sorted(names, key=_in_order)


def _in_order(name: str) -> tuple[int, str]:
    if len(name) > 1 and name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
