"""In which order kernels run: a joined kernel needs all that it reads at once, so what else lives then matters."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Final, final

from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.sharing import alias_roots
from burn_torch.graph.transfers import transfers
from burn_torch.graph.view import GraphView

__all__ = ["least_alive"]


def least_alive(graph: Graph) -> Graph:
    """The same nodes in an order that keeps little alive: of those that can run, the one that adds the least is first.

    So what frees more than it makes runs as soon as it can.  Ties go by the order given, and transfers keep theirs.
    """
    return Graph(graph.inputs, _Ordering(graph).run(), graph.outputs)


@final
class _Ordering:
    """Nodes that wait, and how many bytes each would add to what is alive if it ran now."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: Final = graph.nodes
        self.root: Final = alias_roots(graph)
        inputs = {i for i, _ in graph.inputs}
        self.kept: Final = inputs | {self.root[i] for i in graph.outputs if i is not None}
        view = GraphView(graph)
        self.size: Final = {i: view.bytes_of(i) for i in view.specs}
        maker = view.maker
        self.readers: Final[dict[int, list[int]]] = {}
        """For each root, the nodes that read it or a view of it, or make a view of it."""
        self.after: Final[list[list[int]]] = [[] for _ in self.nodes]
        self.missing: Final = [0] * len(self.nodes)
        for n, node in enumerate(self.nodes):
            read = [i for i in dict.fromkeys(node.inputs) if isinstance(i, int)]
            for base in dict.fromkeys(self.root[i] for i in read):
                self.readers.setdefault(base, []).append(n)
            for m in dict.fromkeys(maker[i] for i in read if i in maker):
                self.after[m].append(n)
                self.missing[n] += 1
        for sent, following in itertools.pairwise(transfers(self.nodes)):
            if following not in self.after[sent]:
                self.after[sent].append(following)
                self.missing[following] += 1
        self.left: Final = {base: len(readers) for base, readers in self.readers.items()}

    def run(self) -> list[Node]:
        """The nodes in their order."""
        done: list[Node] = []
        ready = [(self._adds(n), n) for n in range(len(self.nodes)) if not self.missing[n]]
        heapq.heapify(ready)
        started: set[int] = set()
        while ready:
            adds, n = heapq.heappop(ready)
            if n in started:
                continue
            now = self._adds(n)
            if now != adds:
                heapq.heappush(ready, (now, n))
                continue
            started.add(n)
            done.append(self.nodes[n])
            changed = self._finish(n)
            for m in self.after[n]:
                self.missing[m] -= 1
                if not self.missing[m]:
                    changed.append(m)
            for m in changed:
                if not self.missing[m] and m not in started:
                    heapq.heappush(ready, (self._adds(m), m))
        return done

    def _adds(self, n: int) -> int:
        node = self.nodes[n]
        written = sum(self.size[i] for i in node.outputs if i is not None and self.root[i] == i)
        return written - sum(
            self.size[base] for base in self._bases(node) if base not in self.kept and self.left[base] == 1
        )

    def _finish(self, n: int) -> list[int]:
        """Counts the node as run; gives those that are now alone in reading something."""
        alone: list[int] = []
        for base in self._bases(self.nodes[n]):
            self.left[base] -= 1
            if self.left[base] == 1:
                alone += self.readers[base]
        return alone

    def _bases(self, node: Node) -> Sequence[int]:
        return list(dict.fromkeys(self.root[i] for i in node.inputs if isinstance(i, int)))
