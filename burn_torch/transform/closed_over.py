"""Defines what a traced function reads and writes besides its arguments: names for errors, and containers that it
changed.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType, FunctionType, MethodType
from typing import Any

from burn_torch.core.errors import TraceError
from burn_torch.core.frames import is_users
from burn_torch.module import Param, RunningState
from burn_torch.module.tree import LEAVES, Tree, children, walk
from burn_torch.ops.value import Primitive, Value
from burn_torch.tensor import Tensor
from burn_torch.transform.names import attribute_of, contents_of, names_of
from burn_torch.transform.structure import Constant, Container, Function
from burn_torch.transform.surroundings import Surroundings

__all__ = ["Watch", "changed", "name_of", "require_same", "visible_in"]

_MUTABLE = (list, dict, set, deque, bytearray)


def name_of(primitive: Primitive) -> str | None:
    """Returns what the user's code calls the tensor with this primitive: "mask", "self.table",
    "model.linear.weight".
    """
    frame: FrameType | None = sys._getframe(1)
    known_as: str | None = None
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            names = dict(frame.f_locals)
            names.update({n: frame.f_globals[n] for n in frame.f_code.co_names if n in frame.f_globals})
            paths = (_path_to(primitive, value, name) for name, value in names.items())
            known_as = next((path for path in paths if path is not None), known_as)
        elif frame.f_code.co_filename == __file__.replace("closed_over", "tracing") and known_as is not None:
            break  # the traced function's own frame is the last one before: its name for it is the one to tell
        frame = frame.f_back
    return known_as


def _path_to(primitive: object, value: object, name: str) -> str | None:
    if isinstance(value, Tensor | Param | RunningState):
        return name if _holds(value, primitive) else None
    if isinstance(value, Tree):
        if value._unread is not None:
            return None  # what nobody has read is in nobody's hands
        return next((f"{name}.{path}" for path, leaf in walk(value) if _holds(leaf, primitive)), None)
    fields = attribute_of(value, "__dict__")
    parts: list[tuple[str, Any]] = []
    if isinstance(fields, dict) and not isinstance(value, type) and not callable(value):
        parts += [(f".{field}", item) for field, item in fields.items()]
    if isinstance(value, list | tuple) and len(value) <= 1000:
        parts += [(f"[{i}]", item) for i, item in enumerate(value)]
    held = [(below, item) for below, item in parts if isinstance(item, Tensor | Param | RunningState | Tree)]
    paths = (_path_to(primitive, item, f"{name}{below}") for below, item in held)
    return next((path for path in paths if path is not None), None)


def _holds(leaf: Tensor | Param | RunningState, primitive: object) -> bool:
    if isinstance(leaf, Param):
        if not leaf.is_initialized():
            return False
        leaf = leaf.val()
    elif isinstance(leaf, RunningState):
        leaf = leaf.value()
    held = leaf.primitive
    while held is not primitive and hasattr(held, "node"):  # a tracked primitive holds the inner one
        held = held.primitive
    return held is primitive


class Watch:
    """The lists, dicts and sets that a function, or a method of the trees given to it, can reach by name.

    A trace runs their Python once; a list that it appends to would grow once and never again.  So would a number of an
    object: a schedule that counts its steps would stay at the first.
    """

    def __init__(self, function: Function, trees: Iterable[Tree], arguments: Iterable[tuple[str, Any]] = ()) -> None:
        self._function = function
        outside = [*_outside_of(function), *arguments]
        containers = {id(held): (name, held) for name, value in outside for name, held in _mutable(name, value)}
        self._names: list[tuple[Surroundings, Container]] = []
        for kind in {type(node) for tree in trees for node in _nodes(tree)}:
            if not kind.__module__.startswith("burn_torch."):
                for method in vars(kind).values():
                    if inspect.isfunction(method):
                        beside = list(_outside_of(method))
                        outside += beside
                        containers.update((id(held), (name, held)) for name, value in beside
                                     for name, held in _mutable(name, value))  # fmt: skip
                        names = Surroundings(method)
                        self._names.append((names, names.key(())))
        self._before = [(name, held, _state_of(held)) for name, held in containers.values()]
        objects = {id(value): (name, value) for name, value in outside if _is_plain_object(value)}
        self._numbers = [
            (name, value, {field: item for field, item in vars(value).items() if type(item) in (int, float)})
            for name, value in objects.values()
        ]

    def check(self) -> None:
        """Raises: TraceError if one of them has changed since, or a name that a method reads stands for another."""
        for name, held, before in self._before:
            if _state_of(held) != before:
                raise changed(self._function, name, held)
        for name, value, numbers in self._numbers:
            for field, number in numbers.items():
                if _is_other(vars(value).get(field), number):
                    raise changed(self._function, f"{name}.{field}", number)
        for names, key in self._names:
            require_same(self._function, key, names.key(()))


def require_same(function: Function, before: Container, after: Container) -> None:
    """Raises: TraceError if a name stands for another constant now than before a function was traced."""
    if before is after:
        return
    old = dict(zip(before.names, before.children, strict=True))
    new = dict(zip(after.names, after.children, strict=True))
    name = next(name for name in {**old, **new} if old.get(name) is not new.get(name))
    constant = new.get(name, old.get(name))
    raise changed(function, name, constant.value if isinstance(constant, Constant) else constant)


def changed(function: Function, name: str, held: object) -> TraceError:
    """The error of something that a function changed instead of returning a new one."""
    function_name = getattr(function, "__name__", type(function).__name__)
    return TraceError(
        "a compiled function changed something that it did not make",
        given=f"{name}, {_article(held)} {type(held).__name__}, changed while {function_name} was traced",
        expected="a function that only returns values: its Python runs once, when it is traced, and never again",
        mend="return what is to be kept, and store it outside; pass in what is another value in each call, as in"
        " step(model, optim, batch, schedule.step())",
    )


def _article(held: object) -> str:
    return "an" if type(held).__name__[0].lower() in "aeiou" else "a"


def _nodes(tree: object) -> Iterator[Tree]:
    if isinstance(tree, Tree):
        yield tree
    for _, child in children(tree):
        if not isinstance(child, LEAVES):
            yield from _nodes(child)


def _state_of(held: Any) -> object:
    items = held.values() if isinstance(held, dict) else held
    return [id(item) for item in items] if len(held) <= 10_000 else len(held)


def _outside_of(function: Callable[..., object]) -> Iterator[tuple[str, Any]]:
    """Yields what a function reaches by name: its owner, its closure, its module; with the names."""
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, Tree):
        yield "self", owner
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True):
        yield name, contents_of(cell)
    outside = getattr(function, "__globals__", {})
    for name in sorted(names_of(code).outside & outside.keys()):
        yield name, outside[name]


def _mutable(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, _MUTABLE):
        yield name, value
    elif _is_plain_object(value) or (name == "self" and not isinstance(value, Tree)):
        for field, item in (attribute_of(value, "__dict__") or {}).items():
            if isinstance(item, _MUTABLE):
                yield f"{name}.{field}", item


def _is_plain_object(value: object) -> bool:
    """Returns whether it is an object with attributes of its own; no tensor, module, function, class, or Python
    module.
    """
    kind = type(value)
    return (
        not isinstance(value, type | Tree | Tensor)
        and not callable(value)
        and kind.__module__ not in ("builtins", "sys")
        and isinstance(attribute_of(value, "__dict__"), dict)
    )


def _is_other(now: object, before: float) -> bool:
    """Returns whether a number was counted on, or became a value of the trace."""
    if now is before:
        return False
    return isinstance(now, Value) or (type(now) in (int, float) and now != before)


def visible_in(function: object) -> Iterator[Any]:
    """The tensors, modules, and small containers that a function can reach by name: what it closes over.

    That of functions it calls counts too, where they are closed over or stand beside it.
    """
    seen: set[int] = set()
    left = [function]
    while left:
        visible = left.pop()
        if id(visible) in seen:
            continue
        seen.add(id(visible))
        if isinstance(visible, Tensor | Param | Tree) or (
            isinstance(visible, list | tuple | dict) and len(visible) <= 1000
        ):
            yield visible
        elif isinstance(visible, partial):
            left += [visible.func, *visible.args, *visible.keywords.values()]
        elif isinstance(visible, MethodType):
            left += [visible.__func__, visible.__self__]
        elif isinstance(visible, FunctionType):
            left += _outside(visible)


def _outside(function: FunctionType) -> Iterator[object]:
    yield from map(contents_of, function.__closure__ or ())
    for name in names_of(function.__code__).outside:
        value = function.__globals__.get(name)
        if not isinstance(value, FunctionType) or value.__globals__ is function.__globals__:
            yield value
