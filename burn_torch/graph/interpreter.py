"""Runs a Graph op by op on any backend: the oracle that every executor is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burn_torch.graph.ir import Graph, Literal
from burn_torch.ops.value import Executor

__all__ = ["interpret"]


def interpret(graph: Graph, backend: Executor, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of `graph` on `backend`, given one primitive (or number) an input."""
    values: dict[int, Any] = {i: x for (i, _), x in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        read = [values[i] if isinstance(i, int) else i.value if isinstance(i, Literal) else None for i in node.inputs]
        if node.call.is_number and all(isinstance(x, int | float) for x in read):  # else a trace holds them
            assert node.call.op.scalar is not None
            made: Sequence[Any] = (node.call.op.scalar(*read),)
        else:
            made = backend.execute(node.call, read)
        for i, x in zip(node.outputs, made, strict=True):
            if i is not None:
                values[i] = x
    return [None if i is None else values[i] for i in graph.outputs]
