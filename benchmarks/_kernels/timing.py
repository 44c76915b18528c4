"""How calls are timed: in turns, from a cold cache, between two events on the device; on a CPU, between two clocks."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Call", "Timer", "captured", "peak_mib"]

Call = Callable[[], Any]


class _Moment:
    """What an event is, on a machine without a GPU."""

    at_s = 0.0

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def elapsed_time(self, later: _Moment) -> float:
        return 1e3 * (later.at_s - self.at_s)


def _event(device: str) -> Any:
    if device == "cpu":
        return _Moment()
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch is not typed there


class Timer:
    """Times calls in turns, each after the L2 cache was overwritten."""

    def __init__(self, rounds: int, device: str) -> None:
        self.rounds, self.device = rounds, device
        self.flush = torch.empty(1 if device == "cpu" else 128 << 20, dtype=torch.int32, device=device)

    def __call__(self, calls: dict[str, Call], rounds: int = 0) -> dict[str, list[float]]:
        """Milliseconds of each round by variant."""
        events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
        for number in range(rounds or self.rounds):
            for name in list(calls) if number % 2 else reversed(list(calls)):
                start, end = _event(self.device), _event(self.device)
                self.flush.zero_()
                start.record()
                calls[name]()
                end.record()
                events[name].append((start, end))
        if self.device != "cpu":
            torch.cuda.synchronize()
        return {name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()}


def captured(call: Call, device: str) -> Call:
    """The call as a CUDA graph, or itself where it cannot be captured."""
    if device == "cpu":
        return call
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch is not typed there
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = call()
    except RuntimeError as error:
        print(f"    not captured, so host time counts: {str(error).splitlines()[0]}")
        torch.cuda.synchronize()
        return call

    def replay(graph: Any = graph, kept: Any = kept) -> None:
        graph.replay()

    return replay


def peak_mib(call: Call, device: str) -> float:
    """What a call allocates at most, beyond what was there; 0 on a CPU, where torch does not count."""
    if device == "cpu":
        return 0.0
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del kept
    return (peak - before) / 2**20
