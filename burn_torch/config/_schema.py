"""The fields of a configuration class, and the kinds that stand for whole classes.

`kind_of(annotation)` compiles a type annotation.  A class is compiled when it is declared, or at its first use if it
names something that is declared further down.  A union of classes is written with serde's external tag, as Burn does:

    "Gelu"                        a class without fields
    {"Norm": 1.0}                 form="tuple", one field
    {"Explicit": [1, 2]}          form="tuple", several fields
    {"Uniform": {"min": 0.0}}     form="struct", the usual one
"""

from __future__ import annotations

import dataclasses
import keyword
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path, PurePath
from typing import Any, Literal, TypeGuard

from burn_torch.config import _kinds as kinds
from burn_torch.config._containers import (
    DictKind,
    ListKind,
    Step,
    TupleKind,
    UnionKind,
    check_with,
    decode_with,
    key_kind_fits,
    note_duplicates,
)
from burn_torch.config._kinds import FieldValue, Kind
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import INVALID, Place, listed, mend_name, shown


@dataclasses.dataclass(frozen=True)
class Tag:
    """Names a class within one union: `Annotated[BatchNormConfig, Tag("Batch")] | Annotated[..., Tag("Layer")]`."""

    name: str


@dataclasses.dataclass
class ClassInfo:
    """Holds what a Config class says of itself besides its fields."""

    tag: str
    form: Literal["struct", "tuple"]
    is_enum: bool
    """Not built itself: it stands for the classes derived from it."""
    enum: type[Any] | None
    """The class declared with `enum=True` that this one is a variant of."""
    names: dict[str, Any]
    """Names of the scope of the class statement that its annotations use."""
    variants: dict[str, type[Any]] = dataclasses.field(default_factory=dict)
    schema: Schema | None = None


@dataclasses.dataclass(frozen=True)
class Field:
    """One declared field."""

    name: str
    kind: Kind
    default: Callable[[], Any] | None
    """Makes the default; None for a required field."""

    @property
    def key(self) -> str:
        """Its name in JSON: `lambda_` is written `lambda`."""
        bare = self.name.rstrip("_")
        return bare if keyword.iskeyword(bare) else self.name


@dataclasses.dataclass(frozen=True)
class Schema:
    """All fields of one class, base classes first."""

    cls: type[Any]
    fields: tuple[Field, ...]

    def required(self) -> list[Field]:
        """The fields without a default: the positional ones."""
        return [field for field in self.fields if field.default is None]

    def signature(self) -> Signature:
        """How the class is called: required fields by position or name, the others by name."""
        parameters = [Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD) for field in self.required()]
        parameters += [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default())
            for field in self.fields
            if field.default is not None
        ]
        return Signature(parameters)

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object], place: Place) -> dict[str, Any]:
        """The checked value of each field, from the arguments of a constructor call."""
        required = self.required()
        arguments = dict(zip((field.name for field in required), args, strict=False))
        if len(args) > len(required):
            place.fault(
                "too many positional arguments",
                given=f"{len(args)} positional arguments",
                expected=f"{len(required)}: {listed(field.name for field in required)}",
                mend="give fields that have a default by name",
            )
        for name in kwargs.keys() & arguments.keys():
            place.at(name).fault("given twice", given="by position and by name", expected="one value", mend="drop one")
        arguments.update(kwargs)
        return self._complete(arguments, lambda field: field.name, check_with, place)

    def decode(self, value: Mapping[str, object], place: Place) -> dict[str, Any]:
        """The value of each field, from a JSON object."""
        note_duplicates(value, place)
        return self._complete(value, lambda field: field.key, decode_with, place)

    def encode(self, config: object) -> dict[str, Any]:
        """The JSON object of a configuration."""
        return {field.key: field.kind.encode(getattr(config, field.name)) for field in self.fields}

    def _complete(
        self, given: Mapping[str, object], name_of: Callable[[Field], str], step: Step, place: Place
    ) -> dict[str, object]:
        known = [name_of(field) for field in self.fields]
        for name, value in given.items():
            if name not in known:
                note_unknown(name, value, known, self.cls, place)
        values: dict[str, Any] = {}
        for field in self.fields:
            here = place.at(name_of(field))
            if name_of(field) in given:
                values[field.name] = step(field.kind, given[name_of(field)], here)
            elif field.default is not None:
                values[field.name] = field.kind.check(field.default(), here)
            else:
                here.fault(
                    "missing field",
                    given="is not given",
                    expected=field.kind.describe(),
                    mend=f"{self.cls.__name__} has no default for it: give a value",
                )
        return values


