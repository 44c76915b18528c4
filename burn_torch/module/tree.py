"""Trees: immutable values of declared fields; how to walk them, and how to make one with other nodes.

Fields that hold a Module, Param, RunningState, Tensor or Compound, alone or in a list, tuple or dict, are nodes;
all other fields are constants.  Order is that of declaration.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, Self, TypeVar, dataclass_transform

from burn_torch.core.errors import ArgumentError, explain
from burn_torch.core.spellings import missing_name
from burn_torch.core.spellings.layers import MODULE
from burn_torch.module.field_dict import settled
from burn_torch.module.param import Param
from burn_torch.module.running_state import RunningState
from burn_torch.module.scalar import Scalar
from burn_torch.tensor import Tensor
from burn_torch.tensor.compound import Compound

__all__ = [
    "LEAVES",
    "Tree",
    "Unread",
    "children",
    "container_name",
    "is_node",
    "join_path",
    "named_children",
    "rebuild",
    "walk",
]

_CONTAINERS = (list, dict, tuple)
LEAVES = (Param, RunningState, Tensor)


class Unread(Protocol):
    """Holds what a tree has in the place of fields that nobody has read yet."""

    def fields(self, tree: Tree) -> Mapping[str, Any]:
        """Makes the fields of the tree, once.  Raises: MovedError where a compiled step has taken them over."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
