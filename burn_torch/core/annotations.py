"""Values that an annotation takes, in words and as a test.

Kinds that it cannot say (`Any`, a type variable without a bound, a name of a module that is not loaded) are unchecked.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import enum
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, ParamSpecArgs, ParamSpecKwargs, TypeVar

__all__ = [
    "MAY_BE_NAN",
    "OR_OF_TORCH",
    "Measured",
    "Taken",
    "above",
    "at_least",
    "between",
    "holds",
    "resolved",
    "taken_by",
]

MAY_BE_NAN: Final = "may be NaN"
Measured = typing.Annotated[float, MAY_BE_NAN]
"""A number that was measured or computed, such as a loss: NaN is one."""


OR_OF_TORCH: Final = "or a tensor of torch"
"""Marks an annotated class whose place a tensor of torch may take, too."""


@dataclass(frozen=True)
class Taken:
    """The values that a parameter takes: in words, and as a test; a value of a class in `always` needs none."""

    text: str
    fits: Callable[[Any], bool]
    always: frozenset[type] = frozenset()


def at_least(least: float) -> Taken:
    """Numbers from `least` on."""
    return Taken(f"{least} or more", lambda x: bool(x >= least))


def above(bound: float) -> Taken:
    """Finite numbers above `bound`."""
    return Taken(f"a finite number above {bound}", lambda x: bool(bound < x < math.inf))


def between(low: float, high: float) -> Taken:
    """Numbers from `low` to `high`, both included."""
    return Taken(f"a number from {low} to {high}", lambda x: bool(low <= x <= high))


def holds(taken: Taken, value: object) -> bool:
    """Tells if a value is taken; one that cannot be compared or measured is not.  Traced numbers are."""
    try:
        return taken.fits(value) or (getattr(value, "is_number", False) and taken.fits(0))
    except Exception:  # a comparison that the value does not know
        return False


def resolved(function: Callable[..., object], annotation: object, owner: type | None = None) -> Any:
    """The type that an annotation of a function or of a field of the owner's bases; Any where it is not loaded."""
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    scope = inspect.unwrap(function).__globals__
    for base in () if owner is None else owner.__mro__[-2::-1]:  # fields of a dataclass come from its bases
        scope = {**vars(sys.modules[base.__module__]), **scope}
    try:
        hint = typing.get_type_hints(holder, {}, _Names(scope), include_extras=True)["it"]
        if isinstance(hint, ParamSpecArgs | ParamSpecKwargs):
            return Any
        bound = getattr(hint, "__bound__", None)
        return resolved(function, bound.__forward_arg__, owner) if isinstance(bound, typing.ForwardRef) else hint
    except Exception:  # a name of a module that is not loaded
        return Any


class _Names(dict[str, Any]):
    """The names of a module, and those that it imports for type checkers only."""

    def __init__(self, scope: Mapping[str, object]) -> None:
        super().__init__({**vars(builtins), **scope})

    def __missing__(self, name: str) -> object:
        return getattr(sys.modules[_checked_names(self["__file__"])[name]], name)


