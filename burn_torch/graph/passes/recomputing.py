"""Recomputation: cheap values are computed again where they are needed late, instead of being kept until then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.passes.sharing import alias_roots, constant_values
from burn_torch.graph.view import GraphView

__all__ = ["recompute"]

_LONGEST_CHAIN: Final = 8


def recompute(graph: Graph, donated: Collection[int] = (), *, target_bytes: int = 0) -> Graph:
    """Lowers the peak of memory, down to `target_bytes` at best, by computing cheap rows a second time.

    A value that lies unused across the peak is made again right before its next use, with the cheap rows above it,
    down to values that are still there.  Draws are made again too: the same key gives the same bits.  Returns the graph
    itself where the planned peak would not fall.
    """
    before = peak_bytes(graph, donated)
    if before <= target_bytes:
        return graph
    plan = _Rerun(graph, donated)
    plan.lower(target_bytes)
    if not plan.again:
        return graph
    after = _insert(graph, plan.again)
    return after if peak_bytes(after, donated) < before else graph


@final
@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of having values at a later node: nodes to run again, and values to keep until then."""

    nodes: frozenset[int]
    kept: frozenset[int]


@final
class _Rerun:
    """Lifetimes without writes in place, and the decisions so far."""

    def __init__(self, graph: Graph, donated: Collection[int]) -> None:
        donated = frozenset(donated)
        self.graph: Final = graph
        self.root: Final = alias_roots(graph)
        view = GraphView(graph)
        self.made_at: Final = view.maker
        self.again: Final[dict[int, set[int]]] = {}
        """Position -> positions of the nodes that run again before it."""
        self.split: Final[set[int]] = set()
        """Memories that are made a second time already."""
        specs = view.specs
        end = len(graph.nodes)
        self.held: Final = {i for p, (i, _) in enumerate(graph.inputs) if p not in donated} | constant_values(graph)
        self.bytes: Final[dict[int, int]] = {}
        self.uses: Final[dict[int, list[tuple[int, int]]]] = {}
        """Memory -> (node that reads it, value in it that is read), in order."""
        for i, base in self.root.items():
            spec = specs.get(i)
            if base == i and isinstance(spec, TensorSpec):
                self.bytes[i] = spec.numel * spec.dtype.itemsize
                self.uses[i] = []
        for n, node in enumerate(graph.nodes):
            for x in node.inputs:
                if isinstance(x, int) and self.root[x] in self.uses:
                    self.uses[self.root[x]].append((n, x))
        self.leaves: Final = {self.root[i] for i in graph.outputs if i is not None}
        for y in graph.outputs:
            if y is not None and self.root[y] in self.uses:
                self.uses[self.root[y]].append((end, y))
        self.live = np.zeros(end + 1, np.int64)
        for i, size in self.bytes.items():
            first = self.made_at.get(i, 0)
            self.live[first : (end if i in self.held else self._last(i, first)) + 1] += size

    def _last(self, memory: int, otherwise: int) -> int:
        return max((n for n, _ in self.uses[memory]), default=otherwise)

    # -- deciding ------------------------------------------------------------------------
    def lower(self, target_bytes: int) -> None:
        """Decides until the target is reached, or nothing more helps at the peak."""
        while True:
            peak = int(self.live.argmax())
            highest = int(self.live[peak])
            if highest <= target_bytes or not self._lower_at(peak, highest, target_bytes):
                return

    def _lower_at(self, peak: int, highest: int, target_bytes: int) -> bool:
        lowered = False
        for memory in sorted(self._candidates(peak), key=lambda i: (-self.bytes[i], i)):
            live = self._without(memory, peak)
            if live is not None and live[peak] < self.live[peak] and int(live.max()) <= highest:
                self._decide(memory, peak, live)
                lowered = True
                if self.live[peak] <= target_bytes:
                    break
        return lowered

    def _candidates(self, peak: int) -> list[int]:
        """Memories that lie unused across the peak, made by cheap rows."""
        candidates = []
        for i, uses in self.uses.items():
            if i in self.held or i in self.leaves or i in self.split or i not in self.made_at or not self.bytes[i]:
                continue
            if self.made_at[i] < peak and uses and uses[-1][0] > peak and all(n != peak for n, _ in uses):
                late = {x for n, x in uses if n > peak}
                if all(self._cheap(x) for x in late):
                    candidates.append(i)
        return candidates

    def _cheap(self, value: int) -> bool:
        """Tells if the value and the views below it, down to its memory, can be computed again at little cost."""
        while True:
            node = self.graph.nodes[self.made_at[value]]
            if node.call.op.cost != "cheap" or node.call.op.barrier:
                return False
            if self.root[value] == value:
                return True
            value = node.read(0)

    def _cost(self, value: int, at: int, left: int) -> _Cost | None:
        """How to have a value that is gone at node `at` there; None where that takes too long a chain."""
        nodes: set[int] = set()
        kept: set[int] = set()
        n = self.made_at[value]
        nodes.add(n)
        for i in self.graph.nodes[n].inputs:
            if not isinstance(i, int) or self.root[i] not in self.uses:
                continue
            memory = self.root[i]
            is_view = memory == self.root[value]
            if not is_view and (memory in self.held or (self._last(memory, -1) >= at and memory not in self.split)):
                continue
            further = None
            if (is_view or left > 0) and i in self.made_at and self._cheap(i):
                further = self._cost(i, at, left - (not is_view))
            keep = None if is_view or memory in self.split else self.bytes[memory]
            again = None if further is None else sum(self.bytes[m] for m in further.kept)
            if again is not None and further is not None and (keep is None or again < keep):
                nodes |= further.nodes
                kept |= further.kept
            elif keep is not None:
                kept.add(memory)
            else:
                return None
        return _Cost(frozenset(nodes), frozenset(kept))

    def _late(self, memory: int, peak: int) -> tuple[int, _Cost] | None:
        """The first node after the peak that reads the memory, and what it takes to have it there."""
        late = [(n, i) for n, i in self.uses[memory] if n > peak]
        at = late[0][0]
        nodes: frozenset[int] = frozenset()
        kept: frozenset[int] = frozenset()
        for value in sorted({i for _, i in late}):
            cost = self._cost(value, at, _LONGEST_CHAIN)
            if cost is None:
                return None
            nodes, kept = nodes | cost.nodes, kept | cost.kept
        return at, _Cost(nodes, kept)

    def _without(self, memory: int, peak: int) -> Any:
        """The timeline if the memory is made again after the peak; None where that is not possible."""
        late = self._late(memory, peak)
        if late is None:
            return None
        at, cost = late
        live = self.live.copy()
        early = max((n for n, _ in self.uses[memory] if n <= peak), default=self.made_at[memory])
        live[early + 1 : at] -= self.bytes[memory]
        for i in cost.kept:
            live[self._last(i, self.made_at.get(i, 0)) + 1 : at + 1] += self.bytes[i]
        for n in cost.nodes:  # what stands between lives for a moment
            for y in self.graph.nodes[n].outputs:
                if y is not None and self.root[y] == y and y != memory:
                    live[at] += self.bytes.get(y, 0)
        return live

    def _decide(self, memory: int, peak: int, live: Any) -> None:
        late = self._late(memory, peak)
        assert late is not None
        at, cost = late
        self.live = live
        self.split.add(memory)
        self.again.setdefault(at, set()).update(cost.nodes)
        for n in cost.nodes:
            for i in self.graph.nodes[n].inputs:
                if isinstance(i, int) and self.root[i] in self.uses and self.made_at.get(i, -1) not in cost.nodes:
                    self.uses[self.root[i]].append((at, i))
                    self.uses[self.root[i]].sort()


def _insert(graph: Graph, again: dict[int, set[int]]) -> Graph:
    """The graph with the nodes that run again put in; what comes later reads their values."""
    view = GraphView(graph)
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        for n in sorted(again.get(position, ())):
            old = graph.nodes[n]
            outputs = [None if i is None else view.fresh() for i in old.outputs]
            nodes.append(Node(old.call, view.renamed(old), outputs, old.origin))
            for i, x in zip(old.outputs, outputs, strict=True):
                if i is not None:
                    view.rename(i, x)
        nodes.append(Node(node.call, view.renamed(node), node.outputs, node.origin))
    return Graph(graph.inputs, nodes, graph.outputs)