class Tree:
    """An immutable value of declared fields; Module and Optimizer are trees.

    Lists given to the constructor are kept as tuples, dicts as copies that cannot be changed.
    `dataclasses.replace` makes one with other fields.
    """

    __module_fields__: ClassVar[tuple[str, ...]] = ()
    __scalar_fields__: ClassVar[frozenset[str]] = frozenset()
    """The fields annotated `Scalar`: run-time numbers."""

    __slots__ = ("__dict__", "__weakref__", "_flat", "_unread")

    _flat: Any
    """Its leaves in order, as `transform` has listed them: a tree never changes, so it is listed once."""
    _unread: Unread | None
    """Says where its fields come from when one is first read: a compiled step returns trees without fields."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _require_free_names(cls)
        own_init = "__init__" in cls.__dict__
        dataclasses.dataclass(frozen=True, eq=False, repr=False, init=not own_init)(cls)
        cls.__setattr__ = _refuse_assignment  # type: ignore[assignment]  # dataclass's own error names no way out
        cls.__delattr__ = _refuse_deletion  # type: ignore[assignment]  # dataclass's own error names no way out
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # every tree is a dataclass
        cls.__module_fields__ = tuple(field.name for field in fields)
        cls.__scalar_fields__ = frozenset(field.name for field in fields if _is_scalar(field.type))
        for field in fields:  # a default left on the class would answer for a field that is not there yet
            if field.name in cls.__dict__ and field.default is cls.__dict__[field.name]:
                delattr(cls, field.name)

    def __post_init__(self) -> None:
        fields = self.__dict__
        for name in self.__module_fields__:
            value = fields.get(name)
            if type(value) in _CONTAINERS:
                fields[name] = settled(value)

    if not TYPE_CHECKING:  # to a type checker it would say that a tree has every attribute

        def __getattr__(
            self, name: str
        ) -> object:  # called for what is not there: an unread field, or a name of no field
            if name in ("_flat", "_unread"):
                return None
            if self._unread is not None and name in self.__module_fields__:
                return self._fields()[name]
            owner = type(self).__name__
            if name in MODULE:
                raise missing_name(owner, name, MODULE[name])
            raise AttributeError(f"{owner} has no attribute {name}", name=name, obj=self)

    def _fields(self) -> dict[str, object]:
        """Names and values of all fields; made now if nobody has read them yet."""
        unread = self._unread
        if unread is not None:
            self.__dict__.update(unread.fields(self))
            object.__setattr__(self, "_unread", None)
        return self.__dict__

    def _require_declared(self) -> None:
        """Refuses parameters in attributes that are no fields, where a kind of tree says which these are."""

    def _children(self) -> Iterator[tuple[str, object]]:
        return named_children(self)

    def _name_in_paths(self, field: str) -> str:
        """The name of a field in paths; an empty text adds nothing to the path of the tree."""
        return field

    def _with_fields(self, changed: Mapping[str, object]) -> Self:
        node = object.__new__(type(self))
        node.__dict__.update(self._fields())
        node.__dict__.update(changed)
        return node

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), dict(self._fields())))


def _require_free_names(cls: type[Tree]) -> None:
    """An inherited method would silently become the default of a field of its name, and be hidden by it."""
    taken = [
        (name, base)
        for name, annotation in inspect.get_annotations(cls).items()
        if "ClassVar" not in str(annotation)
        for base in cls.__mro__[1:]
        if callable(base.__dict__.get(name)) or isinstance(base.__dict__.get(name), _METHODS)
    ]
    if taken:
        name = taken[0][0]
        raise ArgumentError(
            f"class {cls.__name__}: the name {name} is taken",
            given=", ".join(f"a field {name}, which {base.__name__} has as a method" for name, base in taken),
            expected="fields with names of their own",
            mend=f"call it something else, such as {name}_layer",
        )


_METHODS = (property, staticmethod, classmethod)


def _is_scalar(annotation: object) -> bool:
    return annotation is Scalar or (isinstance(annotation, str) and annotation.rsplit(".", 1)[-1] == "Scalar")


def _rebuild(cls: type[Tree], fields: dict[str, object]) -> Tree:
    node = object.__new__(cls)
    node.__dict__.update(fields)
    return node


def _refuse_assignment(self: Tree, name: str, value: object) -> NoReturn:
    name_of_type = type(self).__name__
    if name not in self.__module_fields__:
        declared = ", ".join(self.__module_fields__) or "none yet"
        raise AttributeError(
            explain(
                f"{name_of_type} has no field {name}",
                given=f"self.{name} = ..., of a {type(value).__name__}",
                expected=f"fields that the class declares by annotation: {declared}",
                mend=f"declare `{name}: {type(value).__name__}` in the class instead of making it in __init__, and pass"
                f" it to the constructor: {name_of_type}({name}=...)",
            )
        )
    raise AttributeError(
        explain(
            f"a {name_of_type} cannot be changed",
            given=f"{name_of_type}.{name} = ...",
            expected="modules and optimizers are values: their methods give new ones",
            mend=f"dataclasses.replace(it, {name}=...) makes one with another field",
        )
    )


def _refuse_deletion(self: Tree, name: str) -> NoReturn:
    _refuse_assignment(self, name, None)


def is_node(value: object) -> bool:
    """Returns whether a field's value belongs to the tree (a container does if anything in it does)."""
    if isinstance(value, Tree | Param | RunningState | Tensor | Compound):
        return True
    if isinstance(value, tuple | list):
        return any(map(is_node, value))
    return isinstance(value, dict) and any(map(is_node, value.values()))


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values one level below a module or a container; constants are left out."""
    if isinstance(value, Tree):
        fields = value._fields()
        if len(fields) > len(value.__module_fields__):
            value._require_declared()
        items: Any = ((name, fields[name]) for name in value.__module_fields__)
    elif isinstance(value, dict):
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, Compound):
        items = value._tensors().items()
    else:
        items = ((str(i), item) for i, item in enumerate(value))
    return ((name, item) for name, item in items if is_node(item))


def named_children(value: object) -> Iterator[tuple[str, Any]]:
    """`children` under the names that they have in paths."""
    if isinstance(value, Tree):
        return ((value._name_in_paths(name), child) for name, child in children(value))
    return children(value)


def join_path(path: str, name: str) -> str:
    """A path one level further down; an empty name adds no level."""
    return f"{path}.{name}" if path and name else path or name


def container_name(value: object) -> str:
    """How visitors are told of a container: "Struct:Linear", "List", "Tuple", "Dict"."""
    if isinstance(value, dict):
        return "Dict"
    if isinstance(value, tuple | list):
        return type(value).__name__.capitalize()
    return f"Struct:{type(value).__name__}"


def walk(value: object, path: str = "", leaves: tuple[type, ...] = LEAVES) -> Iterator[tuple[str, Any]]:
    """Paths and leaves (Param, RunningState, Tensor) in order; a shared leaf comes once for each place.

    leaves  the classes that are not entered, if they are others
    """
    for name, child in named_children(value):
        where = join_path(path, name)
        if isinstance(child, leaves):
            yield where, child
        else:
            yield from walk(child, where, leaves)


T = TypeVar("T")


def rebuild(
    value: T,
    change: Callable[[Any], object],
    memo: dict[int, Any] | None = None,
    leaves: tuple[type, ...] = LEAVES,
) -> T:
    """The same tree with `change(leaf)` for each leaf.

    A leaf that does not change is the same object, and shared leaves stay shared: one object, one new object.

    leaves  the classes of the leaves, if they are others
    """
    memo = {} if memo is None else memo
    known: T | None = memo.get(id(value))
    if known is not None:
        return known
    rebuilt: T = _rebuilt(value, change, memo, leaves)
    memo[id(value)] = rebuilt
    return rebuilt


def _rebuilt(value: Any, change: Callable[[Any], object], memo: dict[int, object], leaves: tuple[type, ...]) -> Any:
    if isinstance(value, leaves):
        return change(value)
    if isinstance(value, tuple | list):
        items = [rebuild(item, change, memo, leaves) if is_node(item) else item for item in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        entries = {key: rebuild(item, change, memo, leaves) if is_node(item) else item for key, item in value.items()}
        return value if all(entries[key] is value[key] for key in value) else type(value)(entries)
    changed: dict[str, object] = {}
    for name, child in children(value):
        new = rebuild(child, change, memo, leaves)
        if new is not child:
            changed[name] = new
    return value._with_fields(changed) if changed else value
