"""Runs a Graph op by op on any backend: the oracle that every executor is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.origin import Origins
from burn_torch.ops.value import Executor, Primitive

__all__ = ["executed", "interpret", "stepwise"]


def interpret(graph: Graph, backend: Executor, inputs: Sequence[object]) -> list[Any]:
    """The outputs of `graph` on `backend`, given one primitive (or number) an input.

    Over a trace that collects origins, what is written has the origins of the graph's nodes.
    """
    origins: Origins | None = getattr(backend, "origins", None)
    if origins is None:
        return _interpret(graph, backend, inputs, None)
    with origins.scope():
        return _interpret(graph, backend, inputs, origins)


def _interpret(graph: Graph, backend: Executor, inputs: Sequence[Primitive], origins: Origins | None) -> list[object]:
    values: dict[int, Primitive] = {i: x for (i, _), x in zip(graph.inputs, inputs, strict=True)}
    outside = None if origins is None else origins.given
    for node in graph.nodes:
        if origins is not None:
            origins.given = node.origin or outside
        outputs = executed(node, backend, values)
        for i, x in zip(node.outputs, outputs, strict=True):
            if i is not None:
                values[i] = x
    return [None if i is None else values[i] for i in graph.outputs]


def executed(node: Node, backend: Executor, values: Mapping[Any, Any]) -> Sequence[object]:
    """Returns the outputs of a node, given the values that it reads."""
    read = [values[i] if isinstance(i, int) else i.value if isinstance(i, Literal) else None for i in node.inputs]
    if node.call.is_number and all(isinstance(x, int | float) for x in read):  # else a trace holds them
        assert node.call.op.scalar is not None
        return (node.call.op.scalar(*read),)
    return backend.execute(node.call, read)


def stepwise(graph: Graph, backend: Executor, inputs: Sequence[Primitive]) -> Iterator[tuple[Node, Sequence[object]]]:
    """Runs a graph as `interpret` does and yields each node with its outputs.

    Values are freed at their last use.
    """
    values: dict[int, Primitive] = {i: x for (i, _), x in zip(graph.inputs, inputs, strict=True)}
    last = {i: number for number, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    for number, node in enumerate(graph.nodes):
        outputs = executed(node, backend, values)
        yield node, outputs
        values.update((i, x) for i, x in zip(node.outputs, outputs, strict=True) if i is not None and i in last)
        for i in node.inputs:
            if isinstance(i, int) and last[i] == number:
                values.pop(i, None)
