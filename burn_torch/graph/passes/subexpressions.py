"""Common subexpressions: equal Calls of equal inputs are one value."""

from __future__ import annotations

from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.layout import CONTIGUOUS
from burn_torch.graph.passes.rewrite import Numerics, Rewriting
from burn_torch.ops.laws import Copies, Exchange

__all__ = ["common_subexpressions"]


def common_subexpressions(graph: Graph, numerics: Numerics = "eager") -> Graph:
    """Computes each value once.  Draws too: the same key and stream is the same value.

    Nodes that differ in their `live` outputs alone become one that computes all of them.  Swapped inputs are equal
    where the row says that it changes no bit; of two tensors only if their order in memory cannot show in the result.
    """
    new = Rewriting(graph)
    first: dict[Any, int] = {}  # key -> position in new.nodes
    wider: dict[int, list[int | None]] = {}  # position -> outputs, where nodes with `live` were joined
    for node in graph.nodes:
        inputs = new.renamed(node)
        call = node.call
        # two processes must send equally often, though what they send is one value in one of them alone
        if call.op.barrier or call.op.collective is not None or call.op.law(Copies) is not None:
            new.keep(node, inputs)
            continue
        key = _key(new, node, inputs, numerics)
        position = first.setdefault(key, len(new.nodes))
        if position == len(new.nodes):
            new.keep(node, inputs)
            continue
        outputs = wider.get(position) or list(new.nodes[position].outputs)
        for j, i in enumerate(node.outputs):
            if i is None:
                continue
            earlier = outputs[j]
            if earlier is None:
                outputs[j] = i
                wider[position] = outputs
            else:
                new.rename(i, earlier)
    for position, outputs in wider.items():
        node = new.nodes[position]
        live = tuple(i is not None for i in outputs)
        call = node.call.op.bind(node.call.specs, {**node.call.attrs, "live": live})
        new.exchange(position, Node(call, node.inputs, outputs, node.origin))
    return new.done()


def _key(new: Rewriting, node: Node, inputs: tuple[Input, ...], numerics: Numerics) -> object:
    call = node.call
    if "live" in call.attrs:
        rest = tuple((name, value) for name, value in call.attrs.items() if name != "live")
        return (call.op, call.specs, rest, inputs)
    if call.op.commutative and len(inputs) == 2 and _may_swap(new, node, inputs, numerics):
        # in the order of their ids, literals last
        x, y = inputs
        if not isinstance(x, int) or (isinstance(y, int) and y < x):
            return (call.op, (call.specs[1], call.specs[0]), (y, x))
        return (call.op, call.specs, inputs)
    return (call, inputs)


def _may_swap(new: Rewriting, node: Node, inputs: tuple[Input, ...], numerics: Numerics) -> bool:
    if numerics == "fast":
        return True
    if node.call.op.law(Exchange) is None:
        return False
    tensors = [(i, spec) for i, spec in zip(inputs, node.call.specs, strict=True) if isinstance(spec, TensorSpec)]
    return len(tensors) < 2 or all(
        new.layouts.of(i) == CONTIGUOUS and new.layouts.is_its_own_copy(i, spec) for i, spec in tensors
    )
