"""Defines what training or a record would have to reach, wherever a value holds it."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from burn_torch.module.param import Param
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import Tree, walk
from burn_torch.tensor import Tensor

__all__ = ["PLAIN", "hidden_in", "is_trainable"]

PLAIN: Final = frozenset({int, float, str, bool, type(None), bytes, complex})
_COLLECTIONS: Final = (set, frozenset, list, tuple, collections.deque)
_OPAQUE: Final = (type, types.ModuleType, torch.dtype, torch.device, torch.Tensor)


def is_trainable(value: object) -> bool:
    """Returns whether a value is, or holds, what training or a record would have to reach."""
    if isinstance(value, Param | RunningState | torch.nn.Parameter):
        return True
    if isinstance(value, torch.nn.Module):
        return next(value.parameters(), None) is not None
    if isinstance(value, Tensor):
        return value.is_require_grad()
    if isinstance(value, Tree):
        return any(isinstance(leaf, Param | RunningState) for _, leaf in walk(value))
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(is_trainable, value))
    if isinstance(value, dict):
        return any(map(is_trainable, value.values()))
    return next(_bound_to(value), None) is not None


def _bound_to(value: object) -> Iterator[object]:
    """The modules that a bound method or a partial call holds."""
    if isinstance(value, types.MethodType) and is_trainable(value.__self__):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (item for item in (value.func, *value.args, *value.keywords.values()) if is_trainable(item))


def hidden_in(value: object, seen: set[int], depth: int) -> Iterator[Any]:
    """Parameters, modules and trainable torch modules that hang on a value in another way than by being in its tree."""
    if value.__class__ in PLAIN or isinstance(value, _OPAQUE) or id(value) in seen or depth > 4 or len(seen) > 1000:
        return
    seen.add(id(value))
    if isinstance(value, Tree | Param | RunningState | Tensor):
        if is_trainable(value):
            yield value
        return
    if isinstance(value, torch.nn.Module):
        if any(parameter.requires_grad for parameter in value.parameters()):
            yield value
        return
    for part in _contents_of(value):
        yield from hidden_in(part, seen, depth + 1)


def _contents_of(value: object) -> Iterator[object]:
    if isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a name of the scope that nothing has filled yet
                continue
        yield from value.__defaults__ or ()
        return
    if isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Mapping):
        yield from value.values()
        yield from value
    elif isinstance(value, _COLLECTIONS):
        yield from list(value)
    elif isinstance(value, np.ndarray):
        yield from value.flat if value.dtype.hasobject else ()
    if not type(value).__module__.startswith(("burn_torch.", "torch.")):
        yield from getattr(value, "__dict__", {}).values()
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                    yield getattr(value, slot)
