"""Plans of graphs: kernels, the boundaries between them, and notes on what is plainer than it could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

from burn_torch.fusion.body.lines import remember_lines
from burn_torch.fusion.body.reasons import Reason
from burn_torch.fusion.rows.row import text_of
from burn_torch.fusion.rows.symbolic import Symbolic
from burn_torch.graph.ir import Graph
from burn_torch.graph.origin import Origin
from burn_torch.graph.passes.driver import PassReports

__all__ = ["Boundary", "Group", "Plan", "remember_groups"]


@final
@dataclass(frozen=True)
class Group:
    """Operations that are one kernel.

    rows         names of the operations, in order
    origins      the users' lines that they come from, each once
    bytes_saved  of values between them: not read again, and not written where nobody else reads them
    body         what it computes
    """

    rows: tuple[str, ...]
    origins: tuple[Origin, ...]
    bytes_read: int
    bytes_written: int
    bytes_saved: int
    body: Graph


@final
@dataclass(frozen=True)
class Boundary:
    """A value that one kernel or library function writes and another one reads, and why they are two."""

    value: int
    bytes: int
    producer: str
    consumer: str
    reason: Reason
    detail: str


@final
@dataclass(frozen=True)
class Plan:
    """The plan of a graph.

    symbolic  where it was planned at sizes that are symbols, these
    planned   the graph then, of which `graph` is an instance
    notes     what is plainer than it could be, and why
    passes    what each pass did, from the graph that was given to this one
    """

    graph: Graph
    groups: tuple[Group, ...]
    boundaries: tuple[Boundary, ...]
    symbolic: Symbolic | None = None
    planned: Graph | None = None
    notes: tuple[str, ...] = ()
    passes: tuple[PassReports, ...] = field(default=(), compare=False)

    def with_notes(self, *notes: str) -> Plan:
        """The plan with more notes; empty ones do not count."""
        added = tuple(note for note in notes if note)
        return replace(self, notes=(*self.notes, *added)) if added else self

    @property
    def kernels(self) -> int:
        """How many operations of the graph compute on tensors: generated kernels and those of libraries."""
        return sum(not node.call.is_number and not node.call.aliases for node in self.graph.nodes)


def remember_groups(groups: Sequence[Group]) -> None:
    """Lets the files of kernels say which lines they come from."""
    for group in groups:
        remember_lines(text_of(group.body), [str(origin) for origin in group.origins])
