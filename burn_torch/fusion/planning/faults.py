"""Faults of planning: the next plainer plan is made, and a warning says so.

    plan = plan_or_plainer("endings of products", lambda: with_endings(graph), lambda: graph, notes)

A limit (`Unfusible`, `Unsymbolic`) is no fault: it is noted for `explain`.  Everything else is a fault of the planner,
which ends no step of a user: it is noted, and warned of.  With BURN_TORCH_VERIFY=1 it is raised where it happens, for
work on the planner; tests turn the warning into an error.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from burn_torch.core.errors import GraphError
from burn_torch.core.frames import warn_user
from burn_torch.fusion.body.reasons import FusionWarning, Unfusible, Unsymbolic
from burn_torch.graph.ir import Graph
from burn_torch.graph.verifying import is_proving, is_verifying

__all__ = ["attempts", "known_failure", "note_fault", "plan_or_plainer", "remember_failure"]

T = TypeVar("T")

_LIMITS: Final = (Unfusible, Unsymbolic)

_MOST: Final = 4096

_failures: Final[OrderedDict[str, str]] = OrderedDict()
"""Messages about kernels that failed when they were written, compiled or run, by the texts of their bodies."""

_lock: Final = threading.Lock()


def plan_or_plainer(step: str, plan: Callable[[], T], plainer: Callable[[], T], notes: list[str]) -> T:
    """Returns the result of `plan`; if it raises, that of `plainer`, and `notes` says why.

    Raises: what `plan` raises, with BURN_TORCH_VERIFY=1 and if it is no limit; whatever `plainer` raises.
    """
    try:
        return plan()
    except Exception as fault:
        notes.append(note_fault(step, fault))
    return plainer()


def attempts(notes: list[str]) -> Callable[[str, Callable[[Graph], Graph], Graph], Graph]:
    """Returns a runner of optional passes of `pipeline`, which leaves the graph as it is if one raises."""

    def attempt(step: str, rewrite: Callable[[Graph], Graph], graph: Graph) -> Graph:
        return plan_or_plainer(f"without {step}", lambda: rewrite(graph), lambda: graph, notes)

    return attempt


def note_fault(step: str, fault: Exception) -> str:
    """A line for `explain` of a step of planning that raised; warns if that is a fault of the planner.

    Raises: `fault` itself, with BURN_TORCH_VERIFY=1 if it is no limit; what a check of a graph found, with `proofs`.
    """
    if isinstance(fault, _LIMITS):
        return f"{step}: {fault}"
    if is_verifying() or (is_proving() and isinstance(fault, GraphError)):
        raise fault
    note = f"{step}: {type(fault).__name__}: {fault}"
    warn_user(
        FusionWarning,
        "a program could not be planned as it should be; a plainer plan runs in its place",
        given=note,
        expected="a plan of generated kernels",
        mend="the results are right; please report it with the text of explain()",
    )
    return note


def remember_failure(text: str, fault: Exception) -> None:
    """Says that the kernel of a body (see `row.text_of`) failed, so that its operations run one by one."""
    with _lock:
        _failures[text] = f"it failed, its operations run one by one: {type(fault).__name__}: {fault}"
        while len(_failures) > _MOST:
            _failures.popitem(last=False)


def known_failure(text: str) -> str:
    """Returns the message about the kernel of a body that failed; empty if none did."""
    return _failures.get(text, "")
