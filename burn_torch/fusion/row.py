"""The row that stands for a generated kernel in a graph: its attribute is what the kernel computes, as a Graph."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.lowering import lower
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import Call, Operand, PerCall, op
from burn_torch.ops.torch_code import Over
from burn_torch.ops.value import Value

__all__ = ["body_of", "computed", "kernel"]


@functools.lru_cache(maxsize=4096)
def body_of(text: str) -> Graph:
    """The body that an attribute holds."""
    return Graph.from_json(text)


def _over(call: Call) -> Over:
    return Over(_of_the_leaf, (), lower(body_of(call.attrs["body"]), strict=call.attrs["strict"]).over)


def _of_the_leaf(*inputs: Any) -> Any:
    raise AssertionError("the leaf that generates kernels has a function for each choice of inputs to write over")


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=(), inplace=PerCall(_over))
def kernel(*inputs: Operand, body: str, strict: bool) -> tuple[TensorSpec, ...]:
    """What `body` computes of the inputs, in one generated kernel where the leaf has one, else operation by operation.

    body    a Graph of element-wise operations, views and reductions, as `Graph.to_json` writes it
    strict  rounds after each operation of the body, as unfused execution does
    """
    graph = body_of(body)
    specs = graph.specs()
    return tuple(specs[i] for i in graph.outputs if i is not None)  # type: ignore[misc]  # kernels make tensors


@kernel.decomposes
def _(*inputs: Any, body: str, strict: bool) -> tuple[Any, ...]:
    return computed(body_of(body), inputs)


def computed(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a body computes, operation by operation."""
    known = dict(zip((i for i, _ in graph.inputs), inputs, strict=True))
    some = next((x for x in inputs if isinstance(x, Value)), None)
    for node in graph.nodes:
        given = [known[i] if isinstance(i, int) else None if i is None else i.value for i in node.inputs]
        if some is None or any(isinstance(x, Value) for x in given):
            made = node.call.op(*given, **node.call.attrs)
        else:  # a constant, or random values by literal numbers: nothing says where, so the other inputs do
            made = node.call.op.run(some.backend, Value, given, node.call.attrs)
        for i, value in zip(node.outputs, made if node.call.multiple else (made,), strict=True):
            if i is not None:
                known[i] = value
    return tuple(known[i] for i in graph.outputs if i is not None)
