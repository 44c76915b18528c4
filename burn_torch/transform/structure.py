"""Structures: what a value is apart from its tensors and numbers, and how it is put together again.

They are interned, so equal ones are one object: the key of a compiled program is a tuple of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, final

from burn_torch.backend import Backend
from burn_torch.core.checking import checked
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.module import GradientsParams, Param, ParamId, RunningState
from burn_torch.module.field_dict import FieldDict
from burn_torch.module.param import ParamMapper
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.tensor import CsrTensor, QuantizedTensor, Tensor

__all__ = [
    "CONTAINERS",
    "Again",
    "Argument",
    "Constant",
    "Container",
    "First",
    "Function",
    "Held",
    "Leaf",
    "Number",
    "ParamStructure",
    "Root",
    "StateStructure",
    "Structure",
    "Wrap",
    "interned",
    "leaf_of",
    "placed",
    "rebuilder",
    "register_container",
]

Argument: TypeAlias = Any
"""An argument or a result of a user's function: a tensor, a module, a container of them, or a plain value."""

Function: TypeAlias = Callable[..., Any]
"""A user's function."""


class Wrap(Protocol):
    """How leaves become values."""

    def tensor(self, leaf: Leaf, primitive: Primitive) -> Tensor:
        """The tensor of a leaf."""

    def root(self, root: Root, leaves: Sequence[Primitive]) -> Any:
        """The tree of a root, of its own leaves."""


class Structure:
    """Holds what a value is apart from its leaves.  Interned: equal structures are identical."""

    __slots__ = ("__weakref__", "size")

    size: int
    """How many leaves it has."""

    _interned: ClassVar[weakref.WeakValueDictionary[object, Any]] = weakref.WeakValueDictionary()

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The value whose leaves begin at `at`.  `shared` keeps what stands in several places."""
        raise TypeError(type(self).__name__)

    def parts(self, path: str) -> Iterator[tuple[str, Structure]]:
        """Paths and structures of the leaves and constants below, this one if it is one."""
        yield path, self


_lock: Final = threading.Lock()


S = TypeVar("S", bound=Structure)


def interned(kind: type[S], *parts: object) -> S:
    """The one structure of this kind and these parts."""
    key = (kind, *parts)
    structure: S | None = Structure._interned.get(key)
    if structure is None:
        with _lock:
            structure = Structure._interned.get(key)
            if structure is None:
                structure = Structure._interned[key] = kind(*parts)
    return structure


# -- leaves ---------------------------------------------------------------------------------------------
@final
class Leaf(Structure):
    """A tensor: its spec, its stack, and on which levels of tapes it asks for gradients (bits, outermost first)."""

    __slots__ = ("asked", "is_cut", "spec", "stack")

    def __init__(self, spec: TensorSpec, stack: Backend, asked: int, is_cut: bool = False) -> None:
        self.size = 1
        self.spec: Final = spec
        self.stack: Final = stack
        self.asked: Final = asked
        self.is_cut: Final = is_cut
        """Says whether it is a result that a tape takes for a constant, see `CutTensor`."""

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Tensor:
        """A tensor."""
        return wrap.tensor(self, leaves[at])

    def __repr__(self) -> str:
        return f"{self.spec} on {self.stack.name}" + (", asks for gradients" if self.asked else "")


@final
class Number(Structure):
    """A run-time number: its value is in no key."""

    __slots__ = ("spec",)

    def __init__(self, spec: NumberSpec) -> None:
        self.size = 1
        self.spec: Final = spec

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The number."""
        return leaves[at]

    def __repr__(self) -> str:
        return repr(self.spec)


