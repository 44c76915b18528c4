"""What a phase's process needs beside its environment: its doors, and what is set while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.doors import DOORS, Door

__all__ = ["doors_of", "opened"]


def doors_of(phase: str) -> tuple[Door, ...]:
    """The doors of a phase."""
    return DOORS


@contextmanager
def opened(phase: str) -> Iterator[None]:
    """A block in which the doors of a phase run."""
    import torch

    torch.set_num_threads(1)  # programs are small, and processes run side by side
    yield
