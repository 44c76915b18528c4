"""Watching a process: all that its streams compute, for `burn-torch explain SCRIPT`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from burn_torch.backend.lazy.decorator import streams_of_this_thread
from burn_torch.backend.lazy.stream import KEPT, Stream, watchers

__all__ = ["watched_streams"]


@contextmanager
def watched_streams() -> Iterator[list[Stream]]:
    """The streams of the block: this thread's, and those that any thread begins; each keeps its whole history."""
    streams: list[Stream] = []
    for stream in streams_of_this_thread():
        stream.flush()
        stream.history = deque()
        streams.append(stream)
    watchers.append(streams)
    try:
        yield streams
    finally:
        watchers.remove(streams)
        for stream in streams:
            stream.history = deque(stream.history, maxlen=KEPT)
