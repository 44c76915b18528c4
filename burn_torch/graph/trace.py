"""Trace: a leaf that computes nothing and writes a Graph.

Any function of values runs over it: gradient rules, decompositions, whole training steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, final

from burn_torch.core.errors import DeviceError, TraceError
from burn_torch.core.frames import unwatched, user_line
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.origin import Origins
from burn_torch.ops.op import Call
from burn_torch.ops.value import Executor, Primitive, Value
from burn_torch.symbolic.sizes import Real, Size

__all__ = ["Slot", "Trace"]


@final
class Slot:
    """A value that will exist when the graph runs: the primitive of Trace."""

    __slots__ = ("index", "trace")

    def __init__(self, trace: Trace, index: int) -> None:
        self.trace: Final = trace
        self.index: Final = index

    def __repr__(self) -> str:
        return f"%{self.index}"


@final
class Trace:
    """A leaf that appends each Call to a graph.  Make one for each graph; use it from one thread.

    With `origins`, nodes know the user's line that made them, and the path of the innermost module that was running
    there: `paths(self)` of a method's `self`, None where that is no module.

    It is also how graphs are built by hand:

        trace = Trace()
        x, rate = trace.input(TensorSpec.of((2, 3), DType.F32, "cpu")), trace.input(FLOAT_NUMBER)
        graph = trace.graph([x - ops.exp(x) * rate])
    """

    name: Final = "Trace"
    depth: Final = 0
    is_autodiff: Final = False
    trains: Final = False
    lasting: Final = False
    version_expression: Final = "0"
    """How generated code reads `version`."""

    def __init__(self, *, origins: bool = False, paths: Callable[[object], str | None] | None = None) -> None:
        self.origins: Final = Origins(paths, sys._getframe(1)) if origins else None
        self._inputs: list[tuple[int, Spec]] = []
        self._nodes: list[Node] = []
        self._count = 0

    def input(self, spec: Spec) -> Value:
        """Declares the next input of the graph: a tensor, or a run-time number for a NumberSpec."""
        slot = self._slot()
        self._inputs.append((slot.index, spec))
        return Value(self, slot, spec)

    def parameter(self) -> Slot:
        """A slot that is no input of the graph: what a body written apart takes."""
        return self._slot()

    @contextmanager
    def apart(self) -> Iterator[list[Node]]:
        """Nodes that are written until the block ends go into the list that it gives, and not into the graph."""
        outside, self._nodes = self._nodes, []
        try:
            yield self._nodes
        finally:
            self._nodes = outside

    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Primitive]:
        """Appends the Call; its outputs are new slots.  Raises: TraceError for a value from outside the trace."""
        frame = sys._getframe(1)
        with unwatched():
            slots = [
                None if spec is None and _computes_not(call, i) else self._slot() for i, spec in enumerate(call.results)
            ]
            ids = [None if slot is None else slot.index for slot in slots]
            origin = None if self.origins is None else self.origins.find(frame)
            self._nodes.append(Node(call, [self._input(call, x) for x in inputs], ids, origin))
        return slots

    def graph(self, outputs: Sequence[Value | None]) -> Graph:
        """Returns the graph written so far, with these values as outputs."""
        ids = [None if value is None else self._own(value.primitive).index for value in outputs]
        return Graph(self._inputs, self._nodes, ids)

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Primitive]]:
        """A function that appends the nodes of another graph to this trace."""
        return lambda *inputs: interpret(graph, self, inputs)

    def lift(self, primitive: Primitive, source: Executor) -> NoReturn:
        """Refuses: a trace takes its tensors as inputs."""
        raise self._foreign(f"a tensor of {source.name}")

    def spec(self, primitive: Primitive) -> TensorSpec:
        """Refuses: a shape that depends on data is unknown while tracing."""
        raise TraceError(
            "an operation whose shape depends on data was traced",
            given=f"at {user_line(2) or 'an unknown line'}",
            expected="operations whose result shape follows from the shapes of their inputs",
            mend="compute it outside the traced function, or use mask_where instead of mask_select",
        )

    def version(self, primitive: Primitive) -> int:
        """0: a trace has no memory that could be written to."""
        return 0

    def _slot(self) -> Slot:
        slot = Slot(self, self._count)
        self._count += 1
        return slot

    def _own(self, primitive: object) -> Slot:
        if isinstance(primitive, Slot) and primitive.trace is self:
            return primitive
        raise self._foreign(repr(primitive))

    def _input(self, call: Call, x: object) -> Input:
        if x.__class__ is Slot:
            return self._own(x).index
        if x is None:
            return None
        if isinstance(x, int | float | Size | Real):
            return Literal(x)
        raise self._foreign(f"{type(x).__name__} in {call.op.name}")

    def _foreign(self, what: str) -> DeviceError:
        return DeviceError(
            "a value from outside was used in a trace",
            given=what,
            expected="values that the traced function received as arguments, or made itself",
            mend="pass the tensor as an argument",
        )


def _computes_not(call: Call, output: int) -> bool:
    live = call.attrs.get("live")
    return live is not None and not live[output]
