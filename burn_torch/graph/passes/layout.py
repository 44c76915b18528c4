"""How values lie in memory, as far as the rows say: what a pass must not change to change no bit.

Libraries sum in the order of memory, and choose other code for memory with gaps.  So a graph in which a value lies
otherwise in memory can give other bits, though every value in it is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Node

__all__ = ["CONTIGUOUS", "DENSE", "UNKNOWN", "Layouts"]

UNKNOWN: Final = 0
"""May have gaps or repeat elements: inputs of the graph, slices, expanded axes."""

DENSE: Final = 1
"""Without gaps, each element once, the axes in some order."""

CONTIGUOUS: Final = 2
"""Dense, the last axis next to itself: row-major."""


@final
class Layouts:
    """The known layouts of values."""

    def __init__(self, graph: Graph, dense: Iterable[int] = ()) -> None:
        self._known: Final[dict[int, int]] = dict.fromkeys(dense, DENSE)
        self._waiting: Final[list[Node]] = []
        for i, spec in graph.inputs:
            if not isinstance(spec, TensorSpec) or spec.numel <= 1 or (spec.ndim == 1 and i in self._known):
                self._known[i] = CONTIGUOUS

    def of(self, i: Input) -> int:
        """UNKNOWN, DENSE or CONTIGUOUS; numbers and absent inputs lie nowhere and disturb nothing."""
        if not isinstance(i, int):
            return CONTIGUOUS
        if self._waiting:
            for node in self._waiting:
                self._derive(node)
            self._waiting.clear()
        return self._known.get(i, UNKNOWN)

    def add(self, node: Node) -> None:
        """Takes note of a node.  It is looked at when somebody asks, so that not asking costs nothing."""
        self._waiting.append(node)

    def _derive(self, node: Node) -> None:
        """The layout of what a node makes, from that of what it reads."""
        call = node.call
        known = self._known
        if call.is_number:
            known[node.outputs[0]] = CONTIGUOUS  # type: ignore[index]  # numbers are always computed
            return
        packed = call.op.packed
        if call.aliases:
            base = node.inputs[0]
            kept = CONTIGUOUS if call.is_input or packed == "input" else DENSE if packed == "order" else UNKNOWN
            layout = min(kept, known.get(base, UNKNOWN)) if isinstance(base, int) else kept
        elif packed == "any":
            layout = UNKNOWN
        elif packed == "dense":
            layout = DENSE
        else:
            others = any(i.__class__ is int and known.get(i, UNKNOWN) != CONTIGUOUS for i in node.inputs)
            layout = DENSE if others else CONTIGUOUS
        for i, spec in zip(node.outputs, call.results, strict=True):
            if i is not None and spec is not None:
                flat = spec.numel <= 1 or (layout == DENSE and spec.ndim == 1)
                known[i] = CONTIGUOUS if flat else layout

    def is_its_own_copy(self, i: Input, spec: Spec | None) -> bool:
        """Tells if an element-wise copy of a value would lie in memory as the value itself does."""
        # the stride of an axis of size 1 means nothing, but a matrix product may choose its code by it
        if not isinstance(spec, TensorSpec):
            return True  # a number
        return self.of(i) >= DENSE and (1 not in spec.shape or spec.ndim == 1)
