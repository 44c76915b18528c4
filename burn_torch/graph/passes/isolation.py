"""Outputs of their own: no output shares memory with what somebody else holds."""

from __future__ import annotations

from collections.abc import Collection

from burn_torch.core.spec import NumberSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.sharing import alias_roots, constant_values
from burn_torch.ops.shapes import clone

__all__ = ["isolate_outputs"]


def isolate_outputs(graph: Graph, donated: Collection[int] = ()) -> Graph:
    """Copies outputs that might share memory with an input, a constant or another output.

    `donated` names positions of inputs whose memory the program may keep: one output may have it as it is.  An id
    that is an output twice is one value and stays one, unless it is a donated input: its memory goes to one output.
    Executors rely on it: what this pass returns, they may hand out as it is.
    """
    root = alias_roots(graph)
    constant = constant_values(graph)
    ours = {i for position, (i, _) in enumerate(graph.inputs) if position in donated}
    theirs = {i for i, _ in graph.inputs} - ours
    makers = {i: node for node in graph.nodes for i in node.outputs if i is not None}
    specs = graph.specs()
    # a value keeps its memory rather than a view of it
    owner = {i: i for i in graph.outputs if i is not None and root[i] == i}
    for i in graph.outputs:
        if i is not None:
            owner.setdefault(root[i], i)

    nodes = list(graph.nodes)
    outputs: list[int | None] = []
    copies: dict[int, int] = {}
    given: set[int] = set()  # donated inputs that are an output already
    next_id = max(root, default=-1) + 1
    for i in graph.outputs:
        if i is None or isinstance(specs.get(i), NumberSpec):
            outputs.append(i)
            continue
        memory = root[i]
        free = memory not in theirs and memory not in constant and owner[memory] == i and i not in given
        if free:
            outputs.append(i)
            if i in ours:
                given.add(i)
            continue
        copy = copies.get(i)
        if copy is None or i in ours:
            copy = copies[i] = next_id
            next_id += 1
            maker = makers.get(i)
            origin = maker.origin if maker is not None else None
            nodes.append(Node(clone.bind([specs.get(i)], {}), (i,), (copy,), origin))
        outputs.append(copy)
    return graph if len(nodes) == len(graph.nodes) else Graph(graph.inputs, nodes, outputs)
