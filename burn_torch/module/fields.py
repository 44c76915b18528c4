"""Defines what the fields of a module may hold: what no optimizer, record or `to_device` would reach is refused.

The tree is made of declared fields.  A parameter that stands elsewhere (in a class attribute, a set, an object, a
closure, a torch module) computes as any other but is never trained, saved or moved.  A class statement and a
constructor say so at once, in the user's words.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, NoReturn

import torch

from burn_torch.config._containers import TupleKind
from burn_torch.config._kinds import BoolKind, IntKind
from burn_torch.config._schema import schema_of
from burn_torch.core.errors import ArgumentError, BurnTorchError, ConfigError, DTypeError
from burn_torch.core.faults import Place, raise_faults
from burn_torch.core.frames import warn_user
from burn_torch.module.annotations import (
    evaluate,
    fits,
    hints_of,
    is_kind_of_node,
    is_ours,
    is_torch,
    parts_of,
    text_of,
)
from burn_torch.module.param import Param
from burn_torch.module.reach import PLAIN, hidden_in, is_trainable
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import Tree, is_node
from burn_torch.tensor import Tensor

__all__ = ["UntrainedWarning", "check_class", "check_fields", "checked_constructor", "require_declared"]


class UntrainedWarning(UserWarning):
    """Something that looks trained is not: a field holds a tensor with gradients, which is a constant; or the gradients
    of a backward stop before a module's parameters.
    """


# -- class statements -------------------------------------------------------------------------------
def check_class(cls: type[Tree]) -> None:
    """Refuses a class whose statement leaves parameters outside of the fields.  Raises: ArgumentError."""
    declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # every tree is a dataclass
    for base in cls.__mro__:
        if base is not cls and (issubclass(base, Tree) or base is object):
            continue
        for name, value in list(base.__dict__.items()):
            if name not in declared and not name.startswith("__") and is_trainable(_unbound(value)):
                _refuse_attribute(cls, base, name, _unbound(value))
    for name, field in declared.items():
        if field.default is not MISSING and is_trainable(field.default):
            raise ArgumentError(
                f"class {cls.__name__}: all its instances would share the parameters of {name}",
                given=f"{name} = {_describe(field.default)}, a default of the class",
                expected="parameters of its own for each instance",
                mend=f"declare `{name}: {type(field.default).__name__}` without a default and pass it:"
                f" {cls.__name__}({name}=...)",
            )
    if not is_ours(cls):
        hints = hints_of(cls)
        for name in declared:
            if any(is_torch(part) for part in parts_of(hints.get(name))):
                _refuse_torch(cls, name, f"{name}: {text_of(hints[name])}, which is a class of torch")
        _check_mixins(cls, declared)


def _check_mixins(cls: type[Tree], declared: Mapping[str, object]) -> None:
    for base in cls.__mro__[1:]:
        if issubclass(base, Tree) or base is object or getattr(base, "_is_protocol", False):
            continue
        hints = evaluate(base, inspect.get_annotations(base), {})
        for name, hint in hints.items():
            if name not in declared and any(is_kind_of_node(part) for part in parts_of(hint)):
                _refuse_untrained(
                    f"class {cls.__name__}: {name}",
                    given=f"{name}: {text_of(hint)}, declared by {base.__name__}, which is no Module",
                    expected="fields that a Module declares: those of other bases are not in the tree",
                    mend=f"class {base.__name__}(Module), or declare {name} in {cls.__name__} too",
                )


def _refuse_attribute(cls: type[Tree], base: type, name: str, value: object) -> NoReturn:
    where = "" if base is cls else f" of {base.__name__}"
    kind = type(value).__name__
    _refuse_untrained(
        f"class {cls.__name__}: {name}",
        given=f"{name} = {_describe(value)}, a class attribute{where} that no annotation declares as a field",
        expected=_DECLARED,
        mend=f"declare `{name}: {kind}` and pass the value to the constructor: {cls.__name__}({name}=...)",
    )


_DECLARED: Final = "fields, declared by annotation: what training, records and to_device reach"


def _refuse_untrained(what: str, *, given: str, expected: str, mend: str) -> NoReturn:
    raise ArgumentError(f"{what} would never be trained or saved", given=given, expected=expected, mend=mend)


def _unbound(value: object) -> object:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value


# -- constructors -----------------------------------------------------------------------------------
def checked_constructor(cls: type[Tree], constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that looks at the fields once they stand, and words what did not fit them."""

    @functools.wraps(constructor)
    def construct(module: object, /, *args: object, **kwargs: object) -> None:
        try:
            constructor(module, *args, **kwargs)
        except TypeError as err:
            if type(module) is cls and not _binds(constructor, module, args, kwargs):
                _refuse_arguments(cls, args, kwargs, err)
            raise
        if type(module) is cls:
            check_fields(module)

    return construct


