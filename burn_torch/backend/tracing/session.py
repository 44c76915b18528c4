"""A tracing session: which stack stands for which while a function is traced.

A `Device` asks the session of its context for the stack to compute on: `Autodiff(LibTorch)` becomes a tape over the
leaf that writes the graph.  So what the function makes from a device (zeros, random numbers) is traced as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, final

from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.base import Backend
from burn_torch.backend.lazy import Fusion
from burn_torch.core.errors import TraceError, explain
from burn_torch.core.frames import user_line
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.value import Value

if TYPE_CHECKING:
    from burn_torch.backend.tracing.leaf import TraceLeaf

__all__ = ["Bound", "Session", "active", "suspended"]

_active: Final[ContextVar[Session | None]] = ContextVar("burn_torch tracing", default=None)


def active() -> Session | None:
    """The session that traces in this context; None in eager code (22 ns)."""
    return _active.get()


class Bound:
    """The source of an input that has one value for ever: data that a function made itself, a declared capture."""

    __slots__ = ("primitive",)

    def __init__(self, primitive: Any) -> None:
        self.primitive: Final = primitive


@final
class Session:
    """One tracing of one function over one real leaf.

    trace    where calls are written
    name_of  names a primitive from outside, for the error that refuses it
    sources  for each input of the graph, where its value comes from: whatever `input` was told
    """

    def __init__(
        self, real: Backend, trace: Trace | None = None, name_of: Callable[[Any], str | None] = lambda primitive: None
    ) -> None:
        from burn_torch.backend.tracing.leaf import TraceLeaf  # the leaf knows its session, the session its leaf

        self.real: Final = real
        self.trace: Final = Trace() if trace is None else trace
        self.name_of: Final = name_of
        self.leaf: Final[TraceLeaf] = TraceLeaf(self)
        self.sources: Final[list[Any]] = []
        self.bound: Final[dict[int, tuple[Any, Any]]] = {}
        """Inputs that always have one real primitive, by its identity: (primitive, slot)."""
        self.ended = False
        self._stacks: Final[dict[Backend, Backend]] = {real: self.leaf}
        self._tapes: Final[dict[tuple[int, str, bool], Autodiff]] = {}

    # -- stacks -----------------------------------------------------------------------------------
    def stack(self, real: Backend) -> Backend:
        """What stands for a real stack.  Raises: TraceError for one over another leaf."""
        found = self._stacks.get(real)
        if found is None:
            if isinstance(real, Fusion):
                return Fusion(self.stack(real.inner))
            if not isinstance(real, Autodiff):
                raise TraceError(
                    explain(
                        "a compiled function computes on one backend",
                        given=f"a device of {real.name} at {user_line(2) or 'an unknown line'}, in a function traced"
                        f" over {self.real.name}",
                        expected=f"devices of {self.real.name}",
                        mend="move the arguments to one backend before the call",
                    )
                )
            found = self._stacks[real] = self.autodiff(self.stack(real.inner), real.checkpoint, real.trains)
        return found

    def autodiff(self, inner: Backend, checkpoint: str, trains: bool) -> Autodiff:
        """The tape over a traced stack: equal stacks are one object here too."""
        key = (id(inner), checkpoint, trains)
        found = self._tapes.get(key)
        if found is None:
            found = self._tapes[key] = Autodiff.over(inner, checkpoint, trains=trains)
            found.session = self
            found.real = Autodiff(inner.real, checkpoint, trains=trains)
            self._stacks[found.real] = found
        return found

    def decorated(self, real: Backend, make: Callable[[], Backend]) -> Backend:
        """What stands for another decorator's real stack; made now if it is not there yet."""
        found = self._stacks.get(real)
        if found is None:
            found = self._stacks[real] = make()
            found.session, found.real = self, real
        return found

    # -- inputs and outputs --------------------------------------------------------------------------
    def input(self, spec: Spec, source: Any) -> Value:
        """Declares the next input of the graph; its value will come from `source`."""
        slot = self.trace.input(spec).primitive
        self.sources.append(source)
        return Value(self.leaf, slot, spec)

    def bind(self, primitive: Any, spec: TensorSpec, source: Bound | None = None) -> Any:
        """The slot of an input that always has this primitive; one input however often it is asked for."""
        found = self.bound.get(id(primitive))
        if found is None:
            slot = self.input(spec, source or Bound(primitive)).primitive
            found = self.bound[id(primitive)] = (primitive, slot)
        return found[1]

    def graph(self, outputs: Sequence[Any]) -> Graph:
        """What was written, with these slots (or None) as outputs."""
        return self.trace.graph([None if slot is None else Value(self.leaf, slot, None) for slot in outputs])

    @contextmanager
    def opened(self) -> Iterator[Session]:
        """Devices of this context compute on the trace until the block ends; then its values are dead."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)
            self.ended = True


@contextmanager
def suspended() -> Iterator[None]:
    """Devices of this context compute until the block ends, also while a function is traced."""
    token = _active.set(None)
    try:
        yield
    finally:
        _active.reset(token)
