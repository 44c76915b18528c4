"""Taking arguments and results of compiled functions apart: into leaves and a Structure.

A Tree never changes, so its leaves are listed once; a compiled step returns trees whose fields are made when one is
first read (flatten and unflatten of 200 parameters cost 564 us, a listed tree 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.backend import Backend
from burn_torch.backend.decorator import leaf_primitive
from burn_torch.backend.tracing import active
from burn_torch.config import Config
from burn_torch.core.errors import TraceError
from burn_torch.core.spec import NUMBER_SPECS
from burn_torch.module import Param, ParamId, RunningState
from burn_torch.module.field_dict import FieldDict
from burn_torch.module.tree import LEAVES, Tree, children, walk
from burn_torch.ops.value import Primitive, Value
from burn_torch.tensor import Gradients, Tensor
from burn_torch.tensor.compound import Compound
from burn_torch.tensor.tensor import CutTensor
from burn_torch.transform.constant import constant_key
from burn_torch.transform.moved import Moved
from burn_torch.transform.structure import (
    CONTAINERS,
    Again,
    Argument,
    Constant,
    Container,
    First,
    Held,
    Leaf,
    Number,
    ParamStructure,
    Root,
    StateStructure,
    Structure,
    interned,
)

__all__ = ["Fault", "Flat", "Lent", "Walk", "bare", "hanging_fault", "held_in", "leaves_in", "opened"]


@final
@dataclasses.dataclass(slots=True, eq=False)
class Lent:
    """The leaves of a tree that a recorded program returned, in two parts: hundreds lie in its memory and are the same
    tensors at every call, so nobody goes through them before somebody asks.

    lasting   all leaves, with anything in the place of those that change
    at        the positions of these
    changing  what they are now
    """

    _lasting: Sequence[Any]
    _at: Sequence[int]
    changing: Sequence[Any]

    def __iter__(self) -> Iterator[object]:
        leaves = list(self._lasting)
        for i, leaf in zip(self._at, self.changing, strict=True):
            leaves[i] = leaf
        return iter(leaves)


@final
class Flat:
    """The leaves of a Tree in order.

    handle   the object that they came as: whoever lent it knows it again
    private  whether nobody but the tree holds them, so that a program may write over them
    cells    running states among them, whose value may change: (position, cell, the value listed)
    asked    the identities of leaves that ask for gradients
    lender   who gives them copies before their memory is overwritten; it lives as long as they need it
    """

    __slots__ = ("_leaves", "asked", "cells", "handle", "lender", "private", "root", "tensors")

    def __init__(
        self,
        root: Root,
        leaves: Sequence[Primitive] | Lent,
        private: bool,
        cells: Sequence[tuple[int, RunningState, Tensor]] = (),
        asked: frozenset[int] = frozenset(),
        lender: Any = None,
    ) -> None:
        self.root: Final = root
        self.handle: Final = leaves if leaves.__class__ is Lent else tuple(leaves)
        self._leaves: tuple[object, ...] | None = None
        self.private: Final = private
        self.cells: Final = tuple(cells)
        self.asked: Final = asked
        self.lender = lender
        self.tensors: tuple[Tensor, ...] | None = None
        """The tensors of the tree's leaves, once they were asked for."""

    @property
    def leaves(self) -> tuple[Any, ...]:
        """All of them."""
        leaves = self._leaves
        if leaves is None:
            leaves = self._leaves = tuple(self.handle)
        return leaves

    def renewed(self) -> Flat:
        """These leaves with the present values of the running states."""
        changed = [(i, cell, cell.value()) for i, cell, listed in self.cells if cell.value() is not listed]
        if not changed:
            return self
        leaves, cells = list(self.leaves), {cell[0]: cell for cell in self.cells}
        for i, cell, value in changed:
            stack, _, primitive = bare(value)
            leaves[i] = stack.copy(primitive) if self.private else primitive  # what the cell holds is not ours alone
            cells[i] = (i, cell, value)
        return Flat(self.root, leaves, self.private, tuple(cells.values()), self.asked)


