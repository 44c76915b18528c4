"""Several traces of one function made one: steps whose numbers are constants, or sizes that vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph import Graph, Literal, Node
from burn_torch.graph.origin import Origin
from burn_torch.onnx.exporting.rolling import attributes_of
from burn_torch.onnx.exporting.sizes import PerTrace, Shape, merged
from burn_torch.ops.op import Op

__all__ = ["Kind", "Part", "Step", "Varying", "origin_text", "unified"]


class Kind(NamedTuple):
    """Holds what is known of a tensor in all traces: its shape, where sizes may vary, and its element type."""

    shape: Shape
    dtype: DType


@final
class Varying(PerTrace):
    """A number of the graph that differs between the traces, and not as a whole number would."""

    __slots__ = ()


class Ref(NamedTuple):
    """A value of the graph, by its id."""

    id: int


Read: TypeAlias = Any
"""Holds what a step reads: a Ref, a number, a Size, a Varying, or None."""


class Step(NamedTuple):
    """One node in all traces."""

    op: Op
    reads: tuple[Read, ...]
    attrs: dict[str, Any]
    makes: tuple[int | None, ...]
    origin: Origin | None
    results: tuple[Kind | NumberSpec | None, ...]


class Part(NamedTuple):
    """A graph within a node, in all traces: its inputs (None for the kind of a number), steps and outputs."""

    inputs: tuple[tuple[int, Kind | None], ...]
    steps: list[Step]
    outputs: tuple[int, ...]


def origin_text(origin: Origin | None) -> str:
    """' at encoder.linear at model.py:12 in forward: <source>'; '' where nothing is known."""
    return "" if origin is None else f" at {origin}"


def unified(graphs: Sequence[Graph]) -> list[Step]:
    """The steps of graphs that do the same at several sizes; all are dense.

    Raises: OnnxError where they do not: the number of operations, or which they are, depends on a dynamic axis.
    """
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        first = nodes[0]
        if any(not _alike(first, node) for node in nodes):
            raise _differing(nodes)
    lengths = {len(graph.nodes) for graph in graphs}
    if len(lengths) > 1:
        last = min(lengths) - 1
        raise _differing([graph.nodes[max(last, 0)] for graph in graphs if graph.nodes], lengths)
    return [_step(nodes) for nodes in zip(*(graph.nodes for graph in graphs), strict=True)]


def _alike(one: Node, other: Node) -> bool:
    return (
        one.call.op is other.call.op
        and one.outputs == other.outputs
        and len(one.inputs) == len(other.inputs)
        and all(
            isinstance(a, Literal) and isinstance(b, Literal) and type(a.value) is type(b.value) if a != b else True
            for a, b in zip(one.inputs, other.inputs, strict=True)
        )
        and [_form(spec) for spec in one.call.results] == [_form(spec) for spec in other.call.results]
        and _same_attributes(attributes_of(one.call), attributes_of(other.call))
    )


def _same_attributes(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return all(_same_form(value, other[name]) for name, value in one.items())


def _form(spec: object) -> object:
    return (spec.ndim, spec.dtype) if isinstance(spec, TensorSpec) else spec


def _same_form(one: object, other: object) -> bool:
    """Returns whether attributes differ in whole numbers only; graphs are compared when they are made one."""
    if isinstance(one, Graph) and isinstance(other, Graph):
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_same_form(a, b) for a, b in zip(one, other, strict=True))
    if type(one) is int and type(other) is int:
        return True
    return bool(one == other)


def _differing(nodes: Sequence[Node], lengths: set[int] | None = None) -> OnnxError:
    texts = dict.fromkeys(f"{node.call}{origin_text(node.origin)}" for node in nodes)
    counts = "" if lengths is None else f", {', '.join(map(str, sorted(lengths)))} operations in all"
    return OnnxError(
        "export: what is computed depends on the size of a dynamic axis",
        given=" and, at another size, ".join(texts) + counts,
        expected="the same operations at every size; a loop over an axis, a branch on a size and an axis of size 1"
        " that is broadcast give others",
        mend="export with that axis fixed: leave it out of dynamic_dims, or dynamic_batch",
    )


def _step(nodes: Sequence[Node]) -> Step:
    first = nodes[0]
    each = [attributes_of(node.call) for node in nodes]
    attrs = {name: _attribute([own[name] for own in each]) for name in each[0]}
    reads = tuple(_read(parts) for parts in zip(*(node.inputs for node in nodes), strict=True))
    results = tuple(
        kind_of(specs) if isinstance(specs[0], TensorSpec) else specs[0]
        for specs in zip(*(n.call.results for n in nodes), strict=True)
    )
    return Step(first.call.op, reads, attrs, first.outputs, first.origin, results)


def _attribute(values: Sequence[Any]) -> object:
    first = values[0]
    if isinstance(first, Graph):
        return _part(values)
    if isinstance(first, tuple):
        return tuple(_attribute(parts) for parts in zip(*values, strict=True))
    return merged(values) if type(first) is int else first


def _part(graphs: Sequence[Graph]) -> Part:
    kinds = zip(*([spec for _, spec in graph.inputs] for graph in graphs), strict=True)
    inputs = [
        (ident, kind_of(specs) if isinstance(specs[0], TensorSpec) else None)
        for (ident, _), specs in zip(graphs[0].inputs, kinds, strict=True)
    ]
    return Part(tuple(inputs), unified(graphs), tuple(i for i in graphs[0].outputs if i is not None))


def _read(parts: Sequence[Any]) -> Read:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, int):
        return Ref(first)
    numbers = [part.value for part in parts]
    if all(part == first for part in parts):
        return first.value
    if all(float(number).is_integer() for number in numbers):
        return merged([int(number) for number in numbers])
    return Varying(tuple(float(number) for number in numbers))


def kind_of(specs: Sequence[TensorSpec]) -> Kind:
    """Returns what the specs of one tensor have in common."""
    return Kind(tuple(merged(sizes) for sizes in zip(*(spec.shape for spec in specs), strict=True)), specs[0].dtype)
