"""A list and a dict that cannot change, so that a configuration that holds them is a value: equal and hashable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from burn_torch.config._kinds import FieldValue
from burn_torch.core.errors import ConfigError

T = TypeVar("T")
K = TypeVar("K")


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise ConfigError(
        "a configuration is a value and does not change",
        given=f"a change of {self!r} in place",
        expected="a new configuration",
        mend="replace(config, field=[*config.field, item]) or config.with_field(...)",
    )


class FrozenList(list[T]):
    """A list that cannot change; equal to a list with the same items."""

    __slots__ = ()

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # list says None, because a list can change
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[K, T]):
    """A dict that cannot change; equal to a dict with the same items."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict says None, because a dict can change
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenDict, (dict(self),)


def freeze(value: object) -> FieldValue:
    """A list or dict as its frozen twin, all the way down; anything else as it is."""
    if isinstance(value, list):
        return FrozenList(freeze(item) for item in value)
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    return value
