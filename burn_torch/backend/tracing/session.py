"""A tracing session: which stack stands for which while a function is traced.

A `Device` asks the session of its context for the stack to compute on: `Autodiff(LibTorch)` becomes a tape over the
leaf that writes the graph.  So what the function makes from a device (zeros, random numbers) is traced as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn, final

from burn_torch.backend.base import Backend
from burn_torch.backend.decorator import Decorator, leaf_primitive
from burn_torch.core.data import TensorData
from burn_torch.core.errors import TraceError
from burn_torch.core.frames import user_line
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import Call
from burn_torch.ops.value import Executor, Primitive, Value

__all__ = ["Bound", "Session", "TraceLeaf", "active", "suspended"]

_active: Final[ContextVar[Session | None]] = ContextVar("burn_torch tracing", default=None)


def active() -> Session | None:
    """The session that traces in this context; None in eager code (22 ns)."""
    return _active.get()


class Bound:
    """The source of an input that has one value for ever: data that a function made itself, a declared capture."""

    __slots__ = ("primitive",)

    def __init__(self, primitive: object) -> None:
        self.primitive: Final = primitive


@final
class Session:
    """One tracing of one function over one real leaf.

    trace    where calls are written
    name_of  names a primitive from outside, for the error that refuses it
    sources  for each input of the graph, where its value comes from: whatever `input` was told
    lenient  whether a tensor from outside is taken as a constant, with its data; else it is refused
    """

    def __init__(
        self,
        real: Backend,
        trace: Trace | None = None,
        name_of: Callable[[Any], str | None] = lambda primitive: None,
        *,
        lenient: bool = False,
    ) -> None:
        self.real: Final = real
        self.trace: Final = Trace() if trace is None else trace
        self.name_of: Final = name_of
        self.lenient: Final = lenient
        self.leaf: Final[TraceLeaf] = TraceLeaf(self)
        self.sources: Final[list[object]] = []
        self.bound: Final[dict[int, tuple[object, object]]] = {}
        """Inputs that always have one real primitive, by its identity: (primitive, slot)."""
        self.ended = False
        self._stacks: Final[dict[Backend, Backend]] = {real: self.leaf}

    # -- stacks -----------------------------------------------------------------------------------
    def stack(self, real: Backend) -> Backend:
        """Returns the stack that stands for a real one.  Raises: TraceError for one over another leaf."""
        stack = self._stacks.get(real)
        if stack is None:
            if not isinstance(real, Decorator):
                raise TraceError(
                    "a compiled function computes on one backend",
                    given=f"a device of {real.name} at {user_line(2) or 'an unknown line'}, in a function traced"
                    f" over {self.real.name}",
                    expected=f"devices of {self.real.name}",
                    mend="move the arguments to one backend before the call",
                )
            stack = self._stacks[real] = real.onto(self.stack(real.inner))
        return stack

    def decorated(self, real: Backend, make: Callable[[], Backend]) -> Backend:
        """Returns the stack that stands for a decorator's real one: equal stacks are one object here too."""
        stack = self._stacks.get(real)
        if stack is None:
            stack = self._stacks[real] = make()
            stack.session, stack.real = self, real
        return stack

    # -- inputs and outputs --------------------------------------------------------------------------
    def input(self, spec: Spec, source: object) -> Value:
        """Declares the next input of the graph; its value will come from `source`."""
        slot = self.trace.input(spec).primitive
        self.sources.append(source)
        return Value(self.leaf, slot, spec)

    def bind(self, primitive: object, spec: TensorSpec, source: Bound | None = None) -> Primitive:
        """The slot of an input that always has this primitive; one input however often it is asked for."""
        entry = self.bound.get(id(primitive))
        if entry is None:
            slot = self.input(spec, source or Bound(primitive)).primitive
            entry = self.bound[id(primitive)] = (primitive, slot)
        return entry[1]

    def graph(self, outputs: Sequence[object]) -> Graph:
        """Returns the graph of what was written, with these slots (or None) as outputs."""
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


@final
class TraceLeaf(Backend):
    """A Trace as a backend.  Its primitives are slots; it belongs to one session and dies with it."""

    name: Final = "Trace"
    lasting = False
    version_expression: Final = "0"
    """A slot has no memory that could be written to."""

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.real: Backend = session.real
        self.origins: Final = session.trace.origins
        self._write: Final = session.trace.execute

    def execute(self, call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
        """Appends the Call to the graph.  Raises: TraceError once the session has ended."""
        if self.session.ended:
            raise _escaped_error(f"in {call.op.name}")
        return self._write(call, inputs)

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Primitive]]:
        """A function that appends the nodes of another graph."""
        return self.session.trace.compile(graph)

    def from_data(self, data: TensorData, place: str) -> Primitive:
        """Data that the function makes itself: a constant of the program, copied to the device once."""
        return self.session.bind(self.real.from_data(data, place), TensorSpec.of(data.shape, data.dtype, place))

    def into_data(self, primitive: Primitive) -> NoReturn:
        """Refuses: there is no data yet."""
        if self.session.ended:
            raise _escaped_error("when it was read")
        raise TraceError(
            "a value was read while its function was traced",
            given=f"at {user_line(2) or 'an unknown line'}",
            expected="operations on tensors: a compiled function runs once without data, to be written down",
            mend="return the tensor and read it outside, choose by value with mask_where, or leave this step"
            " uncompiled",
        )

    def lift(self, primitive: Primitive, source: Executor) -> Primitive:
        """Refuses a tensor from outside, by its name, unless the session is lenient."""
        if source is self:
            return primitive
        if self.session.ended:
            raise _escaped_error("beside a tensor")
        own = leaf_primitive(source, primitive)
        entry = self.session.bound.get(id(own))
        if entry is not None:
            return entry[1]
        session = getattr(source, "session", None)
        if session is not None:
            raise _escaped_error("in another trace")
        if self.session.lenient and isinstance(source, Backend):
            data, spec = source.into_data(primitive), source.spec(primitive)
            return self.session.bind(own, spec, Bound(self.real.from_data(data, spec.place)))
        name = self.session.name_of(primitive)
        raise TraceError(
            "a compiled function used a tensor that is not among its arguments",
            given=f"{'a tensor' if name is None else name} {source.spec(primitive)},"
            f" at {user_line(2) or 'an unknown line'}",
            expected="tensors that come as arguments, or that the function makes itself",
            mend="pass it as an argument, or declare it: compile(fn, captures=[tensor])"
            if name is not None or not self.session.bound
            else "pass what it is computed from as arguments: captures may stand beside arguments only",
        )

    def spec(self, primitive: Primitive) -> TensorSpec:
        """Refuses: a shape that depends on data is unknown."""
        return self.session.trace.spec(primitive)

    def sync(self, place: str) -> None:
        """Nothing is submitted while tracing."""

    def copy(self, primitive: Primitive) -> Primitive:
        """The slot itself: values of a graph share nothing."""
        return primitive


def _escaped_error(where: str) -> TraceError:
    return TraceError(
        "a value of a traced function was used after the tracing had ended",
        given=f"it was kept outside, and used {where}, at {user_line(3) or 'an unknown line'}",
        expected="values that leave a compiled function as its results",
        mend="return the tensor from the function instead of storing it in a list or an attribute",
    )
