"""Transfers between processes keep the order in which they were traced.

The work of one process between them may differ from that of another: with a sharded optimizer each updates its own
part, so passes see other graphs.  A process that sent first what another sends last would wait for ever, or take one
row of numbers for another.
"""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.graph.ir import Graph, Input, Node

__all__ = ["in_order", "transfers"]


def transfers(nodes: Sequence[Node]) -> list[int]:
    """Positions of the nodes in which something is sent: collectives without those that wait for one under way."""
    begun: set[Input] = set()
    positions: list[int] = []
    for position, node in enumerate(nodes):
        kind = node.call.op.collective
        if kind == "starts":
            begun.update(node.outputs)
        if kind is not None and (kind == "starts" or begun.isdisjoint(node.inputs)):
            positions.append(position)
    return positions


def in_order(graph: Graph, nodes: list[Node]) -> list[Node]:
    """The nodes with every value made before it is read, and transfers in the graph's order; else as they come."""
    known = {i for i, _ in graph.inputs}
    sent = [graph.nodes[position].outputs[0] for position in transfers(graph.nodes)]
    follows = dict(zip(sent[1:], sent, strict=False))
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
        if node.outputs and (before := follows.get(node.outputs[0])) is not None and before not in known:
            needs.add(before)
        if needs:
            for i in sorted(needs):
                waiting.setdefault(i, []).append((node, needs))
        else:
            place(node)
    assert not waiting, "groups of nodes need each other"
    return ordered
