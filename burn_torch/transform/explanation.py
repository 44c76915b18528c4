"""Defines what `explain` says of a compiled function: data, with a text of its own."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burn_torch.backend.base import capabilities
from burn_torch.core.spec import TensorSpec
from burn_torch.core.wording import counted
from burn_torch.fusion.telling.explanation import FusionExplanation
from burn_torch.fusion.telling.explanation import explain as explain_fusion
from burn_torch.fusion.telling.page import section, write_page
from burn_torch.graph import Graph
from burn_torch.graph.passes import PassReport, peak_bytes
from burn_torch.transform.program import Program
from burn_torch.transform.retrace import Retrace

__all__ = ["Explanation", "explained"]


@dataclass(frozen=True)
class Explanation:
    """How a function is compiled for some arguments.

    passes         nodes and planned bytes before and after each pass
    operations     nodes of the program that compute on tensors; views and host numbers are none
    views          nodes that only look at memory in another way
    numbers        nodes that compute host numbers, such as 1 - beta ** step
    launches       kernels that a recorded program launches in one call; None before its first call
    in_place       results that take the memory of an operand
    peak_bytes     planned bytes in use at once, donated arguments included
    donated_bytes  bytes of arguments that the program takes over
    splits         why a CUDA graph was cut: one text for each operation that could not be captured
    retraces       each tracing of the function, and what differed from the nearest earlier one
    source         the file with the generated program
    fusion         the generated kernels and what lies between them; None where nothing is fused
    """

    function: str
    backend: str
    numerics: str
    precision: str
    passes: tuple[PassReport, ...]
    operations: int
    views: int
    numbers: int
    launches: int | None
    in_place: int
    peak_bytes: int
    donated_bytes: int
    splits: tuple[str, ...]
    retraces: tuple[Retrace, ...]
    source: Path | None
    graph: Graph
    fusion: FusionExplanation | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it but the graph, as JSON has it."""
        entries = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("graph", "fusion")
        }
        entries["passes"] = [dataclasses.asdict(report) for report in self.passes]
        entries["retraces"] = [dataclasses.asdict(retrace) for retrace in self.retraces]
        entries["source"] = None if self.source is None else str(self.source)
        entries["fusion"] = None if self.fusion is None else self.fusion.to_dict()
        return entries

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def sections(self) -> list[str]:
        """The parts of its page: the kernels with their sources where it is fused, else the operations."""
        if self.fusion is None:
            return [section(str(self), self.graph)]
        return [section(str(dataclasses.replace(self, fusion=None))), self.fusion.section()]

    def show(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes a page of HTML with a picture, this text and the generated sources; returns its path.

        Without a path it is a new temporary file.  It opens nothing.  Raises: ArtifactError where it cannot be written.
        """
        return write_page(self.sections(), path)

    def __str__(self) -> str:
        launches = "" if self.launches is None else f", {self.launches} launches"
        counts = f"{counted(self.views, 'view')}, {counted(self.numbers, 'number')}, {self.in_place} in place"
        lines = [
            f"{self.function} on {self.backend}, numerics {self.numerics}, {self.precision}",
            f"  {counted(self.operations, 'operation')}{launches}, {counts}",
            f"  peak {_size(self.peak_bytes)} planned, {_size(self.donated_bytes)} of it donated",
            *(f"  {report}" for report in self.passes),
            *(f"  cut: {split}" for split in self.splits),
            *(f"  {retrace}" for retrace in self.retraces),
        ]
        if self.source is not None:
            lines.append(f"  source: {self.source}")
        if self.fusion is not None:
            lines += [f"  {line}" for line in str(self.fusion).splitlines()]
        return "\n".join(lines)


def explained(name: str, program: Program, retraces: tuple[Retrace, ...]) -> Explanation:
    """The explanation of a program."""
    graph, code, recorded = program.graph, program.code, program.recorded
    views = sum(bool(node.call.op.view) for node in graph.nodes)
    numbers = sum(node.call.is_number for node in graph.nodes)
    donated = [spec for at, (_, spec) in enumerate(graph.inputs) if at in program.donated]
    return Explanation(
        function=name,
        backend=program.traced.leaf.name,
        numerics=program.numerics,
        precision=program.precision,
        passes=tuple(program.passes),
        operations=len(graph.nodes) - views - numbers,
        views=views,
        numbers=numbers,
        launches=None if recorded is None else recorded.launches,
        in_place=0 if code is None else len(code.reused),
        peak_bytes=peak_bytes(graph, program.donated),
        donated_bytes=sum(spec.numel * spec.dtype.itemsize for spec in donated if isinstance(spec, TensorSpec)),
        splits=() if recorded is None else tuple(map(str, recorded.splits)),
        retraces=retraces,
        source=None if code is None else code.path,
        graph=graph,
        fusion=None
        if program.plan is None
        else explain_fusion(program.plan, capabilities(program.traced.leaf).choices),
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