@final
class Constant(Structure):
    """Holds what is compiled in: a bool, a text, None, a static argument, a plain field of a module."""

    __slots__ = ("value",)

    def __init__(self, key: Any, value: Held) -> None:
        self.size = 0
        self.value: Final = value.value

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The object itself."""
        return self.value

    def __repr__(self) -> str:
        return f"the constant {self.value!r:.60}"


@final
class Held:
    """A value beside its key: equal to every other, so that only the key counts."""

    __slots__ = ("value",)

    def __init__(self, value: Argument) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held)

    def __hash__(self) -> int:
        return 0


@final
class ParamStructure(Structure):
    """A parameter: identity, tensor, whether it is trained."""

    __slots__ = ("ident", "mapper", "require_grad", "tensor")

    def __init__(self, ident: ParamId, tensor: Leaf, require_grad: bool, mapper: ParamMapper) -> None:
        self.size = 1
        self.ident: Final = ident
        self.tensor: Final = tensor
        self.require_grad: Final = require_grad
        self.mapper: Final = mapper

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Param:
        """A parameter of the same identity."""
        value = wrap.tensor(self.tensor, leaves[at])
        return Param(value, self.ident, require_grad=self.require_grad, mapper=self.mapper)

    def __repr__(self) -> str:
        return f"parameter {self.ident} of {self.tensor}" + ("" if self.require_grad else ", frozen")


@final
class StateStructure(Structure):
    """A running state: identity and tensor."""

    __slots__ = ("ident", "tensor")

    def __init__(self, ident: ParamId, tensor: Leaf) -> None:
        self.size = 1
        self.ident: Final = ident
        self.tensor: Final = tensor

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> RunningState:
        """A cell of the same identity."""
        return RunningState(wrap.tensor(self.tensor, leaves[at]), self.ident)

    def __repr__(self) -> str:
        return f"running state {self.ident} of {self.tensor}"


@final
class Root(Structure):
    """A Tree that stands in no other Tree.  Its leaves are counted from 0, and it may be made without its fields."""

    __slots__ = ("kind", "tree")

    def __init__(self, kind: type[Tree], tree: Container) -> None:
        self.size = tree.size
        self.kind: Final = kind
        self.tree: Final = tree

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The tree."""
        return wrap.root(self, leaves[at : at + self.size])

    def parts(self, path: str) -> Iterator[tuple[str, Structure]]:
        """See `Structure.parts`."""
        return self.tree.parts(path)

    def __repr__(self) -> str:
        return f"{self.kind.__name__} of {self.size} leaves"


@final
class First(Structure):
    """A tree that stands in several places of its root: here it is met first.  `number` is negative."""

    __slots__ = ("number", "tree")

    def __init__(self, number: int, tree: Container) -> None:
        self.size = tree.size
        self.number: Final = number
        self.tree: Final = tree

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The tree."""
        tree = shared[self.number] = self.tree.build(leaves, at, wrap, shared)
        return tree

    def parts(self, path: str) -> Iterator[tuple[str, Structure]]:
        """See `Structure.parts`."""
        return self.tree.parts(path)

    def __repr__(self) -> str:
        return f"{self.tree!r}, which is there again"


@final
class Again(Structure):
    """The object that stood first at leaf `number` of its tree, or the tree of that `First`: shared stays shared."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.size = 0
        self.number: Final = number

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """The first object."""
        return shared[self.number]

    def __repr__(self) -> str:
        return f"the same as {f'leaf {self.number}' if self.number >= 0 else f'tree {-self.number}'}"


def leaf_of(part: Structure) -> Leaf | None:
    """Returns what a tensor, a parameter or a running state is; None for any other part."""
    return part if isinstance(part, Leaf) else getattr(part, "tensor", None)


def placed(structures: Iterable[S]) -> Iterator[tuple[int, S]]:
    """Structures, each with the position of its first leaf among the leaves of all."""
    at = 0
    for structure in structures:
        yield at, structure
        at += structure.size


