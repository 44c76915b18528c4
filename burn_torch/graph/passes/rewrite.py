"""Writing a graph anew, node by node: what the passes share."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, final

from burn_torch.core.spec import Spec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.origin import Origin
from burn_torch.graph.passes.layout import Layouts
from burn_torch.ops.op import Call

__all__ = ["Numerics", "Rewriting"]

Numerics: TypeAlias = Literal["eager", "fast"]
"""`"eager"`: every bit of every output stays; `"fast"`: the usual algebra of reals, which may round otherwise."""


@final
class Rewriting:
    """The graph that a pass writes while it walks another one.

    Ids keep their meaning; `replace` says that an id is now read elsewhere.  What the pass needs to know of the values
    so far (their specs, who makes them, how they lie in memory) is kept up to date by `keep`.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph: Final = graph
        self.nodes: Final[list[Node]] = []
        self.makers: Final[dict[int, Node]] = {}
        self.specs: Final[dict[int, Spec]] = dict(graph.inputs)
        self.layouts: Final = Layouts(graph)
        self._replaced: Final[dict[int, Input]] = {}
        self._changed = False
        self._next = -1

    # -- reading -----------------------------------------------------------------------
    def inputs(self, node: Node) -> tuple[Input, ...]:
        """What a node of the old graph reads in the new one."""
        replaced = self._replaced
        if not replaced:
            return node.inputs
        return tuple([replaced.get(i, i) if i.__class__ is int else i for i in node.inputs])

    def spec(self, i: Input) -> Any:
        """The spec of an input that is an id; None for literals, absent inputs and shapes from data."""
        return self.specs.get(i) if isinstance(i, int) else None

    def maker(self, i: Input) -> Node | None:
        """The node that makes a value; None for inputs of the graph, literals and absent inputs."""
        return self.makers.get(i) if isinstance(i, int) else None

    # -- writing -----------------------------------------------------------------------
    def keep(self, node: Node, inputs: tuple[Input, ...], call: Call | None = None) -> Node:
        """Appends a node, with other inputs or another Call if they have changed."""
        if call is None:
            call = node.call
        if call is not node.call or (inputs is not node.inputs and inputs != node.inputs):
            node = Node(call, inputs, node.outputs, node.origin)
            self._changed = True
        self.nodes.append(node)
        for i, spec in zip(node.outputs, call.results, strict=True):
            if i is not None:
                self.makers[i] = node
                if spec is not None:
                    self.specs[i] = spec
        self.layouts.add(node)
        return node

    def make(self, call: Call, inputs: tuple[Input, ...], origin: Origin | None = None) -> int:
        """Appends a new node of one output; returns its id."""
        if self._next < 0:
            ids = [i for i, _ in self.graph.inputs]
            ids += [i for node in self.graph.nodes for i in node.outputs if i is not None]
            self._next = max(ids, default=-1) + 1
        made = self._next
        self._next += 1
        self._changed = True
        self.keep(Node(call, inputs, (made,), origin), inputs)
        return made

    def exchange(self, position: int, node: Node) -> None:
        """Puts another node in the place of one that was kept, which makes the same values and perhaps more."""
        self.nodes[position] = node
        self._changed = True
        for i, spec in zip(node.outputs, node.call.results, strict=True):
            if i is not None:
                self.makers[i] = node
                if spec is not None:
                    self.specs[i] = spec
        self.layouts.add(node)

    def replace(self, old: int | None, new: Input) -> None:
        """From here on, readers of `old` read `new`; so does an output of the graph, if `new` is an id."""
        assert old is not None
        self._replaced[old] = new
        self._changed = True

    def done(self) -> Graph:
        """The new graph; the old one itself if nothing has changed."""
        if not self._changed:
            return self.graph
        outputs: list[int | None] = []
        for i in self.graph.outputs:
            new = i if i is None else self._replaced.get(i, i)
            outputs.append(new if isinstance(new, int) else i)
        return Graph(self.graph.inputs, self.nodes, outputs)
