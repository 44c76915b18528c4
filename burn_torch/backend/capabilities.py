"""Capabilities of leaves, beyond what every backend means: whole graphs, recordings, several places, sharing memory.

A leaf that can do more than the defaults says so in `Backend.capabilities`; callers ask `base.capabilities(stack)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.graph.ir import Graph
from burn_torch.ops.value import Primitive

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from burn_torch.fusion.rewrites.choices import Choices

__all__ = ["Capabilities", "Overwriting", "Program", "Recorded"]


Overwriting = Callable[[Sequence[Primitive]], None]
"""A listener to which the buffers of a state are shown before others are put there."""


@dataclass(frozen=True)
class Program:
    """A whole graph, ready to run: `run(*inputs)` gives a tuple of outputs.  Any number of threads may call it.

    source, path   the generated source and its file; None where the backend writes none, or could not write it
    reused         (result, operand): ids of the graph whose result takes the memory of the operand
    peak_bytes     what intermediate values and results hold at most, by their specs; None where it was not counted
    """

    run: Callable[..., Sequence[Primitive]]
    source: str | None = None
    path: Path | None = None
    reused: Sequence[tuple[int, int]] = ()
    peak_bytes: int | None = None


class Recorded(Protocol):
    """A whole graph that a device replays by itself, recorded at the first call.  Its state has an address that stays.

    Outputs that take over the memory of a donated input are that very memory: whoever hands them back at the next call
    pays for no copy.  All other outputs have memory of their own.
    """

    def __call__(self, *inputs: Primitive, kept: bool = False) -> Sequence[Primitive]:
        """The outputs.  `kept`: the caller knows that the donated inputs are the memory that the last call returned."""

    def again(self, given: Sequence[Primitive]) -> Sequence[Primitive]:
        """A call whose donated tensors are the memory that the last call returned: of all other inputs, in order, the
        outputs that take no memory over, in order."""

    @property
    def takes(self) -> Sequence[int | None]:
        """For each output, the position of the donated input whose memory it takes over."""

    @property
    def splits(self) -> Sequence[Primitive]:
        """The parts that could not be recorded and are launched plainly, and why; `str` words it."""

    @property
    def launches(self) -> int | None:
        """Kernels in one call; None before the first, or where they are not counted."""

    def close(self) -> None:
        """Gives its memory back."""


class Capabilities:
    """Everything a leaf offers beyond the protocol.  The defaults are those of a leaf that computes on the host."""

    holds_torch: bool = False
    """Says whether its values are torch's tensors, so that one is taken over without a copy."""

    def __init__(self, leaf: Any) -> None:
        self.leaf: Final = leaf

    # -- places -------------------------------------------------------------------------------------
    def places(self) -> list[str]:
        """The places of this machine at which it computes."""
        return ["cpu"]

    def check_place(self, place: str) -> None:
        """Raises DeviceError where this machine has no such place."""
        if place not in self.places():
            raise DeviceError(
                f"{self.leaf.name} computes on the host only",
                given=place,
                expected="cpu",
                mend="use Device.cuda(0), whose leaf is torch",
            )

    def supports(self, dtype: DType, place: str) -> bool:
        """Says whether it has tensors of this element type at `place`."""
        return True

    def generates(self, place: str) -> bool:
        """Says whether generated kernels (`burn_torch/fusion`) run at `place`."""
        return False

    @property
    def choices(self) -> Choices:
        """The answers of a leaf to questions of planning; none by default."""
        from burn_torch.fusion.rewrites.choices import LIBRARIES  # an eager run never needs it

        return LIBRARIES

    # -- whole graphs -------------------------------------------------------------------------------
    def program(self, graph: Graph, donate: Collection[int] = (), *, title: str = "") -> Program:
        """`Backend.compile` for a graph that is run many times, a training step for instance; takes longer to make.

        donate: positions of inputs that the program may write over.  The caller sees to it that no one else holds
        them and that no two share memory.  If the program fails, they are gone all the same.
        title: what the program is, for the reader of its source.
        """
        return Program(self.leaf.compile(graph, donate))

    def recorded(
        self, graph: Graph, donate: Collection[int] = (), *, hold: Collection[int] = (), before_overwriting: Overwriting
    ) -> Recorded | None:
        """The same recorded for a device that can replay it; None where there is none, as on the host.

        donate              positions of inputs that are its own from then on, as for `program`
        hold                positions of inputs that are the same tensors at every call
        before_overwriting  told of the state's buffers when others than those handed out are about to be put there
        """
        return None

    def settings(self) -> Hashable:
        """Modes of the library beneath that a recorded program depends on, such as the precision of products."""
        return None

    # -- beside what computes -----------------------------------------------------------------------
    def reading(self, place: str) -> AbstractContextManager[None]:
        """A block for another thread, which reads in it what is submitted to `place` by now, and stops no later work.

        The caller who made the values holds them until the block ends.
        """
        return nullcontext()

    def pinned(self, path: Path, place: str, text: str | None) -> AbstractContextManager[Callable[[], str | None]]:
        """A block in which choices between kernels for `place` are kept in a file, and do not change.

        It begins with the choices of `text`, if that is given; what the block yields gives those made by now, None
        where there is nothing to choose.
        """
        return nullcontext(lambda: None)

    # -- memory of the machine ----------------------------------------------------------------------
    def give_back(self, place: str) -> None:
        """Gives memory at `place` that is cached, and holds no value, back to the system; nothing is cached here."""

    def set_apart(self, place: str) -> AbstractContextManager[object]:
        """A block whose values lie apart from those that come and go; a leaf without an allocator has no such place."""
        return nullcontext()

    def lock_pages(self, data: TensorData, place: str) -> TensorData:
        """The data in host memory from which transfers to `place` are fastest."""
        return data

    # -- memory that is shared ----------------------------------------------------------------------
    def as_array(self, primitive: Primitive) -> NDArray[Any] | None:
        """The memory of a value on the host as numpy's array; None where numpy cannot have it."""
        return None

    def as_torch(self, primitive: Primitive) -> torch.Tensor | None:
        """The memory of a value as torch's tensor, on no tape of torch's; None where torch cannot have it."""
        return None
