"""Writes a Graph as straight-line Python source and makes a function of it.

A leaf decides how one node is written (`emit`); everything else (names, constants, numbers, outputs) is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from burn_torch.core.source import Source
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.ops.op import Candidate

__all__ = ["Emit", "calls_of_execute", "straight_line"]


class Emit(Protocol):
    """Writes one node: `name(constant)` registers an object and returns the name it has in the source."""

    def __call__(self, node: Node, inputs: Sequence[str], name: Callable[[Any], str]) -> str:
        """The expression that computes the node: a value for one output, a sequence for several."""


def calls_of_execute(graph: Graph, execute: Callable[..., object]) -> Candidate:
    """A function `f(*inputs) -> tuple of outputs` that calls `execute(call, inputs)` for each node."""

    def emit(node: Node, inputs: Sequence[str], name: Callable[[object], str]) -> str:
        expression = f"{name(execute)}({name(node.call)}, ({''.join(f'{i}, ' for i in inputs)}))"
        return expression if node.call.multiple else f"{expression}[0]"

    return straight_line(graph, emit)


def straight_line(
    graph: Graph, emit: Emit, *, unless: tuple[Callable[[], bool], Callable[..., object]] | None = None
) -> Callable[..., tuple[object, ...]]:
    """A function `f(*inputs) -> tuple of outputs` that runs the nodes in order.

    `unless` is (test, around): where `test()` is true at a call, `around(f, inputs)` gives the outputs instead.
    """
    source = Source("graph")
    name = source.name
    last_use = {i: number for number, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    outputs = {i for i in graph.outputs if i is not None}
    lines: list[str] = []
    for number, node in enumerate(graph.nodes):
        inputs = [_operand(i, name) for i in node.inputs]
        if node.call.is_number:
            expression = f"{name(node.call.op.scalar)}({', '.join(inputs)})"
        else:
            expression = emit(node, inputs, name)
        targets = ["_" if i is None else f"v{i}" for i in node.outputs]
        lines.append(
            f"{targets[0]} = {expression}" if not node.call.multiple else f"{', '.join(targets)}, = {expression}"
        )
        ended = sorted(
            {i for i in node.inputs if isinstance(i, int) and last_use[i] == number and i not in outputs}
            - {i for i, _ in graph.inputs}
        )
        if ended:  # intermediate values are freed at their last use
            lines.append(f"del {', '.join(f'v{i}' for i in ended)}")
    arguments = ", ".join(f"v{i}" for i, _ in graph.inputs)
    returned = "".join("None, " if i is None else f"v{i}, " for i in graph.outputs)
    if unless is not None:
        test, around = map(name, unless)
        inputs_tuple = "".join(f"v{i}, " for i, _ in graph.inputs)
        lines.insert(0, f"if {test}(): return {around}(run, ({inputs_tuple}))")
    with source.block(f"def run({arguments}):"):
        source.add(*lines, f"return ({returned})")
    return source.function("run")


def _operand(i: Input, name: Callable[[object], str]) -> str:
    if isinstance(i, Literal):
        # not its digits: the 1/n of a mean would make each shape a source of its own, to be compiled and kept
        return name(i.value)
    return "None" if i is None else f"v{i}"