def note_unknown(
    name: str, value: object, known: Sequence[str], cls: type[object], place: Place, inner: Sequence[str] = ()
) -> None:
    """Notes a field that the class does not have, with the nearest one that it has; `inner` are paths that end so."""
    place.at(name).fault(
        "unknown field",
        given=shown(value),
        expected=f"a field of {cls.__name__}: {listed(known)}",
        mend=mend_name(name, known, otherwise=f"did you mean {' or '.join(inner)}?" if inner else "take it out"),
    )


# -- kinds of whole classes --------------------------------------------------


class ConfigKind(Kind):
    """One Config class, written as an object."""

    forms = frozenset({"object"})

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls

    def describe(self) -> str:
        return self.cls.__name__

    def claims(self, value: object) -> bool:
        return type(value) is self.cls

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        if not isinstance(value, Mapping):
            return place.wrong_type(value, f"an object with the fields of {self.describe()}")
        return self.build(lambda: schema_of(self.cls).decode(value, place), place)

    def encode(self, value: FieldValue) -> FieldValue:
        return schema_of(self.cls).encode(value)

    def build(self, values: Callable[[], dict[str, object]], place: Place) -> Any:
        """Builds the configuration, unless a value has a fault; what the class itself refuses becomes a fault."""
        before = len(place.faults)
        fields = values()
        if len(place.faults) > before:
            return INVALID
        try:
            return self.cls(**fields)
        except ConfigError as error:
            return place.refused(error)


class VariantKind(Kind):
    """One of several Config classes, told apart by a tag.

    Python code may give the tag as text where the class needs no values: "leaky_relu" for LeakyRelu(LeakyReluConfig()).
    """

    forms = frozenset({"string", "object"})
    takes_text = True

    def __init__(self, title: str, alternatives: Callable[[], Mapping[str, type[Any]]]) -> None:
        self._title = title
        self.alternatives = alternatives

    def describe(self) -> str:
        return f"{self._title or 'one of'} {listed(self.alternatives())}"

    def claims(self, value: object) -> bool:
        return type(value) in self.alternatives().values()

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        if not isinstance(value, str):
            return super().check(value, place)
        tag = kinds.name_of_text(value, self.alternatives())
        if tag is None:
            return self._decode_variant(value, None, place, bare=True)
        cls = self.alternatives()[tag]
        needed = schema_of(cls).required()
        defaults = {field.name: field.kind.cls() for field in needed if _has_defaults(field.kind)}
        if len(defaults) == len(needed):
            return ConfigKind(cls).build(lambda: defaults, place)
        return place.fault(
            "this choice has values, which a text cannot say",
            given=shown(value),
            expected=f"{tag} with {listed(field.name for field in needed)}",
            mend=f"{self._title.rstrip(':') + '.' if self._title else ''}{tag if self._title else cls.__name__}(...)",
        )

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        if isinstance(value, str):
            return self._decode_variant(value, None, place, bare=True)
        if not isinstance(value, Mapping):
            return place.wrong_type(value, f"{self.describe()}, written as a tag or {{tag: value}}")
        note_duplicates(value, place)
        if len(value) != 1:
            return place.fault(
                "no single tag",
                given=f"has the keys {listed(value)}",
                expected=f"an object with one key: {self.describe()}",
                mend='wrap the fields in their tag: {"Tag": {...}}',
            )
        ((tag, content),) = value.items()
        return self._decode_variant(tag, content, place, bare=False)

    def encode(self, value: FieldValue) -> FieldValue:
        tag = next(tag for tag, cls in self.alternatives().items() if cls is type(value))
        fields = schema_of(type(value)).encode(value)
        if not fields:
            return tag
        if info_of(type(value)).form == "struct":
            return {tag: fields}
        return {tag: next(iter(fields.values())) if len(fields) == 1 else list(fields.values())}

    def parse(self, text: str, place: Place) -> FieldValue:
        return self.decode(text, place) if text[:1] not in ("{", '"') else super().parse(text, place)

    def _decode_variant(self, tag: str, content: object, place: Place, *, bare: bool) -> FieldValue:
        alternatives = self.alternatives()
        if tag not in alternatives:
            return place.fault(
                "unknown tag",
                given=shown(tag),
                expected=self.describe(),
                mend=mend_name(tag, list(alternatives), otherwise="take one of them"),
            )
        cls = alternatives[tag]
        schema, inner = schema_of(cls), place.at(tag)
        if bare or (content is None and not schema.fields):
            return ConfigKind(cls).build(lambda: schema.decode({}, inner), inner)
        if info_of(cls).form == "struct":
            return ConfigKind(cls).decode(content, inner)
        if len(schema.fields) == 1:
            (field,) = schema.fields
            return ConfigKind(cls).build(lambda: {field.name: field.kind.decode(content, inner)}, inner)
        items = TupleKind([field.kind for field in schema.fields])

        def values() -> dict[str, Any]:
            read = items.decode(content, inner)
            return {} if read is INVALID else dict(zip((field.name for field in schema.fields), read, strict=True))

        return ConfigKind(cls).build(values, inner)


