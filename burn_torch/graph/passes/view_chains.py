"""Views of views: one view where one does, none where nothing changes."""

from __future__ import annotations

from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.layout import CONTIGUOUS
from burn_torch.graph.passes.rewrite import Numerics, Rewriting

__all__ = ["fold_views"]


def fold_views(graph: Graph, numerics: Numerics = "eager") -> Graph:
    """Joins chains of rows that can do two steps at once (`merge`), and leaves out those that do nothing (`same`).

    Under "eager" the result also lies in memory as before: a reshape that may copy is not joined with the next one.
    """
    new = Rewriting(graph)
    exact = numerics == "eager"
    for node in graph.nodes:
        inputs = new.renamed(node)
        call = node.call
        if call.op.same is None and call.op.merge is None:
            new.keep(node, inputs)
            continue
        copies = not call.aliases
        while call.op.merge is not None:
            maker = new.made_by(inputs[0])
            if maker is None or maker.call.op is not call.op:
                break
            known = new.layouts.of(maker.inputs[0]) == CONTIGUOUS
            attrs = call.op.merge(maker.call, call, exact and not known)
            if attrs is None:
                break
            copies = copies or not maker.call.aliases
            inputs = (maker.inputs[0], *inputs[1:])
            call = call.op.bind((maker.call.specs[0], *call.specs[1:]), attrs)
        x = inputs[0]
        unmoved = not copies or not exact or new.layouts.is_its_own_copy(x, call.result)
        if call.is_input and unmoved and isinstance(x, int) and new.spec(x) is call.result:
            new.rename(node.outputs[0], x)
        elif call.is_input and copies and not unmoved:
            new.keep(node, new.renamed(node))  # what is left would be a view of memory that lies otherwise
        else:
            new.keep(node, inputs, call)
    return new.done()
