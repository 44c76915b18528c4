"""The stacks on which running transforms compute many samples at once, of the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from burn_torch.backend.base import Backend

__all__ = ["RUNNING", "Randomness", "computing", "computing_below", "drawing_stack", "running_samples"]

Randomness: TypeAlias = Literal["error", "different", "same"]
"""Says how random rows draw: an error, numbers for each sample, the same numbers for all samples."""


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.stacks: list[Backend] = []


RUNNING: Final = _Stacks()
"""`RUNNING.stacks` is what `running_samples` gives, for callers that cannot spend a call."""


@contextmanager
def computing(stack: Backend) -> Iterator[None]:
    """A block in which this thread computes many samples on a stack."""
    RUNNING.stacks.append(stack)
    try:
        yield
    finally:
        RUNNING.stacks.pop()


@contextmanager
def computing_below(stack: Backend) -> Iterator[None]:
    """A block in which only stacks below this one count as running: it computes for all samples of this one."""
    before, RUNNING.stacks = RUNNING.stacks, [running for running in RUNNING.stacks if running.depth < stack.depth]
    try:
        yield
    finally:
        RUNNING.stacks = before


def running_samples() -> Sequence[Backend]:
    """The stacks on which the calling thread computes many samples, the innermost last."""
    return RUNNING.stacks


def drawing_stack(stack: Backend) -> Backend:
    """The stack on which a function draws that names a device itself: inside of `vmap` that of its samples."""
    for running in reversed(RUNNING.stacks):
        if running.depth > stack.depth and running.leaf() is stack.leaf():
            return running
    return stack
