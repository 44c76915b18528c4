"""The tapes that running transforms have laid over the stacks of their arguments, of the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["laid", "laid_tapes"]


class _Laid(threading.local):
    def __init__(self) -> None:
        self.tapes: list[Any] = []


_laid: Final = _Laid()


@contextmanager
def laid(tape: Any) -> Iterator[None]:
    """A block in which values of a device are also values on `tape`, which no device names."""
    _laid.tapes.append(tape)
    try:
        yield
    finally:
        _laid.tapes.pop()


def laid_tapes() -> Sequence[Any]:
    """The tapes of the blocks that the calling thread is in, the innermost last."""
    return _laid.tapes