def check_fields(module: Tree) -> None:
    """Refuses fields that cannot be what the class declares, or that hold what the tree does not reach.

    Raises: DTypeError for a value that is none of the declared kind, ArgumentError for a parameter out of reach.
    """
    cls = type(module)
    held = module.__dict__
    kinds = _kinds_of(cls)
    for name in cls.__module_fields__:
        value = held.get(name)
        kind = value.__class__
        if kind in PLAIN and name not in kinds:
            continue
        expected = kinds.get(name)
        if expected is not None and not expected(value):
            _refuse_value(module, name, value)
        _require_reached(cls, name, value, name)
    if len(held) > len(cls.__module_fields__):
        require_declared(module)
    if is_ours(cls):
        _check_by_configuration(module)


def _check_by_configuration(layer: Tree) -> None:
    """Refuses plain fields of a layer of this library that its configuration would refuse.  Raises: ConfigError."""
    cls = type(layer)
    shared = cls.__dict__.get("_shared")
    if shared is None:
        shared = cls._shared = _fields_of_both(cls)  # type: ignore[attr-defined]  # kept on the class for the next time
    config, kinds, needed = shared
    held = layer.__dict__
    values = {name: held[name] for name in kinds if name in held and not is_node(held[name])}
    if values.get("p") == math.inf:  # a norm's power may be infinite, which JSON cannot write
        del values["p"]
    if not values:
        return
    place = Place()
    for name, value in values.items():
        kept = kinds[name].check(value, place.at(name))
        if isinstance(value, str) and kept != value and not place.faults:  # a layer keeps no text for a member
            place.at(name).wrong_type(value, kinds[name].describe())
    if place.faults:
        raise_faults(cls.__name__, place.faults)
    whole = [size for size in _flatten(values.values()) if size.__class__ is int and 0 < size < 1 << 20]
    common = min(math.lcm(*whole), 1 << 40) if whole else 1  # a number of channels that groups and heads divide
    missing = {name: _example_of(kind, common) for name, kind in needed.items() if name not in values}
    if None in missing.values():
        return
    try:
        config(**values, **missing)
    except ConfigError as err:
        text = str(err)
        if any(re.search(rf"\b{name}\b", text.split("expected:", 1)[0].split("given:", 1)[-1]) for name in values):
            raise ConfigError(text.replace(f"{cls.__name__}Config", cls.__name__, 1)) from None


