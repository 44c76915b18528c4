"""Gradients go to optimizer updates in the type in which products made them."""

from __future__ import annotations

from burn_torch.core.dtype import DType
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.view import GraphView
from burn_torch.ops.laws import Converts

__all__ = ["narrow_gradients"]


def narrow_gradients(graph: Graph) -> Graph:
    """Without casts of gradients from half types to float32 before an update, which widens what it reads by itself.

    Under `precision="bfloat16"` each weight has such a cast: six bytes an element to write and read for two.  No bit
    changes.
    """
    view = GraphView(graph)

    def narrow(i: Input) -> Input:
        node = view.made_by(i)
        if node is None or node.call.op.law(Converts) is None:
            return i
        spec = node.call.tensor(0)
        halves = spec.dtype in (DType.F16, DType.BF16) and node.call.result.dtype is DType.F32
        return node.inputs[0] if halves else i

    for node in graph.nodes:
        runs = node.call.op.runs
        if runs is None:
            continue
        kinds = runs(node.call.attrs)
        before = len(node.call.op.signature.inputs) - 1
        n = (len(node.inputs) - before) // len(kinds)
        inputs = list(node.inputs)
        for kind, is_state in enumerate(kinds):
            if not is_state:
                run = slice(before + kind * n, before + (kind + 1) * n)
                inputs[run] = map(narrow, inputs[run])
        if inputs == list(node.inputs):
            continue
        specs = [
            spec if i == old else view.specs[i]  # type: ignore[index]  # what a cast reads
            for i, old, spec in zip(inputs, node.inputs, node.call.specs, strict=True)
        ]
        call = node.call.op.bind(specs, node.call.attrs)
        view.replace([], [Node(call, inputs, node.outputs, node.origin)], at=node)
    after = view.done()
    return graph if after is graph else dead_code(after)
