"""Arguments checked once at the border, from annotations: one error tells all faults of a call.

    @checked(num_epochs=at_least(1))
    def train(path: str | Path, num_epochs: int, callback: Callable[[int], None] | None = None) -> None: ...

`check_exports` does so for all that a package exports.  A call costs about a microsecond more; what is called in every
step is looked at where it has failed.  Kinds that an annotation cannot say are unchecked: see `annotations`.
"""

from __future__ import annotations

import enum
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, overload

from burn_torch.core.annotations import Measured, Taken, above, at_least, between, holds, resolved, taken_by
from burn_torch.core.errors import ArgumentError, BurnTorchError
from burn_torch.core.frames import at_user_line, unwatched
from burn_torch.core.misfits import is_from_inside, misfit_of, opaque, worded, wrap_functions
from burn_torch.core.wording import described

__all__ = [
    "Measured",
    "Taken",
    "above",
    "at_least",
    "between",
    "check_exports",
    "check_functions",
    "checked",
    "checked_after",
    "checked_late",
    "described",
    "holds",
    "on_error",
    "taken_by",
]

F = TypeVar("F", bound=Callable[..., Any])


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
    for name, function, wrapped_as in _methods_of(target):
        if name not in but:
            subject = target.__name__ if name == "__init__" else f"{target.__name__}.{name}"
            setattr(target, name, wrapped_as(_checked_function(function, subject, error, rules, (), target)))
    if but:
        setattr(target, _LEFT, (*getattr(target, _LEFT, ()), *but))
    return target


_LEFT: Final = "_left_unchecked"
"""The attribute of a class that names the methods which `checked` left, also those of its subclasses."""


def check_exports(
    scope: dict[str, Any],
    *,
    error: type[BurnTorchError] = ArgumentError,
    hot: tuple[str, ...] = (),
    quick: bool = False,
    but: tuple[str, ...] = (),
) -> None:
    """`checked` for what a package exports and what does not check itself: `check_exports(globals())` at its end.

    Constructors are looked at after the call, so that errors of their own come first.

    error   the class of the errors
    hot     functions, constructors and methods of every step, which are looked at where they have failed
    quick   whether all methods but the builders (`with_...`, `init`, hooks of visitors) are
    but     what is left as it is
    """
    package = scope["__name__"]
    for name in scope["__all__"]:
        value = scope.get(name)
        home = getattr(value, "__module__", None) or ""
        if not home.startswith(package) or hasattr(value, "__wrapped__") or name in but:
            continue
        if isinstance(value, type) and not issubclass(value, enum.Enum | BaseException):
            for base in value.__mro__:  # what it has of a class that is not exported too
                if base.__module__.startswith(package) and not getattr(base, "_is_protocol", False):
                    _check_class(base, error, hot, quick, but)


def _check_class(
    cls: Any, error: type[BurnTorchError], hot: tuple[str, ...], quick: bool, but: tuple[str, ...]
) -> None:
    owner = cls.__name__.lstrip("_")
    hot = (*hot, *getattr(cls, _LEFT, ()))
    for name, function, wrapped_as in _methods_of(cls):
        subject = owner if name == "__init__" else f"{owner}.{name}"
        if subject in but or name in but:
            continue
        if name == "__init__":
            if subject in hot or hasattr(cls, "__module_fields__"):  # a module checks its fields
                continue
            wrapper = checked_after(function, subject, error, cls)
        elif subject in hot or name in hot or (quick and not name.startswith(_BUILDERS) and wrapped_as is _itself):
            wrapper = checked_late(function, subject)
        else:
            wrapper = _checked_function(function, subject, error, {})
        setattr(cls, name, wrapped_as(wrapper))


_BUILDERS: Final = ("with_", "init", "visit_", "map_", "enter_", "exit_")
"""Methods that are called a few times, how often the others are called."""


def _methods_of(cls: type) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """The constructor and the public methods with parameters of a class' own body, and what each is wrapped in."""
    methods: list[tuple[str, object, Callable[[Any], object]]] = []
    for name, member in vars(cls).items():
        is_wrapped = isinstance(member, staticmethod | classmethod)
        function = member.__func__ if is_wrapped else member
        if (name.startswith("_") and name != "__init__") or not inspect.isfunction(function):
            continue
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount - (not isinstance(member, staticmethod))
        if hasattr(function, "__wrapped__") or inspect.iscoroutinefunction(function):
            continue
        if count > 0 or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            methods.append((name, function, type(member) if is_wrapped else _itself))
    return methods


def _itself(function: object) -> Any:
    return function


# -- three ways to look at arguments -----------------------------------------------------------------------
def _checked_function(
    function: F,
    subject: str,
    error: type[BurnTorchError],
    rules: Mapping[str, Taken],
    but: tuple[str, ...] = (),
    owner: type | None = None,
) -> F:
    """Before the call."""
    find = _finder(function, subject, error, rules, but, owner)

    @functools.wraps(function)
    def check(*args: object, **kwargs: object) -> Any:
        fault = find(args, kwargs)
        if fault is not None:
            raise fault
        try:
            return function(*args, **kwargs)
        except TypeError as err:
            if is_from_inside(err):
                raise
            raise misfit_of(function, subject, args, kwargs) from None

    return typing.cast(F, _named_as(function, check))


