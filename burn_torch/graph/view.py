"""Questions to a graph and changes of it: the node that makes a value, those that read it, free ids, a new graph.

view = GraphView(graph)
cast = view.made_by(i)                          the node that makes a value, or None
view.replace([cast, node], [joined], at=node)   `joined` in the place of `node`, and `cast` goes
view.rename(i, j)                               who read i reads j
after = view.done()                             `graph` itself where nothing was changed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.origin import Origin
from burn_torch.graph.transfers import in_order
from burn_torch.symbolic.sizes import size_hint

__all__ = ["GraphView", "first_free_id", "inlined", "positions_behind"]


def first_free_id(graph: Graph) -> int:
    """The id from which on none is taken."""
    ids = [i for node in graph.nodes for i in node.outputs if i is not None]
    return 1 + max([*(i for i, _ in graph.inputs), *ids], default=-1)


class GraphView:
    """A graph with its makers, readers and specs, each worked out when it is first asked for, and the changes to it."""

    def __init__(self, graph: Graph) -> None:
        self.graph: Final = graph
        self._renamed: Final[dict[int, Input]] = {}
        self._stands_for: Final[dict[int, Sequence[Node]]] = {}
        """By the identity of a node that goes: what stands in its place."""
        self._next = -1

    # -- reading -----------------------------------------------------------------------
    @cached_property
    def specs(self) -> dict[int, Spec]:
        """The spec of each value; those of `fresh` ids may be added."""
        return self.graph.specs()

    @cached_property
    def maker(self) -> dict[int, int]:
        """For each value, the position of the node that makes it; inputs of the graph have none."""
        return {i: n for n, node in enumerate(self.graph.nodes) for i in node.outputs if i is not None}

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """For each value, the positions of the nodes that read it, in order, each once."""
        readers: dict[int, list[int]] = {}
        for n, node in enumerate(self.graph.nodes):
            for i in dict.fromkeys(node.inputs):
                if isinstance(i, int):
                    readers.setdefault(i, []).append(n)
        return readers

    @cached_property
    def returned(self) -> set[int]:
        """The values that the graph returns."""
        return {i for i in self.graph.outputs if i is not None}

    def made_by(self, i: Input) -> Node | None:
        """The node that makes a value; None for inputs of the graph, literals and absent inputs."""
        n = self.maker.get(i) if isinstance(i, int) else None
        return None if n is None else self.graph.nodes[n]

    def read_by(self, i: Input) -> list[Node]:
        """The nodes that read a value, in order."""
        return [self.graph.nodes[n] for n in self.readers.get(i, ())] if isinstance(i, int) else []

    def spec(self, i: Input) -> Spec | None:
        """The spec of a value; None for literals, absent inputs and shapes from data."""
        return self.specs.get(i) if isinstance(i, int) else None

    def bytes_of(self, i: int) -> int:
        """The size of a tensor, where symbols have their values of here; 0 for anything else."""
        spec = self.specs.get(i)
        return size_hint(spec.numel) * spec.dtype.itemsize if isinstance(spec, TensorSpec) else 0

    def is_read_outside(self, i: Input, nodes: Iterable[Node]) -> bool:
        """Tells if the graph returns a value, or a node that is none of these reads it."""
        inside = set(map(id, nodes))
        return i in self.returned or any(id(node) not in inside for node in self.read_by(i))

    # -- changing ----------------------------------------------------------------------
    def fresh(self, spec: Spec | None = None) -> int:
        """An id that no value of the graph has, for a value with this spec."""
        if self._next < 0:
            self._next = first_free_id(self.graph)
        i = self._next
        self._next += 1
        if spec is not None:
            self.specs[i] = spec
        return i

    def replace(self, gone: Iterable[Node], nodes: Sequence[Node], *, at: Node) -> bool:
        """Puts `nodes` in the place of `at` and takes `gone` away; nothing changes if one of them is gone."""
        left = [*gone, at]
        if any(id(node) in self._stands_for for node in left):
            return False
        self._stands_for.update((id(node), ()) for node in left)
        self._stands_for[id(at)] = nodes
        return True

    def is_gone(self, node: Node) -> bool:
        """Tells if a node was replaced or taken away."""
        return id(node) in self._stands_for

    def rename(self, old: int | None, new: Input) -> None:
        """From here on, readers of `old` read `new`; so does an output of the graph, if `new` is an id."""
        assert old is not None
        self._renamed[old] = new

    def renamed(self, node: Node) -> tuple[Input, ...]:
        """Returns what a node of the old graph reads in the new one."""
        renamed = self._renamed
        if not renamed:
            return node.inputs
        return tuple([renamed.get(i, i) if i.__class__ is int else i for i in node.inputs])

    def done(self) -> Graph:
        """The new graph, each value made before it is read; the old one itself if nothing has changed."""
        if not self._stands_for and not self._renamed:
            return self.graph
        nodes: list[Node] = []
        for node in self.graph.nodes:
            for kept in self._stands_for.get(id(node), (node,)):
                inputs = self.renamed(kept)
                nodes.append(kept if inputs == kept.inputs else Node(kept.call, inputs, kept.outputs, kept.origin))
        return Graph(self.graph.inputs, in_order(self.graph, nodes), self._outputs())

    def _outputs(self) -> list[int | None]:
        outputs: list[int | None] = []
        for i in self.graph.outputs:
            new = i if i is None else self._renamed.get(i, i)
            outputs.append(new if isinstance(new, int) else i)
        return outputs


def positions_behind(values: Iterable[Input], maker: Mapping[int, int], nodes: Sequence[Node]) -> Iterator[int]:
    """The positions of all nodes of which values are made, each once."""
    waiting, seen = list(values), set[int]()
    while waiting:
        i = waiting.pop()
        n = maker.get(i) if isinstance(i, int) else None
        if n is not None and n not in seen:
            seen.add(n)
            yield n
            waiting += nodes[n].inputs


def inlined(
    body: Graph,
    given: Sequence[Input],
    outputs: Sequence[int | None],
    fresh: Callable[[], int],
    origin: Origin | None = None,
) -> list[Node]:
    """The nodes of a graph that reads `given` and makes `outputs`; what lies between them gets fresh ids."""
    names: dict[int, Input] = dict(zip((i for i, _ in body.inputs), given, strict=True))
    for i, wanted in zip(body.outputs, outputs, strict=True):
        if i is not None and wanted is not None:
            names.setdefault(i, wanted)
    nodes: list[Node] = []
    for node in body.nodes:
        for i in node.outputs:
            if i is not None and i not in names:
                names[i] = fresh()
        inputs = [names[i] if isinstance(i, int) else i for i in node.inputs]
        results = [None if i is None else names[i] for i in node.outputs]
        nodes.append(Node(node.call, inputs, results, origin))  # type: ignore[arg-type]  # outputs are ids
    return nodes
