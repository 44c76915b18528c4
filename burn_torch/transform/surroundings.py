"""Defines what a function reads by name besides its arguments: numbers, texts, functions and the like, which are
compiled in.

They are part of the key of a program: a name that stands for another value is another program, never a stale one.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Sequence
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, final

from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.module import Param, RunningState
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Value
from burn_torch.transform.constant import constant_key, fields_of, is_value_class
from burn_torch.transform.names import attribute_of, contents_of, names_of
from burn_torch.transform.structure import Argument, Constant, Container, Function, Held, interned

__all__ = ["Surroundings", "plain_function"]

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_GUARDED: Final = (*_PLAIN, FunctionType, BuiltinFunctionType, type, enum.Enum, Config, DType)
_FIXED: Final = (*_GUARDED, tuple, Tree, Value, Param, RunningState)


@final
class Surroundings:
    """The names that a function's own code reads in its closure and its module, and attributes of plain objects.

    A name counts while it stands for a constant, a tuple, a frozen dataclass or a short list or dict of them, or a
    declared capture.  Other tensors have to be declared; what the function calls is not searched.
    """

    def __init__(self, function: Function, captures: Sequence[Argument] = ()) -> None:
        plain = plain_function(function)
        if not isinstance(plain, FunctionType | BuiltinFunctionType | type) and callable(plain):
            function = plain.__call__  # of a callable object
            plain = plain_function(function)
        code = getattr(plain, "__code__", None)
        self._captures: Final = {id(capture): capture for capture in captures}
        self._cells: Final = tuple(getattr(plain, "__closure__", None) or ())
        self._globals: Final = getattr(plain, "__globals__", {})
        self._global_names, self._attributes = (
            ((), frozenset()) if code is None else (tuple(sorted(names_of(code).outside)), names_of(code).inside)
        )
        self._names: Final[Sequence[str]] = (*(() if code is None else code.co_freevars), *self._global_names)
        owner = getattr(function, "__self__", None)
        self._owners: Final = () if owner is None else (owner,)
        self._has_attributes: Final[dict[type[object], bool]] = {}
        self._without_objects: Final[set[tuple[type[object], ...]]] = set()
        """Types of arguments among which none has attributes that count."""
        self._last: tuple[list[Any], Container] | None = None
        """Holds what the names stood for and the key of that, where nothing of it can change by itself."""

    def key(self, args: Sequence[Argument]) -> Container:
        """Names and values as they are now, for these arguments; one object as long as nothing changes."""
        there = [contents_of(cell, _UNGUARDED) for cell in self._cells]
        there += map(self._globals.get, self._global_names)
        kinds = tuple(map(type, args))
        last = self._last
        if last is not None and kinds in self._without_objects and all(map(is_, there, last[0])):
            return last[1]
        captures = self._captures
        now = [value if _is_guarded(value) or id(value) in captures else _UNGUARDED for value in there]
        objects = [arg for arg in (*self._owners, *args) if self._is_plain_object(arg)]
        if not objects:
            self._without_objects.add(kinds)
        read = [(name, _Capture(value) if id(value) in captures else value)
                 for name, value in zip(self._names, now, strict=True)]  # fmt: skip
        read += [item for value in objects for item in self._read_of(value)]
        read = [(name, value) for name, value in read if value is not _UNGUARDED]
        constants = [interned(Constant, constant_key(value), Held(value)) for _, value in read]
        key: Container = interned(Container, dict, tuple([name for name, _ in read]), tuple(constants))
        self._last = None if objects or any(map(_may_change, there)) else (there, key)
        return key

    def _is_plain_object(self, value: Argument) -> bool:
        kind = value.__class__
        known = self._has_attributes.get(kind)
        if known is None:
            has_fields = attribute_of(value, "__dict__") is not None
            known = kind.__hash__ is object.__hash__ and has_fields and not issubclass(kind, _FIXED)
            self._has_attributes[kind] = known
        return known

    def _read_of(self, value: Argument) -> Iterator[tuple[str, object]]:
        """The attributes of an object that the function's code names."""
        for name, item in vars(value).items():
            if name in self._attributes and _is_guarded(item):
                yield f"{type(value).__name__}.{name}", item


def plain_function(function: object) -> Any:
    """The Python function under bound methods and partials."""
    while isinstance(function, MethodType | functools.partial | staticmethod | classmethod):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function


_UNGUARDED: Final = object()
_CONTAINERS: Final = frozenset({list, dict, set})
_SHORT: Final = 64
"""Longer lists and dicts are data: looking through them would cost more than the call."""


@final
class _Capture:
    """A declared tensor or module that a name stands for: another one is another capture."""

    def __init__(self, value: Argument) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Capture) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"a captured {type(self.value).__name__}"


def _is_guarded(value: Argument) -> bool:
    if isinstance(value, _GUARDED):
        return True
    kind = value.__class__
    if isinstance(value, tuple) or (kind in _CONTAINERS and len(value) <= _SHORT):
        return all(map(_is_guarded, value.values() if kind is dict else value))
    return is_value_class(kind) and all(_is_guarded(item) and not _may_change(item) for item in fields_of(value))


def _may_change(value: Argument) -> bool:
    """Returns whether a guarded value may be another one while it is the same object."""
    return value.__class__ in _CONTAINERS or (isinstance(value, tuple) and any(map(_may_change, value)))