# -- containers -------------------------------------------------------------------------------------------
@final
class Container(Structure):
    """A tuple, list, dict, dataclass, registered container or Tree: names and structures of what it holds.

    `key` tells names apart that are equal and yet not the same, as 0.0 and -0.0.
    """

    __slots__ = ("children", "kind", "names", "rebuild")

    def __init__(
        self, kind: type[Any], names: tuple[Any, ...], children: tuple[Structure, ...], key: Any = None
    ) -> None:
        self.size = sum(child.size for child in children)
        self.kind: Final = kind
        self.names: Final = names
        self.children: Final = children
        self.rebuild: Final = rebuilder(kind)

    def build(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> Any:
        """A container of the same kind."""
        return self.rebuild(self.names, self.values(leaves, at, wrap, shared))

    def values(self, leaves: Sequence[Primitive], at: int, wrap: Wrap, shared: dict[int, object]) -> list[Any]:
        """Returns what it holds, in the order of `names`."""
        values = []
        for child in self.children:
            value = child.build(leaves, at, wrap, shared)
            if child.size == 1 and not isinstance(child, _WITH_PARTS):
                shared[at] = value
            values.append(value)
            at += child.size
        return values

    def parts(self, path: str) -> Iterator[tuple[str, Structure]]:
        """See `Structure.parts`."""
        for name, child in zip(self.names, self.children, strict=True):
            yield from child.parts(f"{path}.{name}" if issubclass(self.kind, Tree) else f"{path}[{name!r}]")

    def __repr__(self) -> str:
        return f"{self.kind.__name__} of {len(self.children)} parts"


_WITH_PARTS: Final = (Container, Root, First)

_Open = Callable[[Any], tuple[tuple[Any, ...], Sequence[Any]]]
_Close = Callable[[tuple[Any, ...], Sequence[Any]], Any]

CONTAINERS: Final[dict[type[Any], tuple[_Open, _Close]]] = {
    tuple: (lambda value: (tuple(range(len(value))), value), lambda names, values: tuple(values)),
    list: (lambda value: (tuple(range(len(value))), value), lambda names, values: list(values)),
    dict: (
        lambda value: (tuple(value), list(value.values())),
        lambda names, values: dict(zip(names, values, strict=True)),
    ),
    FieldDict: (
        lambda value: (tuple(value), list(value.values())),
        lambda names, values: FieldDict(zip(names, values, strict=True)),
    ),
    QuantizedTensor: (
        lambda q: (
            (q.scheme, q.shape, q.float_dtype),
            [q.codes, q.scales, q.outer_scales],
        ),
        lambda names, values: QuantizedTensor(*values, *names),
    ),
    CsrTensor: (
        lambda a: (("values", "columns", ("offsets", a.cols)), [a.values, a.columns, a.offsets]),
        lambda names, values: CsrTensor.of_parts(values[0], values[1], values[2], names[2][1]),
    ),
    GradientsParams: (
        lambda grads: (tuple(grads), [gradient for _, gradient in grads.items()]),
        lambda ids, gradients: GradientsParams(dict(zip(ids, gradients, strict=True))),
    ),
}


@checked
def register_container(kind: type[object], take_apart: _Open, put_together: _Close) -> None:
    """Lets compiled functions take and return a container of one's own.

    `take_apart(value)` gives hashable names and the values; `put_together(names, values)` makes the container again.
    Dataclasses, named tuples and Trees need no registration.
    """
    CONTAINERS[kind] = (take_apart, put_together)


def rebuilder(kind: type[object]) -> _Close:
    """How a container of this kind is put together of names and values."""
    container = CONTAINERS.get(kind)
    if container is not None:
        return container[1]
    if issubclass(kind, tuple):
        return lambda names, values: kind(*values)

    def rebuild(
        names: tuple[Any, ...], values: Sequence[Argument]
    ) -> object:  # without its constructor, which may compute
        container = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(container, name, value)
        return container

    if issubclass(kind, Tree):

        def rebuild_tree(names: tuple[Any, ...], values: Sequence[Argument]) -> object:
            tree = object.__new__(kind)
            tree.__dict__.update(zip(names, values, strict=True))
            return tree

        return rebuild_tree
    return rebuild
