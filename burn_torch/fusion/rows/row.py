"""The row that stands for a generated kernel in a graph: its attributes are what the kernel computes, as a Graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.rows.sharing import instance, kernel_at, read, shared
from burn_torch.fusion.rows.symbolic import scope_of
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.op import Call, PerCall, op
from burn_torch.ops.signature import Operand
from burn_torch.ops.torch_code import Over
from burn_torch.ops.value import Value

__all__ = ["body_of", "computed", "inside", "kernel", "remember_over", "results_of", "text_of"]

_MOST_PLANNED: Final = 4096

_planned: Final[OrderedDict[str, Graph]] = OrderedDict()
"""Bodies of symbolic sizes by their texts: what the scheduler makes of symbolic programs has them."""

_known_over: Final[OrderedDict[str, tuple[tuple[int, int], ...]]] = OrderedDict()
"""By the texts of bodies, what their kernels may write over what: planning has written them before."""


def text_of(body: Graph) -> str:
    """The attribute that stands for a body."""
    scope = scope_of(body)
    if scope is None:
        return body.to_json()
    text = f"symbolic {scope.number}: {body.text()}"
    _planned[text] = body
    while len(_planned) > _MOST_PLANNED:
        _planned.popitem(last=False)
    return text


def body_of(text: str, dynamic: str = "", sizes: tuple[int, ...] = ()) -> Graph:
    """The body that an attribute stands for, at the sizes of a Call."""
    if text.startswith("symbolic "):
        return _planned[text]
    return instance(text, dynamic, sizes) if dynamic else read(text)


def remember_over(text: str, over: tuple[tuple[int, int], ...]) -> None:
    """Says what the kernel of a body, which need not round after each operation, may write over what."""
    _known_over[text] = over
    while len(_known_over) > _MOST_PLANNED:
        _known_over.popitem(last=False)


def _over(call: Call) -> Over:
    attrs = call.attrs
    known = None if attrs["strict"] or attrs["dynamic"] else _known_over.get(attrs["body"])
    if known is not None:
        return Over(_of_the_leaf, (), known)
    try:
        kernel = kernel_at(attrs["body"], attrs["dynamic"], attrs["sizes"], strict=attrs["strict"])
        if kernel is None:
            kernel = lower(body_of(attrs["body"], attrs["dynamic"], attrs["sizes"]), strict=attrs["strict"])
    except Unfusible:  # of a graph from a file; the leaf computes it operation by operation
        return Over(_of_the_leaf, ())
    return Over(_of_the_leaf, (), kernel.over)


def _of_the_leaf(*inputs: object) -> object:
    raise AssertionError("the leaf that generates kernels has a function for each choice of inputs to write over")


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=(), inplace=PerCall(_over))
def kernel(
    *inputs: Operand, body: str, strict: bool, dynamic: str = "", sizes: tuple[int, ...] = ()
) -> tuple[TensorSpec, ...]:
    """Computes `body` of the inputs, in one generated kernel where the leaf has one, else operation by operation.

    body     a Graph of element-wise operations, views and reductions, as `Graph.to_json` writes it
    strict   rounds after each operation of the body, as unfused execution does
    dynamic  what the sizes that the body is given are made of, where other sizes share the kernel; see `sharing.py`
    sizes    the symbols of `dynamic` here
    """
    if dynamic:
        sized = shared(body, dynamic)
        symbols = sized.symbols(sizes)
        if symbols is not None:
            return sized.specs(symbols)
    return results_of(body_of(body, dynamic, sizes))


def results_of(body: Graph) -> tuple[TensorSpec, ...]:
    """The specs of what a body makes."""
    specs = body.specs()
    return tuple(specs[i] for i in body.outputs if i is not None)  # type: ignore[misc]  # kernels make tensors


def inside(node: Node) -> Graph | None:
    """Returns the body of a generated kernel; None for any other operation."""
    attrs = node.call.attrs
    return body_of(attrs["body"], attrs["dynamic"], attrs["sizes"]) if node.call.op is kernel else None


@kernel.decomposes
def _(*inputs: object, body: str, strict: bool, dynamic: str, sizes: tuple[int, ...]) -> tuple[object, ...]:
    return computed(body_of(body, dynamic, sizes), inputs)


def computed(graph: Graph, inputs: Sequence[object]) -> tuple[object, ...]:
    """Computes a body, operation by operation."""
    known = dict(zip((i for i, _ in graph.inputs), inputs, strict=True))
    some = next((x for x in inputs if isinstance(x, Value)), None)
    for node in graph.nodes:
        operands = [known[i] if isinstance(i, int) else None if i is None else i.value for i in node.inputs]
        if some is None or any(isinstance(x, Value) for x in operands):
            results = node.call.op(*operands, **node.call.attrs)
        else:  # a constant, or random values by literal numbers: nothing says where, so the other inputs do
            results = node.call.op.run(some.backend, Value, operands, node.call.attrs)
        for i, value in zip(node.outputs, results if node.call.multiple else (results,), strict=True):
            if i is not None:
                known[i] = value
    return tuple(known[i] for i in graph.outputs if i is not None)
