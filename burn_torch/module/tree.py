"""A module as a tree: what its fields are, how to walk them, how to rebuild it with other ones.

Fields that hold a Module, Param, RunningState or Tensor, alone or in a list, tuple or dict, are nodes; all other
fields are constants.  Order is that of declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from burn_torch.module.param import Param
from burn_torch.module.running_state import RunningState
from burn_torch.tensor import Tensor

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = ["LEAVES", "children", "container_name", "is_node", "rebuild", "walk"]

LEAVES = (Param, RunningState, Tensor)


def is_node(value: Any) -> bool:
    """Whether a field's value belongs to the tree (a container does if anything in it does)."""
    from burn_torch.module.module import Module  # the base class is defined with this file's help

    if isinstance(value, (Module, *LEAVES)):
        return True
    if isinstance(value, tuple | list):
        return any(map(is_node, value))
    return isinstance(value, dict) and any(map(is_node, value.values()))


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values one level below a module or a container; constants are left out."""
    from burn_torch.module.module import Module

    if isinstance(value, Module):
        items: Any = ((name, value.__dict__[name]) for name in value.__module_fields__)
    elif isinstance(value, dict):
        items = ((str(key), item) for key, item in value.items())
    else:
        items = ((str(i), item) for i, item in enumerate(value))
    return ((name, item) for name, item in items if is_node(item))


def container_name(value: Any) -> str:
    """How visitors are told of a container: "Struct:Linear", "List", "Tuple", "Dict"."""
    if isinstance(value, tuple | list | dict):
        return type(value).__name__.capitalize()
    return f"Struct:{type(value).__name__}"


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and leaves (Param, RunningState, Tensor) in order; a shared leaf comes once for each place."""
    for name, child in children(value):
        where = f"{path}.{name}" if path else name
        if isinstance(child, LEAVES):
            yield where, child
        else:
            yield from walk(child, where)


def rebuild(value: Any, change: Callable[[Any], Any], memo: dict[int, Any] | None = None) -> Any:
    """The same tree with `change(leaf)` for each leaf.

    What does not change is the same object, and what was shared stays shared: one object, one new object.
    """
    memo = {} if memo is None else memo
    found = memo.get(id(value))
    if found is not None:
        return found
    made = _rebuilt(value, change, memo)
    memo[id(value)] = made
    return made


def _rebuilt(value: Any, change: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    if isinstance(value, LEAVES):
        return change(value)
    if isinstance(value, tuple | list):
        items = [rebuild(item, change, memo) if is_node(item) else item for item in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        entries = {key: rebuild(item, change, memo) if is_node(item) else item for key, item in value.items()}
        return value if all(entries[key] is value[key] for key in value) else entries
    module: Module = value
    changed: dict[str, Any] = {}
    for name, child in children(module):
        new = rebuild(child, change, memo)
        if new is not child:
            changed[name] = new
    return module._with_fields(changed) if changed else module
