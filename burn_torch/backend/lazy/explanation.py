"""The last computations of a thread's stream, for people: `device.explain()`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from burn_torch.backend.base import capabilities
from burn_torch.backend.lazy.plans import Ready
from burn_torch.backend.lazy.stream import Stream
from burn_torch.fusion.telling.explanation import FusionExplanation, explain
from burn_torch.fusion.telling.page import section, write_page

__all__ = ["StreamExplanation", "StreamProgram", "explain_stream"]


@final
@dataclass(frozen=True)
class StreamProgram:
    """The operations between two cuts.

    key     of its operations and of the results that were wanted; the same in every process.  Of a plan of symbolic
            sizes, that of the shape that ran last
    times   how often it ran among the last 256 flushes of this thread
    shapes  at how many shapes, where its plan has symbolic sizes
    fused   whether generated kernels ran; elsewhere its operations run one by one, and `plan` says what would be fused
    """

    key: str
    times: int
    shapes: int
    fused: bool
    plan: FusionExplanation

    @property
    def title(self) -> str:
        """The number of the program, how often it ran, and how."""
        how = "in generated kernels" if self.fused else "operation by operation; as kernels it would be"
        shapes = f" at {self.shapes} shapes" if self.shapes > 1 else ""
        return f"program {self.key[:12]}, {self.times} times{shapes}, {how}"

    def __str__(self) -> str:
        text = "\n".join(f"  {line}" for line in str(self.plan).splitlines())
        return f"{self.title}\n{text}"


@final
@dataclass(frozen=True)
class StreamExplanation:
    """The last programs of this thread's stream at one place.

    pending    operations that are recorded and not computed
    flushes    of all threads of the stack since the process began
    planned    how often a program was new, of all threads
    shared     how often a new shape was served by a plan of symbolic sizes, of all threads
    unplanned  how often something new ran operation by operation, since too much was new, of all threads
    plainer    how often something new was given a plainer plan than it could have, as its plan says, of all threads
    storms     programs that were planned again and again, as they were warned of, of all threads; the first 16
    """

    backend: str
    place: str
    pending: int
    flushes: int
    planned: int
    shared: int
    unplanned: int
    plainer: int
    storms: tuple[str, ...]
    programs: tuple[StreamProgram, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        programs = [
            {"key": p.key, "times": p.times, "shapes": p.shapes, "fused": p.fused, "plan": p.plan.to_dict()}
            for p in self.programs
        ]
        return vars(self) | {"storms": list(self.storms), "programs": programs}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    @property
    def title(self) -> str:
        """The counts of computations by place; and storms."""
        shared = f", {self.shared} at new shapes of known programs" if self.shared else ""
        unplanned = f", {self.unplanned} of these unplanned in a storm" if self.unplanned else ""
        plainer = f", {self.plainer} of these planned more plainly than they could be" if self.plainer else ""
        new = f"{self.planned} of them new{unplanned}{plainer}{shared}"
        counts = f"{self.flushes} flushes, {new}; {self.pending} operations pending"
        storms = [
            f"storm: {line}" if n == 0 else line for storm in self.storms for n, line in enumerate(storm.splitlines())
        ]
        return "\n".join([f"{self.backend} at {self.place}: {counts}", *storms])

    def show(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes a page with pictures of all programs, their texts and sources; returns its path.

        Without a path it is a new temporary file.  It opens nothing.  Raises: ArtifactError where it cannot be written.
        """
        return write_page(self.sections(), path)

    def sections(self) -> list[str]:
        """The parts of that page."""
        return [section(self.title), *(program.plan.section(program.title) for program in self.programs)]

    def __str__(self) -> str:
        return "\n".join([self.title, *map(str, self.programs)])


def explain_stream(stream: Stream) -> StreamExplanation:
    """The programs of a stream, each once, in the order in which they last ran."""
    runs: dict[object, list[Ready]] = {}
    for ready in stream.history:
        runs.setdefault(ready.symbolic or ready.key, []).append(ready)
    programs: list[StreamProgram] = []
    for of_one in runs.values():
        last = of_one[-1]
        shapes = len({ready.key for ready in of_one})
        programs.append(
            StreamProgram(
                last.key, len(of_one), shapes, last.fused, explain(last.plan, capabilities(last.inner).choices)
            )
        )
    planner = stream.fusion.planner
    return StreamExplanation(
        stream.fusion.name,
        stream.place,
        stream.pending,
        planner.flushes,
        planner.misses,
        planner.shared,
        planner.unplanned,
        planner.plainer,
        tuple(planner.storms),
        tuple(programs),
    )
