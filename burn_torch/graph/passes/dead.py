"""Dead code: what no output needs."""

from __future__ import annotations

from burn_torch.graph.ir import Graph, Node

__all__ = ["dead_code"]


def dead_code(graph: Graph) -> Graph:
    """Removes nodes that no output needs, and tells rows with a `live` attribute which outputs are read.

    Inputs stay, read or not: they are the graph's signature.  Collectives stay too: another process may need what this
    one does not, and would wait for it for ever.
    """
    needed = {i for i in graph.outputs if i is not None}
    kept: list[Node] = []
    changed = False
    for node in reversed(graph.nodes):
        live = tuple([i in needed for i in node.outputs])
        if True not in live and node.call.op.collective is None:
            changed = True
            continue
        if "live" in node.call.attrs and live != node.call.attrs["live"]:
            call = node.call.op.bind(node.call.specs, {**node.call.attrs, "live": live})
            outputs = [i if alive else None for i, alive in zip(node.outputs, live, strict=True)]
            node = Node(call, node.inputs, outputs, node.origin)
            changed = True
        needed.update([i for i in node.inputs if i.__class__ is int])
        kept.append(node)
    return Graph(graph.inputs, kept[::-1], graph.outputs) if changed else graph
