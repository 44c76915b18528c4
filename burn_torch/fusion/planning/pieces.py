"""Plans in pieces: stretches of a program, each planned as if it were one.

A program that cannot be planned as a whole is planned in quarters, and what of these cannot in quarters again: what
raises is left to the leaf, operation by operation, and all around it still becomes kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.fusion.body.reasons import Reason
from burn_torch.fusion.planning.faults import note_fault
from burn_torch.fusion.planning.plan import Boundary, Plan
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.view import GraphView
from burn_torch.symbolic.sizes import size_hint

__all__ = ["plan_in_pieces", "plan_or_pieces"]

_PARTS: Final = 4
"""Pieces of what cannot be planned; each in as many again, until few operations are left."""

_FEW: Final = 8
"""Operations of which nothing is planned, since a plan of them raises."""

Planned = Callable[[Graph], Plan]


def plan_or_pieces(graph: Graph, plan: Planned, unplanned: Planned) -> Plan:
    """The plan of a graph; where that raises, of its pieces, and of those that raise too `unplanned`.

    The fault is noted, and warned of once: see `faults.py`.
    """
    try:
        return plan(graph)
    except Exception as fault:
        note = note_fault(f"planned in pieces: {len(graph.nodes)} operations", fault)

    def quietly(piece: Graph) -> Plan:
        if len(piece.nodes) <= _FEW:
            return unplanned(piece)
        try:
            return plan(piece)
        except Exception:  # the fault that was told of, or one like it
            return in_parts(piece)

    def in_parts(whole: Graph) -> Plan:
        return plan_in_pieces(whole, -(-len(whole.nodes) // _PARTS), quietly)

    return (in_parts(graph) if len(graph.nodes) > _FEW else unplanned(graph)).with_notes(note)


def plan_in_pieces(graph: Graph, length: int, plan: Planned) -> Plan:
    """The plans of stretches of so many operations, as one.  Kernels do not reach across the end of a stretch."""
    pieces = _pieces(graph, length)
    nodes: list[Node] = []
    now: dict[int, int] = {}
    """For values of the graph, what the plan calls them."""
    plans: list[Plan] = []
    fresh = GraphView(graph).fresh
    for piece in pieces:
        plan_of_piece = plan(piece)
        names = {i: now.get(i, i) for i, _ in piece.inputs}
        pairs = [(a, b) for a, b in zip(plan_of_piece.graph.outputs, piece.outputs, strict=True)
                 if a is not None and b is not None]  # fmt: skip
        wanted = dict(pairs)
        for node in plan_of_piece.graph.nodes:
            for i in node.outputs:
                if i is not None and i not in names:
                    names[i] = wanted[i] if i in wanted else fresh()
            inputs = [names[i] if isinstance(i, int) else i for i in node.inputs]
            outputs = [None if i is None else names[i] for i in node.outputs]
            nodes.append(Node(node.call, inputs, outputs, node.origin))
        now.update((b, names[a]) for a, b in pairs)
        boundaries = tuple(replace(each, value=names.get(each.value, each.value)) for each in plan_of_piece.boundaries)
        plans.append(replace(plan_of_piece, boundaries=boundaries))
    outputs = [None if i is None else now.get(i, i) for i in graph.outputs]
    return Plan(
        Graph(graph.inputs, nodes, outputs),
        tuple(group for each in plans for group in each.groups),
        (*(boundary for each in plans for boundary in each.boundaries), *_between(graph, pieces)),
        notes=tuple(dict.fromkeys(note for each in plans for note in each.notes)),
    )


def _pieces(graph: Graph, length: int) -> list[Graph]:
    """Stretches of the graph: what one makes and a later one or the caller reads is among its outputs."""
    specs = graph.specs()
    last_read = {i: n for n, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    last_read.update((i, len(graph.nodes)) for i in graph.outputs if i is not None)
    pieces: list[Graph] = []
    for first in range(0, len(graph.nodes), length):
        nodes = graph.nodes[first : first + length]
        results = dict.fromkeys(i for node in nodes for i in node.outputs if i is not None)
        read: dict[int, Spec] = {}
        for node in nodes:
            for i, spec in zip(node.inputs, node.call.specs, strict=True):
                if isinstance(i, int) and i not in results and spec is not None:
                    read.setdefault(i, specs.get(i, spec))
        wanted = [i for i in results if last_read.get(i, -1) >= first + len(nodes)]
        pieces.append(Graph(list(read.items()), nodes, wanted))
    return pieces


def _between(graph: Graph, pieces: Sequence[Graph]) -> list[Boundary]:
    """Returns the boundaries of values that pieces make for later ones."""
    piece_of = {i: n for n, piece in enumerate(pieces) for i in piece.outputs}
    view = GraphView(graph)
    boundaries: dict[int, Boundary] = {}
    for n, piece in enumerate(pieces):
        for node in piece.nodes:
            for i, spec in zip(node.inputs, node.call.specs, strict=True):
                maker = view.made_by(i)
                if isinstance(i, int) and maker is not None and piece_of.get(i, n) < n and isinstance(spec, TensorSpec):
                    size = size_hint(spec.numel) * spec.dtype.itemsize
                    names = maker.call.op.name, node.call.op.name
                    boundaries.setdefault(i, Boundary(i, size, *names, Reason.LIMIT, "they are planned apart"))
    return list(boundaries.values())
