"""Watching a process: all functions that it compiles, for `burn-torch explain SCRIPT`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from burn_torch.transform.compilation import watchers
from burn_torch.transform.explanation import Explanation, explained
from burn_torch.transform.program import Program
from burn_torch.transform.retrace import Retrace

__all__ = ["watched_programs"]


@contextmanager
def watched_programs() -> Iterator[Callable[[], list[Explanation]]]:
    """Gives a function that explains each program that was compiled in the block so far, whoever compiled it."""
    programs: list[tuple[str, Program, Retrace]] = []
    watchers.append(programs)
    try:
        yield lambda: [explained(name, program, (retrace,)) for name, program, retrace in programs]
    finally:
        watchers.remove(programs)
