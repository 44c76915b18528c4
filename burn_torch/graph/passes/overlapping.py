"""Transfers begin as soon as what they send exists."""

from __future__ import annotations

from burn_torch.graph.ir import Graph, Node

__all__ = ["launch_early"]


def launch_early(graph: Graph) -> Graph:
    """Moves each row that starts a transfer to right behind the last of its inputs that is computed.

    A step writes its transfers after the backward that makes the gradients; here they move between its operations, so
    that they travel while the rest of it computes.  What an input needs besides, such as the number of items, moves
    with them.  Every process has the same graph, so transfers keep one order.  No bit changes.
    """
    nodes = graph.nodes
    starts = [i for i, node in enumerate(nodes) if node.call.op.collective == "starts"]
    if not starts:
        return graph
    makes = {output: i for i, node in enumerate(nodes) for output in node.outputs if output is not None}
    needs = [[makes[x] for x in node.inputs if isinstance(x, int) and x in makes] for node in nodes]
    after: dict[int, list[int]] = {}
    moved: set[int] = set()
    # the tensors that are sent decide; the weight before them may come from anything that does not need them
    places = {i: max((makes[x] for x in nodes[i].inputs[1:] if isinstance(x, int) and x in makes), default=-1)
              for i in starts}  # fmt: skip
    for start in sorted(starts, key=lambda i: (places[i], i)):  # what several need moves with the first of them
        place = places[start]
        chain = _late(start, place, needs) - moved
        if any(nodes[i].call.op.collective is not None for i in chain - {start}):
            continue  # its weight waits for another transfer: it stays where it is
        after.setdefault(place, []).extend(sorted(chain))
        moved |= chain
    made: list[Node] = [nodes[i] for i in after.get(-1, ())]
    for i, node in enumerate(nodes):
        if i not in moved:
            made.append(node)
        made += [nodes[k] for k in after.get(i, ())]
    return Graph(graph.inputs, made, graph.outputs)


def _late(node: int, place: int, needs: list[list[int]]) -> set[int]:
    """The node and all it needs that is computed behind `place`."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        i = waiting.pop()
        if i > place and i not in found:
            found.add(i)
            waiting += needs[i]
    return found
