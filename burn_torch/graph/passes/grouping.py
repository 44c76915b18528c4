"""Optimizer updates: equal rows over runs of tensors become one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node

__all__ = ["group_updates", "in_order"]


def group_updates(graph: Graph) -> Graph:
    """Makes one call of equal updates: the same row, attributes and numbers, tensors of one type at one place.

    Updates stay apart where one needs what another makes.  Each tensor is computed as before, so no bit changes.
    """
    groups: dict[Any, list[int]] = {}
    depth: dict[int, int] = {}  # of a value: how many updates lie on the longest way to it
    for position, node in enumerate(graph.nodes):
        level = max([depth.get(i, 0) for i in node.inputs if isinstance(i, int)], default=0)
        if node.call.op.runs is not None and len(node.call.results):
            # updates at equal depth need nothing of each other, nor do groups of them in a circle
            groups.setdefault((level, *_kind(node)), []).append(position)
            level += 1
        if level:
            depth.update((i, level) for i in node.outputs if i is not None)
    joined = [group for group in groups.values() if len(group) > 1]
    if not joined:
        return graph
    last = {group[-1]: group for group in joined}
    members = {position for group in joined for position in group}
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        if position in last:
            nodes.append(_joined([graph.nodes[p] for p in last[position]]))
        elif position not in members:
            nodes.append(node)
    return Graph(graph.inputs, in_order(graph, nodes), graph.outputs)


def _first_tensor(node: Node) -> int:
    """How many numbers stand before the runs."""
    return len(node.call.op.signature.inputs) - 1


def _kind(node: Node) -> tuple[Any, ...]:
    numbers = _first_tensor(node)
    tensors = node.call.specs[numbers:]
    types = frozenset((spec.dtype, spec.place) for spec in tensors if isinstance(spec, TensorSpec))
    return (node.call.op, tuple(node.call.attrs.items()), node.inputs[:numbers], node.call.specs[:numbers], types)


def _joined(nodes: Sequence[Node]) -> Node:
    first = nodes[0]
    op, attrs = first.call.op, first.call.attrs
    assert op.runs is not None
    returned = op.runs(attrs)
    numbers = _first_tensor(first)
    inputs: list[Input] = list(first.inputs[:numbers])
    specs = list(first.call.specs[:numbers])
    outputs: list[int | None] = []
    for run in range(len(returned)):
        for node in nodes:
            n = (len(node.inputs) - numbers) // len(returned)
            part = slice(numbers + run * n, numbers + (run + 1) * n)
            inputs += node.inputs[part]
            specs += node.call.specs[part]
    for run in range(sum(returned)):
        for node in nodes:
            n = len(node.outputs) // sum(returned)
            outputs += node.outputs[run * n : (run + 1) * n]
    return Node(op.bind(specs, attrs), inputs, outputs, first.origin)


def in_order(graph: Graph, nodes: list[Node]) -> list[Node]:
    """The nodes with every value made before it is read; otherwise in the order given."""
    known = {i for i, _ in graph.inputs}
    ordered: list[Node] = []
    waiting: dict[int, list[tuple[Node, set[int]]]] = {}  # id -> nodes that need it, with all that they still need

    def place(node: Node) -> None:
        stack = [node]
        while stack:
            ready = stack.pop()
            ordered.append(ready)
            released: list[Node] = []
            for i in ready.outputs:
                if i is None:
                    continue
                known.add(i)
                for other, needs in waiting.pop(i, ()):
                    needs.discard(i)
                    if not needs:
                        released.append(other)
            stack += reversed(released)

    for node in nodes:
        needs = {i for i in node.inputs if isinstance(i, int) and i not in known}
        if needs:
            for i in sorted(needs):
                waiting.setdefault(i, []).append((node, needs))
        else:
            place(node)
    assert not waiting, "groups of updates need each other"
    return ordered
