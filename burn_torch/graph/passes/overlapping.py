"""Transfers begin as soon as what they send exists, and are waited for when somebody reads what came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.transfers import transfers
from burn_torch.graph.view import GraphView
from burn_torch.ops.laws import Converts
from burn_torch.ops.op import Call

__all__ = ["launch_early"]


def launch_early(graph: Graph) -> Graph:
    """Moves each row that starts a transfer to right behind the last of its inputs that takes work to compute.

    A step writes its transfers after the backward that makes the gradients; here they move between its operations, so
    that they travel while the rest of it computes.  Cheap operations between the backward and a transfer (views, casts,
    element-wise rows) move with it, as do further needs of an input, such as the number of items; a cast to the type in
    which the transfer packs its inputs is left to the packing.  Rows that wait for a transfer move the other way, with
    the views of what came, to right before the first that computes with it.  Transfers keep their order, see
    `transfers`.  No bit changes.
    """
    if not any(_starts(node.call) for node in graph.nodes):
        return graph
    return _waiting_late(_starting_early(_without_casts(graph)))


def _starts(call: Call) -> bool:
    return call.op.collective == "starts"


def _is_light(call: Call) -> bool:
    return call.aliases or (call.op.cost == "cheap" and not call.op.barrier and call.op.collective is None)


# -- what is sent ---------------------------------------------------------------------------------------
def _without_casts(graph: Graph) -> Graph:
    """Transfers read what a cast to their own type reads: packing casts anyway, in the pass that it makes."""
    view = GraphView(graph)

    def uncast(x: Input, packed: TensorSpec) -> tuple[Input, TensorSpec] | None:
        node = view.made_by(x)
        if node is None or node.call.op.law(Converts) is None or node.call.result.dtype is not packed.dtype:
            return None
        spec = node.call.specs[0]
        exact = isinstance(spec, TensorSpec) and spec.dtype.is_float and spec.dtype.itemsize < packed.dtype.itemsize
        return (node.inputs[0], spec) if exact and isinstance(spec, TensorSpec) else None

    for node in graph.nodes:
        if not _starts(node.call):
            continue
        inputs, specs = list(node.inputs), list(node.call.specs)
        for at in range(1, len(inputs)):
            source = uncast(inputs[at], node.call.result)
            if source is not None:
                inputs[at], specs[at] = source
        if inputs != list(node.inputs):
            call = node.call.op.bind(specs, node.call.attrs)
            view.replace([], [Node(call, inputs, node.outputs, node.origin)], at=node)
    after = view.done()
    if after is graph:
        return graph
    read = {x for node in after.nodes for x in node.inputs if isinstance(x, int)} | set(graph.outputs)
    kept = [node for node in after.nodes if node.call.op.law(Converts) is None or node.outputs[0] in read]
    return Graph(graph.inputs, kept, graph.outputs)


# -- starts -----------------------------------------------------------------------------------------------
def _starting_early(graph: Graph) -> Graph:
    nodes = graph.nodes
    makes = GraphView(graph).maker
    needs = [[makes[x] for x in node.inputs if isinstance(x, int) and x in makes] for node in nodes]
    ready: list[int] = []  # behind which node each could be computed, at little cost
    for i, node in enumerate(nodes):
        ready.append(max((ready[k] for k in needs[i]), default=-1) if _is_light(node.call) else i)
    after: dict[int, list[int]] = {}
    moved: set[int] = set()
    place = -1  # behind which node the last transfer stands
    for sent in transfers(nodes):
        # the tensors that are sent decide; the weight before them may come from anything that does not need them
        tensors = [makes[x] for x in nodes[sent].inputs[1:] if isinstance(x, int) and x in makes]
        earliest = max([place, *(ready[i] for i in tensors)])
        chain = _late(sent, earliest, needs) - moved  # what several need moves with the first of them
        if not _starts(nodes[sent].call) or any(nodes[i].call.op.collective is not None for i in chain - {sent}):
            place = sent  # others wait for it, or its weight waits for another: it stays where it is
            continue
        place = earliest
        after.setdefault(place, []).extend(sorted(chain))
        moved |= chain
    order: list[Node] = [nodes[i] for i in after.get(-1, ())]
    for i, node in enumerate(nodes):
        if i not in moved:
            order.append(node)
        order += [nodes[k] for k in after.get(i, ())]
    return Graph(graph.inputs, order, graph.outputs)


def _late(node: int, place: int, needs: list[list[int]]) -> set[int]:
    """The node and all it needs that is computed behind `place`."""
    late: set[int] = set()
    waiting = [node]
    while waiting:
        i = waiting.pop()
        if i > place and i not in late:
            late.add(i)
            waiting += needs[i]
    return late


# -- waits ------------------------------------------------------------------------------------------------
def _waiting_late(graph: Graph) -> Graph:
    """Waits and views of what came, right before the first row that computes with it: first all waits, then views."""
    begun = {i for node in graph.nodes if _starts(node.call) for i in node.outputs}
    late: dict[Input, Node] = {}
    """Values of waits, and views of these, by id."""
    order: Final = {node: position for position, node in enumerate(graph.nodes)}
    nodes: list[Node] = []

    def demanded(inputs: tuple[Input, ...] | list[Input]) -> Iterator[Node]:
        waiting = list(inputs)
        while waiting:
            node = late.get(waiting.pop())
            if node is not None:
                for i in node.outputs:
                    late.pop(i, None)
                yield node
                waiting += node.inputs

    def put(inputs: tuple[Input, ...] | list[Input]) -> None:
        chain = sorted(demanded(inputs), key=lambda node: (node.call.op.collective is None, order[node]))
        nodes.extend(chain)

    for node in graph.nodes:
        waits = node.call.op.collective == "blocks" and any(x in begun for x in node.inputs)
        if waits or (node.call.aliases and any(x in late for x in node.inputs)):
            late.update((i, node) for i in node.outputs if i is not None)
            continue
        put(node.inputs)
        nodes.append(node)
    put([node.outputs[0] for node in graph.nodes if node.outputs[0] in late])
    return Graph(graph.inputs, nodes, graph.outputs)
