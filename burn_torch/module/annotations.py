"""Defines what the annotations of a class of modules say: evaluated, taken apart, and compared with values."""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from burn_torch.module.param import Param
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import Tree
from burn_torch.tensor import Tensor

__all__ = [
    "evaluate",
    "fits",
    "hints_of",
    "is_kind_of_node",
    "is_ours",
    "is_torch",
    "parts_of",
    "scope_of_statement",
    "text_of",
]


def scope_of_statement(cls: type[Any], frame: Any) -> dict[str, Any]:
    """The names of the scope of a class statement that its annotations use; of a module's own, none."""
    if frame.f_locals is frame.f_globals or is_ours(cls):
        return {}
    words = set(re.findall(r"\w+", " ".join(map(str, inspect.get_annotations(cls).values()))))
    return {word: frame.f_locals[word] for word in words if word in frame.f_locals}


def hints_of(cls: type[object]) -> dict[str, Any]:
    """The annotations of a class and its bases, evaluated; those that name what is not there yet are left out."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Tree):
            hints.update(evaluate(base, inspect.get_annotations(base), base.__dict__.get("_scope") or {}))
    return hints


def evaluate(cls: type[object], annotations: Mapping[str, object], scope: Mapping[str, object]) -> dict[str, Any]:
    """The annotations of one class; those that name what is not there yet are left out."""
    names = {**vars(sys.modules.get(cls.__module__, types.ModuleType("none"))), cls.__name__: cls, **scope}
    hints = {}
    for name, annotation in annotations.items():
        if not isinstance(annotation, str):
            hints[name] = annotation
            continue
        try:
            hints[name] = eval(annotation, names)  # the class's own annotation, as typing evaluates it
        except Exception:  # a name for type checkers only, or one that comes later
            continue
    return hints


def parts_of(hint: object) -> Iterator[Any]:
    """The classes that an annotation is made of."""
    yield hint
    if typing.get_origin(hint) not in (typing.Literal, typing.ClassVar, Callable):
        for part in typing.get_args(hint):
            yield from parts_of(part)


def is_kind_of_node(part: object) -> bool:
    """Returns whether a class is one of those that the tree reaches."""
    return isinstance(part, type) and issubclass(part, Tree | Param | RunningState | Tensor)


def is_torch(part: object) -> bool:
    """Returns whether a class is a module or a tensor of torch."""
    return isinstance(part, type) and issubclass(part, torch.nn.Module | torch.Tensor)


def is_ours(cls: type[object]) -> bool:
    """Returns whether a class is of this library."""
    return cls.__module__.startswith("burn_torch.")


def text_of(hint: object) -> str:
    """An annotation as one writes it, without the homes of its names."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))


def fits(hint: Any, value: Any) -> bool:
    """Returns whether a value may stand where the annotation says; True wherever it says no kind of node."""
    if hint is None or hint is type(None):
        return value is None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated or origin is typing.Final:
        return fits(args[0], value)
    if origin in (typing.Union, types.UnionType):
        return any(fits(arg, value) for arg in args)
    if not isinstance(origin or hint, type):
        return True
    kind: type = origin or hint
    if issubclass(kind, RunningState):
        return isinstance(value, RunningState)
    if issubclass(kind, Param):
        return isinstance(value, Param | Tree)
    if issubclass(kind, Tree):
        return isinstance(value, Tree)
    if issubclass(kind, Tensor):
        return isinstance(value, Tensor | Param)
    if kind in (list, tuple) and args:
        if not isinstance(value, list | tuple):
            return False
        if kind is list or args[-1] is Ellipsis:
            return all(fits(args[0], item) for item in value)
        return len(args) == len(value) and all(map(fits, args, value))
    if kind is dict and args:
        return isinstance(value, dict) and all(fits(args[1], item) for item in value.values())
    return True
