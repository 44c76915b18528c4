"""Transfers between processes keep the order in which they were traced.

What one process computes between them may differ from what another does: with a sharded optimizer each updates its own
part, so passes see other graphs.  A process that sent first what another sends last would wait for ever, or take one
row of numbers for another.
"""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.graph.ir import Input, Node

__all__ = ["transfers"]


def transfers(nodes: Sequence[Node]) -> list[int]:
    """Positions of the nodes in which something is sent: collectives without those that wait for one under way."""
    begun: set[Input] = set()
    found: list[int] = []
    for position, node in enumerate(nodes):
        kind = node.call.op.collective
        if kind == "starts":
            begun.update(node.outputs)
        if kind is not None and (kind == "starts" or begun.isdisjoint(node.inputs)):
            found.append(position)
    return found
