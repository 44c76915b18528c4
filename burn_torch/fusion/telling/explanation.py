"""Explanations of a plan, for people: kernels with the users' lines, and why there are not fewer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from burn_torch.core.wording import counted
from burn_torch.fusion.body.lines import commented
from burn_torch.fusion.body.loops import Lowered
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.c.lowering import lowered_for_cpu
from burn_torch.fusion.planning.faults import known_failure
from burn_torch.fusion.planning.plan import Boundary, Group, Plan
from burn_torch.fusion.rewrites.choices import LIBRARIES, Choices
from burn_torch.fusion.rows.product_row import convolution, product
from burn_torch.fusion.rows.row import kernel, text_of
from burn_torch.fusion.rows.sharing import with_hints
from burn_torch.fusion.telling.page import section, write_page
from burn_torch.fusion.triton.configs import Tiles, chosen_tiles
from burn_torch.fusion.triton.convolutions import ConvolutionTiles, lower_convolution
from burn_torch.fusion.triton.lowering import lower
from burn_torch.fusion.triton.products import ProductTiles, lower_product
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes import PassReport
from burn_torch.graph.view import GraphView

__all__ = ["FusionExplanation", "KernelReport", "SymbolReport", "explain"]


@final
@dataclass(frozen=True)
class KernelReport:
    """One kernel of a plan.

    name         of the generated function, else of the operation that a library computes
    rows         the operations in it
    origins      the users' lines that they come from
    bytes_saved  of values between its operations that are not written, or not read again
    tiles        what one program computes, as it ran last, else would; None for a library's kernel, as is `source`
    tiles_from   who chose them: "locked", "measured", "shipped", "model" or "default"; "" where the plan did
    source       the generated Triton source, as it is for inputs without gaps in memory
    c_source     the same in C, for a kernel of the CPU that pays there; else None
    failure      why its operations run one by one all the same: it could not be written, compiled or run; else ""
    """

    name: str
    rows: tuple[str, ...]
    origins: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    bytes_saved: int
    tiles: Tiles | None
    source: str | None
    c_source: str | None = None
    tiles_from: str = ""
    failure: str = ""

    @property
    def generated(self) -> bool:
        """Says whether fusion generates it."""
        return self.source is not None

    def __str__(self) -> str:
        rows = _list_rows(self.rows) if len(self.rows) > 1 or self.generated else "by a library"
        moved = f"reads {_size(self.bytes_read)}, writes {_size(self.bytes_written)}"
        saved = f", saves {_size(self.bytes_saved)}" if self.bytes_saved else ""
        lines = [f"{self.name}: {rows}", f"  {moved}{saved}"]
        if self.tiles is not None:
            stages = f", {counted(self.tiles.stages, 'stage')}" if self.tiles.stages > 1 else ""
            chosen = f", {self.tiles_from}" if self.tiles_from not in ("", "default") else ""
            warps = counted(self.tiles.warps, "warp")
            lines.append(f"  {self.tiles.x} x {self.tiles.r} elements a program, {warps}{stages}{chosen}")
        if self.failure:
            lines.append(f"  {self.failure}")
        lines += [f"  at {origin}" for origin in self.origins]
        return "\n".join(lines)


@final
@dataclass(frozen=True)
class SymbolReport:
    """A size that a plan leaves open: any of 2 or more, so far as the guards allow.

    planned_at  the size at which the plan was made
    source      the axis or attribute that it is, with the user's line
    """

    name: str
    planned_at: int
    source: str

    def __str__(self) -> str:
        return f"{self.name}, {self.planned_at} when it was planned, is {self.source}"


@final
@dataclass(frozen=True)
class FusionExplanation:
    """The kernels of a plan in their order, and each value that one writes and another reads, with the reason.

    `str` is the text, `to_json` the same as data, `show` a page with a picture.  If sizes are symbols, bytes are those
    at the sizes that it was planned at.
    """

    kernels: tuple[KernelReport, ...]
    boundaries: tuple[Boundary, ...]
    graph: Graph
    symbols: tuple[SymbolReport, ...] = ()
    guards: tuple[str, ...] = ()
    """Conditions on the symbols for the plan to serve, beside that each is 2 or more."""
    notes: tuple[str, ...] = ()
    """Notes on what is plainer than it could be, and why: a limit, or a fault of the planner, which was warned of."""
    passes: tuple[PassReport, ...] = ()
    """A report of each pass: those before the planner's, where the door has some, then the planner's own."""

    @property
    def generated(self) -> int:
        """How many of the kernels fusion generates."""
        return sum(report.generated for report in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "kernels": [asdict(report) | {"generated": report.generated} for report in self.kernels],
            "boundaries": [asdict(boundary) | {"reason": str(boundary.reason)} for boundary in self.boundaries],
            "symbols": [*map(asdict, self.symbols)],
            "guards": list(self.guards),
            "notes": list(self.notes),
            "passes": [*map(asdict, self.passes)],
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def section(self, heading: str = "") -> str:
        """This as a part of a page of HTML: a picture of the kernels, the text, the sources."""
        sources = {each.name: each.c_source or each.source for each in self.kernels if each.source is not None}
        return section(str(self), self.graph, sources, heading)

    def show(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes a page with a picture of the kernels, this text and the sources; returns its path.

        Without a path it is a new temporary file.  It opens nothing.  Raises: ArtifactError where it cannot be written.
        """
        return write_page([self.section()], path)

    def __str__(self) -> str:
        operations = sum(len(report.rows) for report in self.kernels)
        saved = sum(report.bytes_saved for report in self.kernels)
        count = len(self.kernels)
        kinds = f"{count} kernel{'s' * (count != 1)}, {self.generated} generated"
        lines = [f"{kinds}, of {operations} operations; {_size(saved)} less to move"]
        lines += [f"  {symbol}" for symbol in self.symbols]
        if self.guards:
            lines.append(f"  as long as {', '.join(self.guards)}")
        lines += [f"  plainer: {note}" for note in self.notes]
        lines += [f"  {report}" for report in self.passes]
        for number, report in enumerate(self.kernels):
            first, *others = str(report).splitlines()
            lines += [f"  {number}  {first}", *(f"     {line}" for line in others)]
        if self.boundaries:
            lines.append("  between them")
        for boundary in sorted(dict.fromkeys(self.boundaries), key=lambda b: -b.bytes):
            lines.append(
                f"    {boundary.producer} -> {boundary.consumer}, {_size(boundary.bytes)}:"
                f" {boundary.reason}: {boundary.detail}"
            )
        return "\n".join(lines)


