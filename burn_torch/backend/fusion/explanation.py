"""What a thread's stream computed last, for people: `device.explain()`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, final

from burn_torch.backend.fusion.stream import Stream
from burn_torch.fusion.explanation import FusionExplanation, explain

__all__ = ["StreamExplanation", "StreamProgram", "explain_stream"]


@final
@dataclass(frozen=True)
class StreamProgram:
    """What lay between two cuts.

    key    of its operations and of the results that were wanted; the same in every process
    times  how often it ran among the last 256 flushes of this thread
    fused  whether generated kernels ran; elsewhere its operations run one by one, and `plan` says what would be fused
    """

    key: str
    times: int
    fused: bool
    plan: FusionExplanation

    def __str__(self) -> str:
        how = "in generated kernels" if self.fused else "operation by operation; as kernels it would be"
        text = "\n".join(f"  {line}" for line in str(self.plan).splitlines())
        return f"program {self.key[:12]}, {self.times} times, {how}\n{text}"


@final
@dataclass(frozen=True)
class StreamExplanation:
    """The last programs of this thread's stream at one place.

    pending  operations that are recorded and not computed
    flushes  of all threads of the stack since the process began
    planned  how often a program was new, of all threads
    """

    backend: str
    place: str
    pending: int
    flushes: int
    planned: int
    programs: tuple[StreamProgram, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        programs = [{"key": p.key, "times": p.times, "fused": p.fused, "plan": p.plan.to_dict()} for p in self.programs]
        return {
            "backend": self.backend,
            "place": self.place,
            "pending": self.pending,
            "flushes": self.flushes,
            "planned": self.planned,
            "programs": programs,
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        counts = f"{self.flushes} flushes, {self.planned} of them new; {self.pending} operations pending"
        return "\n".join([f"{self.backend} at {self.place}: {counts}", *map(str, self.programs)])


def explain_stream(stream: Stream) -> StreamExplanation:
    """The programs of a stream, each once, in the order in which they last ran."""
    last = {ready.key: ready for ready in stream.history}
    times = {key: sum(ready.key == key for ready in stream.history) for key in last}
    programs = [StreamProgram(key, times[key], ready.fused, explain(ready.plan)) for key, ready in last.items()]
    planner = stream.fusion.planner
    return StreamExplanation(
        stream.fusion.name, stream.place, stream.pending, planner.flushes, planner.misses, tuple(programs)
    )
