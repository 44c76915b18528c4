"""Plans a graph: the scheduler's kernels, then products and convolutions with what lies around them.

A graph that cannot be planned as a whole is planned in pieces, and so is a very long one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from burn_torch.fusion.planning.anchors import anchored
from burn_torch.fusion.planning.composites import Whole, open_composites
from burn_torch.fusion.planning.pieces import plan_in_pieces, plan_or_pieces
from burn_torch.fusion.planning.plan import Plan, remember_groups
from burn_torch.fusion.planning.schedule import schedule
from burn_torch.fusion.rewrites.choices import LIBRARIES, Choices
from burn_torch.fusion.rewrites.patterns import replaced
from burn_torch.fusion.rows.row import inside
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.driver import pipeline
from burn_torch.graph.passes.invariants import check_rewrite
from burn_torch.graph.verifying import is_proving

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

    def kernels(part: Graph) -> Plan:
        return _plan_whole(part, choices, strict)

    if not plainer:
        return kernels(graph)

    def planned(piece: Graph) -> Plan:
        return plan_or_pieces(piece, kernels, lambda part: Plan(part, (), ()))

    if len(graph.nodes) <= _LONGEST:
        return planned(graph)
    plan = plan_in_pieces(graph, _PIECE, planned)
    if is_proving():
        check_rewrite("planning in pieces", graph, plan.graph, inside)
    return plan.with_notes(f"planned in pieces of {_PIECE} operations: there are {len(graph.nodes)}")


def _plan_whole(graph: Graph, choices: Choices, strict: bool) -> Plan:
    """The plan of a graph in one piece, with what each pass did."""
    planning = _Planning(choices, strict)
    handed = {
        "patterns": planning.patterns,
        "open composites": planning.open_composites,
        "group": planning.group,
        "anchors": planning.anchors,
    }
    _, reports = pipeline(graph, profile="plan", handed=handed, body=inside)
    remember_groups(planning.plan.groups)
    return replace(planning.plan, passes=(reports,))


@final
class _Planning:
    """One run of the passes that make a plan, and what one of them leaves for the next beside the graph."""

    def __init__(self, choices: Choices, strict: bool) -> None:
        self.choices: Final = choices
        self.strict: Final = strict
        self.given: Graph
        """It says how much memory the plan may need."""
        self.whole: Whole
        self.plan: Plan

    def patterns(self, graph: Graph) -> Graph:
        """Rows in the place of what patterns say."""
        self.given = graph
        return replaced(graph, strict=self.strict)

    def open_composites(self, graph: Graph) -> Graph:
        """Puts the parts of composite operations in their place."""
        opened, self.whole = open_composites(graph)
        return opened

    def group(self, graph: Graph) -> Graph:
        """Kernels."""
        self.plan = schedule(self.given, graph, self.whole, self.strict)
        return self.plan.graph

    def anchors(self, graph: Graph) -> Graph:
        """Products and convolutions with what lies around them."""
        if graph is not self.given:  # else kernels took too much memory, so there are none
            self.plan = anchored(self.plan, self.choices, strict=self.strict)
        return self.plan.graph
