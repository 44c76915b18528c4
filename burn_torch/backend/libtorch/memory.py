"""Which nodes of a program may write over a buffer that they read.

A node writes in place where nobody can tell: the buffer and all views of it are read for the last time here, it was
made by the program or donated to it, the result has the very spec of the operand, and the node reads it once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, final

from burn_torch.backend.libtorch.attached import attached
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.op import Call, PerCall
from burn_torch.ops.torch_code import Over

__all__ = ["InPlace", "MemoryPlan", "in_place_form", "plan_memory"]


@final
class InPlace:
    """An in-place form at one node: the function, and the inputs that its results are written over.

    `over[i]` is the input that result i takes; `legal` says of each whether its buffer may be overwritten.  Where it
    may not, the program passes a copy.
    """

    __slots__ = ("function", "legal", "over")

    def __init__(self, function: Callable[..., Any], over: tuple[int, ...], legal: tuple[bool, ...]) -> None:
        self.function: Final = function
        self.over: Final = over
        self.legal: Final = legal

    def taken(self, node: Node) -> dict[int, int]:
        """The results that take the memory of an operand: ids of both."""
        pairs = zip(node.outputs, self.over, self.legal, strict=True)
        operands = {output: node.inputs[position] for output, position, legal in pairs if legal}
        return {i: operand for i, operand in operands.items() if isinstance(i, int) and isinstance(operand, int)}


@final
class MemoryPlan:
    """`in_place` by node number; `last_use` of each id that is no output, as a node number.

    `peak_bytes` is the most that the buffers made by the program hold at once.
    """

    __slots__ = ("in_place", "last_use", "peak_bytes")

    def __init__(self, in_place: Mapping[int, InPlace], last_use: Mapping[int, int], peak_bytes: int) -> None:
        self.in_place: Final = in_place
        self.last_use: Final = last_use
        self.peak_bytes: Final = peak_bytes


def in_place_form(call: Call) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
    """The in-place form of a row at this Call, and which input each result is written over.  None where it has none.

    Integers have none: their candidates refuse numbers that the element type cannot hold, and in place nobody asks.
    """
    form = None if attached(call) is not None else call.op.inplace  # kernels write to memory of their own
    if isinstance(form, PerCall):
        form = form.build(call)
    if form is None:
        return None
    function, over = (form.function, form.over) if isinstance(form, Over) else (form, (0,))
    if len(over) != len(call.results):
        return None
    for result, position in zip(call.results, over, strict=True):
        if not isinstance(result, TensorSpec) or result is not call.specs[position] or not result.dtype.is_float:
            return None
    return function, over


def plan_memory(graph: Graph, donate: Collection[int] = ()) -> MemoryPlan:
    """The in-place writes that are legal, given the positions of the inputs that may be overwritten."""
    outputs = {i for i in graph.outputs if i is not None}
    last_use = {i: number for number, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    root = _roots(graph)
    readers: dict[int, int] = {}
    """Of each root: when anything that may alias it is read for the last time."""
    for i, number in last_use.items():
        readers[root[i]] = max(readers.get(root[i], -1), number)
    for i in outputs:
        readers[root[i]] = len(graph.nodes)
    mine = {i for position, (i, _) in enumerate(graph.inputs) if position in set(donate)}
    mine |= {i for node in graph.nodes for i in node.outputs if i is not None}
    in_place: dict[int, InPlace] = {}
    for number, node in enumerate(graph.nodes):
        form = None if node.call.is_number else in_place_form(node.call)
        if form is None:
            continue
        function, over = form
        legal = tuple(
            output is not None and _may_be_overwritten(node, position, number, root, readers, mine)
            for output, position in zip(node.outputs, over, strict=True)
        )
        if any(legal):
            in_place[number] = InPlace(function, over, legal)
    ends = {i: number for i, number in last_use.items() if i not in outputs}
    return MemoryPlan(in_place, ends, _peak_bytes(graph, in_place, root, readers))


def _peak_bytes(
    graph: Graph, in_place: Mapping[int, InPlace], root: Mapping[int, int], readers: Mapping[int, int]
) -> int:
    """The most that buffers made by the program hold at once."""
    ending: dict[int, list[int]] = {}
    for base, number in readers.items():
        ending.setdefault(number, []).append(base)
    sizes: dict[int, int] = {}
    """Of each buffer that lives; an input has none, nor what is written over it."""
    peak = held = 0
    for number, node in enumerate(graph.nodes):
        taken = in_place[number].taken(node) if number in in_place else {}
        for i, spec in zip(node.outputs, node.call.results, strict=True):
            if i is None or root[i] != i or not isinstance(spec, TensorSpec):
                continue
            if i in taken:
                sizes[i] = sizes.pop(taken[i], 0)
            else:
                sizes[i] = spec.numel * spec.dtype.itemsize
                held += sizes[i]
        peak = max(peak, held)
        unread = (i for i in node.outputs if i is not None and i not in readers)
        held -= sum(sizes.pop(i, 0) for i in (*ending.get(number, ()), *unread))
    return peak


def _roots(graph: Graph) -> dict[int, int]:
    """Of each id the one whose memory it may share: what a chain of views starts from."""
    root = {i: i for i, _ in graph.inputs}
    for node in graph.nodes:
        base = node.inputs[0] if node.call.op.view and node.inputs else None
        for i in node.outputs:
            if i is not None:
                root[i] = root[base] if isinstance(base, int) else i
    return root


def _may_be_overwritten(
    node: Node, position: int, number: int, root: Mapping[int, int], readers: Mapping[int, int], mine: Collection[int]
) -> bool:
    i = node.inputs[position]
    if not isinstance(i, int) or root[i] != i or i not in mine or readers[i] > number:
        return False
    return sum(isinstance(j, int) and root[j] == i for j in node.inputs) == 1
