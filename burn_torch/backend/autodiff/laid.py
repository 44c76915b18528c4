"""The tapes on which running transforms record, of the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from burn_torch.backend.autodiff.tape import next_id
from burn_torch.ops.value import Primitive

__all__ = ["Laid", "is_recorded", "laid", "levels", "resumed", "running"]


class Laid(NamedTuple):
    """One running transform: its tape, and whether it was laid for the transform alone, so that no device names it.

    Nodes from `since` on are its own; those before `begun` are the leaves that it differentiates.
    """

    tape: Any
    own: bool
    since: int
    begun: int


class _Running(threading.local):
    def __init__(self) -> None:
        self.transforms: list[Laid] = []


_running: Final = _Running()


@contextmanager
def laid(tape: object, since: int, *, own: bool = True) -> Iterator[None]:
    """A block in which a transform records on a tape, after it has made its leaves there."""
    _running.transforms.append(Laid(tape, own, since, next_id()))
    try:
        yield
    finally:
        _running.transforms.pop()


@contextmanager
def resumed(transforms: Sequence[Laid]) -> Iterator[None]:
    """A block that computes as if these transforms ran, and no others."""
    before, _running.transforms = _running.transforms, list(transforms)
    try:
        yield
    finally:
        _running.transforms = before


def running() -> Sequence[Laid]:
    """The transforms that the calling thread is in, the innermost last."""
    return _running.transforms


def is_recorded(stack: Any, primitive: Primitive) -> bool:
    """Asks whether a running transform differentiates a primitive of a stack, or a value it comes from."""
    if not _running.transforms:
        return False
    while getattr(stack, "is_batched", False):  # the tape lies under the samples
        stack, primitive = stack.inner, primitive.primitive if stack.is_many(primitive) else primitive
    if not getattr(stack, "is_autodiff", False) or not stack.is_tracked(primitive):
        return False
    node = primitive.node
    return any(
        since <= node.id and (node.entry is not None or node.id < begun) and _records(tape, own, stack)
        for tape, own, since, begun in _running.transforms
    )


def _records(tape: Any, own: bool, stack: Any) -> bool:
    """Asks whether it is a transform's tape, or its counterpart on the device that a value moved to."""
    return stack is tape or (levels(stack) == levels(tape) and (not own or stack.trains == tape.trains))


def levels(stack: Any) -> int:
    """How many tapes stand on a stack."""
    count = 0
    while getattr(stack, "is_autodiff", False):
        count, stack = count + 1, stack.inner
    return count
