"""Old names, functions, classes and arguments that still work, and say what to write instead.

    @deprecated(since="0.2", removed_in="0.4", instead="Tensor.sum_dim")
    def sum_along(x: Tensor, dim: int) -> Tensor: ...

    @deprecated_argument("axis", since="0.2", removed_in="0.4", new="dim")
    def sum_dim(self, dim: int) -> Tensor: ...

    deprecate_names(globals(), {"Linear1d": "Linear"}, since="0.2", removed_in="0.4")

Each warns once a line of the user's, with a `BurnTorchDeprecationWarning`.  The policy is in `docs/deprecation.md`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from burn_torch.core.errors import ArgumentError, explain
from burn_torch.core.frames import user_frame

__all__ = ["BurnTorchDeprecationWarning", "Deprecation", "deprecate_names", "deprecated", "deprecated_argument"]

F = TypeVar("F", bound=Callable[..., Any])


class BurnTorchDeprecationWarning(DeprecationWarning):
    """Something of burn_torch still works and will be removed; the message says when, and what to write instead."""


@dataclass(frozen=True)
class Deprecation:
    """A deprecated name: since which release, in which release it goes, and what stands for it."""

    subject: str
    since: str
    removed_in: str
    instead: str

    def __post_init__(self) -> None:
        first, last = (_release_of(version, self.subject) for version in (self.since, self.removed_in))
        earliest = (0, first[1] + 2) if first[0] == 0 else (first[0] + 1, 0)
        if last < earliest and last[0] <= first[0]:
            raise ArgumentError(
                f"{self.subject}: it would be removed too early",
                given=f"since={self.since!r}, removed_in={self.removed_in!r}",
                expected="two minor releases later before 1.0, else the next major one: see docs/deprecation.md",
                mend=f'removed_in="{earliest[0]}.{earliest[1]}"',
            )

    def warn(self, given: str) -> None:
        """Warns at the nearest line of the user, once a line, while the filters of warnings stay the same."""
        frame, _ = user_frame(sys._getframe(1))
        place = (self.subject, frame.f_code.co_filename, frame.f_lineno)
        if _noticed.get(place) is warnings.filters:
            return
        message = explain(
            f"{self.subject} is deprecated since {self.since}",
            given=given,
            expected=f"{self.instead}; {self.removed_in} removes {self.subject}",
            mend=f"write {self.instead}",
        )
        module, registry = frame.f_globals.get("__name__", "__main__"), None
        warnings.warn_explicit(message, BurnTorchDeprecationWarning, place[1], place[2], module, registry)
        _noticed[place] = warnings.filters


_noticed: Final[dict[tuple[str, str, int], object]] = {}


def deprecated(*, since: str, removed_in: str, instead: str, name: str | None = None) -> Callable[[F], F]:
    """Deprecates a function, a method or a class; calls, new instances and subclasses warn.

    Write it above every other decorator.

    since        the release that deprecates it, "0.2"
    removed_in   the release that removes it: two minor ones later before 1.0, else the next major one
    instead      what to write in its place
    name         what users call it; the qualified name where it is None
    """

    def decorate(target: Any) -> Any:
        notice = Deprecation(name or target.__qualname__, since, removed_in, instead)
        if isinstance(target, type):
            return _deprecate_class(target, notice)

        @functools.wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            notice.warn(f"{notice.subject}(...)")
            return target(*args, **kwargs)

        return call

    return decorate


def deprecated_argument(
    old: str, *, since: str, removed_in: str, new: str | None = None, instead: str | None = None
) -> Callable[[F], F]:
    """Deprecates a keyword of a function; its value goes on as the parameter `new`, or is dropped where that is None.

    The function itself no longer declares `old`.  Write it above every other decorator.
    Raises: ArgumentError in a call that gives both.
    """

    def decorate(function: Any) -> Any:
        subject = f"{function.__qualname__}({old}=...)"
        notice = Deprecation(subject, since, removed_in, instead or (f"{new}=..." if new else f"no {old}"))
        names = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if old not in kwargs:
                return function(*args, **kwargs)
            value = kwargs.pop(old)
            notice.warn(f"{old}={value!r}"[:200])
            if new is not None and (new in kwargs or new in names[: len(args)]):
                raise ArgumentError(
                    f"{function.__qualname__}: {old} and {new} are one parameter",
                    given=f"{old}={value!r}"[:200] + f" beside {new}",
                    expected=f"{new} alone; {old} is its old name",
                    mend=f"leave {old} out",
                )
            return function(*args, **kwargs, **({} if new is None else {new: value}))

        return call

    return decorate


def deprecate_names(scope: dict[str, Any], names: Mapping[str, str], *, since: str, removed_in: str) -> None:
    """Keeps old names of a module: `deprecate_names(globals(), {"Old": "New"}, ...)` at its end.

    A value is the new name in this module, or "package.module:Name" for one that moved.
    """
    module, before = scope["__name__"], scope.get("__getattr__")
    notices = {}
    for old, new in names.items():
        home, _, attribute = new.rpartition(":")
        home = home or module
        notices[old] = Deprecation(f"{module}.{old}", since, removed_in, f"{home}.{attribute}"), home, attribute

    def look_up(name: str) -> Any:
        if name in notices:
            notice, home, attribute = notices[name]
            notice.warn(notice.subject)
            return getattr(importlib.import_module(home), attribute)
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    scope["__getattr__"] = look_up


def _deprecate_class(cls: Any, notice: Deprecation) -> Any:
    create, inherit = cls.__new__, getattr(cls.__init_subclass__, "__func__", None)

    @functools.wraps(create)
    def new(kind: Any, /, *args: Any, **kwargs: Any) -> Any:
        if kind is cls:
            notice.warn(f"{notice.subject}(...)")
        return create(kind) if create is object.__new__ else create(kind, *args, **kwargs)

    def init_subclass(kind: Any, /, **options: Any) -> None:
        notice.warn(f"class {kind.__name__}({notice.subject})")
        if inherit is None:
            super(cls, kind).__init_subclass__(**options)
        else:
            inherit(kind, **options)

    cls.__new__ = staticmethod(new)
    cls.__init_subclass__ = classmethod(init_subclass)
    return cls


def _release_of(version: str, subject: str) -> tuple[int, int]:
    numbers = version.split(".")
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
        raise ArgumentError(
            f"{subject}: this is no release", given=repr(version), expected='"0.2"', mend="write major.minor"
        )
    return int(numbers[0]), int(numbers[1])
