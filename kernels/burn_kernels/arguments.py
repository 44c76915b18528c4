"""Arguments of what is called a few times: looked at before the call, by their annotations, and told in three parts.

    @checked
    def lock(path: str | Path) -> None: ...

What annotations cannot say is unchecked; what torch refuses inside is told with torch's words.  Launchers and forwards,
which run in every step, look at their tensors themselves.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import os
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import torch
from torch.fx import Proxy

from burn_kernels.errors import KernelArgumentError, KernelError

__all__ = ["checked", "fits"]

C = TypeVar("C", bound=Callable[..., Any])

UNANNOTATED: Final[Mapping[str, object]] = {
    "device": str | int | torch.device | None,
    "dtype": torch.dtype | None,
    "parameters": collections.abc.Iterable,
}
"""The types that torch's constructors take under these names, where they name none."""


def checked(target: C, but: tuple[str, ...] = ()) -> C:
    """The function, or the class with its constructor, which refuses arguments that do not fit their annotations.

    but     parameters that it words itself
    """
    if isinstance(target, type):
        kind: Any = target
        kind.__init__ = _check(kind.__init__, target.__name__, target, but)
        home = inspect.unwrap(getattr(kind, "forward", abs))
        # what a sequence is given is for its first layer, which may be a user's, to look at
        if (getattr(home, "__module__", "") or "").startswith("burn_kernels") and not issubclass(
            kind, torch.nn.Sequential
        ):
            kind.forward = _word(kind.forward, f"{target.__name__}.forward")
        return target
    return typing.cast(C, _check(target, target.__name__, None, but))


def _check(
    function: Callable[..., object], subject: str, owner: type | None, but: tuple[str, ...]
) -> Callable[..., object]:
    signature = inspect.signature(function)
    hints: dict[str, object] | None = None

    @functools.wraps(function)
    def check(*args: object, **kwargs: object) -> Any:
        nonlocal hints
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if owner is not None and type(args[0]) is not owner:  # a constructor of a subclass, which has its own words
            return function(*args, **kwargs)
        if hints is None:
            hints = {name: hint for name, hint in _hints(function).items() if name not in but}
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError as err:
            shown = _call(subject, args, kwargs, owner)
            raise _refusal(subject, str(err), shown, f"{subject}{_text(signature, owner)}") from None
        wrong = [n for n, v in values.items() if v is not signature.parameters[n].default and not _fits(n, v, hints)]
        if wrong:
            expected = ", ".join(f"{name}: {_annotation(signature.parameters[name], hints)}" for name in wrong)
            values_of_wrong = ", ".join(f"{name}={_short(values[name])}" for name in wrong)
            raise _refusal(subject, f"{' and '.join(wrong)} not what it takes", values_of_wrong, expected)
        try:
            return function(*args, **kwargs)
        except KernelError:
            raise
        except (TypeError, ValueError, RuntimeError, AttributeError, AssertionError, LookupError, OverflowError) as err:
            if owner is None or not issubclass(owner, torch.nn.Module | torch.optim.Optimizer):
                raise
            shown = _call(subject, args, kwargs, owner)
            raise _refusal(subject, f"torch refuses it: {err}", shown, _text(signature, owner)) from err

    return check


_TENSORS: Final = (torch.Tensor, Proxy)


def _word(forward: Callable[..., object], subject: str) -> Callable[..., object]:
    """A forward, whose arguments are looked at where it has failed."""
    defaults = {name: p.default for name, p in inspect.signature(forward).parameters.items()}
    names = [name for name in defaults if name not in ("self", "module")]

    @functools.wraps(forward)
    def call(module: object, *args: object, **kwargs: object) -> Any:
        if torch.compiler.is_compiling():
            return forward(module, *args, **kwargs)
        try:
            return forward(module, *args, **kwargs)
        except (TypeError, ValueError, RuntimeError, AttributeError, LookupError, StopIteration) as err:
            if isinstance(err, KernelError | torch.OutOfMemoryError) or not kwargs.keys() <= defaults.keys():
                raise
            values = {**dict(zip(names, args, strict=False)), **kwargs}
            wrong = {
                n: v for n, v in values.items() if not isinstance(v, torch.Tensor | Proxy) and v is not defaults[n]
            }
            if not wrong:
                raise
            values_of_wrong = ", ".join(f"{name}={_short(value)}" for name, value in wrong.items())
            raise _refusal(subject, "its inputs are tensors", values_of_wrong, "tensors of torch") from err

    return call


def _refusal(subject: str, why: str, given: str, expected: str) -> KernelArgumentError:
    mend = "pass what is expected; help() of it says what each argument means"
    return KernelArgumentError(f"{subject}: {' '.join(why.split())}", given=given, expected=expected, mend=mend)


def _call(subject: str, args: tuple[object, ...], kwargs: Mapping[str, object], owner: type | None) -> str:
    named = [f"{name}={_short(value)}" for name, value in kwargs.items()]
    return f"{subject}({', '.join([*map(_short, args[owner is not None :]), *named])})"


def _text(signature: inspect.Signature, owner: type | None) -> str:
    parameters = [p for p in signature.parameters.values() if owner is None or p.name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, object]) -> str:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        annotation = hints.get(parameter.name, Any)
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


_repr: Final = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_short: Final = _repr.repr


# -- annotations ---------------------------------------------------------------------------------------
def _hints(function: Callable[..., object]) -> dict[str, object]:
    inner = inspect.unwrap(function)
    known = dict.fromkeys(inspect.signature(inner).parameters, Any)
    own = {name: UNANNOTATED[name] for name in known if name in UNANNOTATED}
    try:
        return {**own, **{n: t for n, t in typing.get_type_hints(inner).items() if t is not Any}}
    except NameError:  # a name for type checkers only
        return own


def _fits(name: str, value: object, hints: Mapping[str, object]) -> bool:
    try:
        return name in ("self", "return") or fits(hints.get(name, Any), value)
    except (TypeError, ValueError, RuntimeError):  # a comparison that the value does not know
        return False


def fits(annotation: object, value: object) -> bool:
    """Tells if a value is of an annotated type; without one any value fits."""
    if annotation is Any:
        return True
    if annotation is None or annotation is type(None):
        return value is None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(one, value) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    kind = origin or annotation
    if not isinstance(kind, type) or kind is object:
        return True
    if kind is bool:  # numpy's too
        return isinstance(value, bool) or (type(value).__module__, type(value).__name__[:4]) == ("numpy", "bool")
    if kind is int:
        return isinstance(value, numbers.Integral | torch.SymInt) and not isinstance(value, bool)
    if kind is float:
        is_number = isinstance(value, numbers.Real | torch.SymInt | torch.SymFloat) and not isinstance(value, bool)
        return is_number and bool(value == value)  # and no NaN
    if issubclass(kind, os.PathLike):
        return isinstance(value, os.PathLike)
    if issubclass(kind, tuple | list) or kind in _LISTS:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, collections.abc.Iterable):
            return False
        members = inner[:1] if Ellipsis in inner or not issubclass(kind, tuple) else inner
        if kind not in _ONCE and (
            not isinstance(value, list | tuple) or (len(members) > 1 and len(value) != len(inner))
        ):
            return False
        if not isinstance(value, list | tuple):
            return True
        return all(fits(members[min(i, len(members) - 1)], one) for i, one in enumerate(value)) if members else True
    if issubclass(kind, collections.abc.Mapping):
        return isinstance(value, Mapping)
    if getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)


_ONCE: Final = (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection)
_LISTS: Final = (*_ONCE, collections.abc.Sequence)
