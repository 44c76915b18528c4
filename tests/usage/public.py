"""Every public callable of the packages, with right arguments made from signatures: what is new is called by itself.

A class is called through its constructor and its public methods, on an example of it.  Examples and right values that
signatures do not tell stand in `examples.py`; what cannot be reached so stands there too, with its reason.
"""

from __future__ import annotations

import collections.abc
import enum
import importlib
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch

from burn_torch import Tensor
from burn_torch.config import Config
from burn_torch.core.annotations import MAY_BE_NAN, OR_OF_TORCH
from burn_torch.ops import Op
from tests.usage import examples
from tests.usage.fuzzing import LEFT_OUT, MORE, NAMED, WRONG, Callee, Changed, Fresh

PACKAGES: Final = (
    "burn_torch",
    "burn_torch.config",
    "burn_torch.data",
    "burn_torch.distributed",
    "burn_torch.module",
    "burn_torch.monitor",
    "burn_torch.nn",
    "burn_torch.onnx",
    "burn_torch.optim",
    "burn_torch.record",
    "burn_torch.record.stores",
    "burn_torch.tensor",
    "burn_torch.train",
    "burn_torch.transform",
    "burn_kernels",
    "burn_kernels.autotune",
    "burn_kernels.torch",
)


PUBLIC: Final = {
    value
    for package in PACKAGES
    for name in importlib.import_module(package).__all__
    if inspect.isclass(value := getattr(importlib.import_module(package), name))
}
COVERED: Final = frozenset(f"burn_torch.nn.{name}" for name in importlib.import_module("burn_torch.nn").__all__)
"""Layers, whose constructors `fuzzing.layers` calls."""


def public_callees() -> list[Callee]:
    """One for each public function, constructor and method."""
    seen: set[Any] = set()
    callees = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if not callable(value) or id(value) in seen or value is Tensor or isinstance(value, Op):
                continue
            if inspect.isclass(value) and issubclass(value, Exception):
                continue
            seen.add(id(value))
            callees += [callee for callee in _callees_of(f"{package}.{name}", value) if callee is not None]
    return callees


def _callees_of(name: str, value: Any) -> Iterator[Callee | None]:
    if not inspect.isclass(value):
        yield _callee(name, value)
        return
    if getattr(value, "_is_protocol", False):  # what users write and the library calls: nothing stands in it
        return
    is_open = inspect.isabstract(value) or issubclass(value, enum.Enum)
    is_config = issubclass(value, Config) and value is not Config  # those of `fuzzing.configurations`
    if not is_open and not is_config and name not in COVERED:
        yield _callee(name, value)
    for method in dir(value):
        static = inspect.getattr_static(value, method)
        home = next((base for base in value.__mro__ if method in vars(base)), object)
        if method.startswith("_") or not home.__module__.startswith(("burn_torch", "burn_kernels")):
            continue
        if (home is not value and home in PUBLIC) or (is_config and method.startswith("with_")):
            continue  # called on an example of the class that has it
        if isinstance(static, staticmethod | classmethod):
            yield _callee(f"{name}.{method}", getattr(value, method))
        elif inspect.isfunction(static) and not getattr(static, "__isabstractmethod__", False):
            yield _callee(f"{name}.{method}", static, value)


