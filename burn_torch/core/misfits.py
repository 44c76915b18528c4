"""Calls whose arguments fit no parameter, as PyTorch, numpy and JAX would write them: told in three parts.

    x.argmax(axis=1, keepdim=True)      mend: argmax(dim=1); without keepdim: a reduced axis stays, with size 1; ...

Python words such a call before the function begins.  `worded` puts a function of the same parameters in front of it,
whose text follows from the signature: a right call binds as before, and costs 0.06 us more (Python 3.11; 0.1 with *).
"""

from __future__ import annotations

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any, Final, NamedTuple, TypeVar

from burn_torch.core.errors import DTypeError, explain
from burn_torch.core.frames import at_user_line
from burn_torch.core.spellings import read_tables
from burn_torch.core.wording import described

__all__ = [
    "WORDED",
    "is_from_inside",
    "misfit",
    "misfit_of",
    "opaque",
    "word_functions",
    "word_methods",
    "worded",
    "worded_late",
    "wrap_functions",
]

F = TypeVar("F", bound=Callable[..., Any])

_MISSING: Final = object()
WORDED: Final = "<burn_torch worded>"
"""The file of the functions that `worded` makes."""


Reworded = Callable[[Exception, Mapping[str, Any]], Exception]


def worded(function: F, subject: str = "", reworded: Reworded | None = None) -> F:
    """The function, which refuses what fits no parameter in three parts.

    subject     what users call it: "Tensor.argmax"; its qualified name unless given
    reworded    gives what is raised for an error from inside, of that and of the arguments
    """
    subject = subject or function.__qualname__.removesuffix(".__init__")
    scope: dict[str, Any] = {"_function": function, "_missing": _MISSING}
    written, passed, wrong = [], [], []
    parameters = _parameters_of(function)
    kinds = {parameter.kind for parameter in parameters}
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds
    for name, kind, default in parameters:
        if kind in _STARRED:
            text = ("*" if kind is _STARRED[0] else "**") + name
            written.append(text)
            passed.append(text)
            continue
        by_name = kind is inspect.Parameter.KEYWORD_ONLY
        if by_name and not is_open:
            written.append("*_more")
            is_open = True
        scope[f"_default_{name}"] = default
        written.append(f"{name}=_default_{name}")
        passed.append(f"{name}={name}" if by_name else name)
        if default is _MISSING and name not in ("self", "cls"):
            wrong.append(f"{name} is _missing")
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        written += [] if is_open else ["*_more"]
        wrong.append("_more")
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        written.append("**_named")
        wrong.append("_named")
    if not wrong:
        return function

    def refuse(values: Mapping[str, Any]) -> DTypeError:
        filled = {n: v for n, v in values.items() if v is not scope.get(f"_default_{n}", _MISSING)}
        return misfit(function, subject, filled, filled.pop("_more", ()), filled.pop("_named", {}))

    scope |= {"_refuse": refuse, "_reworded": reworded}
    call = f"  return _function({', '.join(passed)})\n"
    again = "   _told = _reworded(_err, locals())\n   if _told is _err: raise\n   raise _told from _err\n"
    guarded = f"  try:\n {call}  except Exception as _err:\n{again}"
    text = (
        f"def make({', '.join(scope)}):\n"
        f" def call({', '.join(written)}):\n"
        f"  if {' or '.join(wrong)}: raise _refuse(locals())\n"
        f"{call if reworded is None else guarded}"
        " return call"
    )
    makers: dict[str, Any] = {}
    exec(_compile_text(text), function.__globals__, makers)  # of the signature's own names
    front = makers["make"](**scope)
    name = function.__name__
    front.__code__ = front.__code__.replace(co_name=name, co_qualname=f"make.<locals>.{name}")
    return opaque(typing.cast(F, functools.wraps(function)(front)))


@functools.cache
def _compile_text(text: str) -> CodeType:
    """The code of a text; functions of the same parameters share it."""
    return compile(text, WORDED, "exec")


class _Parameter(NamedTuple):
    name: str
    kind: object
    default: object


