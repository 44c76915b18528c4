"""Optimizer updates: equal rows over runs of tensors become one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.transfers import in_order, transfers

__all__ = ["group_updates"]


def group_updates(graph: Graph) -> Graph:
    """Makes one call of equal updates: the same row, attributes and numbers, tensors of one type at one place.

    Updates stay apart where one needs what another makes, and those that need the last transfer from another process
    follow the others, which are computed while it travels.  Each tensor is computed as before, so no bit changes.
    """
    groups: dict[Any, list[int]] = {}
    depth: dict[int, int] = {}  # of a value: how many updates lie on the longest way to it
    graph, awaited = _split(graph)
    sent, last_sent = set(transfers(graph.nodes)), 0
    for position, node in enumerate(graph.nodes):
        level = max([depth.get(i, 0) for i in node.inputs if isinstance(i, int)], default=0)
        if position in sent:  # it follows the transfer before it, and so what that one sends
            level = last_sent = max(level, last_sent)
        late = not awaited.isdisjoint(node.inputs)
        if node.call.op.runs is not None and len(node.call.results):
            # updates at equal depth need nothing of each other, nor do groups of them in a circle
            groups.setdefault((level, late, *_kind(node)), []).append(position)
            level += 1
        if level:
            depth.update((i, level) for i in node.outputs if i is not None)
    joined = {key: group for key, group in groups.items() if len(group) > 1 or awaited}
    if not joined:
        return graph
    end = max(group[-1] for group in joined.values())
    last: dict[int, list[list[int]]] = {}
    for (_, late, *_), group in joined.items():
        last.setdefault(end if late else group[-1], []).append(group)
    members = {position for group in joined.values() for position in group}
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        if position not in members:
            nodes.append(node)
        nodes += [_join([graph.nodes[p] for p in group]) for group in last.get(position, ())]
    return Graph(graph.inputs, in_order(graph, nodes), graph.outputs)


# -- transfers ------------------------------------------------------------------------------------------
def _split(graph: Graph) -> tuple[Graph, set[int]]:
    """Updates of which some runs need the last transfer that is started, in two; and what needs that transfer.

    The graph itself, and nothing, where there is no transfer, or only one.
    """
    starts = [node.outputs[0] for node in graph.nodes if node.call.op.collective == "starts"]
    awaited: set[int] = set()
    if len(starts) < 2 or starts[-1] is None:
        return graph, awaited
    awaited.add(starts[-1])
    nodes: list[Node] = []
    for node in graph.nodes:
        for part in [node] if node.call.op.runs is None else _parts(node, awaited):
            if not awaited.isdisjoint(part.inputs):
                awaited.update(i for i in part.outputs if i is not None)
            nodes.append(part)
    return Graph(graph.inputs, nodes, graph.outputs), awaited


def _parts(node: Node, awaited: set[int]) -> list[Node]:
    op, attrs, numbers = node.call.op, node.call.attrs, _first_tensor(node)
    assert op.runs is not None
    returned = op.runs(attrs)
    n = (len(node.inputs) - numbers) // len(returned)
    late = [any(node.inputs[at] in awaited for at in range(numbers + i, len(node.inputs), n)) for i in range(n)]
    if n == 0 or len(set(late)) == 1:
        return [node]
    parts: list[Node] = []
    for wanted in (False, True):
        members = [i for i in range(n) if late[i] is wanted]
        inside = [*range(numbers), *(numbers + run * n + i for run in range(len(returned)) for i in members)]
        outside = [run * n + i for run in range(sum(returned)) for i in members]
        call = op.bind([node.call.specs[at] for at in inside], attrs)
        parts.append(Node(call, [node.inputs[at] for at in inside], [node.outputs[at] for at in outside], node.origin))
    return parts


def _first_tensor(node: Node) -> int:
    """How many numbers stand before the runs."""
    return len(node.call.op.signature.inputs) - 1


def _kind(node: Node) -> tuple[object, ...]:
    numbers = _first_tensor(node)
    tensors = node.call.specs[numbers:]
    types = frozenset((spec.dtype, spec.place) for spec in tensors if isinstance(spec, TensorSpec))
    return (node.call.op, tuple(node.call.attrs.items()), node.inputs[:numbers], node.call.specs[:numbers], types)


def _join(nodes: Sequence[Node]) -> Node:
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
