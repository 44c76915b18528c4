"""Outputs of their own: no output shares memory with what somebody else holds."""

from __future__ import annotations

from collections.abc import Collection

from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.sharing import alias_roots, constant_values
from burn_torch.graph.view import GraphView
from burn_torch.ops.shapes import clone

__all__ = ["isolate_outputs"]


def isolate_outputs(graph: Graph, donated: Collection[int] = ()) -> Graph:
    """Copies outputs that might share memory with an input, a constant or another output, or with themselves.

    An output of which two elements may lie in one place (an expanded axis, windows) could never be written over.
    `donated` names positions of inputs whose memory the program may keep: one output may have it as it is.  An id
    that is an output twice gets memory for each: a program may write over one of them later.
    Executors rely on it: what this pass returns, they may hand out as it is.
    """
    root = alias_roots(graph)
    constant = constant_values(graph)
    donated = frozenset(donated)
    ours = {i for position, (i, _) in enumerate(graph.inputs) if position in donated}
    theirs = {i for i, _ in graph.inputs} - ours
    repeated = _repeated_views(graph)
    view = GraphView(graph)
    specs = view.specs
    # a value keeps its memory rather than a view of it
    owner = {i: i for i in graph.outputs if i is not None and root[i] == i}
    for i in graph.outputs:
        if i is not None:
            owner.setdefault(root[i], i)

    nodes = list(graph.nodes)
    outputs: list[int | None] = []
    taken: set[int] = set()  # values that are an output already
    for i in graph.outputs:
        if i is None or isinstance(specs.get(i), NumberSpec):
            outputs.append(i)
            continue
        memory = root[i]
        free = memory not in theirs and memory not in constant and owner[memory] == i
        free = free and i not in taken and i not in repeated
        if free:
            outputs.append(i)
            taken.add(i)
            continue
        maker = view.made_by(i)
        origin = maker.origin if maker is not None else None
        outputs.append(view.fresh())
        nodes.append(Node(clone.bind([specs.get(i)], {}), (i,), outputs[-1:], origin))
    return graph if len(nodes) == len(graph.nodes) else Graph(graph.inputs, nodes, outputs)


def _repeated_views(graph: Graph) -> set[int]:
    """Views of which two elements may lie in one place: those that have more elements or axes than their memory."""
    repeated: set[int] = set()
    for node in graph.nodes:
        call = node.call
        if not call.aliases or not node.inputs:
            continue
        x, y = call.specs[0], call.result
        grows = (
            call.op.packed == "any"
            and isinstance(x, TensorSpec)
            and isinstance(y, TensorSpec)
            and (y.numel > x.numel or y.ndim > x.ndim)
        )
        if grows or node.inputs[0] in repeated:
            repeated.update(i for i in node.outputs if i is not None)
    return repeated
