"""Time on a GPU: one call at a time, on a stream of its own, with cold caches, between two events of the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

__all__ = ["Clock", "GpuClock"]


class Clock(Protocol):
    """What a tuner times with; tests have one that only counts."""

    device: torch.device
    """Where inputs are drawn."""

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """How long one call takes, inputs and outputs not in any cache."""

    def settle(self) -> None:
        """Waits for all that was launched; raises what a kernel did wrong."""

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """A block whose work goes to the clock's own stream."""

    def spare_bytes(self) -> int:
        """Memory that a measurement may take."""


class GpuClock:
    """The clock of one GPU.

    stream  where calls are timed; one of its own, unless given.  torch keeps a workspace of 32 MiB for the products of
            each stream, for good: who times products with many clocks gives one that has it
    """

    def __init__(self, index: int, stream: Any = None) -> None:
        self.index, self.device = index, torch.device("cuda", index)
        with torch.cuda.device(index):
            self._stream: Any = torch.cuda.Stream() if stream is None else stream
            cache = getattr(torch.cuda.get_device_properties(index), "L2_cache_size", 0) or 64 << 20
            with torch.cuda.stream(self._stream):
                # twice the cache, so that nothing of it survives
                self._sweep = torch.empty(2 * cache // 4, dtype=torch.int32, device=f"cuda:{index}")

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """How long one call takes on the device."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.aside():
            # four sweeps: while they run the host gets ahead, so that its own time is not between the two events
            for _ in range(4):
                self._sweep.zero_()
            start.record()
            call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end))

    def settle(self) -> None:
        """Waits for the device."""
        torch.cuda.synchronize(self.index)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work inside goes to the clock's stream, and the caller's stream is left as it was."""
        with torch.cuda.device(self.index), torch.cuda.stream(self._stream):
            yield

    def spare_bytes(self) -> int:
        """Half of what is free, or held by torch for nothing: another tenant of the device may want some."""
        free, _ = torch.cuda.mem_get_info(self.index)
        held = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        return (free + held) // 2
