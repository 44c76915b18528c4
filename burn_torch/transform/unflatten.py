"""Putting leaves together: for a trace at once, for results of a program when somebody reads them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from burn_torch.backend.tracing import Session
from burn_torch.module import RunningState
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.tensor.tensor import cut_kind
from burn_torch.transform.flatten import Flat, Lent
from burn_torch.transform.structure import Leaf, Root, leaf_of, placed

__all__ = ["RESULTS", "TURNS", "Lending", "Results", "TracedArguments", "copies_of", "evacuate"]


@final
class TracedArguments:
    """Arguments of a traced function: every leaf is a slot of the session's graph."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self.trees: Final[list[Tree]] = []
        """The trees that were made, in order."""

    def tensor(self, leaf: Leaf, primitive: Primitive) -> Tensor:
        """The traced tensor of a leaf."""
        stack = self._session.stack(leaf.stack)
        return Tensor(stack, _asking(stack, primitive, leaf), leaf.spec)

    def root(self, root: Root, leaves: Sequence[Primitive]) -> Any:
        """The whole tree."""
        tree = root.tree.build(leaves, 0, self, {})
        self.trees.append(tree)
        return tree


class Results:
    """Results of a program.  A tree gets its fields when one is first read; what it holds of the program is private."""

    def tensor(self, leaf: Leaf, primitive: Primitive) -> Tensor:
        """The tensor of a leaf."""
        kind = cut_kind(0) if leaf.is_cut else Tensor
        return kind(leaf.stack, _asking(leaf.stack, primitive, leaf), leaf.spec)

    def root(self, root: Root, leaves: Sequence[Primitive] | Lent) -> Any:
        """A tree without fields."""
        tree = object.__new__(root.kind)
        _set(tree, "_flat", Flat(root, leaves, True))
        _set(tree, "_unread", _Unread(root, leaves))
        return tree


@final
class Lending(Results):
    """Results as in `Results`, which keeps the trees it made."""

    def __init__(self) -> None:
        self.trees: Final[list[Tree]] = []

    def root(self, root: Root, leaves: Sequence[Primitive] | Lent) -> Any:
        """A tree without fields."""
        tree = super().root(root, leaves)
        self.trees.append(tree)
        return tree


RESULTS: Final = Results()

TURNS: Final = threading.RLock()
"""Held while a recorded program takes its arguments over, runs and lends its results, and while one of these is read.

In between, another thread's call would find nothing to save of what it is about to overwrite.
"""
_set: Final = object.__setattr__


@final
class _Unread:
    """The fields of a tree that a program returned, before anybody has read one."""

    __slots__ = ("_leaves", "_root")

    def __init__(self, root: Root, leaves: Sequence[Primitive] | Lent) -> None:
        self._root = root
        self._leaves = leaves

    def fields(self, tree: Tree) -> Mapping[str, Any]:
        """The fields, with tensors of their own: the program will write over its private ones."""
        with TURNS:
            present = tree._unread
            if present is None or present is self:
                return self._values_of(tree) if present is self else tree.__dict__
        return present.fields(tree)  # it was taken over, or given copies, while this thread waited

    def _values_of(self, tree: Tree) -> Mapping[str, object]:
        root = self._root
        shared: dict[int, Any] = {}
        values = root.tree.values(copies_of(root, self._leaves), 0, RESULTS, shared)
        cells = [(at, cell, cell.value()) for at, cell in shared.items() if isinstance(cell, RunningState)]
        if cells:
            lender = None if tree._flat is None else tree._flat.lender
            _set(tree, "_flat", Flat(root, self._leaves, True, cells, lender=lender))
        return dict(zip(root.tree.names, values, strict=True))


def evacuate(tree: Tree) -> None:
    """Gives a tree that a program returned copies of its private tensors: their memory is about to be overwritten."""
    flat: Flat | None = tree._flat
    if flat is None or not flat.private:
        return  # it was taken over since
    leaves = copies_of(flat.root, flat.leaves)
    _set(tree, "_flat", Flat(flat.root, leaves, True, flat.cells, flat.asked))
    if isinstance(tree._unread, _Unread):
        _set(tree, "_unread", _Unread(flat.root, leaves))


def copies_of(root: Root, leaves: Sequence[Primitive] | Lent) -> list[object]:
    """The leaves of a tree, in memory of their own."""
    copies = list(leaves)  # once: of what a program lent it puts them together
    for at, part in placed(part for _, part in root.tree.parts("")):
        leaf = leaf_of(part)
        if leaf is not None:
            copies[at] = leaf.stack.copy(copies[at])
    return copies


def _asking(stack: Any, primitive: Primitive, leaf: Leaf, asked: int | None = None) -> object:
    """The primitive as a leaf on the levels of the stack where gradients are asked for."""
    asked = leaf.asked if asked is None else asked
    if not asked:
        return primitive
    primitive = _asking(stack.inner, primitive, leaf, asked >> 1)
    return stack.track(primitive, leaf.spec) if asked & 1 else primitive