def _parameters_of(function: Callable[..., object]) -> list[_Parameter]:
    """The parameters of a function; of one that no other wraps they are read off its code, ten times as fast."""
    if hasattr(function, "__wrapped__") or hasattr(function, "__signature__") or not hasattr(function, "__code__"):
        shown = inspect.signature(function).parameters.values()
        return [_Parameter(p.name, p.kind, _MISSING if p.default is p.empty else p.default) for p in shown]
    code = function.__code__
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    values = function.__defaults__ or ()
    defaults = (*(_MISSING,) * (first - len(values)), *values)
    by_name = function.__kwdefaults__ or {}
    kinds = [_POSITIONAL_ONLY] * code.co_posonlyargcount + [_POSITIONAL] * (first - code.co_posonlyargcount)
    parameters = [_Parameter(*each) for each in zip(names, kinds, defaults, strict=False)]
    if code.co_flags & inspect.CO_VARARGS:
        parameters.append(_Parameter(names[last], _STARRED[0], _MISSING))
        last += 1
    parameters += [
        _Parameter(name, inspect.Parameter.KEYWORD_ONLY, by_name.get(name, _MISSING))
        for name in names[first : first + code.co_kwonlyargcount]
    ]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parameters.append(_Parameter(names[last], _STARRED[1], _MISSING))
    return parameters


def opaque(function: F) -> F:
    """The function, into which torch.compile does not look: with fullgraph=True, and in torch.export, it says why."""
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_UNTRACED)
    return function


def worded_late(function: F, subject: str = "") -> F:
    """`worded` for functions that are called a few times a run: without a text of its own; 0.09 us a call."""

    subject = subject or function.__qualname__

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as err:
            if is_from_inside(err):
                raise
            raise misfit_of(function, subject, args, kwargs) from None

    return opaque(typing.cast(F, call))


def is_from_inside(err: TypeError) -> bool:
    """Says that a function which was called raised it, and not the call."""
    return err.__traceback__ is None or err.__traceback__.tb_next is not None


def word_methods(owner: type, home: type) -> None:
    """`worded` for the public methods with parameters that a class has in its own body, in the name of `owner`."""
    seen: dict[Any, Any] = {}
    for name, member in list(vars(home).items()):
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not inspect.isfunction(function):
            continue
        opaque(function)
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(function) or hasattr(function, "__wrapped__"):
            continue
        if function not in seen:
            function.__module__, function.__qualname__ = owner.__module__, f"{owner.__name__}.{function.__name__}"
            is_bare = len(_parameters_of(function)) <= (not isinstance(member, staticmethod))
            seen[function] = function if is_bare else worded(function, function.__qualname__)
        setattr(home, name, seen[function] if member is function else type(member)(seen[function]))


def word_functions(scope: dict[str, Any], package: str = "") -> None:
    """`worded` for the functions that a module exports: `word_functions(globals())` at its end.

    package     the one from which users take its functions; the module itself unless given
    """
    wrap_functions(scope, package or scope["__name__"].rpartition(".")[2], worded)


def wrap_functions(scope: dict[str, Any], package: str, wrap: Callable[[Any, str], object]) -> None:
    """Puts `wrap(function, "package.function")` in the place of each function that a module has and exports."""
    exported = {name: scope[name] for name in scope["__all__"] if inspect.isfunction(scope[name])}
    own = {name: function for name, function in exported.items() if function.__module__ == scope["__name__"]}
    fronts = {function: wrap(function, f"{package}.{function.__name__}") for function in own.values()}
    scope.update({name: fronts[function] for name, function in own.items()})  # one function under two names stays one


