"""How a program of LibTorch writes in place: the memory plan's choices, with the functions that carry them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rows.row import kernel
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.memory import MemoryPlan
from burn_torch.ops.op import Call, PerCall
from burn_torch.ops.torch_code import Over

__all__ = ["InPlace", "InPlaceForm", "in_place_writes", "row_in_place_form"]


@final
class InPlace:
    """An in-place form at one node: the function, and the inputs that its results are written over.

    `over[i]` is the position of the input that result i takes, -1 for none; `legal` says of each whether its memory may
    be overwritten.  If it may not, the program passes a copy.
    """

    __slots__ = ("function", "legal", "over")

    def __init__(self, function: Callable[..., object], over: tuple[int, ...], legal: tuple[bool, ...]) -> None:
        self.function: Final = function
        self.over: Final = over
        self.legal: Final = legal

    def taken(self, node: Node) -> dict[int, int]:
        """The results that take the memory of an operand: ids of both."""
        pairs = zip(node.outputs, self.over, self.legal, strict=True)
        operands = {output: node.inputs[position] for output, position, legal in pairs if legal}
        return {i: operand for i, operand in operands.items() if isinstance(i, int) and isinstance(operand, int)}


InPlaceForm = tuple[Callable[..., object], tuple[int, ...]]
"""A function, and for each of its results the input that it is written over."""


def row_in_place_form(call: Call) -> InPlaceForm | None:
    """The in-place form of a row at this Call, and which input each result is written over.  None where it has none.

    Integers have none: their candidates refuse numbers that the element type cannot hold, and in place nobody asks.
    """
    form = call.op.inplace
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


def no_kernel(call: Call, over: Mapping[int, int]) -> InPlace | None:
    """None: a program without generated kernels."""
    return None


def in_place_writes(
    graph: Graph,
    plan: MemoryPlan,
    form_of: Callable[[Call], InPlaceForm | None] = row_in_place_form,
    kernel_over: Callable[[Call, Mapping[int, int]], InPlace | None] = no_kernel,
) -> Mapping[int, InPlace]:
    """By node, the in-place forms that a memory plan allows.

    form_of      the in-place form of a row
    kernel_over  a generated kernel that writes these outputs over these inputs; None where no kernel runs
    """
    writes: dict[int, InPlace] = {}
    for number, pairs in plan.in_place.items():
        if graph.nodes[number].call.op is kernel:
            generated = kernel_over(graph.nodes[number].call, dict(pairs))
            if generated is not None:
                writes[number] = generated
            continue
        form = form_of(graph.nodes[number].call)
        if form is not None:
            function, over = form
            chosen = {output for output, _ in pairs}
            writes[number] = InPlace(function, over, tuple(output in chosen for output in range(len(over))))
    return writes