def _fields_of_both(cls: type[Tree]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A layer's configuration, the kinds of the fields that it has too, and those of the fields that it needs."""
    config = getattr(sys.modules.get(cls.__module__), f"{cls.__name__}Config", None)
    if config is None:
        return None, {}, {}
    schema = schema_of(config)
    hints = hints_of(cls)
    nodes = {name for name in cls.__module_fields__ if any(map(is_kind_of_node, parts_of(hints.get(name))))}
    kinds = {field.name: field.kind for field in schema.fields if field.name in cls.__module_fields__}
    needed = {field.name: field.kind for field in schema.required()}
    return config, {name: kind for name, kind in kinds.items() if name not in nodes}, needed


def _example_of(kind: object, number: int) -> object:
    """A value of a kind of whole numbers; None where it is of another."""
    if isinstance(kind, BoolKind):
        return True
    if isinstance(kind, IntKind):
        return number
    if isinstance(kind, TupleKind) and all(isinstance(item, IntKind) for item in kind.items):
        return (number,) * len(kind.items)
    return None


def _flatten(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flatten(value)
        else:
            yield value


def require_declared(module: Tree) -> None:
    """Raises: ArgumentError for parameters in attributes that are no fields, such as those of a cached property."""
    cls = type(module)
    for name, value in module.__dict__.items():
        if name not in cls.__module_fields__ and is_trainable(value):
            _refuse_untrained(
                f"{cls.__name__}: {name}",
                given=f"{name} = {_describe(value)}, an attribute that no annotation declares as a field",
                expected=_DECLARED,
                mend=f"declare `{name}: {type(value).__name__}` in the class and pass it to the constructor",
            )


def _require_reached(cls: type[Tree], name: str, value: object, path: str) -> None:
    """Walks the containers of a field, which the tree reaches, to what it does not reach."""
    if isinstance(value, Tree | Param | RunningState) or value.__class__ in PLAIN:
        return
    if isinstance(value, Tensor):
        if value.is_require_grad() and not is_ours(cls) and not _is_transformed(value):
            _warn_of_constant(cls, path, value)
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            _require_reached(cls, name, item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if is_trainable(key):
                _refuse_hidden(cls, path, f"a key of a dict, {_describe(key)}", key)
            _require_reached(cls, name, item, f"{path}[{key!r}]")
    elif isinstance(value, torch.nn.Module | torch.Tensor) or is_torch(value):
        _refuse_torch(cls, name, f"{path} = {_describe(value)}")
    elif isinstance(value, _READ_ONCE):
        _refuse_hidden(cls, path, f"a {type(value).__name__}, which is read once: what it gives is in no tree", value)
    else:
        inside = next(hidden_in(value, set(), 0), None)
        if inside is not None:
            what = "torch " if isinstance(inside, torch.nn.Module) else ""
            _refuse_hidden(cls, path, f"{what}{_describe(inside)} inside of a {type(value).__name__}", inside)


def _refuse_hidden(cls: type[Tree], path: str, what: str, inside: object) -> NoReturn:
    _refuse_untrained(
        f"{cls.__name__}: {path}",
        given=f"{path} holds {what}",
        expected="modules and parameters alone, or in lists, tuples and dicts: what the tree reaches",
        mend="freeze it, requires_grad_(False), or train it by itself with burn_torch.train.TorchModel"
        if isinstance(inside, torch.nn.Module)
        else "make it a field of its own, or use a list, tuple or dict; a class that holds it derives from Module;"
        " a fixed one is a field too: module.no_grad()",
    )


def _refuse_torch(cls: type[Tree], name: str, given: str) -> NoReturn:
    _refuse_untrained(
        f"{cls.__name__}: {name}",
        given=given,
        expected="modules, parameters and tensors of burn_torch in the fields of a Module",
        mend="a torch module trains as it is in a Learner: burn_torch.train.TorchModel(module); or build its layers"
        " from burn_torch.nn and load its weights with burn_torch.record.stores.PytorchStore; a tensor:"
        " Param.from_tensor(Tensor.from_torch(t.detach())), or Tensor.from_torch(t.detach()) for a constant",
    )


def _is_transformed(value: Tensor) -> bool:
    """Returns whether a trace or a transform has made the leaf: its function may build modules around its arguments."""
    backend: Any = value.backend
    while hasattr(backend, "inner"):
        backend = backend.inner
    if getattr(backend, "session", backend) is not None:  # a trace is no backend, and has none
        return True
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith("burn_torch.transform."):
            return True
    return False


def _warn_of_constant(cls: type[Tree], path: str, value: Tensor) -> None:
    warn_user(
        UntrainedWarning,
        f"{cls.__name__}: {path} is a constant, no optimizer changes it",
        given=f"a tensor {value.spec} that asks for gradients, in {path}",
        expected="a Param for what training changes; a tensor in a field is a constant",
        mend="pass Param.from_tensor(tensor.detach()), in a field of Params; of a constant pass .detach()",
    )


# -- what fits an annotation -----------------------------------------------------------------------------
def _kinds_of(cls: type[Tree]) -> dict[str, Callable[[Any], bool]]:
    """By name the fields whose annotation says a kind of node, and whether a value is one."""
    kinds: dict[str, Callable[[Any], bool]] | None = cls.__dict__.get("_kinds")
    if kinds is None:
        kinds = {}
        hints = hints_of(cls)
        for field in fields(cls):  # type: ignore[arg-type]  # every tree is a dataclass
            hint = hints.get(field.name)
            if field.default is None:
                hint = hint | None if isinstance(hint, type) else typing.Optional[hint]  # noqa: UP045  # of a value
            if hint is not None and any(is_kind_of_node(part) for part in parts_of(hint)):
                kinds[field.name] = functools.partial(fits, hint)
            elif is_ours(cls) and hint in _NUMBERS:
                kinds[field.name] = _NUMBERS[hint]
                if getattr(cls, "_takes_tensors_for_numbers", False):
                    kinds[field.name] = functools.partial(_is_number_or_tensor, _NUMBERS[hint])
            elif is_ours(cls) and typing.get_origin(hint) is Callable:
                kinds[field.name] = callable
        cls._kinds = kinds  # type: ignore[attr-defined]  # kept on the class for the next time
    return kinds


def _is_number_or_tensor(is_number: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, Tensor) or is_number(value)


def _refuse_value(module: Tree, name: str, value: object) -> NoReturn:
    cls = type(module)
    hint = text_of(hints_of(cls)[name])
    if isinstance(value, torch.nn.Module | torch.Tensor):
        _refuse_torch(cls, name, f"{name} = {_describe(value)}")
    sizes = tuple(module.__dict__[field] for field in cls.__module_fields__ if module.__dict__[field] is not None)
    mend = _config_call(cls, sizes) or f"pass a {hint}"
    if type(value).__module__ == "numpy":
        mend = "Param.from_data(array, device) makes a parameter of an array, Tensor.from_data a constant"
    elif isinstance(value, Tensor) and "Param" in hint:
        mend = "Param.from_tensor(tensor) makes a parameter of it"
    raise DTypeError(
        f"{cls.__name__}: the field {name} is of another type",
        given=f"{name} = {_describe(value)}",
        expected=f"{name}: {hint}",
        mend=mend,
    )


def _refuse_arguments(cls: type[Tree], args: tuple[object, ...], kwargs: dict[str, object], err: TypeError) -> NoReturn:
    written = ", ".join([*map(_describe, args), *(f"{name}={_describe(value)}" for name, value in kwargs.items())])
    named = ", ".join(cls.__module_fields__)
    without = f"{cls.__name__}(); a class of your own, class Net(Module), declares fields: `linear: nn.Linear`"
    raise DTypeError(
        f"{cls.__name__}: its constructor takes its fields",
        given=f"{cls.__name__}({written})",
        expected=f"the fields {named}" if named else "no arguments: it has no fields",
        mend=_config_call(cls, args, kwargs) or (str(err) if named else without),
    ) from None


def _binds(
    constructor: Callable[..., None], module: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> bool:
    try:
        inspect.signature(constructor).bind(module, *args, **kwargs)
    except TypeError:
        return False
    return True


def _config_call(
    cls: type[Tree], args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
) -> str | None:
    """How its configuration makes a layer, of these arguments if it takes them: nn.LinearConfig(3, 2).init(device)."""
    config = getattr(sys.modules.get(cls.__module__), f"{cls.__name__}Config", None)
    if config is None:
        return None
    try:
        config(*args, **(kwargs or {}))
        written = [*map(repr, args), *(f"{name}={value!r}" for name, value in (kwargs or {}).items())]
    except (BurnTorchError, TypeError):
        written = [
            name if parameter.default is parameter.empty else f"{name}=..."
            for name, parameter in inspect.signature(config).parameters.items()
        ]
    home = next((f"{name}." for name in ("nn", "optim") if cls.__module__.startswith(f"burn_torch.{name}")), "")
    needs = inspect.signature(config.init).parameters.get("device")
    device = "device" if needs is not None and needs.default is needs.empty else ""
    return f"{home}{config.__name__}({', '.join(written)}).init({device})"


def _describe(value: object) -> str:
    kind = f"{type(value).__module__.split('.')[0]} {type(value).__name__}"
    if isinstance(value, Tensor | torch.Tensor):
        return f"a {kind} {tuple(value.shape)}"
    text = "" if isinstance(value, torch.nn.Module) else repr(value).split("\n", 1)[0]
    return f"{text} ({type(value).__name__})" if 0 < len(text) <= 60 else f"a {kind}"


_READ_ONCE: Final = (types.GeneratorType, map, filter, zip, enumerate, reversed)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


_NUMBERS: Final[dict[object, Callable[[Any], bool]]] = {
    int: _is_count,
    float: _is_real,
    bool: lambda value: isinstance(value, bool),
    int | None: lambda value: value is None or _is_count(value),
    float | None: lambda value: value is None or _is_real(value),
    tuple[int, ...]: lambda value: isinstance(value, tuple | list) and all(map(_is_count, value)),
}
"""For the layers of this library, whose plain fields are checked too: their configurations check them by the same."""
