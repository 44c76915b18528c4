"""`capture` as the leaf calls it: parts of a recorded program are programs of LibTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.recorded import capture as recorded
from burn_torch.graph import Graph

__all__ = ["capture"]


def compile_part(graph: Graph, donate: Collection[int]) -> Callable[..., Sequence[Any]]:
    return LibTorch().program(graph, donate, title="A recorded part").run


def capture(graph: Graph, donate: Collection[int] = (), **options: Any) -> recorded.CapturedProgram:
    return recorded.capture(graph, donate, **{"compile": compile_part, **options})
