"""Batched: a decorator whose values stand for many samples, each of the shape that the function sees.

A function of one sample, run once over `Batched(B)`, computes all samples on B.  Values that all samples share (the
parameters) are B's own; what comes from a sample has the samples on a further axis in front, in the inner primitive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, final

from burn_torch.backend.batched.derive import vectorised
from burn_torch.backend.decorator import Decorator, detached
from burn_torch.backend.samples import Randomness, computing
from burn_torch.core.errors import ArgumentError, TraceError
from burn_torch.core.frames import user_line
from burn_torch.ops.batching import refuse_mixing
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["Batched", "Many"]

_PLANS: Final = 4096
_lock: Final = threading.Lock()

Plan = tuple[Callable[..., Sequence[Primitive]], tuple[str, ...]]


class Many:
    """A primitive of Batched that differs from sample to sample.  Each Batched has a subclass of its own."""

    __slots__ = ("primitive",)

    def __init__(self, primitive: object) -> None:
        self.primitive = primitive

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse_reading()


class _Setting(NamedTuple):
    """How many samples are computed, and how.

    is_split  whether the samples are the items of one batch, so that rows which mix items are refused
    """

    n: int
    randomness: Randomness
    is_split: bool


class _Running(threading.local):
    def __init__(self) -> None:
        self.settings: list[_Setting] = []
        self.looped: dict[str, None] = {}


@final
class Batched(Decorator):
    """Many samples at once.  Over a stack that lasts, `Batched(inner)` is always the same object."""

    is_batched = True
    many: type[Many]

    def _begin(self) -> None:
        self.many = type("Many", (Many,), {"__slots__": ()})
        self._plans = {}
        self._running = _Running()

    _plans: dict[tuple[Call, int, _Setting], Plan]
    _running: _Running

    # -- samples --------------------------------------------------------------------------
    @contextmanager
    def samples(
        self, count: int, randomness: Randomness = "different", *, is_split: bool = False
    ) -> Iterator[dict[str, None]]:
        """Computes many samples on this thread until the block ends; gives the names of rows that were looped over."""
        running = self._running
        before, running.looped = running.looped, {}
        running.settings.append(_Setting(count, randomness, is_split))
        try:
            with computing(self):
                yield running.looped
        finally:
            running.settings.pop()
            running.looped = before

    def how(self) -> tuple[int, Randomness]:
        """How many samples this thread computes, and how they draw."""
        setting = self._running.settings[-1]
        return setting.n, setting.randomness

    def resuming(self) -> Callable[[], AbstractContextManager[object]]:
        """A function that gives blocks which compute as many samples as now, in the same way."""
        settings = self._running.settings
        if not settings:
            return nullcontext
        return partial(self.samples, settings[-1].n, settings[-1].randomness, is_split=settings[-1].is_split)

    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Primitive]:
        """Computes all samples on the inner backend; once, if no input differs between them."""
        kind = self.many
        bits = 0
        bit = 1
        for x in inputs:
            if x.__class__ is kind:
                bits |= bit
            bit <<= 1
        settings = self._running.settings
        if not settings or not (bits or (call.op.random and settings[-1].randomness != "same")):
            return self.inner.execute(call, inputs)
        run, looped = self._plans.get((call, bits, settings[-1])) or self._plan(call, bits, settings[-1])
        if looped:
            self._running.looped.update(dict.fromkeys(looped))
        operands = [x.primitive if x.__class__ is kind else x for x in inputs if x is not None]
        return [None if y is None else kind(y) for y in run(*operands)]

    def _plan(self, call: Call, bits: int, setting: _Setting) -> Plan:
        if call.op.barrier:
            raise TraceError(
                f"{call.op.name}: its shape would differ from sample to sample",
                given=f"{call} in a function of one sample, at {user_line(2) or 'an unknown line'}",
                expected="operations whose result shape follows from the shapes of their inputs",
                mend="choose by value with mask_where, which keeps the shape",
            )
        if call.op.random and setting.randomness == "error":
            raise ArgumentError(
                f"{call.op.name}: vmap was not told how samples draw",
                given=f'{call} at {user_line(2) or "an unknown line"}, in a vmap with randomness="error"',
                expected='randomness="different", numbers for each sample, or "same", one draw for all of them',
                mend='vmap(fn, randomness="different")',
            )
        many = [bool(bits >> i & 1) for i in range(len(call.specs))]
        if setting.is_split and any(many):
            refuse_mixing(call, setting.n)
        derived = vectorised(call, many, setting.n, draws=setting.randomness != "same")
        plan = (self.inner.compile(derived.graph), derived.looped)
        if self.lasting:
            with _lock:
                if len(self._plans) >= _PLANS:
                    for old in list(self._plans)[: _PLANS // 2]:
                        del self._plans[old]
        self._plans[call, bits, setting] = plan
        return plan

    def wrap(self, primitive: object) -> Many:
        """An inner primitive with the samples on its first axis as a value of one sample."""
        return self.many(primitive)

    def is_many(self, primitive: object) -> bool:
        """Asks whether it differs from sample to sample."""
        return primitive.__class__ is self.many

    # -- values that all samples share are the inner backend's; of others some questions have no answer ----------
    def unwrapped(self, primitive: Primitive) -> Any:
        """A value that all samples share.  Raises: TraceError for another."""
        if primitive.__class__ is self.many:
            _refuse_reading()
        return primitive

    def copy(self, primitive: object) -> Primitive:
        """An untracked copy."""
        if primitive.__class__ is self.many:
            return self.many(self.inner.copy(primitive.primitive))
        return self.inner.copy(primitive)

    def detached(self, primitive: Primitive) -> Primitive:
        """The value without the tapes beneath."""
        if primitive.__class__ is not self.many:
            return detached(self.inner, primitive)
        constant = detached(self.inner, primitive.primitive)
        return primitive if constant is primitive.primitive else self.many(constant)

    def version(self, primitive: object) -> int:
        """The inner backend's count of outside writes."""
        return self.inner.version(primitive.primitive if primitive.__class__ is self.many else primitive)


def _refuse_reading() -> NoReturn:
    raise TraceError(
        "a value was read in a function that computes many samples at once",
        given=f"at {user_line(3) or 'an unknown line'}",
        expected="operations on tensors: the value differs from sample to sample",
        mend="choose by value with mask_where, or return the tensor as has_aux and read it outside",
    )
