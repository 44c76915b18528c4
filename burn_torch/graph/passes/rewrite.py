"""Writing a graph anew, node by node: what the passes share."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.origin import Origin
from burn_torch.graph.passes.layout import Layouts
from burn_torch.graph.view import GraphView
from burn_torch.ops.op import Call

__all__ = ["Numerics", "Rewriting"]

Numerics: TypeAlias = Literal["eager", "fast"]
"""`"eager"`: every bit of every output stays; `"fast"`: the usual algebra of reals, which may round otherwise."""


@final
class Rewriting(GraphView):
    """The graph that a pass writes while it walks another one.

    Ids keep their meaning; `rename` says that an id is now read elsewhere.  `keep` keeps up to date what the pass needs
    to know about the values so far (their specs, who makes them, how they lie in memory).
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nodes: Final[list[Node]] = []
        self.layouts: Final = Layouts(graph)
        self._makers: Final[dict[int, Node]] = {}
        self._changed = False

    def made_by(self, i: Input) -> Node | None:
        """The node of the new graph that makes a value; None for inputs of the graph, literals and absent inputs."""
        return self._makers.get(i) if isinstance(i, int) else None

    # -- writing -----------------------------------------------------------------------
    def keep(self, node: Node, inputs: tuple[Input, ...], call: Call | None = None) -> Node:
        """Appends a node, with other inputs or another Call if they have changed."""
        if call is None:
            call = node.call
        if call is not node.call or (inputs is not node.inputs and inputs != node.inputs):
            node = Node(call, inputs, node.outputs, node.origin)
            self._changed = True
        self.nodes.append(node)
        self._note(node)
        return node

    def make(self, call: Call, inputs: tuple[Input, ...], origin: Origin | None = None) -> int:
        """Appends a new node of one output; returns its id."""
        new = self.fresh()
        self._changed = True
        self.keep(Node(call, inputs, (new,), origin), inputs)
        return new

    def exchange(self, position: int, node: Node) -> None:
        """Puts another node in the place of one that was kept, which makes the same values and perhaps more."""
        self.nodes[position] = node
        self._changed = True
        self._note(node)

    def _note(self, node: Node) -> None:
        """Keeps what is known of the values of a node of the new graph."""
        for i, spec in zip(node.outputs, node.call.results, strict=True):
            if i is not None:
                self._makers[i] = node
                if spec is not None:
                    self.specs[i] = spec
        self.layouts.add(node)

    def done(self) -> Graph:
        """The new graph; the old one itself if nothing has changed."""
        if not self._changed and not self._renamed:
            return self.graph
        return Graph(self.graph.inputs, self.nodes, self._outputs())