def explain(plan: Plan, choices: Choices = LIBRARIES) -> FusionExplanation:
    """Describes a plan in words: see `FusionExplanation`.  `choices` says with which tiles its kernels ran last."""
    graph = plan.graph if plan.planned is None else plan.planned
    groups: dict[str, list[Group]] = {}
    for group in plan.groups:
        groups.setdefault(text_of(group.body), []).append(group)
    reports: list[KernelReport] = []
    view = GraphView(graph)
    for node in graph.nodes:
        if node.call.is_number or node.call.aliases:
            continue
        if node.call.op in (kernel, product, convolution):
            reports.append(_report_generated(groups[node.call.attrs["body"]].pop(0), node, choices))
        else:
            reports.append(_of_a_library(node, view))
    symbolic = plan.symbolic
    passes = tuple(report for each in plan.passes for report in each)
    if symbolic is None:
        return FusionExplanation(tuple(reports), plan.boundaries, plan.graph, notes=plan.notes, passes=passes)
    symbols = [SymbolReport(name, symbolic.scope.hints[name], str(site)) for name, site in symbolic.named.items()]
    guards = tuple(guard.text for guard in symbolic.guards)
    return FusionExplanation(tuple(reports), plan.boundaries, plan.graph, tuple(symbols), guards, plan.notes, passes)


def _report_generated(group: Group, node: Node, choices: Choices) -> KernelReport:
    origins = tuple(map(str, group.origins))
    moved = group.bytes_read, group.bytes_written, group.bytes_saved
    strict = node.call.attrs["strict"]
    if node.call.op is not kernel:
        around: Lowered
        tiles = node.call.attrs["tiles"]
        if node.call.op is product:
            around, by = lower_product(group.body, strict=strict), ProductTiles(*tiles)
            shown = Tiles(by.x, by.r, by.warps)
        else:
            around, each = lower_convolution(group.body, strict=strict), ConvolutionTiles(*tiles)
            shown = Tiles(each.outs, each.pixels, each.warps)
        return KernelReport(around.name, group.rows, origins, *moved, shown, commented(around.source, origins))
    failure = known_failure(node.call.attrs["body"])
    try:
        lowered = lower(group.body, strict=strict)
    except Unfusible as fault:
        return KernelReport("kernel", group.rows, origins, *moved, None, "", failure=failure or str(fault))
    here = with_hints(group.body)  # the same, but for a body of symbolic sizes
    on_cpu = lowered_for_cpu(here, strict=strict) if lowered.outputs[0].place == "cpu" else None
    in_c = None if on_cpu is None else commented(on_cpu.source, origins, "//")
    recorded = lower(group.body, strict=strict, held=True).name  # as a CUDA graph has it
    sized = lower(here, strict=strict) if lowered.sizes else lowered
    tiles, chooser = chosen_tiles(sized, choices.tiles, lowered.name, recorded)
    source = commented(lowered.source, origins)
    return KernelReport(lowered.name, group.rows, origins, *moved, tiles, source, in_c, chooser, failure)


def _of_a_library(node: Node, view: GraphView) -> KernelReport:
    def size(ids: Sequence[object]) -> int:
        return sum(view.bytes_of(i) for i in dict.fromkeys(ids) if isinstance(i, int))

    name = node.call.op.name
    origins = () if node.origin is None else (str(node.origin),)
    return KernelReport(name, (name,), origins, size(node.inputs), size(node.outputs), 0, None, None)


def _list_rows(rows: Sequence[str]) -> str:
    shown = ", ".join(rows[:16])
    return f"{shown} and {len(rows) - 16} more" if len(rows) > 16 else shown


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
