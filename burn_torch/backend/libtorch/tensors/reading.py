"""Reading values of a GPU from another thread while it goes on computing."""

from __future__ import annotations

from types import TracebackType
from typing import Final, final

import torch

__all__ = ["CudaReading"]


@final
class CudaReading:
    """A block in which this thread's copies to the host run on a stream of their own.

    They wait for what was submitted to the present stream when this was made, and for nothing later: the stream that
    computes is never stopped.  A copy to the host waits for its end, so no value is given back before it is read.
    """

    def __init__(self, place: str) -> None:
        self._device: Final = torch.device(place)
        with torch.cuda.device(self._device):
            self._submitted: Final = torch.cuda.Event()
            self._submitted.record()
        self._block: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        stream = torch.cuda.Stream(self._device)
        stream.wait_event(self._submitted)
        self._block = torch.cuda.stream(stream)
        self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None
        self._block.__exit__(kind, error, trace)
