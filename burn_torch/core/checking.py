"""What functions take, checked once at the border from their annotations, and told in one error for all arguments.

    @checked(num_epochs=at_least(1))
    def train(path: str | Path, num_epochs: int, callback: Callable[[int], None] | None = None) -> None: ...

For functions that are called a few times a run: builders, constructors, readers and writers; a call costs some
microseconds more.  What an annotation cannot say (`Any`, a type variable, a name for type checkers only) is unchecked.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, overload

from burn_torch.core.errors import ArgumentError, BurnTorchError, explain
from burn_torch.core.frames import at_user_line
from burn_torch.core.misfits import is_from_inside, misfit_of, opaque
from burn_torch.core.wording import described

__all__ = ["Taken", "above", "at_least", "between", "checked", "described", "holds", "taken_by"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Taken:
    """What a parameter takes: in words, and as a test of a value."""

    text: str
    fits: Callable[[Any], bool]


def at_least(least: float) -> Taken:
    """Numbers from `least` on."""
    return Taken(f"{least} or more", lambda x: bool(x >= least))


def above(bound: float) -> Taken:
    """Finite numbers above `bound`."""
    return Taken(f"a finite number above {bound}", lambda x: bool(bound < x < math.inf))


def between(low: float, high: float) -> Taken:
    """Numbers from `low` to `high`, both included."""
    return Taken(f"a number from {low} to {high}", lambda x: bool(low <= x <= high))


@overload
def checked(target: F, /) -> F: ...
@overload
def checked(*, error: type[BurnTorchError] = ..., but: tuple[str, ...] = ..., **rules: Taken) -> Callable[[F], F]: ...


def checked(
    target: Any = None, /, *, error: type[BurnTorchError] = ArgumentError, but: tuple[str, ...] = (), **rules: Taken
) -> Any:
    """Checks the arguments of a function, or of the constructor and the public methods of a class.

    rules   what else holds of parameters by their names: `num_epochs=at_least(1)`; the default is always right
    error   the class of the error
    but     methods that are left as they are: those of every step; of a function, parameters that it words itself
    """
    if target is None:
        return functools.partial(checked, error=error, but=but, **rules)
    if not isinstance(target, type):
        return _checked_function(target, target.__qualname__.removesuffix(".__init__"), error, rules, but)
    for name, member in list(vars(target).items()):
        if (name.startswith("_") and name != "__init__") or name in but:
            continue
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not inspect.isfunction(inner) or list(inspect.signature(inner).parameters) in ([], ["self"], ["cls"]):
            continue
        subject = target.__name__ if name == "__init__" else f"{target.__name__}.{name}"
        wrapped = _checked_function(inner, subject, error, rules)
        setattr(target, name, type(member)(wrapped) if isinstance(member, staticmethod | classmethod) else wrapped)
    return target


def _checked_function(
    function: F, subject: str, error: type[BurnTorchError], rules: Mapping[str, Taken], but: tuple[str, ...] = ()
) -> F:
    signature = inspect.signature(function)
    parameters = signature.parameters
    places = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)
    alone = len([name for name in parameters if name not in ("self", "cls")]) == 1
    checks: dict[str, tuple[Taken, ...]] = {}
    ready = False

    def prepare() -> None:
        nonlocal ready
        for name, parameter in parameters.items():
            taken = taken_by(_resolved(function, parameter.annotation))
            own = () if taken is None or name in but or parameter.kind is parameter.VAR_KEYWORD else (taken,)
            checks[name] = (*own, *((rules[name],) if name in rules else ()))
        ready = True

    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        if not ready:
            prepare()
        faults: list[tuple[str, Any, str]] = []
        further = [] if rest is None else [(rest, value) for value in args[len(places) :]]
        for name, value in (*zip(places, args, strict=False), *further, *kwargs.items()):
            for taken in checks.get(name, ()):
                if value is not parameters[name].default and not holds(taken, value):
                    faults.append((name, value, taken.text))
                    break
        if faults:
            raise _told(subject, faults, error, alone=alone)
        try:
            return function(*args, **kwargs)
        except TypeError as err:
            if is_from_inside(err):
                raise
            raise misfit_of(function, subject, args, kwargs) from None

    # in tracebacks, and for `called_name`, it is the function itself
    plain: Any = check
    plain.__code__ = plain.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    return opaque(typing.cast(F, plain))


def holds(taken: Taken, value: Any) -> bool:
    """Whether a value is taken; one that cannot be compared or measured is not."""
    try:
        return taken.fits(value)
    except Exception:  # a comparison that the value does not know
        return False


def _told(
    subject: str, faults: list[tuple[str, Any, str]], error: type[BurnTorchError], *, alone: bool
) -> BurnTorchError:
    names = " and ".join(dict.fromkeys(name for name, _, _ in faults))
    called = subject.rpartition(".")[2]
    return at_user_line(
        error(
            explain(
                f"{subject}: {names} {'is' if len(faults) == 1 else 'are'} not what it takes",
                given="\n            ".join(
                    f"{called}({described(value) if alone else f'{name}={described(value)}'})"
                    for name, value, _ in faults
                ),
                expected="\n            ".join(f"{name}: {text}" for name, _, text in faults),
                mend="; ".join(f"for {name} pass {text}" for name, _, text in faults),
            )
        )
    )


# -- annotations -----------------------------------------------------------------------------------------
def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, function.__globals__)["it"]
    except Exception:  # names for type checkers only
        return Any


def _is_whole(x: Any) -> bool:
    return x.__class__ is int or (isinstance(x, numbers.Integral) and not isinstance(x, bool))


def _is_number(x: Any) -> bool:
    is_one = x.__class__ in (float, int) or (isinstance(x, numbers.Real) and not isinstance(x, bool))
    return is_one and x == x  # and no NaN


def _is_truth(x: Any) -> bool:
    return isinstance(x, bool) or (type(x).__module__ == "numpy" and type(x).__name__ in ("bool", "bool_"))


_PLAIN: Final[dict[Any, Taken]] = {
    int: Taken("a whole number", _is_whole),
    float: Taken("a number", _is_number),
    bool: Taken("True or False", _is_truth),
    str: Taken("a text", lambda x: isinstance(x, str)),
    bytes: Taken("bytes", lambda x: isinstance(x, bytes | bytearray | memoryview)),
    None: Taken("None", lambda x: x is None),
    type(None): Taken("None", lambda x: x is None),
    type: Taken("a class", lambda x: isinstance(x, type)),
    dict: Taken("a mapping", lambda x: isinstance(x, Mapping)),
    list: Taken("a list", lambda x: isinstance(x, list | tuple)),
    tuple: Taken("a tuple", lambda x: isinstance(x, list | tuple)),
}
_UNCHECKED: Final = (Any, object, inspect.Parameter.empty)


@functools.lru_cache(maxsize=1024)
def taken_by(annotation: Any) -> Taken | None:
    """What an annotation takes; None where it cannot be checked."""
    if isinstance(annotation, TypeVar) or any(annotation is one for one in _UNCHECKED):
        return None
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return taken_by(inner[0])
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
    return Taken(_name_of(kind), lambda x: isinstance(x, kind))


_NAMED: Final = Taken("a path", lambda x: isinstance(x, str) and x != "")


def _union(members: tuple[Any, ...]) -> Taken | None:
    is_path = any(isinstance(one := typing.get_origin(m) or m, type) and issubclass(one, os.PathLike) for m in members)
    options = [_NAMED if is_path and member is str else taken_by(member) for member in members]
    known = [option for option in options if option is not None]
    if len(known) < len(options):
        return None
    text = " or ".join(dict.fromkeys(option.text for option in known))
    return Taken(text, lambda x: any(option.fits(x) for option in known))


def _is_sequence(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return True
    like = hasattr(x, "__len__") and hasattr(x, "__getitem__")  # arrays are sequences too
    return like and not isinstance(x, str | bytes | bytearray | type | collections.abc.Mapping)


def _is_iterable(x: Any) -> bool:
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


def _container(kind: tuple[str, Callable[[Any], bool]], member: Taken | None) -> Taken:
    text, is_one = kind
    if member is None:
        return Taken(text, is_one)

    def fits(x: Any) -> bool:  # an iterator is not consumed
        if not is_one(x):
            return False
        if getattr(getattr(x, "dtype", None), "kind", "") in {
            "b",
            "i",
            "u",
        }:  # an array: what holds of one holds of all
            x = x[:1]
        return not isinstance(x, collections.abc.Collection) or all(member.fits(one) for one in x)

    return Taken(f"{text}, each {member.text}", fits)


def _fixed(members: list[Taken | None]) -> Taken:
    text = ", ".join("anything" if member is None else member.text for member in members)

    def fits(x: Any) -> bool:
        return (
            isinstance(x, tuple | list)
            and len(x) == len(members)
            and all(member is None or member.fits(one) for member, one in zip(members, x, strict=True))
        )

    return Taken(f"({text})", fits)


def _mapping(inner: tuple[Any, ...]) -> Taken:
    key, value = (taken_by(inner[0]), taken_by(inner[1])) if len(inner) == 2 else (None, None)

    def fits(x: Any) -> bool:
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
