"""Plans a graph: the scheduler's kernels, then products and convolutions with what lies around them.

A graph that cannot be planned as a whole is planned in pieces, and so is a very long one.
"""

from __future__ import annotations

from typing import Final

from burn_torch.core.verifying import is_proving
from burn_torch.fusion.planning.anchors import anchored
from burn_torch.fusion.planning.pieces import plan_in_pieces, plan_or_pieces
from burn_torch.fusion.planning.plan import Plan, remember_groups
from burn_torch.fusion.planning.schedule import schedule
from burn_torch.fusion.rewrites.choices import LIBRARIES, Choices
from burn_torch.fusion.rows.row import inside
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.invariants import check_rewrite

__all__ = ["fuse", "plan_of"]

_LONGEST: Final = 8192
_PIECE: Final = 4096
"""Operations that are planned at once, and in a piece of a program of more, so that planning takes as long for each of
them.  GPT-2's step has 1,000."""


def fuse(graph: Graph, choices: Choices = LIBRARIES, *, strict: bool = False) -> Graph:
    """The graph with generated kernels in place of what they compute."""
    return plan_of(graph, choices, strict=strict).graph


def plan_of(graph: Graph, choices: Choices = LIBRARIES, *, strict: bool = False, plainer: bool = True) -> Plan:
    """The kernels of a graph.

    choices  who says what is faster here
    strict   they round after each operation, as unfused execution does
    plainer  what cannot be planned is left to the leaf, operation by operation, as `Plan.notes` says; else it raises
    """
    graph = dead_code(graph)
    if not plainer:
        return _checked(graph, _plan_whole(graph, choices, strict))

    def planned(piece: Graph) -> Plan:
        def kernels(part: Graph) -> Plan:
            return _checked(part, _plan_whole(part, choices, strict))

        return plan_or_pieces(piece, kernels, lambda part: Plan(part, (), ()))

    if len(graph.nodes) <= _LONGEST:
        return planned(graph)
    note = f"planned in pieces of {_PIECE} operations: there are {len(graph.nodes)}"
    return _checked(graph, plan_in_pieces(graph, _PIECE, planned)).with_notes(note)


def _plan_whole(graph: Graph, choices: Choices, strict: bool) -> Plan:
    plan = schedule(graph, strict)
    if plan.graph is graph:  # its kernels took too much memory, so there are none
        return plan
    plan = anchored(plan, choices, strict=strict)
    remember_groups(plan.groups)
    return plan


def _checked(graph: Graph, plan: Plan) -> Plan:
    """The plan.  Raises: GraphError, where the library proves its work, if it does not do what the graph does."""
    if is_proving():
        check_rewrite("planning", graph, plan.graph, inside)
    return plan
