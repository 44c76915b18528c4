"""What a thread's stream computed last, for people: `device.explain()`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, final

from burn_torch.backend.fusion.plans import Ready
from burn_torch.backend.fusion.stream import Stream
from burn_torch.fusion.explanation import FusionExplanation, explain

__all__ = ["StreamExplanation", "StreamProgram", "explain_stream"]


@final
@dataclass(frozen=True)
class StreamProgram:
    """What lay between two cuts.

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

    def __str__(self) -> str:
        how = "in generated kernels" if self.fused else "operation by operation; as kernels it would be"
        text = "\n".join(f"  {line}" for line in str(self.plan).splitlines())
        shapes = f" at {self.shapes} shapes" if self.shapes > 1 else ""
        return f"program {self.key[:12]}, {self.times} times{shapes}, {how}\n{text}"


@final
@dataclass(frozen=True)
class StreamExplanation:
    """The last programs of this thread's stream at one place.

    pending  operations that are recorded and not computed
    flushes  of all threads of the stack since the process began
    planned  how often a program was new, of all threads
    shared   how often a new shape was served by a plan of symbolic sizes, of all threads
    """

    backend: str
    place: str
    pending: int
    flushes: int
    planned: int
    shared: int
    programs: tuple[StreamProgram, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        programs = [
            {"key": p.key, "times": p.times, "shapes": p.shapes, "fused": p.fused, "plan": p.plan.to_dict()}
            for p in self.programs
        ]
        return {
            "backend": self.backend,
            "place": self.place,
            "pending": self.pending,
            "flushes": self.flushes,
            "planned": self.planned,
            "shared": self.shared,
            "programs": programs,
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        shared = f", {self.shared} at new shapes of known programs" if self.shared else ""
        counts = f"{self.flushes} flushes, {self.planned} of them new{shared}; {self.pending} operations pending"
        return "\n".join([f"{self.backend} at {self.place}: {counts}", *map(str, self.programs)])


def explain_stream(stream: Stream) -> StreamExplanation:
    """The programs of a stream, each once, in the order in which they last ran."""
    runs: dict[object, list[Ready]] = {}
    for ready in stream.history:
        runs.setdefault(ready.symbolic or ready.key, []).append(ready)
    programs: list[StreamProgram] = []
    for of_one in runs.values():
        last = of_one[-1]
        shapes = len({ready.key for ready in of_one})
        programs.append(StreamProgram(last.key, len(of_one), shapes, last.fused, explain(last.plan)))
    planner = stream.fusion.planner
    return StreamExplanation(
        stream.fusion.name,
        stream.place,
        stream.pending,
        planner.flushes,
        planner.misses,
        planner.shared,
        tuple(programs),
    )