class Fault(Exception):
    """Something that cannot be an argument or a result; its path is put together on the way out."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what)
        self.what: Final = what
        self.mend: Final = mend
        self.path: list[str] = []

    def error(self, name: str) -> TraceError:
        """The error of the argument or result of this name."""
        return TraceError(
            "this cannot enter or leave a compiled function",
            given=f"{name}{''.join(reversed(self.path))}: {self.what}",
            expected="tensors, numbers, texts, None, modules, optimizers, and tuples, lists, dicts and dataclasses"
            " of them",
            mend=self.mend,
        )


def hanging_fault() -> Fault:
    """Returns what is said of a tensor on a tape where a program would cut it off."""
    return Fault("a tensor that hangs on a tape", "pass x.detach(), or compile its computation too")


@final
class Walk:
    """One taking apart, of all arguments or of all results.

    leaves  primitives and numbers in order
    roots   trees among the values: (position of the first leaf, what was listed)
    loose   tensors that stand in no tree, alone or in a parameter or a running state: (position, tensor)

    as_read: of a tree that a program returned, the tensors that its readers see instead of its private ones.
    apart: leaves of trees are left out; positions count them.  `complete` puts them in, `changing` those that change.
    of_results: leaves say which tensors are cut off from a tape, see `CutTensor`; of arguments only `has_cut` does.
    """

    has_cut = False

    def __init__(self, *, as_read: bool = False, apart: bool = False, of_results: bool = False) -> None:
        self._of_results: Final = of_results
        self._as_read: Final = as_read
        self._apart: Final = apart
        self._left_out: list[tuple[int, Flat]] = []
        """Says where among the leaves those of a tree belong, for each of the roots."""
        self._missing = 0
        self.leaves: list[Primitive] = []
        self.roots: list[tuple[int, Tree, Flat]] = []
        self.loose: list[tuple[int, Tensor]] = []
        self.hanging: list[Tensor] = []
        """Tensors computed from what asks for gradients: a program takes them for leaves, see `connected.py`."""
        self._seen: dict[int, int] = {}
        self._several: set[int] = set()
        self._cells: list[tuple[int, RunningState, Tensor]] = []
        self._asked: list[int] = []

    def take(self, value: Argument) -> Structure:
        """The structure of a value; its leaves are added.

        Raises: Fault for what is neither tensor, number, container nor constant; MovedError for what a compiled step
            has taken over.
        """
        kind = value.__class__
        if kind is Tensor:
            self.loose.append((len(self.leaves) + self._missing, value))
            return self._tensor(value, self.hanging)
        spec = NUMBER_SPECS.get(kind)
        if spec is not None and kind is not bool:
            self.leaves.append(value)
            return _NUMBERS[spec]
        if isinstance(value, Tree):
            flat = _flat_of(value)
            if flat.private and self._as_read:
                flat = _read(value)
            self.roots.append((len(self.leaves) + self._missing, value, flat))
            if self._apart:
                self._left_out.append((len(self.leaves), flat))
                self._missing += flat.root.size
            else:
                self.leaves += flat.leaves
            return flat.root
        if isinstance(value, CutTensor):
            self.has_cut = True
            self.loose.append((len(self.leaves) + self._missing, value))
            leaf = self._tensor(value, self.hanging)
            return interned(Leaf, leaf.spec, leaf.stack, leaf.asked, True) if self._of_results else leaf
        if isinstance(value, Value):  # a run-time number of a trace
            return self._traced_number(value)
        if kind is Param:
            self.loose.append((len(self.leaves) + self._missing, value.val()))
            return self._param(value)
        if kind is RunningState:
            self.loose.append((len(self.leaves) + self._missing, value.value()))
            return self._state(value)
        parts = opened(value)
        if parts is None:
            return _constant(value)
        return self._container(kind, *parts, self.take)

    @property
    def trees(self) -> list[Tree]:
        """The trees among the values."""
        return [tree for _, tree, _ in self.roots]

    def complete(self) -> None:
        """Puts in what was left out."""
        for at, flat in reversed(self._left_out):
            self.leaves[at:at] = flat.leaves
        self._left_out, self._missing = [], 0

    def changing(self, kept: Collection[int]) -> list[Any]:
        """The leaves, without those of trees at the positions `kept` that last."""
        changing: list[Argument] = []
        before = 0
        for (at, flat), (position, _, _) in zip(self._left_out, self.roots, strict=True):
            changing += self.leaves[before:at]
            before = at
            handle = flat.handle
            changing += handle.changing if position in kept and isinstance(handle, Lent) else flat.leaves
        changing += self.leaves[before:]
        return changing

    def cells(self) -> dict[int, RunningState]:
        """The running states by their position: what may have another value later."""
        cells = {at: cell for at, cell, _ in self._cells}
        for at, _, flat in self.roots:
            cells.update({at + i: cell for i, cell, _ in flat.cells})
        return cells

    def constant(self, value: Argument, name: str) -> Structure:
        """The structure of a value that is compiled in.  Raises: TraceError for one that cannot be compared."""
        try:
            return _constant(value)
        except Fault as fault:
            raise TraceError(
                "a static argument must be hashable",
                given=f"{name}: {fault.what}",
                expected="a value that is compared by ==, such as a number, a text, a tuple or a Config",
                mend="pass tensors as ordinary arguments",
            ) from None

    # -- containers ------------------------------------------------------------------------------------
    def _container(
        self,
        kind: type[object],
        names: tuple[object, ...],
        items: Sequence[object],
        take: Callable[[object], Structure],
    ) -> Container:
        children = []
        for name, item in zip(names, items, strict=True):
            try:
                children.append(take(item))
            except Fault as fault:
                fault.path.append(f"[{name!r}]" if kind in CONTAINERS else f".{name}")
                raise
        if any(name.__class__ not in _PLAIN_NAMES for name in names):  # 1, 1.0, True, 0.0 and -0.0 are other names
            return interned(Container, kind, names, tuple(children), constant_key(names))
        return interned(Container, kind, names, tuple(children))

    # -- inside a tree ----------------------------------------------------------------------------------
    def tree(self, tree: Tree) -> Container:
        """The fields of a tree: those annotated Scalar are run-time numbers, other numbers are constants."""
        kind = tree.__class__
        fields = tree._fields()
        scalars = kind.__scalar_fields__
        children = []
        for name in kind.__module_fields__:
            try:
                item = fields[name]
                children.append(self._scalar(item) if name in scalars else self._field(item))
            except Fault as fault:
                fault.path.append(f".{name}")
                raise
        return interned(Container, kind, kind.__module_fields__, tuple(children))

    def whole(self, tree: Tree) -> Container:
        """`tree`, of which a part may stand in several places."""
        seen: set[int] = set()
        waiting: list[object] = [tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Tree):
                (self._several if id(node) in seen else seen).add(id(node))
            waiting += [child for _, child in children(node) if not isinstance(child, LEAVES)]
        return self.tree(tree)

    def _scalar(self, value: object) -> Structure:
        if isinstance(value, Value) and value.__class__ is not Tensor:
            return self._traced_number(value)
        if value.__class__ not in (int, float):
            raise Fault(f"a {type(value).__name__} in a field annotated Scalar", "keep a Python number there")
        self.leaves.append(value)
        return _NUMBERS[NUMBER_SPECS[value.__class__]]

    def _field(self, value: object) -> Structure:
        kind = value.__class__
        if kind is Param:
            return self._take_once(value, self._param)
        if kind is RunningState:
            return self._take_once(value, self._state)
        if kind is Tensor or isinstance(value, CutTensor):
            return self._take_once(value, self._tensor)
        if isinstance(value, Tree):
            return self._shared_tree(value) if id(value) in self._several else self.tree(value)
        if kind in (tuple, FieldDict, list, dict) or (
            isinstance(value, Compound) or (isinstance(value, tuple) and hasattr(kind, "_fields"))
        ):
            parts = opened(value)
            assert parts is not None
            return self._container(kind, *parts, self._field)
        return _constant(value)

    def _shared_tree(self, value: Tree) -> Structure:
        first = self._seen.get(id(value))
        if first is not None:
            return interned(Again, first)
        number = self._seen[id(value)] = -1 - sum(at < 0 for at in self._seen.values())
        return interned(First, number, self.tree(value))

    def _take_once(self, value: object, take: Callable[[Any], Structure]) -> Structure:
        first = self._seen.get(id(value))
        if first is not None:
            return interned(Again, first)
        self._seen[id(value)] = len(self.leaves)
        return take(value)

    # -- leaves -----------------------------------------------------------------------------------------
    def _tensor(self, value: Tensor, hanging: list[Tensor] | None = None) -> Leaf:
        stack, asked, primitive = bare(value, hanging)
        if asked:
            self._asked.append(id(value.primitive))
        self.leaves.append(primitive)
        return interned(Leaf, value.spec, stack, asked)

    def _param(self, param: Param) -> Structure:
        leaf = self._tensor(param.val())
        return interned(ParamStructure, param.id, leaf, param.require_grad, param.mapper)

    def _state(self, cell: RunningState) -> Structure:
        value = cell.value()
        self._cells.append((len(self.leaves) + self._missing, cell, value))
        return interned(StateStructure, cell.id, self._tensor(value))

    def _traced_number(self, value: Value) -> Structure:
        if not value.is_number:
            raise Fault(f"a {type(value).__name__} that is no Tensor", "return tensors")
        self.leaves.append(value.primitive)
        return _NUMBERS[value.spec]

    def listed(self, root: Root) -> Flat:
        """Returns what was found in a tree."""
        return Flat(root, self.leaves, False, self._cells, frozenset(self._asked))


def _flat_of(tree: Tree) -> Flat:
    flat: Flat | None = tree._flat
    if flat is not None:
        return flat.renewed() if flat.cells else flat
    flat = _read(tree)
    if active() is None:  # the trees of a trace die with it
        object.__setattr__(tree, "_flat", flat)
    return flat


def _read(tree: Tree) -> Flat:
    walk = Walk()
    container = walk.whole(tree)
    return walk.listed(interned(Root, tree.__class__, container))


def bare(value: Tensor, hanging: list[Tensor] | None = None) -> tuple[Backend, int, Any]:
    """A tensor's real stack, the levels of it on which it asks for gradients, and its leaf's primitive.

    Raises: Fault for a tensor that is computed from one that asks, unless there is a list that takes it.
    """
    backend: Any = value.backend
    primitive: Primitive = value.primitive
    stack, asked, bit = backend, 0, 1
    while backend.is_autodiff:
        if backend.is_tracked(primitive):
            if backend.is_leaf(primitive):
                asked |= bit
            elif backend.session is None:
                if hanging is None:
                    raise hanging_fault()
                hanging.append(value)
                asked |= bit
            primitive = primitive.primitive
        bit <<= 1
        backend = backend.inner
    if primitive.__class__ is Moved:
        primitive.refuse()
    if backend.session is None:
        primitive = leaf_primitive(backend, primitive)
    return (stack if stack.session is None else stack.real), asked, primitive


def opened(value: object) -> tuple[tuple[Any, ...], Sequence[Any]] | None:
    """Names and contents of a container; None for what is none."""
    kind = value.__class__
    container = CONTAINERS.get(kind)
    if container is not None:
        return container[0](value)
    if isinstance(value, tuple):
        return getattr(kind, "_fields", tuple(range(len(value)))), value
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Config):
        names = tuple(field.name for field in dataclasses.fields(value))
        return names, [getattr(value, name) for name in names]
    return None


def held_in(values: Iterable[object]) -> Iterator[Any]:
    """The tensors, parameters, running states and outermost trees in values and containers of them."""
    for value in values:
        if isinstance(value, Tensor | Param | RunningState | Tree):
            yield value
        elif (parts := opened(value)) is not None:
            yield from held_in(parts[1])


def leaves_in(values: Iterable[object]) -> Iterator[Any]:
    """The tensors, parameters and running states in values, those of trees too."""
    for value in held_in(values):
        if isinstance(value, Tree):
            yield from (leaf for _, leaf in walk(value))
        else:
            yield value


def _constant(value: Argument) -> Structure:
    if value is None or value.__class__ in (bool, str):
        return interned(Constant, (value.__class__, value), Held(value))
    if isinstance(value, Gradients):
        raise Fault(f"{value!r}, which belong to one backward", "pass GradientsParams.from_grads(gradients, model)")
    if isinstance(value, Iterator | Coroutine):
        raise Fault(f"a {type(value).__name__}, which is used up when it is read", "pass a list or a tuple")
    held = [name for name, item in getattr(value, "__dict__", {}).items() if _is_traced(item)]
    if held:
        raise Fault(
            f"a {type(value).__name__} with a value of the traced function in .{held[0]}",
            "return tensors, or make a dataclass of it; register_container takes any other class",
        )
    if isinstance(value, torch.Tensor):
        raise Fault(f"a torch.Tensor {tuple(value.shape)}", "wrap it: Tensor.from_torch(tensor)")
    if isinstance(value, np.ndarray):
        raise Fault(f"a numpy array {value.shape}", "make a tensor of it: Tensor.from_data(array, device)")
    if isinstance(value, np.number | np.bool_):
        raise Fault(f"a numpy {type(value).__name__}", "make a Python number of it: value.item()")
    try:
        key = constant_key(value)
    except TypeError as err:
        raise Fault(str(err), "pass tensors and numbers; a constant must be hashable") from None
    return interned(Constant, key, Held(value))


def _is_traced(value: object) -> bool:
    return isinstance(value, Value) and getattr(value.backend, "session", None) is not None


_PLAIN_NAMES: Final = frozenset({str, int, ParamId})

_NUMBERS: Final[Mapping[object, Number]] = {spec: interned(Number, spec) for spec in NUMBER_SPECS.values()}
