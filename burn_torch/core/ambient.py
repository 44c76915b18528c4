"""The keys of random operations that are called without one.

A random operation draws from (key, stream): the key says which run of random numbers, the stream which part of it.
A step scope installs a source for its thread; outside any scope the thread's default source counts streams from the
seed.  Nothing here draws numbers.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, final

from burn_torch.core.errors import DTypeError
from burn_torch.core.frames import told
from burn_torch.core.share import Share

__all__ = ["KeySource", "default_key", "first_element", "innermost", "installed", "next_key", "seed"]

_THREAD_SHIFT: Final = 40
"""A thread may draw 2^40 times before its streams meet those of the next thread; streams stay below 2^63."""

_KEY_MASK: Final = (1 << 64) - 1


class KeySource(Protocol):
    """A source that a scope installs: it names the stream of each draw."""

    def next_key(self) -> tuple[int, int]:
        """A 64-bit key and a stream that no draw under this key has had."""


@final
class _Default:
    """The source of a thread without a scope: one key, and a stream of its own for each draw."""

    def __init__(self, key: int, thread: int, generation: int) -> None:
        self.generation: Final = generation
        self._key: Final = key
        self._streams: Final = itertools.count(thread << _THREAD_SHIFT)

    def next_key(self) -> tuple[int, int]:
        return self._key, next(self._streams)


class _State(threading.local):
    def __init__(self) -> None:
        self.sources: list[KeySource] = []
        self.default: _Default | None = None


_state: Final = _State()
_lock: Final = threading.Lock()
_seeded: tuple[int, int] = (0, 0)  # the key, and how often `seed` was called
_other_threads = itertools.count(1)


def seed(number: int) -> None:
    """Starts the default source of every thread again, with this 64-bit key.

    The main thread draws the same numbers after the same seed.  Other threads are numbered by their first draw after
    it, so that no two threads draw the same; a scope gives a thread numbers that do not depend on the others.
    """
    global _seeded, _other_threads
    try:
        key = operator.index(number) & _KEY_MASK
    except TypeError:
        raise told(
            DTypeError,
            "a seed is a whole number",
            given=f"{number!r} ({type(number).__name__})",
            expected="an int; its lowest 64 bits count",
            mend="pass an int, for example burn_torch.seed(42)",
        ) from None
    with _lock:
        _seeded = (key, _seeded[1] + 1)
        _other_threads = itertools.count(1)


def next_key() -> tuple[int, int]:
    """The (key, stream) of the next draw: of the innermost scope of this thread, else of its default source."""
    return _state.sources[-1].next_key() if _state.sources else default_key()


def default_key() -> tuple[int, int]:
    """The (key, stream) of the next draw of this thread outside any scope."""
    default = _state.default
    if default is None or default.generation != _seeded[1]:
        with _lock:
            key, generation = _seeded
            thread = 0 if threading.current_thread() is threading.main_thread() else next(_other_threads)
            default = _state.default = _Default(key, thread, generation)
    return default.next_key()


def first_element(shape: Sequence[int]) -> int:
    """The `start` of a draw of this shape: not 0 where this thread's step has a share of a larger batch."""
    if not _state.sources:
        return 0
    share: Share | None = getattr(_state.sources[-1], "share", None)
    return 0 if share is None else share.first_element(shape)


def innermost() -> KeySource | None:
    """The source that `installed` put in place last on this thread; None outside any scope."""
    return _state.sources[-1] if _state.sources else None


@contextmanager
def installed(source: KeySource) -> Iterator[None]:
    """Draws of this thread take their keys from `source` until the block ends.  Blocks nest."""
    _state.sources.append(source)
    try:
        yield
    finally:
        _state.sources.pop()
