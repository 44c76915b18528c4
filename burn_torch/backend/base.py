"""The narrow waist: what a backend is.

A leaf computes Calls (LibTorch, NdArray).  A decorator is a backend that holds a backend; it sees specs, attributes
and a row's properties, never its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from burn_torch.backend.capabilities import Capabilities, Program
from burn_torch.core.data import TensorData
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.ir import Graph
from burn_torch.graph.source import calls_of_execute
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.value import Executor, Primitive

__all__ = ["Backend", "capabilities", "computes_at_once", "program_of", "run_decomposed", "run_graph"]


class Backend(ABC):
    """One method computes every operation; the rest moves data and compiles graphs.

    This is what every backend means, and no more: what a leaf can do beside it, it offers in `capabilities`.
    """

    name: str
    depth: int = 0
    inner: Any = None
    """The backend that a decorator holds; None of a leaf."""
    is_autodiff: bool = False
    is_fusion: bool = False
    is_batched: bool = False
    """Says whether a value stands for one sample of many that are computed at once."""
    trains: bool = False
    """Says whether layers such as Dropout and BatchNorm train on values of this backend."""
    lasting: bool = True
    """Says whether this very object is met again and again, so that what is derived for it may be kept on Calls."""
    session: Any = None
    """The tracing session that a traced stack belongs to."""
    real: Any = None
    """The stack that a traced stack stands for."""
    capabilities: Capabilities | None = None
    """All that a leaf can do beyond this protocol; None where that is nothing."""

    @abstractmethod
    def execute(self, call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
        """Computes a Call on primitives, numbers and None: one primitive an output (None where not live)."""

    @abstractmethod
    def from_data(self, data: TensorData, place: str) -> Primitive:
        """A primitive at `place` with a copy of the data.  Raises: DeviceError where the place is absent."""

    @abstractmethod
    def into_data(self, primitive: Primitive) -> TensorData:
        """The data of a primitive, on the host.  The only place that waits for the device."""

    @abstractmethod
    def spec(self, primitive: Primitive) -> TensorSpec:
        """The spec of an adopted primitive, or of one whose shape depended on data."""

    @abstractmethod
    def sync(self, place: str) -> None:
        """Waits until everything submitted to `place` is done."""

    def leaf(self) -> Backend:
        """The leaf under all decorators; a leaf itself."""
        return self

    @abstractmethod
    def copy(self, primitive: Primitive) -> Primitive:
        """The same values in memory of their own, without a tape."""

    def version(self, primitive: Primitive) -> int:
        """A count that grows when a primitive's memory is written to from outside; 0 where nothing can."""
        return 0

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Primitive]]:
        """A function from the graph's inputs to its outputs.  The default is generated calls of `execute`.

        `donate` names inputs whose memory may be overwritten; the default leaves them be.
        """
        return calls_of_execute(graph, self.execute)

    def lift(self, primitive: Primitive, source: Executor) -> Primitive:
        """A primitive of an inner stack as a constant of this one.  Raises: DeviceError for any other stack."""
        if source is self:
            return primitive
        self._refuse(source)

    def _refuse(self, source: Executor) -> NoReturn:
        raise DeviceError(
            "values of different backend stacks were mixed",
            given=f"{self.name} and {source.name}",
            expected="one stack, or a value of an inner stack, which is taken as a constant",
            mend="make both on one device, or move one with .to_device(device)",
        ) from None

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:  # a leaf is one object, that its class gives
        return (type(self), ())


def run_decomposed(compile: Callable[[Graph], Candidate], call: Call) -> Candidate:
    """A function of a Call's inputs that runs its decomposition, compiled by a leaf that has no candidate for it."""
    return run_graph(compile(decomposed(call)), call)


def run_graph(run: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """A function of a Call's inputs that runs a graph of those that are there."""
    present = [i for i, spec in enumerate(call.specs) if spec is not None]
    if len(present) < len(call.specs):  # an absent input is no input of the graph
        if call.multiple:
            return lambda *inputs: run(*[inputs[i] for i in present])
        return lambda *inputs: run(*[inputs[i] for i in present])[0]
    return run if call.multiple else lambda *inputs: run(*inputs)[0]


def capabilities(stack: Backend) -> Capabilities:
    """Returns what the leaf of a stack offers."""
    leaf = stack.leaf()
    return leaf.capabilities or Capabilities(leaf)


def computes_at_once(stack: Any) -> bool:
    """Says whether values of a stack are there when they are made: on a leaf, under tapes; not lazy, not traced."""
    while stack.is_autodiff:
        stack = stack.inner
    return isinstance(stack, Backend) and stack.inner is None and stack.session is None


def program_of(stack: Backend, graph: Graph, donate: Collection[int] = (), *, title: str = "") -> Program:
    """A graph as the program of a leaf; on a decorator, which has none, as calls of its `execute`."""
    if stack.leaf() is stack:
        return capabilities(stack).program(graph, donate, title=title)
    return Program(stack.compile(graph, donate))
