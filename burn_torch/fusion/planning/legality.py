"""Asks whether bodies are kernels: each is asked at most once what it needs, and those of equal steps once for all.

The steps of a recurrence differ in where they cut their slices from what was computed for all steps at once.  The
beginning of a slice decides nothing but numbers in the source, so while the scheduler searches, bodies that differ in
nothing else are asked once.  The body that it then writes is asked itself.
"""

from __future__ import annotations

from typing import Any, Final, final

from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.rows.row import remember_over, text_of
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import Call
from burn_torch.symbolic.sizes import sizes_in

__all__ = ["SPENT", "Legality"]

_LOOKS: Final = 256

SPENT: Final = Unfusible(Reason.LIMIT, "planning reached its limit of time for this number of operations")


@final
class Legality:
    """The answers about bodies, and their cost.

    budget  operations in all bodies that are asked whether they are kernels; once they are spent, what was not
            asked yet counts as none, so that a search ends
    work    how many were
    """

    def __init__(self, budget: float) -> None:
        self.budget: Final = budget
        self.work = 0.0
        self._likely: Final[dict[object, Unfusible | None]] = {}
        self._known: Final[dict[Graph, Unfusible | None]] = {}

    def likely_fault(self, body: Graph) -> Unfusible | None:
        """Why a body, or one that differs from it in where slices begin, is not one kernel; None if it is."""
        if body in self._likely:
            return self._likely[body]
        key = _without_begins(body)
        if key not in self._likely:
            if self.is_spent:
                return SPENT
            self._likely[key] = self._ask(body, beside=False)
        fault = self._likely[body] = self._likely[key]
        return fault

    @property
    def is_spent(self) -> bool:
        """Asks whether the search is over its budget."""
        return self.work > self.budget

    def look(self, count: int) -> None:
        """Counts operations that were looked at in a search, of which so many cost what deciding on one does."""
        self.work += count / _LOOKS

    def fault(self, body: Graph) -> Unfusible | None:
        """Why a body is no kernel, nor kernels side by side; None if it is."""
        if body not in self._known:
            self._known[body] = self._ask(body, beside=True)
        return self._known[body]

    def _ask(self, body: Graph, *, beside: bool) -> Unfusible | None:
        self.work += len(body.nodes)
        try:
            kernel = lower(body, beside=beside)
        except Unfusible as fault:
            return fault
        if beside:
            remember_over(text_of(body), kernel.over)
        return None


def _without_begins(body: Graph) -> object:
    """Returns the key of a body without the places where its slices begin: only whether they are equal, or 0."""
    begins: dict[object, int] = {0: 0}
    changed = False
    nodes: list[Any] = []
    for node in body.nodes:
        ranges = _ranges(node.call)
        if ranges is None:
            nodes.append((node.call, node.inputs, node.outputs))
            continue
        changed = True
        cut = tuple((begins.setdefault(start, len(begins)), end - start, step) for start, end, step in ranges)
        nodes.append((node.call.op, node.call.specs, cut, node.inputs, node.outputs))
    return (tuple(spec for _, spec in body.inputs), tuple(nodes), body.outputs) if changed else body


def _ranges(call: Call) -> tuple[tuple[int, int, int], ...] | None:
    """The ranges of a slice; None for any other Call, and where they are symbols."""
    ranges = call.attrs.get("ranges")
    if ranges is None or len(call.attrs) != 1 or next(sizes_in(ranges), None) is not None:
        return None
    return ranges  # type: ignore[no-any-return]  # an attribute
