"""Guards: what a trace read outside of its arguments, looked at again before each call of its program.

A program is right for as long as these places hold what they held.  If one holds something else, the function is traced
again; a program whose places hold again what they held is taken up again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import contains, getitem, is_
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.transform.constant import constant_key
from burn_torch.transform.names import contents_of
from burn_torch.transform.retrace import Difference
from burn_torch.transform.structure import Argument

__all__ = [
    "ABSENT",
    "Attribute",
    "Bytes",
    "Cell",
    "Contents",
    "Entry",
    "Fields",
    "Guard",
    "Long",
    "Place",
    "Probe",
    "Used",
    "elements_of",
    "is_same",
]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()
"""In the place of a value that is not there."""


class Place(ABC):
    """Somewhere outside of a function where it read something.

    name    as the user calls it: "settings['beta']"
    before  what it held
    """

    __slots__ = ("before", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: Any = self.read()

    @abstractmethod
    def read(self) -> object:
        """Returns what it holds."""

    def now(self) -> object:
        """Returns what it holds; `before` itself if that is the same."""
        value, before = self.read(), self.before
        return before if value is before or is_same(value, before) else value

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return (self.before,)

    def renew(self) -> None:
        """Takes what it holds now for what it held."""
        self.before = self.read()


@final
class Entry(Place):
    """A name in the dict of a module, an object or a class."""

    __slots__ = ("holder", "key")

    def __init__(self, name: str, holder: Any, key: str) -> None:
        self.holder, self.key = holder, key
        super().__init__(name)

    def read(self) -> object:
        """The value of that name, or ABSENT."""
        return self.holder.get(self.key, ABSENT)


@final
class Attribute(Place):
    """An attribute that stands in no dict: a slot, or one of a thread-local object."""

    __slots__ = ("_key", "_owner")

    def __init__(self, name: str, owner: object, key: str) -> None:
        self._owner, self._key = owner, key
        super().__init__(name)

    def read(self) -> object:
        """Its value, or ABSENT."""
        return getattr(self._owner, self._key, ABSENT)

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return (self._owner, self.before)


class _Within(Place):
    """A place that is an object of one kind."""

    __slots__ = ("_value",)

    def __init__(self, name: str, value: Argument) -> None:
        self._value = value
        super().__init__(name)


@final
class Cell(_Within):
    """A variable of an enclosing function."""

    __slots__ = ()

    def read(self) -> object:
        """Its value, or ABSENT."""
        return contents_of(self._value, ABSENT)


@final
class Contents(_Within):
    """The items of a list, tuple, set, dict or deque, each compared as the place of it would be."""

    __slots__ = ()

    def read(self) -> object:
        """(number of items, items, keys)."""
        container = self._value
        if isinstance(container, dict):
            return len(container), tuple(container.values()), tuple(container)
        return len(container), tuple(container), ()

    def now(self) -> object:
        """Its items."""
        container, before = self._value, self.before
        if len(container) == before[0]:
            values = container.values() if isinstance(container, dict) else container
            same_keys = not isinstance(container, dict) or all(map(is_, container, before[2]))
            if same_keys and all(map(is_, values, before[1])):
                return before
        return super().now()

    def added(self) -> Sequence[object] | None:
        """The values that came to a dict, if it has all it had; None for what changed otherwise."""
        container = self._value
        if not isinstance(container, dict):
            return None
        kept = dict(zip(self.before[2], self.before[1], strict=True))
        if not all(is_same(container.get(key, ABSENT), value) for key, value in kept.items()):
            return None
        return [value for key, value in container.items() if key not in kept]

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return (self._value, *self.before[1], *self.before[2])


@final
class Fields(_Within):
    """Says which attributes an object has, for code that asks for one that may not be there."""

    __slots__ = ()

    def read(self) -> object:
        """Their names."""
        return frozenset(self._value)

    def now(self) -> object:
        """Their names."""
        return self.before if self._value.keys() == self.before else self.read()

    def added(self) -> Sequence[object] | None:
        """The values of attributes that came, if none went."""
        fields = self._value
        return [fields[name] for name in fields if name not in self.before] if self.before <= fields.keys() else None

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return ()


@final
class Bytes(_Within):
    """The elements of an array or of a tensor of torch."""

    __slots__ = ()

    def read(self) -> object:
        """Its bytes, shape and type."""
        return elements_of(self._value)

    def now(self) -> object:
        """Its bytes, shape and type."""
        value = self.read()
        return self.before if value == self.before else value

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return (self._value,)


@final
class Probe(Place):
    """Something that a function of its own reads: a variable of the environment, the state of a generator."""

    __slots__ = ("_of", "_read")

    def __init__(self, name: str, read: Callable[[], object], *of: object) -> None:
        self._read, self._of = read, of
        super().__init__(name)

    def read(self) -> object:
        """Returns what the function gives."""
        return self._read()

    def held(self) -> Iterable[object]:
        """The objects that this place itself keeps."""
        return self._of


class _Refused(Place):
    """Something that no guard can watch."""

    __slots__ = ()

    def __init__(self, name: str, value: Argument) -> None:
        self.name, self.before = name, value

    def read(self) -> object:
        """Itself."""
        return self.before


@final
class Long(_Refused):
    """A list or dict that is too long to be compared at each call."""


@final
class Used(_Refused):
    """An iterator: each reading moves it on."""


@final
class Guard:
    """Says whether all places of a trace hold what they held; some 30 ns each."""

    __slots__ = (
        "_absent", "_absent_holders", "_absent_keys", "_entries", "_holders", "_keys", "_others", "_values",
    )  # fmt: skip

    def __init__(self, places: Iterable[Place]) -> None:
        places = list(places)
        entries = [place for place in places if isinstance(place, Entry)]
        self._entries: Final = [entry for entry in entries if entry.before is not ABSENT]
        self._absent: Final = [entry for entry in entries if entry.before is ABSENT]
        self._absent_holders: Final = [entry.holder for entry in self._absent]
        self._absent_keys: Final = [entry.key for entry in self._absent]
        self._holders: Final = [entry.holder for entry in self._entries]
        self._keys: Final = [entry.key for entry in self._entries]
        self._values: Final = [entry.before for entry in self._entries]
        self._others: Final = [place for place in places if not isinstance(place, Entry)]

    def __len__(self) -> int:
        return len(self._entries) + len(self._absent) + len(self._others)

    def holds(self) -> bool:
        """Returns whether nothing that the trace read is another now."""
        try:
            if not all(map(is_, map(getitem, self._holders, self._keys), self._values)):
                for i, entry in enumerate(self._entries):
                    if entry.now() is not entry.before:
                        return False
                    self._values[i] = entry.before = entry.holder[entry.key]  # another object of the same value
        except KeyError:
            return False
        if any(map(contains, self._absent_holders, self._absent_keys)):
            return False
        return all(place.now() is place.before for place in self._others)

    def differences(self) -> Sequence[Difference]:
        """The places that hold something else now."""
        differences = []
        for place in (*self._entries, *self._absent, *self._others):
            now = place.now()
            if now is not place.before:
                differences.append(Difference(place.name, _shorten(place.before), _shorten(now)))
        return differences


def is_same(one: Argument, other: Argument) -> bool:
    """Returns whether two values are one object, or constants of the same type and bits."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return bool(constant_key(one) == constant_key(other) if kind in (float, complex) else one == other)
    if kind is tuple or kind is frozenset:
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, np.generic):
        return bool(one.tobytes() == other.tobytes())
    return kind.__module__ == "datetime" and bool(one == other)


_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})


def elements_of(value: Argument) -> object:
    """Returns what memory holds, with its shape and type: of an array, a tensor of torch, or anything with a buffer."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tolist() if value.dtype.hasobject else value.tobytes()
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return value._version  # what is written past torch is not seen there
        plain = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return tuple(value.shape), value.dtype, plain.numpy().tobytes()
    return bytes(value)


def _shorten(value: object) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, tuple) and value and isinstance(value[-1], bytes):
        return "other elements"
    return f"{value!r:.60}"
