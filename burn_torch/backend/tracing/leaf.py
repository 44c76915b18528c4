"""TraceLeaf: a leaf that writes what it is told to compute into the graph of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from burn_torch.backend.autodiff.tape import Tracked
from burn_torch.backend.base import Backend
from burn_torch.backend.lazy.stream import Lazy
from burn_torch.core.data import TensorData
from burn_torch.core.errors import TraceError, explain
from burn_torch.core.frames import user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.value import Executor

if TYPE_CHECKING:
    from burn_torch.backend.tracing.session import Session

__all__ = ["TraceLeaf"]


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

    def execute(self, call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
        """Appends the Call to the graph.  Raises: TraceError once the session has ended."""
        if self.session.ended:
            raise _escaped(f"in {call.op.name}")
        return self._write(call, inputs)

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Any]]:
        """A function that appends the nodes of another graph."""
        return self.session.trace.compile(graph)

    def from_data(self, data: TensorData, place: str) -> Any:
        """Data that the function makes itself: a constant of the program, copied to the device once."""
        return self.session.bind(self.real.from_data(data, place), TensorSpec.of(data.shape, data.dtype, place))

    def into_data(self, primitive: Any) -> NoReturn:
        """Refuses: there is no data yet."""
        if self.session.ended:
            raise _escaped("when it was read")
        raise TraceError(
            explain(
                "a value was read while its function was traced",
                given=f"at {user_line(2) or 'an unknown line'}",
                expected="operations on tensors: a compiled function runs once without data, to be written down",
                mend="return the tensor and read it outside, choose by value with mask_where, or leave this step"
                " uncompiled",
            )
        )

    def lift(self, primitive: Any, source: Executor) -> Any:
        """Refuses a tensor from outside, by its name."""
        if source is self:
            return primitive
        if self.session.ended:
            raise _escaped("beside a tensor")
        held = primitive
        while isinstance(held, Tracked):
            held = held.primitive
        if isinstance(held, Lazy):
            held = held.segment.stream.fusion.settled(held)
        found = self.session.bound.get(id(held))
        if found is not None:
            return found[1]
        session = getattr(source, "session", None)
        if session is not None:
            raise _escaped("in another trace")
        name = self.session.name_of(primitive)
        raise TraceError(
            explain(
                "a compiled function used a tensor that is not among its arguments",
                given=f"{'a tensor' if name is None else name} {source.spec(primitive)},"
                f" at {user_line(2) or 'an unknown line'}",
                expected="tensors that come as arguments, or that the function makes itself",
                mend="pass it as an argument, or declare it: compile(fn, captures=[tensor])"
                if name is not None or not self.session.bound
                else "pass what it is computed from as arguments: captures may stand beside arguments only",
            )
        )

    def spec(self, primitive: Any) -> TensorSpec:
        """Refuses: a shape that depends on data is unknown."""
        return self.session.trace.spec(primitive)

    def sync(self, place: str) -> None:
        """Nothing is submitted while tracing."""

    def move(self, primitive: Any, spec: TensorSpec, place: str) -> Any:
        """The value at another place, as an operation of the graph."""
        if spec.place == place:
            return primitive
        call = REGISTRY["to_place"].bind([spec], {"place": place})
        return self.execute(call, [primitive])[0]

    def copy(self, primitive: Any) -> Any:
        """The slot itself: values of a graph share nothing."""
        return primitive

    def version(self, primitive: Any) -> int:
        """0: nothing can write to a slot."""
        return 0

    def leaf(self) -> Backend:
        """Itself."""
        return self

    def rebase(self, leaf: Any) -> Any:
        """The other leaf."""
        return leaf

    def check_place(self, place: str) -> None:
        """Asks the real leaf."""
        self.real.check_place(place)


def _escaped(where: str) -> TraceError:
    return TraceError(
        explain(
            "a value of a traced function was used after the tracing had ended",
            given=f"it was kept outside, and used {where}, at {user_line(3) or 'an unknown line'}",
            expected="values that leave a compiled function as its results",
            mend="return the tensor from the function instead of storing it in a list or an attribute",
        )
    )
