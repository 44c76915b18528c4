"""The run that a thread works for, so that runs in several threads of one process do not hear each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["belonging", "carried", "hearing"]

_RUN: Final[ContextVar[object | None]] = ContextVar("burn_torch_run", default=None)


@contextmanager
def belonging() -> Iterator[None]:
    """Until the block ends, this thread works for a run of its own."""
    with _working_for(object()):
        yield


@contextmanager
def _working_for(run: object | None) -> Iterator[None]:
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def carried(work: Callable[..., object]) -> Callable[..., Any]:
    """The same work, for another thread: it belongs to the run of the thread that asks."""
    run = _RUN.get()

    def carrying(*given: object) -> object:
        with _working_for(run):
            return work(*given)

    return carrying


def hearing() -> Callable[[], bool]:
    """For a listener of the run that this thread works for: whether what happens, where it is called, concerns it.

    The work of a thread without a run concerns every run; and a listener that none has hears all.
    """
    own = _RUN.get()

    def concerns() -> bool:
        return own is None or _RUN.get() in (None, own)

    return concerns
