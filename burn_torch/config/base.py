"""`Config`: a frozen, typed, nested set of values that reads and writes JSON."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeVar, dataclass_transform

from burn_torch.config._frozen import freeze
from burn_torch.config._schema import ClassInfo, class_kind, compile_schema, info_of, schema_of
from burn_torch.core import strict_json
from burn_torch.core.checking import checked, checked_after
from burn_torch.core.errors import ArtifactError, ConfigError, explain
from burn_torch.core.faults import Place
from burn_torch.core.files import write_atomic
from burn_torch.core.misfits import worded_late
from burn_torch.core.reading import MAX_CONFIG_BYTES, read_bounded
from burn_torch.core.spellings import attach_spellings
from burn_torch.core.spellings.packages import CONFIG

__all__ = ["Config", "replace"]

C = TypeVar("C", bound="Config")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Config:
    """Base of all configurations: declare fields by annotation, as in a frozen dataclass.

    >>> class LinearConfig(Config):
    ...     d_input: int
    ...     d_output: int
    ...     bias: bool = True
    >>> config = LinearConfig(3, 4, bias=False)
    >>> config.with_bias(True) == LinearConfig(d_input=3, d_output=4)
    True
    >>> LinearConfig.from_json('{"d_input": 3, "d_output": 4}')
    LinearConfig(d_input=3, d_output=4, bias=True)

    Fields without a default are given by position or by name, the others by name; `X | None` without a default is None.
    Each field has a builder `with_<field>(value)`, and `replace(config, field=value, ...)` changes several at once.
    Values are checked when a configuration is built, so one that exists can always be saved and loaded again.
    A rule between fields goes into `__post_init__`, which raises ConfigError.

    Class arguments, for Burn's enums of configurations (written in JSON with serde's external tag):
        enum=True: this class stands for the classes derived from it, and a field of this type takes any of them.
        tag="Name": the tag of this class; its own name if not given.
        form="tuple": the fields are written without their names, `{"Norm": 1.0}`, `{"Explicit": [1, 2]}`.

    Raises: ConfigError, for all faults of a call or a file at once.
    """

    _info: ClassVar[ClassInfo]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        _require_concrete(cls)
        place = Place()
        values = schema_of(cls).bind(args, kwargs, place)
        place.raise_noted(cls.__name__)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks what no single field shows: override it and raise ConfigError."""

    def __init_subclass__(
        cls,
        *,
        enum: bool = False,
        tag: str | None = None,
        form: Literal["struct", "tuple"] = "struct",
        **kwargs: object,
    ) -> None:
        super().__init_subclass__(**kwargs)
        parents = [base for base in cls.__mro__[1:] if "_info" in base.__dict__ and info_of(base).is_enum]
        parent = parents[0] if parents else None
        own = inspect.get_annotations(cls)
        cls._info = ClassInfo(tag or cls.__name__, form, enum, parent, _names_in_scope(cls, own))
        for name in own:
            if isinstance(cls.__dict__.get(name), (list, dict)):
                setattr(cls, name, freeze(cls.__dict__[name]))
        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        fields = [field.name for field in dataclasses.fields(cls) if field.name in own]  # type: ignore[arg-type]  # a dataclass by now
        _check_names(cls, fields, enum=enum)
        for name in fields:
            if f"with_{name}" not in cls.__dict__:
                setattr(cls, f"with_{name}", _builder(cls, name))
        if parent is not None:
            _register(cls, parent)
        if "init" in cls.__dict__:
            wrap = checked_after if cls.__module__.startswith("burn_torch.") else worded_late
            cls.init = wrap(cls.__dict__["init"])  # type: ignore[attr-defined]  # asked for in its own dict
        with suppress(NameError):  # it names a class that is declared further down: compiled at the first use
            compile_schema(cls)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises: ConfigError that names `init`."""
        raise ConfigError(
            f"{type(self).__name__}: a configuration is not a function",
            given=f"{type(self).__name__}(...) called with {len(args) + len(kwargs)} arguments",
            expected="a call of one of its methods",
            mend="config.init(device).forward(x): init makes what the configuration describes",
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse_change(self, name)

    def __delattr__(self, name: str) -> NoReturn:
        _refuse_change(self, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in schema_of(type(self)).fields)
        return f"{type(self).__name__}({fields})"

    def __str__(self) -> str:
        return self.to_json()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, field.name) for field in schema_of(type(self)).fields)

    # -- JSON ----------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values that JSON can hold, nested configurations included."""
        return schema_of(type(self)).encode(self)

    def to_json(self) -> str:
        """The configuration as JSON text; a variant of an enum is wrapped in its tag."""
        return strict_json.dump(class_kind(type(self)).encode(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """Builds a configuration from what `to_dict` gives."""
        _require_concrete(cls)
        place = Place()
        fields = schema_of(cls).decode(values, place)
        place.raise_noted(cls.__name__)
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads JSON text.  A field that is absent takes its default; an unknown one is a fault."""
        return _read(cls, text, f"JSON text, read as {cls.__name__}")

    @classmethod
    def load_binary(cls, data: bytes) -> Self:
        """Reads the bytes of a JSON file."""
        return _read(cls, data, f"bytes, read as {cls.__name__}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a JSON file of at most 4 MiB.  Raises: ConfigError."""
        try:
            data = read_bounded(path, MAX_CONFIG_BYTES)
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read",
                given=f"{Path(path).absolute()} ({error.strerror or error})",
                expected=f"a JSON file with the fields of {cls.__name__}",
                mend="check the path; config.save(path) writes such a file",
            ) from error
        return _read(cls, data, f"{path}, read as {cls.__name__}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON file, whole or not at all.

        Raises: ArtifactError if the file cannot be written.
        """
        try:
            write_atomic(path, f"{self.to_json()}\n".encode())
        except OSError as error:
            raise ArtifactError(
                f"{path}: cannot be written",
                given=f"{Path(path).absolute()} ({error.strerror or error})",
                expected="a path in a folder that exists and may be written",
                mend="make the folder, or name another",
            ) from error


attach_spellings(Config, CONFIG)


@checked
def replace(config: C, /, **changes: object) -> C:
    """The configuration with some fields changed; the original stays as it is.

    Raises: ConfigError if a field is unknown or ill-typed.
    """
    values = {field.name: getattr(config, field.name) for field in schema_of(type(config)).fields}
    return type(config)(**{**values, **changes})


def _read(cls: type[C], data: str | bytes, subject: str) -> C:
    if cls is Config:
        _require_concrete(cls)
    place = Place()
    try:
        read: C = class_kind(cls).decode(strict_json.parse(data), place)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{subject}: no JSON", given=str(error), expected="JSON in UTF-8", mend="restore or rewrite it"
        ) from error
    except RecursionError:
        raise ConfigError(
            f"{subject}: nested too deeply",
            given=f"more levels than Python's recursion limit of {sys.getrecursionlimit()} allows",
            expected="a configuration that people could have written",
            mend="make it flatter",
        ) from None
    place.raise_noted(subject)
    return read


# -- declaring a class -------------------------------------------------------


def _names_in_scope(cls: type[object], annotations: Mapping[str, object]) -> dict[str, object]:
    """The names of the surrounding scope that annotations written as text need, and the name of the class itself."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name == "__init_subclass__":  # that of a base which calls ours
        frame = frame.f_back
    words = set(re.findall(r"\w+", " ".join(map(str, annotations.values()))))
    scope = {**frame.f_globals, **frame.f_locals}
    return {**{word: scope[word] for word in words if word in scope}, cls.__name__: cls}


def _builder(cls: type[object], name: str) -> Callable[[Any, Any], object]:
    def with_field(self: Any, value: Any) -> object:
        return replace(self, **{name: value})

    with_field.__name__ = f"with_{name}"
    with_field.__qualname__ = f"{cls.__qualname__}.with_{name}"
    with_field.__doc__ = f"The configuration with another `{name}`."
    return with_field


def _check_names(cls: type[object], names: list[str], *, enum: bool) -> None:
    place = Place()
    for name in names:
        if hasattr(Config, name) or name.startswith("_"):
            place.at(name).fault(
                "this name is taken",
                given="is declared as a field",
                expected="a public name that Config does not use itself",
                mend="call the field something else",
            )
    if enum and names:
        place.fault(
            "an enum has no fields of its own",
            given=f"the fields {', '.join(names)}",
            expected="fields in the classes derived from it",
            mend="move them there, or leave out enum=True",
        )
    place.raise_noted(f"class {cls.__name__}")


def _register(cls: type[object], parent: type[object]) -> None:
    variants = info_of(parent).variants
    tag = info_of(cls).tag
    other = variants.get(tag)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ConfigError(
            f"class {cls.__name__}: {parent.__name__} has this tag already",
            given=f"tag {tag!r}, which {other.__qualname__} has",
            expected="a tag of its own for each variant",
            mend=f'class {cls.__name__}({parent.__name__}, tag="Other")',
        )
    variants[tag] = cls  # declared again in a notebook or by a reload: the newer one counts


def _require_concrete(cls: type[object]) -> None:
    if cls is Config or info_of(cls).is_enum:
        names = "" if cls is Config else ", ".join(info_of(cls).variants)
        raise ConfigError(
            f"{cls.__name__} is not built itself",
            given=f"{cls.__name__}(...)",
            expected=f"one of {names}" if names else f"a class derived from {cls.__name__}",
            mend="build one of the derived classes",
        )


def _refuse_change(config: Config, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(
        explain(
            f"{type(config).__name__} does not change",
            given=f"a change of {name} in place",
            expected="a new configuration",
            mend=f"config.with_{name}(...) or replace(config, {name}=...)",
        )
    )
