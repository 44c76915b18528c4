"""Recorded sequences, as paths in a tree: equal sequences of operations are one node, on every thread.

A node is one operation after those on the way to it.  All that follows from the sequence alone (the graph, the plans)
is found through its node, so recording an operation that was seen before is one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from burn_torch.core.spec import NumberSpec, Spec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.origin import Origin
from burn_torch.ops.op import Call

__all__ = ["TAPED", "Step", "graph_of"]

TAPED: Final = "taped"
"""The last entry of a key whose result may stay a recipe."""

Slot = int | Literal | None
"""An input of an operation: 0 and more is a result of the sequence, -1 and less a value from outside, in the order of
their first use; a Literal where the number is part of the key; None for a number that is not, and for what is absent.
"""


@final
class Step:
    """One operation after those of `parent`.

    first   the number of its first result, absent ones counted
    count   results up to here
    taped   whether its result may stay a recipe, see `recipes.py`
    recipes whether that of any operation up to here may
    absent  whether a result of any operation up to here is not made
    origin  the user's line where this sequence was first recorded
    plans   what was made of the sequence up to here, by which results were wanted
    """

    __slots__ = (
        "absent", "call", "count", "first", "met", "next", "origin", "parent", "plans", "recipes", "slots", "taped",
    )  # fmt: skip

    def __init__(
        self,
        parent: Step | None,
        call: Call | None,
        slots: Sequence[Slot],
        origin: Origin | None = None,
        *,
        taped: bool = False,
    ) -> None:
        self.parent: Final = parent
        self.call: Final = call
        self.slots: Final = tuple(slots)
        self.first: Final[int] = 0 if parent is None else parent.count
        self.count: Final[int] = self.first + (0 if call is None else len(call.results))
        self.origin: Final = origin
        self.next: Final[dict[tuple[Any, ...], Step]] = {}
        self.plans: Final[dict[tuple[bool, ...], Any]] = {}
        self.taped: Final = taped
        self.recipes: Final[bool] = taped or (parent is not None and parent.recipes)
        self.absent: Final[bool] = (call is not None and None in call.results) or (parent is not None and parent.absent)
        self.met = False
        """Says whether a sequence ended here before."""

    def below(self) -> Iterator[Step]:
        """This and all that was recorded after it."""
        waiting = [self]
        while waiting:
            step = waiting.pop()
            yield step
            waiting += step.next.values()

    def path(self) -> list[Step]:
        """The operations from the first one to this."""
        steps: list[Step] = []
        step: Step | None = self
        while step is not None and step.call is not None:
            steps.append(step)
            step = step.parent
        return steps[::-1]


def graph_of(last: Step, live: Sequence[bool]) -> tuple[Graph, list[int]]:
    """The sequence as a graph of the results that are `live`, and which values from outside are its first inputs.

    The numbers of all operations are its other inputs, in their order.
    """
    steps = last.path()
    read = {slot for step in steps for slot in step.slots if isinstance(slot, int) and slot < 0}
    outside = sorted(-1 - slot for slot in read)
    specs: dict[int, TensorSpec] = {}
    numbers: list[NumberSpec] = []
    for step in steps:
        assert step.call is not None
        for slot, spec in zip(step.slots, step.call.specs, strict=True):
            if isinstance(spec, NumberSpec):
                numbers.append(spec)
            elif isinstance(slot, int) and slot < 0 and spec is not None:
                specs[-1 - slot] = spec
    position = {i: n for n, i in enumerate(outside)}
    base = len(outside) + len(numbers)
    number = len(outside)
    nodes: list[Node] = []
    for step in steps:
        assert step.call is not None
        inputs: list[Input] = []
        for slot, spec in zip(step.slots, step.call.specs, strict=True):
            if isinstance(spec, NumberSpec):
                inputs.append(number if slot is None else slot)
                number += 1
            elif isinstance(slot, int):
                inputs.append(base + slot if slot >= 0 else position[-1 - slot])
            else:
                inputs.append(None)
        results = [None if spec is None else base + step.first + i for i, spec in enumerate(step.call.results)]
        nodes.append(Node(step.call, inputs, results, step.origin))
    graph_inputs: list[tuple[int, Spec]] = [(position[i], specs[i]) for i in outside]
    graph_inputs += [(len(outside) + n, spec) for n, spec in enumerate(numbers)]
    return Graph(graph_inputs, nodes, [base + i for i, alive in enumerate(live) if alive]), outside
