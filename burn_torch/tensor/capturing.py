"""Capture scopes: the operations of a function as a graph, with the data that it made; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from burn_torch.backend.base import Backend
from burn_torch.backend.decorator import leaf_primitive
from burn_torch.backend.tracing import Bound, Session, active
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.errors import TraceError
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Slot

if TYPE_CHECKING:
    from burn_torch.tensor.tensor import Tensor

__all__ = ["CaptureScope", "CapturedOperations", "capture_operations"]


@dataclass(frozen=True)
class CapturedOperations:
    """A graph, and the data of those of its inputs that were made in the scope.

    graph   declared inputs first, in their order, then constants; outputs as declared.  Each dead node is left out
    values  the data of each input, by its id in the graph
    """

    graph: Graph
    values: dict[int, TensorData]


@final
class CaptureScope:
    """Is handed to the function of a `Device.capture_scope`, which calls `complete` with inputs and outputs."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    @checked
    def complete(self, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> CapturedOperations:
        """The operations between some tensors.

        inputs   tensors made from data in this scope, whose values change from run to run
        outputs  tensors whose values are wanted
        Raises: TraceError for a tensor of elsewhere, one named twice, and for an input that is computed.
        """
        starts, ends = self._slots("input", inputs), self._slots("output", outputs)
        graph = self._session.graph(ends)
        specs = dict(graph.inputs)
        for slot in starts:
            if slot.index not in specs:
                raise TraceError(
                    "complete: an input of a captured graph is computed in it",
                    given=f"{slot}",
                    expected="tensors made from data in the scope",
                    mend="name the tensors from which it is computed",
                )
        first = [slot.index for slot in starts]
        order = [*first, *(i for i in specs if i not in first)]
        values = {
            slot.index: self._session.real.into_data(source.primitive)
            for (_, slot), source in zip(self._session.bound.values(), self._session.sources, strict=True)
            if isinstance(slot, Slot) and isinstance(source, Bound)
        }
        return CapturedOperations(Graph([(i, specs[i]) for i in order], graph.nodes, graph.outputs), values)

    def _slots(self, boundary: str, tensors: Iterable[Tensor]) -> Sequence[Slot]:
        slots: list[Slot] = []
        for tensor in tensors:
            slot = leaf_primitive(tensor.backend, tensor.primitive)
            if not isinstance(slot, Slot) or slot.trace is not self._session.trace:
                raise TraceError(
                    f"complete: an {boundary} is no tensor of this scope",
                    given=f"a tensor of {tensor.device}",
                    expected="tensors that were made in the function of this capture_scope",
                    mend="make it in the function, or move it to the device there: x.to_device(device)",
                )
            if slot in slots:
                raise TraceError(
                    f"complete: an {boundary} is named twice",
                    given=f"{slot}",
                    expected="each tensor once",
                    mend="leave the second one out",
                )
            slots.append(slot)
        return slots


def capture_operations(backend: Backend, function: Callable[[CaptureScope], CapturedOperations]) -> CapturedOperations:
    """Runs a function whose operations on a stack are written down.  Raises: TraceError inside another trace."""
    if active() is not None:
        raise TraceError(
            "a capture_scope was opened while something is traced",
            given="a scope in a scope, or in a compiled function",
            expected="one trace at a time",
            mend="open it outside",
        )
    with Session(backend.leaf(), lenient=True).opened() as session:
        result = function(CaptureScope(session))
    if not isinstance(result, CapturedOperations):
        raise TraceError(
            "the function of a capture_scope says what its graph is",
            given=f"it returned a {type(result).__name__}",
            expected="what scope.complete(inputs, outputs) returns",
            mend="return scope.complete([x], [y])",
        )
    return result
