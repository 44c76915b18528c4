"""Values that may lie in the same memory, and memory that a program makes itself."""

from __future__ import annotations

from burn_torch.graph.ir import Graph
from burn_torch.ops.laws import Copies

__all__ = ["alias_roots", "constant_values"]


def alias_roots(graph: Graph) -> dict[int, int]:
    """For each value the one whose memory it may share: itself, or what it is a view of, through all views between."""
    root = {i: i for i, _ in graph.inputs}
    for node in graph.nodes:
        base = node.inputs[0] if node.call.aliases and node.inputs else None
        for i in node.outputs:
            if i is not None:
                root[i] = root[base] if isinstance(base, int) else i
    return root


def constant_values(graph: Graph) -> set[int]:
    """Values that depend on no input of the graph; an executor may compute them once and keep them."""
    constant: set[int] = set()
    for node in graph.nodes:
        if node.call.op.law(Copies) is None and all(i in constant for i in node.inputs if isinstance(i, int)):
            constant.update(i for i in node.outputs if i is not None)
    return constant