# -- words --------------------------------------------------------------------------------------------------
def misfit(
    function: Callable[..., object], subject: str, values: Mapping[str, object], more: tuple[object, ...],
    named: Mapping[str, object],
) -> DTypeError:  # fmt: skip
    """The error of a call: the parameters that it fills, further positional arguments, and unknown keywords."""
    parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in ("self", "cls")}
    called = subject.rpartition(".")[2]
    values = {n: v for n, v in values.items() if n in parameters}
    missing = [n for n, p in parameters.items() if n not in values and p.default is p.empty and p.kind not in _STARRED]
    filled = {n: f"{n}={_short(v)}" for n, v in values.items() if parameters[n].kind not in _STARRED}
    left_out, renamed = [], dict(filled)
    for name, value in named.items():
        ours = next((n for n in _twins(name) if n in parameters and n not in renamed), None)
        close = difflib.get_close_matches(name, [n for n in parameters if n not in renamed], 1, 0.75)
        if ours == "options":
            pair = [n for n in ("device", "dtype") if n in named]
            renamed[ours] = f"options=({', '.join(pair)})" if len(pair) == 2 else f"options={_OPTIONS[name]}"
        elif ours is not None or close:
            new = ours or close[0]
            is_starred = parameters[new].kind in _STARRED
            renamed[new] = f"*{_short(value)}" if is_starred else f"{new}={_short(value)}"
        elif not (name in _OPTIONS and "options" in renamed):
            left_out.append(f"without {name}: {_REASONS.get(name, 'it has no such parameter')}")
    for name in missing:
        renamed.setdefault(name, f"{name}={_EXAMPLES.get(name, '...')}")
    order = [n for n in parameters if n in renamed]
    if more and not left_out:
        left_out.append(f"without the last {len(more)}" if len(more) > 1 else "without the last argument")
    about = (inspect.getdoc(function) or "").split("\n", 1)[0]
    faults = [
        *([f"it needs {' and '.join(missing)}"] if missing else []),
        *([f"it takes no {' and '.join(named)}"] if named else []),
        *([f"{len(more)} positional arguments are left over"] if more else []),
    ]
    written = [*filled.values(), *map(_short, more), *(f"{n}={_short(v)}" for n, v in named.items())]
    return at_user_line(
        DTypeError(
            f"{subject}: {'; '.join(faults)}",
            given=f"{called}({', '.join(written)})",
            expected=f"{called}({', '.join(map(_parameter, parameters.values()))})" + (f": {about}" if about else ""),
            mend="; ".join([f"{called}({', '.join(renamed[n] for n in order)})", *left_out]),
        )
    )


def misfit_of(
    function: Callable[..., object], subject: str, args: tuple[object, ...], named: Mapping[str, object]
) -> DTypeError:
    """`misfit` of a call as it was written."""
    parameters = inspect.signature(function).parameters
    places = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    values = dict(zip(places, args, strict=False))
    known = {n: v for n, v in named.items() if n in parameters and n not in values}
    unknown = {n: v for n, v in named.items() if n not in known}
    return misfit(function, subject, {**values, **known}, args[len(places) :], unknown)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (_STARRED.index(parameter.kind) + 1 if parameter.kind in _STARRED else 0)
    default = "" if parameter.default is parameter.empty else f"={parameter.default!r:.30}"
    return f"{stars}{parameter.name}{default}"


def _short(value: object) -> str:
    spec = getattr(value, "spec", None)
    return f"{type(value).__name__} {spec}" if hasattr(value, "primitive") else " ".join(described(value).split())


def _twins(name: str) -> Iterable[str]:
    groups = ([ours, *others.split()] for ours, others in _TWINS.items())
    return (twin for group in groups if name in group for twin in group if twin != name)


_UNTRACED: Final = explain(
    "torch.compile(fullgraph=True) and torch.export do not trace burn_torch",
    given="a call of burn_torch inside of a function that torch traces whole",
    expected="functions of torch alone, or torch.compile without fullgraph, which leaves its graph here",
    mend="burn_torch.compile(function) for what is written with burn_torch, burn_torch.onnx.export to hand it on",
)
_STARRED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_POSITIONAL_ONLY: Final = inspect.Parameter.POSITIONAL_ONLY
_OPTIONS: Final = {"device": "device", "dtype": "(device, dtype)"}
_TWINS, _REASONS, _EXAMPLES = read_tables("arguments.txt", "TWINS", "REASONS", "EXAMPLES")