def _has_defaults(kind: Kind) -> TypeGuard[ConfigKind]:
    return isinstance(kind, ConfigKind) and not schema_of(kind.cls).required()


# -- from annotations --------------------------------------------------------


def info_of(cls: type[object]) -> ClassInfo:
    """Returns what a Config class says of itself."""
    info: ClassInfo = cls.__dict__["_info"]
    return info


def name_variants(enum: type[object]) -> None:
    """Puts each variant on its enum under its tag: the class if it has fields, else its one value."""
    for tag, variant in info_of(enum).variants.items():
        setattr(enum, tag, variant if dataclasses.fields(variant) else variant())


def schema_of(cls: type[object]) -> Schema:
    """The fields of a Config class, compiled once.

    Raises: ConfigError if an annotation names something that does not exist, or a type that no field can have.
    """
    known = info_of(cls).schema
    if known is not None:
        return known
    try:
        return compile_schema(cls)
    except NameError as error:
        raise ConfigError(
            f"class {cls.__name__}: an annotation names nothing",
            given=str(error),
            expected="types that are declared where the class is",
            mend="import the type, or declare it in the same scope",
        ) from error


def compile_schema(cls: type[Any]) -> Schema:
    """Compiles the fields of a Config class and keeps them.

    Raises: NameError if an annotation names a class that is not declared yet; ConfigError as `schema_of`.
    """
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if _is_config(base):
            names.update(info_of(base).names)
    hints = typing.get_type_hints(cls, localns=names, include_extras=True)
    place = Place()
    fields = []
    for declared in dataclasses.fields(cls):
        try:
            kind = kind_of(hints[declared.name])
        except ConfigError as error:
            place.at(declared.name).refused(error)
            continue
        fields.append(Field(declared.name, kind, _default_of(declared, kind)))
    place.raise_noted(f"class {cls.__name__}")
    schema = Schema(cls, tuple(fields))
    info_of(cls).schema = schema
    cls.__signature__ = schema.signature()  # what inspect and help() show
    return schema


def class_kind(cls: type[object]) -> Kind:
    """The kind of a Config class by itself: tagged if it is an enum or a variant of one."""
    info = info_of(cls)
    if info.is_enum:
        return VariantKind(f"{cls.__name__}:", lambda: info.variants)
    if info.enum is not None:
        return VariantKind(f"{info.enum.__name__}:", lambda: {info.tag: cls})
    return ConfigKind(cls)


