"""Making numbered things ahead of their use: in the caller's thread, or in several threads, in order all the same."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from burn_torch.core.belonging import carried

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

AHEAD = 2  # finished things a worker may be ahead of the reader: one being read, one ready; more only costs memory


class Source(Protocol[T_co]):
    """Gives thing after thing, by number."""

    def take(self, number: int) -> T_co:
        """The next thing; numbers come in order."""

    def close(self) -> None:
        """Ends what was begun; further calls do nothing."""


class Serial(Generic[T]):
    """Makes each thing when it is taken."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make

    def take(self, number: int) -> T:
        """Makes the thing."""
        return self._make(number)

    def close(self) -> None:
        """Nothing was begun."""


class _Made(NamedTuple, Generic[T]):
    thing: T | None
    error: BaseException | None


class Threaded(Generic[T]):
    """Makes the things `first` to `end` in several threads, which wait when they are too far ahead of the reader.

    The threads hold no reference to this object: when nobody holds it any more, or at the end of the program, they are
    told to stop and are waited for.
    """

    def __init__(self, make: Callable[[int], T], first: int, end: int, workers: int) -> None:
        self._shared = _Shared[T](first, end, window=AHEAD * workers)
        self._threads: list[threading.Thread] = []
        self._finalizer = weakref.finalize(self, _stop, self._shared, self._threads)
        for number in range(min(workers, end - first)):
            # daemons, since the interpreter waits for other threads before it runs the finalizer that stops them
            name = f"burn-torch-loader-{number}"
            work = carried(_work)  # what a worker logs belongs to the run that reads
            thread = threading.Thread(target=work, args=(self._shared, make), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def take(self, number: int) -> T:
        """Waits for the thing; raises what its making raised, with the traceback of the thread."""
        outcome = self._shared.take(number)
        if outcome.error is not None:
            try:
                raise outcome.error
            finally:
                del outcome  # the traceback holds this frame: without this line a cycle would keep both alive
        return outcome.thing  # type: ignore[return-value]  # None only if T has None

    def close(self) -> None:
        """Stops the threads and waits for them."""
        self._finalizer()


class _Shared(Generic[T]):
    """Holds what the reader and the threads both see, under one lock."""

    def __init__(self, first: int, end: int, window: int) -> None:
        self._changed = threading.Condition()
        self._made: dict[int, _Made[T]] = {}
        self._claimed = self._taken = first
        self._end = end
        self._window = window

    def claim(self) -> int | None:
        """The next number to make, once there is room for it; None when there is no more work."""
        with self._changed:
            self._changed.wait_for(lambda: self._claimed >= self._end or self._claimed < self._taken + self._window)
            if self._claimed >= self._end:
                return None
            self._claimed += 1
            return self._claimed - 1

    def put(self, number: int, outcome: _Made[T]) -> None:
        """Hands in what was made."""
        with self._changed:
            self._made[number] = outcome
            self._changed.notify_all()

    def take(self, number: int) -> _Made[T]:
        """Waits for a number and makes room for another; after a stop from another thread there may be none."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._made or number >= self._end)
            if number not in self._made:
                return _Made(None, StopIteration())
            self._taken = number + 1
            self._changed.notify_all()
            return self._made.pop(number)

    def stop(self) -> None:
        """Lets no thread claim anything more."""
        with self._changed:
            self._end = self._claimed
            self._changed.notify_all()


def _work(shared: _Shared[T], make: Callable[[int], T]) -> None:
    while (number := shared.claim()) is not None:
        try:
            outcome = _Made[T](make(number), None)
        except BaseException as error:  # whatever it is, the reader must hear of it
            outcome = _Made[T](None, error)
        shared.put(number, outcome)
        del outcome  # while it waits for the next number it must not keep a batch alive


def _stop(shared: _Shared[T], threads: list[threading.Thread]) -> None:
    shared.stop()
    for thread in threads:
        if thread is not threading.current_thread():  # the garbage collector may run this in any thread
            thread.join()