@functools.lru_cache(maxsize=256)
def _checked_names(path: str) -> dict[str, str]:
    """The modules from which a module imports names under TYPE_CHECKING."""
    statements = ast.parse(Path(path).read_text(encoding="utf-8")).body
    blocks = [
        node.body for node in statements if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


def _is_whole(x: object) -> bool:
    return x.__class__ is int or (isinstance(x, numbers.Integral) and not isinstance(x, bool))


def _is_real(x: object) -> bool:
    return x.__class__ in (float, int) or (isinstance(x, numbers.Real) and not isinstance(x, bool))


def _is_number(x: object) -> bool:
    return _is_real(x) and bool(x == x)  # and no NaN


def _is_truth(x: object) -> bool:
    return isinstance(x, bool) or (type(x).__module__ == "numpy" and type(x).__name__ in ("bool", "bool_"))


_PLAIN: Final[dict[object, Taken]] = {
    int: Taken("a whole number", _is_whole, frozenset({int})),
    float: Taken("a number", _is_number, frozenset({int})),
    bool: Taken("True or False", _is_truth, frozenset({bool})),
    str: Taken("a text", lambda x: isinstance(x, str), frozenset({str})),
    bytes: Taken("bytes", lambda x: isinstance(x, bytes | bytearray | memoryview)),
    None: Taken("None", lambda x: x is None, frozenset({type(None)})),
    type(None): Taken("None", lambda x: x is None, frozenset({type(None)})),
    type: Taken("a class", lambda x: isinstance(x, type)),
    dict: Taken("a mapping", lambda x: isinstance(x, Mapping)),
    list: Taken("a list", lambda x: isinstance(x, list | tuple)),
    tuple: Taken("a tuple", lambda x: isinstance(x, list | tuple)),
}
_MEASURED: Final = Taken("a number", _is_real, frozenset({int, float}))
_UNCHECKED: Final = (Any, object, inspect.Parameter.empty)


@functools.lru_cache(maxsize=1024)
def taken_by(annotation: object) -> Taken | None:
    """The values that an annotation takes; None where it cannot be checked."""
    if isinstance(annotation, TypeVar) and isinstance(annotation.__bound__, type):
        annotation = annotation.__bound__
    if isinstance(annotation, TypeVar) or any(annotation is one for one in _UNCHECKED):
        return None
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        if OR_OF_TORCH in inner:
            return _or_of_torch(inner[0])
        return _MEASURED if MAY_BE_NAN in inner else taken_by(inner[0])
    if origin is typing.Union or origin is types.UnionType:
        return _union(inner)
    if origin is Literal:
        return Taken(" or ".join(map(repr, inner)), lambda x: any(type(x) is type(one) and x == one for one in inner))
    if origin is type:
        return _PLAIN[type]
    if origin is collections.abc.Callable or annotation is Callable:
        return Taken("a function", callable)
    kind = annotation if origin is None else origin
    if not isinstance(kind, type):
        return None
    if issubclass(kind, typing.IO):
        return Taken("a stream with write", lambda x: callable(getattr(x, "write", None)) and not isinstance(x, type))
    if issubclass(kind, os.PathLike):  # PathLike[str], Path
        return Taken("a path", lambda x: isinstance(x, os.PathLike) and not isinstance(x, type))
    if issubclass(kind, collections.abc.Mapping):
        return _mapping(inner)
    if issubclass(kind, tuple) and inner and Ellipsis not in inner:
        return _fixed([taken_by(one) for one in inner])
    if kind in _CONTAINERS:
        return _container(_CONTAINERS[kind], taken_by(inner[0]) if inner else None)
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    return Taken(_name_of(kind), lambda x: isinstance(x, kind), frozenset({kind}))


def _or_of_torch(kind: type) -> Taken:
    def fits(x: object) -> bool:
        return isinstance(x, kind) or any(f"{base.__module__}.{base.__name__}" == _TORCHS for base in type(x).__mro__)

    return Taken(f"{_name_of(kind)}, {OR_OF_TORCH}", fits, frozenset({kind}))


_TORCHS: Final = "torch._C.TensorBase"
_NAMED: Final = Taken("a path", lambda x: isinstance(x, str) and x != "")


def _union(members: tuple[object, ...]) -> Taken | None:
    is_path = any(isinstance(one := typing.get_origin(m) or m, type) and issubclass(one, os.PathLike) for m in members)
    options = [_NAMED if is_path and member is str else taken_by(member) for member in members]
    known = [option for option in options if option is not None]
    if len(known) < len(options):
        return None
    text = " or ".join(dict.fromkeys(option.text for option in known))
    always = frozenset[type]().union(*(option.always for option in known))
    return Taken(text, lambda x: any(option.fits(x) for option in known), always)


def _is_sequence(x: object) -> bool:
    if isinstance(x, list | tuple):
        return True
    like = hasattr(x, "__len__") and hasattr(x, "__getitem__")  # arrays are sequences too
    return like and not isinstance(x, str | bytes | bytearray | type | collections.abc.Mapping)


def _is_iterable(x: object) -> bool:
    is_one = isinstance(x, collections.abc.Iterable) and not isinstance(x, str | bytes | bytearray | type)
    return is_one and getattr(x, "ndim", 1) != 0  # an array without axes has the method only


_CONTAINERS: Final[dict[type, tuple[str, Callable[[Any], bool]]]] = {
    collections.abc.Sequence: ("a list", _is_sequence),
    list: ("a list", _is_sequence),
    tuple: ("a tuple", _is_sequence),
    collections.abc.Iterable: ("a list", _is_iterable),
    collections.abc.Collection: ("a list", _is_iterable),
    collections.abc.Set: ("a set", lambda x: isinstance(x, collections.abc.Set)),
    set: ("a set", lambda x: isinstance(x, collections.abc.Set)),
    frozenset: ("a set", lambda x: isinstance(x, collections.abc.Set)),
}


def _container(kind: tuple[str, Callable[[object], bool]], member: Taken | None) -> Taken:
    text, is_one = kind
    if member is None:
        return Taken(text, is_one)

    def fits(x: Any) -> bool:  # an iterator is not consumed
        if not is_one(x) or getattr(x, "ndim", 1) == 0:
            return False
        if getattr(getattr(x, "dtype", None), "kind", "") in {"b", "i", "u"} and hasattr(x, "__array_interface__"):
            x = x[:1]  # an array: what holds of one holds of all
        if isinstance(x, range):
            x = x[:1]
        return not hasattr(x, "__len__") or all(member.fits(one) for one in x)

    return Taken(f"{text}, each {member.text}", fits)


def _fixed(members: list[Taken | None]) -> Taken:
    text = ", ".join("anything" if member is None else member.text for member in members)

    def fits(x: object) -> bool:
        return (
            isinstance(x, tuple | list)
            and len(x) == len(members)
            and all(member is None or member.fits(one) for member, one in zip(members, x, strict=True))
        )

    return Taken(f"({text})", fits)


def _mapping(inner: tuple[object, ...]) -> Taken:
    key, value = (taken_by(inner[0]), taken_by(inner[1])) if len(inner) == 2 else (None, None)

    def fits(x: object) -> bool:
        return isinstance(x, Mapping) and all(
            (key is None or key.fits(k)) and (value is None or value.fits(v)) for k, v in x.items()
        )

    words = [member.text for member in (key, value) if member is not None]
    return Taken("a mapping" + (f" of {' to '.join(words)}" if words else ""), fits)


def _protocol(kind: type) -> Taken:
    names = {
        name
        for base in kind.__mro__
        if getattr(base, "_is_protocol", False)
        for name in (*vars(base), *vars(base).get("__annotations__", {}))
        if not name.startswith("_") or name in ("__getitem__", "__len__", "__iter__", "__call__")
    }
    methods = {name for name in names if callable(getattr(kind, name, None))}
    is_sequence = "__getitem__" in names

    def fits(x: Any) -> bool:
        if isinstance(x, type) or (is_sequence and isinstance(x, str | bytes | Mapping)):
            return False
        if "__len__" in names:
            len(x)  # an array without axes has the method, and no length
        return all(callable(getattr(x, name, None)) if name in methods else hasattr(x, name) for name in names)

    return Taken(f"{_name_of(kind)}, with {', '.join(sorted(names))}", fits)


def _name_of(kind: type) -> str:
    if issubclass(kind, enum.Enum):
        return " or ".join(f"{kind.__name__}.{member}" for member in list(kind.__members__)[:12])
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
