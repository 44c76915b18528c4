"""Defines what random layers and running states find while a function is traced."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from burn_torch.backend.tracing import Session
from burn_torch.core import ambient
from burn_torch.core.spec import INT_NUMBER
from burn_torch.module import RunningState
from burn_torch.module.scope import StepScope, class_name, current_scope, paths_below
from burn_torch.module.tree import Tree, walk
from burn_torch.tensor import Tensor

__all__ = ["Draw", "DrawPart", "TraceScope", "node_at"]


@final
class Draw:
    """One draw of a traced function: how the scope that it is called in names it."""

    __slots__ = ("_layer", "name", "path", "tree")

    def __init__(self, name: str, tree: int | None, path: str, layer: object = None) -> None:
        self.name: Final = name
        self._layer: Final = weakref.ref(layer) if isinstance(layer, Tree) else None
        """The layer itself where it is no argument: the function closes over it, or has made it."""
        self.tree: Final = tree
        """Says which tree among the arguments holds the layer; None if none does."""
        self.path: Final = path

    def next_key(self, trees: Sequence[Tree]) -> tuple[int, int]:
        """Key and stream, as the eager function would have got them from the same scope at this point."""
        scope = current_scope()
        if scope is None:
            return ambient.next_key()
        return scope.draw_named(self._path_in(scope, trees) or self.name)

    def _path_in(self, scope: StepScope, trees: Sequence[Tree]) -> str | None:
        """How a scope names the layer; None if it does not know it."""
        if self.tree is None:
            layer = None if self._layer is None else self._layer()
            return None if layer is None else scope.path_of(layer)
        tree = trees[self.tree]
        base = scope.path_of(tree)
        if base is not None:
            return base + self.path
        # a scope of the layer itself; nobody can have told one of a layer in a tree without fields
        return scope.path_of(node_at(tree, self.path[1:])) if tree._unread is None else None


def node_at(tree: Tree, path: str) -> Any:
    """Returns what a path in a tree leads to: "blocks.0.norm.running_mean"."""
    node: Any = tree
    for name in path.split(".") if path else ():
        if isinstance(node, Tree):
            node = getattr(node, name)
        elif isinstance(node, Mapping):
            node = next(item for key, item in node.items() if str(key) == name)
        else:
            node = node[int(name)]
    return node


class DrawPart(NamedTuple):
    """The source of an input: key (part 0) or stream (part 1) of a draw."""

    draw: Draw
    part: int


@final
class TraceScope(StepScope):
    """The scope of a trace: each draw becomes two inputs of the program, each new running state an output.

    So a compiled function draws from, and hands its states to, whatever scope it is called in.
    """

    def __init__(self, session: Session, trees: Sequence[Tree]) -> None:
        super().__init__(None)
        self._session: Final = session
        self._places: Final[dict[int, tuple[int, str]]] = {}
        self._cells: Final[dict[int, tuple[int, str]]] = {}
        for number, tree in enumerate(trees):
            for node, path in paths_below(tree).items():
                self._places.setdefault(node, (number, path.removeprefix("module:")))
            for path, leaf in walk(tree):
                if isinstance(leaf, RunningState):
                    self._cells.setdefault(id(leaf), (number, path))

    def place_of(self, node: object) -> str | None:
        """The path of a module among the arguments; None for any other object."""
        place = self._places.get(id(node))
        return None if place is None else place[1].removeprefix(".")

    def stand_in(self, copies: Mapping[int, object]) -> None:
        """Lets layers draw under the names of others, whose identities are the keys."""
        self._places.update((id(copy), self._places[node]) for node, copy in copies.items() if node in self._places)
        self._held.append(copies)

    def draw(self, layer: object) -> tuple[Any, int]:
        """Key and stream as run-time numbers."""
        tree, path = self._places.get(id(layer), (None, ""))
        name = f"name:{layer}" if isinstance(layer, str) else class_name(layer)
        draw = Draw(name, tree, path, layer if tree is None else None)
        key, stream = (self._session.input(INT_NUMBER, DrawPart(draw, part)) for part in (0, 1))
        return key, stream  # type: ignore[return-value]  # a traced number stands for an int

    def handed_in(self) -> Mapping[tuple[int, str], Tensor]:
        """New values of running states, by the tree among the arguments and the path in it."""
        return {self._cells[id(state)]: value for state, value in self._pending.values() if id(state) in self._cells}