def kind_of(annotation: object) -> Kind:
    """Compiles a type annotation.

    Raises: ConfigError for a type that JSON cannot hold, or a union whose members JSON cannot tell apart.
    """
    annotation = _bare(annotation)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin is Literal:
        return kinds.ChoiceKind.of_literal(args)
    if origin is list:
        return ListKind(kind_of(args[0]))
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return ListKind(kind_of(args[0]), as_tuple=True)
        return TupleKind([kind_of(arg) for arg in args])
    if origin is dict:
        key = kind_of(args[0])
        if key_kind_fits(key):
            return DictKind(key, kind_of(args[1]))
    elif isinstance(annotation, type):
        if _is_config(annotation):
            return class_kind(annotation)
        if issubclass(annotation, Enum):
            return kinds.ChoiceKind.of_enum(annotation)
    raise ConfigError(
        "no field can have this type",
        given=repr(annotation),
        expected="bool, int, float, str, Path, None, Literal, Enum, a Config, or list[X], tuple[X, ...], "
        "tuple[X, Y], dict[str, X], dict[int, X], X | Y of them",
        mend="use one of these; a container names what it holds",
    )


_SIMPLE: dict[object, Kind] = {
    bool: kinds.BoolKind(),
    int: kinds.IntKind(),
    float: kinds.FloatKind(),
    str: kinds.StrKind(),
    Path: kinds.PathKind(),
    PurePath: kinds.PathKind(),
    None: kinds.NullKind(),
    type(None): kinds.NullKind(),
}


def _bare(annotation: Any) -> Any:
    """Without Annotated, Final, NewType and `type X = ...`."""
    while True:
        if typing.get_origin(annotation) in (typing.Annotated, typing.Final):
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _is_config(annotation: object) -> bool:
    return isinstance(annotation, type) and "_info" in annotation.__dict__


def _union(args: Iterable[object]) -> Kind:
    alternatives: list[tuple[str | None, type[Any]]] = []
    members: list[Kind] = []
    for arg in _flat(args):
        if _is_config(_bare(arg)):
            tags = [extra.name for extra in typing.get_args(arg) if isinstance(extra, Tag)]
            alternatives.append((tags[0] if tags else None, _bare(arg)))
        else:
            members.append(kind_of(arg))
    if len(alternatives) == 1 and alternatives[0][0] is None:
        members.append(class_kind(alternatives[0][1]))
    elif alternatives:
        members.append(_tagged_kind(alternatives))
    forms = [form for member in members for form in member.forms]
    twice = sorted({form for form in forms if forms.count(form) > 1})
    if twice:
        raise ConfigError(
            "JSON cannot tell the members of this union apart",
            given=f"{' | '.join(member.describe() for member in members)}: several are written as {listed(twice)}",
            expected="at most one member for each JSON form",
            mend="make each member a Config class of its own: a union of classes is written with their names",
        )
    return members[0] if len(members) == 1 else UnionKind(members)


def _flat(args: Iterable[object]) -> Iterable[object]:
    for arg in args:
        bare = _bare(arg)
        if typing.get_origin(bare) in (typing.Union, types.UnionType):
            yield from _flat(typing.get_args(bare))
        else:
            yield arg


def _tagged_kind(alternatives: Sequence[tuple[str | None, type[object]]]) -> Kind:
    def by_tag() -> dict[str, type[object]]:
        table: dict[str, type[object]] = {}
        for tag, cls in alternatives:
            info = info_of(cls)
            for name, variant in (info.variants if info.is_enum else {tag or info.tag: cls}).items():
                _enter(table, name, variant)
        return table

    by_tag()  # a tag given twice is told when the class is declared
    return VariantKind("", by_tag)


def _enter(table: dict[str, type[object]], tag: str, cls: type[object]) -> None:
    other = table.setdefault(tag, cls)
    if other is not cls:
        raise ConfigError(
            "two classes of a union have one tag",
            given=f"{other.__qualname__} and {cls.__qualname__}, both {tag!r}",
            expected="a tag of its own for each",
            mend='class ...(Config, tag="Other"), or Annotated[..., Tag("Other")] in the union',
        )


def _default_of(declared: dataclasses.Field[object], kind: Kind) -> Callable[[], object] | None:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory
    if declared.default is not dataclasses.MISSING:
        value = declared.default
        return lambda: value
    return (lambda: None) if kind.is_optional() else None
