"""Containers in the fields of a tree: they do not change, as the tree does not."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from burn_torch.core.errors import ArgumentError

__all__ = ["FieldDict", "settled"]

K = TypeVar("K")
V = TypeVar("V")


def _refuse(self: FieldDict[object, object], *args: object, **kwargs: object) -> NoReturn:
    """Refuses the change; ArgumentError."""
    raise ArgumentError(
        "a module cannot be changed, nor a dict in one of its fields",
        given=f"a change in place of the dict with the keys {', '.join(map(repr, list(self)[:6]))}",
        expected="modules and optimizers are values: a compiled step reads their constants once",
        mend="dataclasses.replace(module, field={**module.field, key: value}) makes one with another dict",
    )


class FieldDict(dict[K, V]):
    """A dict that does not change; `copy()` and `|` give plain ones."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return FieldDict, (dict(self),)


def settled(value: Any) -> Any:
    """A list as a tuple and a dict as a FieldDict, all the way down; anything else as it is."""
    kind = type(value)
    if kind is list:
        return tuple(map(settled, value))
    if kind is dict:
        return FieldDict({key: settled(item) for key, item in value.items()})
    if kind is tuple:
        items = tuple(map(settled, value))
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value