def _callee(name: str, function: Callable[..., Any], owner: type | None = None) -> Callee | None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a class that is written in C
        return None
    own = examples.RIGHT.get(name, {})
    values: dict[str, Any] = {}
    first = True
    for key, parameter in signature.parameters.items():
        if first and owner is not None:
            values[key] = own.get("self", Fresh(lambda: example_of(owner)))
        elif key in own:
            values[key] = own[key]
        elif parameter.kind is parameter.VAR_POSITIONAL:
            values[key] = Fresh(lambda p=parameter, f=function: (value_for(p, f),))
        elif parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty:
            values[key] = Fresh(lambda p=parameter, f=function: value_for(p, f))
        first = False
    varied = [key for key, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
    return Callee(name, function, values, tuple(varied[1:] if owner is not None else varied))


# -- right values -----------------------------------------------------------------------------------------
def value_for(parameter: inspect.Parameter, function: Callable[..., Any]) -> Any:
    """A value that fits a parameter: by its annotation, else by its name."""
    if parameter.name in examples.BY_NAME:
        value = examples.BY_NAME[parameter.name]
        return value.make() if isinstance(value, Fresh) else value
    return example_of(annotation_of(parameter, function))


def annotation_of(parameter: inspect.Parameter, function: Callable[..., Any]) -> Any:
    """The type that a parameter is annotated with; Any where it says none, or one for type checkers only."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__init__", inner) if inspect.isclass(inner) else getattr(inner, "__func__", inner)
    inner = inspect.unwrap(inner)
    scope = getattr(inner, "__globals__", None) or vars(importlib.import_module(function.__module__))
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": annotation}), scope, None, True)["it"]
    except Exception:
        return Any


_PLAIN: Final[dict[Any, Any]] = {
    int: 2,
    float: 0.5,
    bool: False,
    str: "word",
    bytes: b"bytes",
    None: None,
    type(None): None,
    Path: Fresh(lambda: Path("file")),
    os.PathLike: Fresh(lambda: Path("file")),
}


def example_of(annotation: Any) -> Any:
    """A value of a type."""
    try:
        hash(annotation)
    except TypeError:
        return None
    if annotation in examples.EXAMPLES:
        return examples.EXAMPLES[annotation]()
    if annotation in _PLAIN:
        value = _PLAIN[annotation]
        return value.make() if isinstance(value, Fresh) else value
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return example_of(inner[0])
    if origin is Literal:
        return inner[0]
    if origin in (typing.Union, types.UnionType):
        return example_of(inner[0])
    if origin is collections.abc.Callable or annotation is Callable:
        return lambda *args, **kwargs: args[0] if args else example_of(inner[-1]) if inner else None
    if origin is not None and inspect.isclass(origin):
        if origin in examples.EXAMPLES:
            return examples.EXAMPLES[origin]()
        if origin in _PLAIN:
            return example_of(origin)
        if issubclass(origin, collections.abc.Mapping):
            return {example_of(inner[0]): example_of(inner[1])}
        if issubclass(origin, tuple) and Ellipsis not in inner:
            return tuple(example_of(one) for one in inner)
        if issubclass(origin, collections.abc.Iterable):
            return [example_of(inner[0])] if inner else []
        if origin is type:
            return inner[0] if inner else int
        annotation = origin
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar) or not inspect.isclass(annotation):
        return None
    if getattr(annotation, "_is_protocol", False) or inspect.isabstract(annotation):
        raise LookupError(f"no example of {annotation.__name__}")
    if issubclass(annotation, enum.Enum):
        return next(iter(annotation))
    if issubclass(annotation, Config):
        from tests.usage.fuzzing import CONFIGS, fields_of

        return annotation(**{**fields_of(annotation), **CONFIGS.get(annotation.__name__, {})})
    callee = _callee(annotation.__name__, annotation)
    return None if callee is None else callee.call({})


# -- what an annotation says of a value ------------------------------------------------------------------------
def fits(annotation: Any, value: Any) -> bool:
    """Returns whether a value is of an annotated type; what the annotation leaves open fits."""
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar | typing.ParamSpec):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        is_nan = MAY_BE_NAN in inner and isinstance(value, float)
        return is_nan or (OR_OF_TORCH in inner and isinstance(value, torch.Tensor)) or fits(inner[0], value)
    if origin in (typing.Union, types.UnionType):
        return any(fits(one, value) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is collections.abc.Callable or annotation is Callable:
        return callable(value)
    kind = origin or annotation
    if not inspect.isclass(kind):
        return True
    if kind is type:
        return inspect.isclass(value)
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (is_number and value == value) or type(value).__module__ == "numpy"
    if kind is int:
        return (isinstance(value, int) and not isinstance(value, bool)) or type(value).__name__ == "int64"
    if issubclass(kind, os.PathLike):
        return isinstance(value, os.PathLike)
    if getattr(kind, "_is_protocol", False):
        names = [n for n in vars(kind) if not n.startswith("_") or n in ("__len__", "__getitem__")]
        return all(hasattr(value, name) for name in names)
    if kind in (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection):
        if isinstance(value, str | bytes) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
            return False
        if getattr(value, "ndim", 1) != 1:
            return not inner or inner[0] is Any
        members = inner[:1] if Ellipsis in inner or kind is not tuple else ()
        return all(fits(one, member) for one in members for member in value)
    return isinstance(value, kind)


# -- wrong calls -----------------------------------------------------------------------------------------
def calls_of(callee: Callee) -> Iterator[tuple[str, Changed, bool]]:
    """Wrong calls: how each is told, what it changes, and whether its values fit after all."""
    parameters = inspect.signature(callee.function).parameters
    kinds = {p.kind for p in parameters.values()}
    for name in callee.varied:
        annotation = annotation_of(parameters[name], callee.function)
        for kind, value in WRONG.items():
            yield f"{name}={kind}", {name: value}, fits(annotation, value)
        parameter = parameters[name]
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            yield f"without {name}", {name: LEFT_OUT}, False
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        every = {name: p.default for name, p in parameters.items() if name not in callee.parameters}
        yield "one argument more", {**every, MORE: (1,)}, False
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        yield "unknown keyword", {NAMED: {"misspelt": 1}}, False
