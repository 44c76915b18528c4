"""Time on a GPU: one call at a time, on a stream of its own, with cold caches, between two events of the device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

__all__ = ["Clock", "GpuClock"]

LEAST_SWEEPS, MOST_SWEEPS = 4, 128
"""Writes to the cache before a call: each takes some 30 us on an H200."""
COMPILING_S = 0.02
"""A call that keeps the host so long compiles, or does not launch only: no number of sweeps would cover it."""


class Clock(Protocol):
    """The clock of a tuner; tests have one that only counts."""

    device: torch.device
    """The device on which inputs are drawn."""

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
        self._sweeps = LEAST_SWEEPS

    def milliseconds(self, call: Callable[[], object]) -> float:
        """How long one call takes on the device.

        While the device sweeps the cache the host gets ahead, so that its own time is not between the two events.
        Where the device was quicker (a busy host, a call of many launches) it is done again after more sweeps.
        """
        while True:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with self.aside():
                for _ in range(self._sweeps):
                    self._sweep.zero_()
                start.record()
                began = time.perf_counter()
                call()
                took_s = time.perf_counter() - began
                end.record()
                waited = bool(start.query())
                end.synchronize()
            if not waited or took_s > COMPILING_S or self._sweeps >= MOST_SWEEPS:
                return float(start.elapsed_time(end))
            self._sweeps *= 2

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
