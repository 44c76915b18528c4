"""The narrow waist: what a backend is.

A leaf computes Calls (LibTorch, NdArray).  A decorator is a backend that holds a backend; it sees specs, attributes
and a row's properties, never its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from burn_torch.core.data import TensorData
from burn_torch.core.errors import DeviceError, explain
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.ir import Graph
from burn_torch.graph.source import calls_of_execute
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import Call
from burn_torch.ops.value import Executor

if TYPE_CHECKING:
    from burn_torch.fusion.rewrites.choices import Choices

__all__ = ["Backend", "Program", "Recorded", "decomposed", "run_decomposed"]


@dataclass(frozen=True)
class Program:
    """A whole graph, ready to run: `run(*inputs)` gives a tuple of outputs.  Any number of threads may call it.

    source, path   the generated source and its file; None where the backend writes none, or could not write it
    reused         (result, operand): ids of the graph whose result takes the memory of the operand
    peak_bytes     what intermediate values and results hold at most, by their specs; None where nobody counted
    """

    run: Callable[..., Sequence[Any]]
    source: str | None = None
    path: Path | None = None
    reused: Sequence[tuple[int, int]] = ()
    peak_bytes: int | None = None


class Recorded(Protocol):
    """A whole graph that a device replays by itself, recorded at the first call.  Its state has an address that stays.

    Outputs that take over the memory of a donated input are that very memory: whoever hands them back at the next call
    pays for no copy.  All other outputs have memory of their own.
    """

    def __call__(self, *inputs: Any, kept: bool = False) -> Sequence[Any]:
        """The outputs.  `kept`: the caller knows that the donated inputs are the memory that the last call returned."""

    def again(self, given: Sequence[Any]) -> Sequence[Any]:
        """A call whose donated tensors are the memory that the last call returned: of all other inputs, in order, the
        outputs that take no memory over, in order."""

    @property
    def takes(self) -> Sequence[int | None]:
        """For each output, the position of the donated input whose memory it takes over."""

    @property
    def splits(self) -> Sequence[Any]:
        """What could not be recorded and is launched plainly, and why; `str` words it."""

    @property
    def launches(self) -> int | None:
        """Kernels in one call; None before the first, or where nobody counts."""

    def close(self) -> None:
        """Gives its memory back."""


class Backend(ABC):
    """One method computes every operation; the rest moves data and compiles graphs."""

    name: str
    depth: int = 0
    is_autodiff: bool = False
    trains: bool = False
    """Whether layers such as Dropout and BatchNorm train on values of this backend."""
    lasting: bool = True
    """Whether this very object is met again and again, so that what is derived for it may be kept on Calls."""
    session: Any = None
    """The tracing session that a traced stack belongs to."""
    real: Any = None
    """Of a traced stack, the stack that it stands for."""

    @property
    def choices(self) -> Choices:
        """The answers of a leaf to questions of planning; none by default."""
        from burn_torch.fusion.rewrites.choices import LIBRARIES  # an eager run never needs it

        return LIBRARIES

    @abstractmethod
    def execute(self, call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
        """Computes a Call on primitives, numbers and None: one primitive an output (None where not live)."""

    @abstractmethod
    def from_data(self, data: TensorData, place: str) -> Any:
        """A primitive at `place` with a copy of the data.  Raises: DeviceError where the place is absent."""

    @abstractmethod
    def into_data(self, primitive: Any) -> TensorData:
        """The data of a primitive, on the host.  The only place that waits for the device."""

    @abstractmethod
    def spec(self, primitive: Any) -> TensorSpec:
        """The spec of an adopted primitive, or of one whose shape depended on data."""

    @abstractmethod
    def sync(self, place: str) -> None:
        """Waits until everything submitted to `place` is done."""

    @abstractmethod
    def leaf(self) -> Backend:
        """The leaf under all decorators."""

    @abstractmethod
    def rebase(self, leaf: Backend | Trace) -> Executor:
        """The same stack over another leaf."""

    @abstractmethod
    def move(self, primitive: Any, spec: TensorSpec, place: str) -> Any:
        """The primitive at another place of the same leaf."""

    @abstractmethod
    def copy(self, primitive: Any) -> Any:
        """The same values in memory of their own, without a tape."""

    def forced(self, primitive: Any) -> Any:
        """The leaf's own primitive under all decorators; what is pending is computed."""
        return primitive

    def detached(self, primitive: Any) -> Any:
        """The primitive of the same value as a constant of every tape in the stack; itself where it is one already."""
        return primitive

    def generates(self, place: str) -> bool:
        """Whether generated kernels (`burn_torch/fusion`) run at `place`."""
        return False

    @abstractmethod
    def version(self, primitive: Any) -> int:
        """A count that grows when a primitive's memory is written to from outside; 0 where nothing can."""

    def check_place(self, place: str) -> None:
        """Raises DeviceError where this machine has no such place."""
        self.leaf().check_place(place)

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Any]]:
        """A function from the graph's inputs to its outputs.  The default is generated calls of `execute`.

        `donate` names inputs whose memory may be overwritten; the default leaves them be.
        """
        return calls_of_execute(graph, self.execute)

    def program(self, graph: Graph, donate: Collection[int] = (), *, title: str = "") -> Program:
        """The same for a graph that is run many times, a training step for instance; takes longer to make.

        donate: positions of inputs that the program may write over.  The caller sees to it that nobody else holds
        them and that no two share memory.  If the program fails, they are gone all the same.
        title: what the program is, for whoever reads its source.
        """
        return Program(self.compile(graph, donate))

    def recorded(
        self,
        graph: Graph,
        donate: Collection[int] = (),
        *,
        hold: Collection[int] = (),
        before_overwriting: Callable[[Sequence[Any]], None],
    ) -> Recorded | None:
        """The same recorded for a device that can replay it; None where there is none, as on the host.

        donate              positions of inputs that are its own from then on, as for `program`
        hold                positions of inputs that are the same tensors at every call
        before_overwriting  told of the state's buffers when others than those handed out are about to be put there
        """
        return None

    def settings(self) -> Hashable:
        """What else a recorded program depends on: modes of the library beneath, such as the precision of products."""
        return None

    def reading(self, place: str) -> AbstractContextManager[None]:
        """A block for another thread, which reads in it what is submitted to `place` by now, and stops no later work.

        Whoever made the values holds them until the block ends.
        """
        return nullcontext()

    def pinned(self, path: Path, place: str, text: str | None) -> AbstractContextManager[Callable[[], str | None]]:
        """A block in which choices between kernels for `place` are kept in a file, and do not change.

        It begins with the choices of `text`, if that is given; what the block yields gives those made by now, None
        where there is nothing to choose.
        """
        return nullcontext(lambda: None)

    def lift(self, primitive: Any, source: Executor) -> Any:
        """A primitive of an inner stack as a constant of this one.  Raises: DeviceError for any other stack."""
        if source is self:
            return primitive
        self._refuse(source)

    def _refuse(self, source: Executor) -> NoReturn:
        raise DeviceError(
            explain(
                "values of different backend stacks were mixed",
                given=f"{self.name} and {source.name}",
                expected="one stack, or a value of an inner stack, which is taken as a constant",
                mend="make both on one device, or move one with .to_device(device)",
            )
        ) from None

    def __repr__(self) -> str:
        return self.name


def run_decomposed(compile: Callable[[Graph], Callable[..., Any]], call: Call) -> Callable[..., Any]:
    """A function of a Call's inputs that runs its decomposition, compiled by a leaf that has no candidate for it."""
    run = compile(decomposed(call))
    given = [i for i, spec in enumerate(call.specs) if spec is not None]
    if len(given) < len(call.specs):  # an absent input is no input of the graph
        if call.multiple:
            return lambda *inputs: run(*[inputs[i] for i in given])
        return lambda *inputs: run(*[inputs[i] for i in given])[0]
    return run if call.multiple else lambda *inputs: run(*inputs)[0]