def checked_after(
    function: F,
    subject: str = "",
    error: type[BurnTorchError] = ArgumentError,
    owner: type | None = None,
    *,
    tensors: bool = False,
) -> F:
    """After the call of a constructor or its like, so that errors of its own come first.

    tensors     whether a number may be a tensor, too
    """
    subject = subject or function.__qualname__
    find = _finder(function, subject, error, {}, owner=owner, tensors=tensors)

    @functools.wraps(function)
    def check(*args: object, **kwargs: object) -> Any:
        try:
            result = function(*args, **kwargs)
        except BurnTorchError:
            raise
        except Exception as err:
            if isinstance(err, TypeError) and not is_from_inside(err):
                raise misfit_of(function, subject, args, kwargs) from None
            fault = find(args, kwargs)
            if fault is None:
                raise
            raise fault from err
        fault = find(args, kwargs)
        if fault is not None:
            raise fault
        return result

    return typing.cast(F, _named_as(function, check))


def checked_late(function: F, subject: str = "") -> F:
    """Checks the arguments once a call has failed: for functions that run in every step; 0.04 us a call."""
    subject = subject or function.__qualname__
    find = _finder(function, subject, ArgumentError, {})
    look = getattr(function, _ON_ERROR, None)

    def reworded(err: Exception, values: Mapping[str, object]) -> Exception:
        if isinstance(err, BurnTorchError):
            if look is not None:
                look(err, values["self"])
            return err
        kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
        named = {n: v for n, v in values.items() if kinds.get(n) is not inspect.Parameter.VAR_POSITIONAL}  # a tuple
        return find((), named) or err

    return worded(function, subject, reworded)


def check_functions(scope: dict[str, Any], package: str) -> None:
    """`checked_late` for the functions that a module exports to a package: `check_functions(globals(), "vision")`."""
    wrap_functions(scope, package, checked_late)


_ON_ERROR: Final = "_on_error"


def on_error(look: Callable[[BurnTorchError, Any], object]) -> Callable[[F], F]:
    """Marks methods whose errors `look(error, self)` sees; `checked_late` calls it, so a right call costs nothing."""

    def mark(method: F) -> F:
        setattr(method, _ON_ERROR, look)
        return method

    return mark


def _named_as(function: Callable[..., Any], check: Any) -> object:
    """In tracebacks, and for `called_name`, it is the function itself."""
    check.__code__ = check.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    return opaque(check)


# -- faults --------------------------------------------------------------------------------------------------
Finder = Callable[[tuple[Any, ...], Mapping[str, Any]], BurnTorchError | None]


def _finder(
    function: Any,
    subject: str,
    error: type[BurnTorchError],
    rules: Mapping[str, Taken],
    but: tuple[str, ...] = (),
    owner: type | None = None,
    tensors: bool = False,
) -> Finder:
    """Returns a function that finds the faults of a call's arguments and words them in one error."""
    parameters: Mapping[str, inspect.Parameter] = {}
    places: list[str] = []
    rest: str | None = None
    checks: dict[str, tuple[frozenset[type], tuple[Taken, ...]]] = {}

    def prepare() -> None:
        nonlocal parameters, places, rest
        signature = inspect.signature(function).parameters
        places = [name for name, p in signature.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        rest = next((name for name, p in signature.items() if p.kind is p.VAR_POSITIONAL), None)
        with unwatched():  # evaluating annotations is nothing that a traced function reads
            kinds = {name: taken_by(resolved(function, p.annotation, owner)) for name, p in signature.items()}
        for name, taken in kinds.items():
            own = (
                ()
                if taken is None or name in but or signature[name].kind is inspect.Parameter.VAR_KEYWORD
                else (taken,)
            )
            tests = (*own, *((rules[name],) if name in rules else ()))
            if tests:
                checks[name] = (tests[0].always if len(tests) == 1 else _NO_CLASS, tests)
        parameters = signature

    def find(args: tuple[object, ...], kwargs: Mapping[str, object]) -> BurnTorchError | None:
        if not parameters:
            prepare()
        faults: list[tuple[str, Any, str]] = []
        further = () if rest is None else [(rest, value) for value in args[len(places) :]]
        for name, value in (*zip(places, args, strict=False), *further, *kwargs.items()):
            if name not in checks:
                continue
            always, tests = checks[name]
            if value.__class__ in always or value is parameters[name].default:
                continue
            fault = next((taken for taken in tests if not holds(taken, value)), None)
            if tensors and hasattr(value, "primitive") and any(taken.fits(0.5) for taken in tests):
                continue
            if fault is not None:
                faults.append((name, value, fault.text))
        if not faults:
            return None
        return _error_of(subject, faults, error, alone=len([name for name in parameters if name not in _OWNERS]) == 1)

    return find


_NO_CLASS: Final = frozenset[type]()
_OWNERS: Final = ("self", "cls")


def _error_of(
    subject: str, faults: list[tuple[str, object, str]], error: type[BurnTorchError], *, alone: bool
) -> BurnTorchError:
    names = " and ".join(dict.fromkeys(name for name, _, _ in faults))
    called = subject.rpartition(".")[2]
    return at_user_line(
        error(
            f"{subject}: {names} {'is' if len(faults) == 1 else 'are'} not what it takes",
            given="\n            ".join(
                f"{called}({described(value) if alone else f'{name}={described(value)}'})" for name, value, _ in faults
            ),
            expected="\n            ".join(f"{name}: {text}" for name, _, text in faults),
            mend="; ".join(f"for {name} pass {text}" for name, _, text in faults),
        )
    )
