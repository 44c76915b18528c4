"""The places inside of values that a traced function reads: attributes, items, elements.

Which attributes count is said by the names in the code that has the value.  More are watched than are read: one that
changes without need costs a trace, one that is missed would be a wrong result.
"""

from __future__ import annotations

import array
import builtins
import functools
import gc
import io
import mmap
import sys
import types
import weakref
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from ctypes import Array, Structure, Union, _SimpleCData
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.module import Param, RunningState
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Value
from burn_torch.transform.flatten import opened
from burn_torch.transform.guard import (
    ABSENT,
    Attribute,
    Bytes,
    Cell,
    Contents,
    Entry,
    Fields,
    Long,
    Place,
    Probe,
    Used,
    elements_of,
)
from burn_torch.transform.impure import GENERATORS, global_generators
from burn_torch.transform.names import attribute_of, is_library, is_standard, names_of
from burn_torch.transform.settings import setting_of_value
from burn_torch.transform.structure import Argument

__all__ = ["IMMUTABLE", "LONGEST", "Places"]

LONGEST: Final = 1 << 14
"""The number of items of a list or dict that are compared at each call."""

IMMUTABLE: Final = (
    bool, int, float, complex, str, bytes, type(None), range, slice, Enum, np.generic, np.dtype, torch.dtype,
    torch.device, CodeType, type(Ellipsis), type(NotImplemented), Config, DType,
)  # fmt: skip
_TENSORS: Final = Value | Param | RunningState
_CONTAINERS: Final = (list, dict, set, frozenset, tuple, deque)
_WRAPPERS: Final = (
    UserDict, UserList, ChainMap, MappingProxyType, weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
    weakref.WeakSet,
)  # fmt: skip
_MEMORY: Final = (
    np.ndarray, torch.Tensor, bytearray, memoryview, array.array, mmap.mmap, _SimpleCData, Array, Structure, Union,
)  # fmt: skip
_OF_TORCH: Final = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_VIEWS: Final[tuple[type[Any], ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_WHOLE: Final = ("burn_torch.optim", "threading", "queue", "multiprocessing", "configparser")
"""Objects of these packages answer by methods of their own, so all of their attributes count."""
_CLOSED: Final = frozenset(("builtins", "logging", "pathlib", "re", "typing", "abc", "enum", "functools", "_thread"))
"""Objects of these modules have no attributes that a step computes with."""


@final
@dataclass(slots=True, eq=False)
class _Seen:
    """A value that was looked into, for which names (None: all), and the places in it."""

    value: Argument
    names: set[str] = field(default_factory=set)
    whole: bool = False
    places: list[Place] = field(default_factory=list)


@final
class Places:
    """The places that a trace reads, as they were when it first met them.

    arguments  what the trace made itself
    """

    def __init__(self, arguments: Any) -> None:
        self._seen: Final[dict[int, _Seen]] = {}
        self._lasting: Final[dict[tuple[int, str], Place]] = {}
        """Places in modules, classes, enclosing functions and the environment, which nothing made anew."""
        self._known: Final[set[tuple[int, str]]] = set()
        self._made: Final = {id(part): part for part in _parts_of(arguments)}
        self.functions: Final[dict[CodeType, FunctionType]] = {}
        """Functions that were met, by their code."""
        self.on_generator: Callable[[str, Any], None] = lambda path, generator: None
        """Gets the path and the object of each generator of random numbers."""

    # -- lasting places ---------------------------------------------------------------------------------------
    def add(self, holder: object, key: str, make: Callable[[], Place]) -> None:
        """Notes a place that no call of the function makes anew."""
        if (id(holder), key) not in self._lasting:
            self._lasting[id(holder), key] = make()

    def outside(
        self, name: str, namespace: Any, key: str, names: frozenset[str] | None, owner: type[object] | None = None
    ) -> None:
        """Notes a name of a module, or of the class `owner`, and what its value holds."""
        value = namespace.get(key, ABSENT)
        if not (isinstance(value, ModuleType | Tree | _TENSORS) or _is_definition_of_a_library(value)):
            holder = namespace if owner is None else owner  # the dict of a class is another object each time
            self.add(holder, key, lambda: Entry(name, namespace, key))
        self.look(value, name, names)

    def enclosed(self, function: FunctionType, names: frozenset[str]) -> None:
        """Notes the variables of the functions around one."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                place = Cell(name, cell)
                self.add(cell, name, lambda place=place: place)  # type: ignore[misc]  # a lambda with a default
                self.look(place.before, name, names)

    # -- values -----------------------------------------------------------------------------------------------------
    def look(self, value: Argument, path: str, names: frozenset[str] | None) -> None:
        """Notes the places inside of a value that code with these names may read; None for all of them."""
        if isinstance(value, (*IMMUTABLE, _TENSORS)) or value is ABSENT or value is vars(builtins):
            return
        setting = setting_of_value(value, names)
        if setting is not None:
            self.add(setting.read, setting.name, lambda: Probe(*setting))
        seen = self._seen.get(id(value))
        fresh = seen is None
        if seen is None:
            seen = self._seen[id(value)] = _Seen(value)
        elif seen.whole or (names is not None and names <= seen.names):
            return
        if names is None:
            seen.whole = True
        else:
            seen.names |= names
        if isinstance(value, _CONTAINERS):
            self._container(seen, path, names, fresh)
            if attribute_of(value, "__dict__") is not None:  # of a class of the user's, with methods of its own
                self._object(seen, path, names)
        elif isinstance(value, _WRAPPERS):
            self._wrapper(seen, path, names)
        elif isinstance(value, FunctionType):
            self.functions.setdefault(value.__code__, value)  # what it reads is seen when it runs
            if (names is None or value.__dict__) and not _is_definition_of_a_library(value):
                self._fields(seen, path, names, value.__dict__)
        elif isinstance(function := attribute_of(value, "__func__"), FunctionType):
            self.functions.setdefault(function.__code__, function)
        elif isinstance(value, ModuleType):
            self._module(value, path, names)
        elif isinstance(value, type):
            self._class(value, names)
            self._class(type(value), names)
        elif isinstance(value, GENERATORS):
            if fresh:
                self.on_generator(path, value)
        elif isinstance(value, Tree):
            fields = value.__dict__
            for name in _names_of(type(value).__module_fields__, names):
                self.look(fields.get(name), f"{path}.{name}", names)
            self._class(type(value), names)
        elif isinstance(value, _MEMORY):
            if fresh and not _is_read_only(value):
                seen.places.append(Bytes(path, value))
        elif isinstance(value, functools.partial):
            self.look(value.func, path, names)
            self.look(value.args, f"{path}.args", names)
            self.look(value.keywords, f"{path}.keywords", names)
        elif isinstance(value, ContextVar):
            self.add(value, "", lambda: Probe(f"{path}.get()", functools.partial(_value_of, value)))
            self.look(_value_of(value), f"{path}.get()", names)
        elif isinstance(value, io.BytesIO | io.StringIO):
            if fresh:
                seen.places.append(Probe(f"{path}.getvalue()", value.getvalue, value))
        elif isinstance(value, weakref.ref):
            if fresh:
                seen.places.append(Probe(f"whether {path}() is gone", lambda: value() is None))
            self.look(value(), path, names)
        elif isinstance(value, _VIEWS):
            if fresh:
                seen.places.append(Probe(path, lambda: (*value,)))
        elif isinstance(value, _OF_TORCH):
            if fresh:
                seen.places.append(Probe(path, lambda: _state_of_torch(value, set()), value))
            self._object(seen, path, names)
        elif (
            isinstance(value, Iterator) and not isinstance(value, io.IOBase) and attribute_of(value, "__dict__") is None
        ):
            seen.places.append(Used(path, value))
        elif isinstance(function := attribute_of(value, "__wrapped__"), FunctionType) and callable(
            value
        ):  # lru_cache's
            self._unseen(function, names)
        elif (owner := attribute_of(value, "__self__")) is not None and callable(value):  # a method of something in C
            if not isinstance(owner, ModuleType):
                self.look(owner, path, names)
        else:
            self._object(seen, path, names)

    def _unseen(self, function: FunctionType, names: frozenset[str] | None) -> None:
        """A function that may answer without running: what it would read, and what is read of its answer."""
        own = names_of(function.__code__)
        read = own.inside | (names or frozenset())
        for name in own.outside & function.__globals__.keys():
            self.outside(name, function.__globals__, name, read)
        self.enclosed(function, read)

    def _container(self, seen: _Seen, path: str, names: frozenset[str] | None, fresh: bool) -> None:
        value: Argument = seen.value
        fixed = isinstance(value, tuple | frozenset)
        if len(value) > LONGEST:
            if fresh and not fixed:
                seen.places.append(Long(path, value))
            return
        if fresh and not fixed:
            seen.places.append(Contents(path, value))
        for key, item in list(value.items()) if isinstance(value, dict) else enumerate(list(value)):
            self.look(item, f"{path}[{key!r:.20}]", names)

    def _wrapper(self, seen: _Seen, path: str, names: frozenset[str] | None) -> None:
        value: Argument = seen.value
        if isinstance(value, MappingProxyType):
            seen.places.append(Probe(path, lambda: (*value.keys(), *value.values())))
            parts: Iterable[Any] = value.values()
        else:
            parts = value.maps if isinstance(value, ChainMap) else (value.data,)
        for part in parts:
            self.look(part, path, names)

    def _module(self, module: ModuleType, path: str, names: frozenset[str] | None) -> None:
        if module is np.random or (module is np and names is not None and "random" in names):
            self.on_generator("numpy.random", global_generators()["numpy.random"])
        if names is None or is_library(module.__name__) or is_standard(getattr(module, "__file__", None)):
            return
        for name in names & vars(module).keys():
            self.outside(f"{path}.{name}", vars(module), name, names)

    def _class(self, kind: type[object], names: frozenset[str] | None) -> set[str]:
        """Attributes and methods of a class: their names."""
        names_read: set[str] = set()
        below: list[type[object]] = []
        """Classes that come first, where the same name would hide it."""
        for base in kind.__mro__:
            if is_library(base.__module__) or base.__module__ in _CLOSED:
                continue
            for name in _names_of(base.__dict__, names):
                value = base.__dict__[name]
                if name.startswith("__") or (hasattr(value, "__get__") and not isinstance(value, FunctionType)):
                    continue
                for hiding in below:
                    if name not in hiding.__dict__:
                        self._attribute(hiding, name, names)
                names_read.add(name)
                self._attribute(base, name, names)
            below.append(base)
        return names_read

    def _attribute(self, kind: type[object], name: str, names: frozenset[str] | None) -> None:
        if (id(kind), name) not in self._known:
            self._known.add((id(kind), name))
            self.outside(f"{kind.__name__}.{name}", kind.__dict__, name, names, kind)

    def _fields(self, seen: _Seen, path: str, names: frozenset[str] | None, fields: dict[str, object]) -> None:
        """Notes the attributes of an object that stand in its dict; of which there are some, if it may be any."""
        if names is None:
            seen.places.append(Fields(path, fields))
        is_local = type(seen.value).__name__ == "_local"  # a dict for each thread
        for name in _names_of(fields, names):
            item, where = fields[name], f"{path}.{name}"
            if not isinstance(item, _TENSORS):
                seen.places.append(Attribute(where, seen.value, name) if is_local else Entry(where, fields, name))
            self.look(item, where, names)

    def _object(self, seen: _Seen, path: str, names: frozenset[str] | None) -> None:
        value = seen.value
        kind = type(value)
        module = kind.__module__
        if module.startswith("multiprocessing") and attribute_of(value, "get_obj") is not None:
            self.look(value.get_obj(), path, names)
            return
        if module.startswith(_WHOLE):
            names = None
        elif is_library(module) or (module in _CLOSED and kind.__name__ != "_local"):
            return
        fields = attribute_of(value, "__dict__")
        slots = {name: member for base in kind.__mro__ for name, member in base.__dict__.items()
                 if isinstance(member, types.MemberDescriptorType)}  # fmt: skip
        if isinstance(fields, dict):
            self._fields(seen, path, names, fields)
        for name in _names_of(slots, names):
            seen.places.append(Attribute(f"{path}.{name}", value, name))
            self.look(attribute_of(value, name), f"{path}.{name}", names)
        of_class = self._class(kind, names)
        if isinstance(fields, dict):  # which one of its own would hide
            seen.places.extend(Entry(f"{path}.{name}", fields, name) for name in of_class - fields.keys())

    # -- afterwards -----------------------------------------------------------------------------------------------
    def take(self) -> Iterator[tuple[Place, Any]]:
        """All places that outlive the trace, each with the object that it is in."""
        gone = self._gone()
        seen, lasting = dict(self._seen), dict(self._lasting)
        self._seen.clear()
        self._lasting.clear()
        for place in lasting.values():
            yield place, None
        for ident, one in seen.items():
            if ident not in gone:
                for place in one.places:
                    yield place, one.value

    def _gone(self) -> set[int]:
        """Returns what the trace made: values that nothing holds besides these notes, and what only such values
        hold.
        """
        seen = self._seen
        held = {ident: sys.getrefcount(one.value) - 2 for ident, one in seen.items()}  # less the note, and the argument
        for place in (*self._lasting.values(), *(place for one in seen.values() for place in one.places)):
            for part in place.held():
                if id(part) in held:
                    held[id(part)] -= 1
        gone: set[int] = set()
        left = [one.value for ident, one in seen.items() if held[ident] <= 0 or ident in self._made]
        while left:
            value = left.pop()
            if id(value) in gone:
                continue
            gone.add(id(value))
            fields = None if isinstance(value, type | ModuleType) else attribute_of(value, "__dict__")
            for part in (*gc.get_referents(value), *(fields.values() if isinstance(fields, dict) else ())):
                if id(part) in held and part is not fields:
                    held[id(part)] -= 1
                    if held[id(part)] <= 0:
                        left.append(part)
        return gone


def _state_of_torch(value: object, seen: set[int]) -> Any:
    """The numbers and texts in a module, an optimizer or a schedule of torch; large tensors by their versions."""
    if isinstance(value, torch.Tensor):
        if value.numel() <= 4096 or value.is_inference():
            return elements_of(value)
        return id(value), value._version
    if isinstance(value, IMMUTABLE):
        return value
    if id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, dict):
        return tuple([(key if isinstance(key, str) else id(key), _state_of_torch(value[key], seen)) for key in value])
    if isinstance(value, list | tuple):
        return tuple([_state_of_torch(item, seen) for item in value])
    return _state_of_torch(vars(value), seen) if isinstance(value, _OF_TORCH) else None


def _value_of(variable: ContextVar[object]) -> Any:
    """Returns what a variable of the context holds here, its default included; ABSENT where it has neither."""
    try:
        return variable.get()
    except LookupError:
        return ABSENT


def _names_of(present: Any, names: frozenset[str] | None) -> Iterable[str]:
    return [*present] if names is None else names.intersection(present)


def _is_definition_of_a_library(value: object) -> bool:
    if isinstance(value, FunctionType | type | types.BuiltinFunctionType):
        module = value.__module__ or "builtins"
        return is_library(module) or is_standard(getattr(sys.modules.get(module), "__file__", None))
    return False


def _is_read_only(value: object) -> bool:
    """Returns whether no view of this array can be written."""
    while isinstance(value, np.ndarray):
        if value.flags.writeable:
            return False
        value = value.base
    return value is None or isinstance(value, bytes)


def _parts_of(value: object) -> Iterator[object]:
    """The containers and trees in arguments."""
    if isinstance(value, Tree):
        yield value
        return
    parts = opened(value)
    if parts is not None:
        yield value
        for part in parts[1]:
            yield from _parts_of(part)
