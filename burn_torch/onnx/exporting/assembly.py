"""From traces to what a file holds: inputs, weights, and each step written by its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph import Graph
from burn_torch.graph import Node as GraphNode
from burn_torch.graph.interpreter import interpret
from burn_torch.onnx.exporting.document import Document
from burn_torch.onnx.exporting.request import Axes
from burn_torch.onnx.exporting.rolling import recurrence
from burn_torch.onnx.exporting.sizes import Length, Size, Symbol, merged, product
from burn_torch.onnx.exporting.traces import Traces
from burn_torch.onnx.exporting.unification import Kind, Part, Ref, Step, kind_of, origin_text
from burn_torch.onnx.exporting.writer import Cannot, Node, Wire, Writer, all_nodes
from burn_torch.onnx.rows.registry import find

__all__ = ["assembled"]


def assembled(
    name: str,
    traces: Traces,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Axes,
    opset: int,
    metadata: Mapping[str, str],
) -> Document:
    """All that the file will hold.  Raises: OnnxError that tells every row that cannot be written."""
    varying = _varying_constants(traces)
    first, graph = traces.traces[0], traces.graphs[0]
    kinds = [
        kind_of(specs) if isinstance(specs[0], TensorSpec) else None
        for specs in zip(*([spec for _, spec in each.inputs] for each in traces.graphs), strict=True)
    ]
    kinds_by_name = {
        n: kind for n, place in zip(inputs, first.tensor_places, strict=True) if (kind := kinds[place]) is not None
    }
    writer = _writer(kinds_by_name, outputs, axes, traces, opset)
    values = {
        graph.inputs[place][0]: writer.met(Wire(n, kinds_by_name[n].dtype, kinds_by_name[n].shape))
        for n, place in zip(inputs, first.tensor_places, strict=True)
    }
    for place, elements in varying.items():
        ident, spec = graph.inputs[place]
        assert isinstance(spec, TensorSpec)
        values[ident] = _numbers(writer, elements, spec)
    weights = _weights(writer, traces, kinds, values)
    weights |= _recurrent_weights(writer, traces, kinds, values)
    _write(writer, traces.steps, values, opset)
    wires = [values[i] for i in graph.outputs if i is not None]
    nodes = _named_outputs(writer, wires, outputs, {*inputs, *weights})
    used = {x for node in all_nodes(nodes) for x in node.reads}
    constants = {key: _Stored(x.array.nbytes, partial(_same, x)) for key, x in writer.constants.items()}
    stored = {key: each for key, each in {**weights, **constants}.items() if key in used}
    return Document(
        name,
        opset,
        nodes,
        {key: each.read for key, each in stored.items()},
        {key: each.nbytes for key, each in stored.items()},
        kinds_by_name,
        {n: Kind(wire.shape, wire.dtype) for n, wire in zip(outputs, wires, strict=True)},
        writer.symbols,
        metadata,
    )


class _Stored(NamedTuple):
    """A tensor of the file: its size, and how to get it."""

    nbytes: int
    read: Callable[[], TensorData]


def _same(data: TensorData) -> TensorData:
    return data


def _weights(
    writer: Writer, traces: Traces, kinds: Sequence[Kind | None], values: dict[int, Wire]
) -> dict[str, _Stored]:
    """The weights that are read, each once however often it stands in a module; their wires are put among values."""
    first, graph = traces.traces[0], traces.graphs[0]
    read = {x.id for step in traces.steps for x in step.reads if isinstance(x, Ref)} | set(graph.outputs)
    weights: dict[str, _Stored] = {}
    wires: dict[int, Wire] = {}
    for place, (wish, primitive) in first.sources.items():
        ident, kind = graph.inputs[place][0], kinds[place]
        if ident not in read or kind is None or ident in values:
            continue
        wire = wires.get(id(primitive))
        if wire is None:
            wire = wires[id(primitive)] = Wire(writer.unique(wish), kind.dtype, kind.shape)
            size = writer.fixed(product(kind.shape), wish) * kind.dtype.itemsize
            weights[str(wire)] = _Stored(size, partial(first.program.leaf.into_data, primitive))
        values[ident] = wire
    return weights


def _recurrent_weights(
    writer: Writer, traces: Traces, kinds: Sequence[Kind | None], values: dict[int, Wire]
) -> dict[str, _Stored]:
    """The weights of recurrent layers, put together of those of their gates before the file is written."""
    first, graph = traces.traces[0], traces.graphs[0]
    makers = {i: node for node in graph.nodes for i in node.outputs if i is not None}
    sources = {graph.inputs[place][0]: primitive for place, (_, primitive) in first.sources.items() if kinds[place]}
    specs = graph.specs()
    weights: dict[str, _Stored] = {}
    for step in traces.steps:
        if step.op is not recurrence:
            continue
        for x, word in zip(step.reads[1:4], ("W", "R", "B"), strict=True):
            if not isinstance(x, Ref) or x.id in values:
                continue
            needed = _ancestors(x.id, makers, sources)
            spec = specs[x.id]
            if needed is None or not isinstance(spec, TensorSpec):
                continue
            inputs = [(i, specs[i]) for i in sources]
            (data,) = interpret(Graph(inputs, needed, [x.id]), first.program.leaf, list(sources.values()))
            path = "" if step.origin is None else step.origin.path
            wire = Wire(writer.unique(f"{path}.{word}" if path else word), spec.dtype, spec.shape)
            size = writer.fixed(product(spec.shape), word) * spec.dtype.itemsize
            weights[str(wire)] = _Stored(size, partial(first.program.leaf.into_data, data))
            values[x.id] = wire
    return weights


def _ancestors(ident: int, makers: Mapping[int, GraphNode], sources: Mapping[int, object]) -> list[GraphNode] | None:
    """The nodes that a value is made by, in order; None where it hangs on more than weights."""
    needed: dict[int, GraphNode] = {}
    waiting = [ident]
    while waiting:
        i = waiting.pop()
        if i in sources:
            continue
        maker = makers.get(i)
        if maker is None:
            return None
        if id(maker) not in needed:
            needed[id(maker)] = maker
            waiting += [x for x in maker.inputs if isinstance(x, int)]
    order = {id(node): i for i, node in enumerate(makers.values())}
    return sorted(needed.values(), key=lambda node: order[id(node)])


def _writer(inputs: Mapping[str, Kind], outputs: Sequence[str], axes: Axes, traces: Traces, opset: int) -> Writer:
    names = list(inputs)
    symbols: list[Symbol] = []
    for symbol, (factor, places) in axes.items():
        i, axis = places[0]
        kind = inputs[names[i]]
        source = Wire(names[i], kind.dtype, kind.shape)
        units = Size(tuple(sizes[symbol] // factor for sizes in traces.sizes))
        symbols.append(Symbol(symbol, units, source, axis, factor))
    writer = Writer(opset, symbols)
    for name in (*inputs, *outputs):
        writer.unique(name)
    return writer


_FEW: Final = 64
"""Elements of a constant that may be put together from sizes, number by number."""


def _varying_constants(traces: Traces) -> dict[int, list[Length]]:
    """Constants of few whole numbers that depend on sizes, as a list of their elements, by place among the inputs.

    Other constants must be the same in every trace.  Raises: OnnxError that names the operation that reads one.
    """
    first, *others = traces.traces
    varying: dict[int, list[Length]] = {}
    for place, (name, one) in first.sources.items():
        rest = [trace.sources[place][1] for trace in others if place in trace.sources]
        if len(rest) == len(others) and all(two is one for two in rest):
            continue
        data = [
            trace.program.leaf.into_data(trace.sources[place][1]) for trace in traces.traces if place in trace.sources
        ]
        if len(data) == len(traces.traces) and all(each == data[0] for each in data[1:]):
            continue
        elements = _elements(data) if len(data) == len(traces.traces) else None
        if elements is None:
            ident = traces.graphs[0].inputs[place][0]
            raise _depends_on_sizes(name, next((s for s in traces.steps if Ref(ident) in s.reads), None))
        varying[place] = elements
    return varying


def _elements(data: Sequence[TensorData]) -> list[Length] | None:
    """The elements of a constant in all traces; None where it has other shapes, too many or no whole numbers."""
    first = data[0]
    if any(each.shape != first.shape for each in data) or first.num_elements > _FEW or not first.dtype.is_int:
        return None
    return [merged([int(x) for x in parts]) for parts in zip(*(each.values.reshape(-1) for each in data), strict=True)]


def _numbers(writer: Writer, elements: Sequence[Length], spec: TensorSpec) -> Wire:
    """A constant put together from sizes when the graph runs."""
    vector = writer.ints(elements)
    flat = Wire(str(vector), DType.I64, (len(elements),))
    return writer.cast(writer.reshape(flat, spec.shape), spec.dtype)


def _depends_on_sizes(name: str, step: Step | None) -> OnnxError:
    where = "" if step is None else f", read by {step.op.name}{origin_text(step.origin)}"
    return OnnxError(
        "export: data that the function makes depends on the size of a dynamic axis",
        given=f"{name}, which differs between two sizes{where}",
        expected="tensors made by operations of a size, such as Tensor.arange, not by from_data",
        mend="make it with operations on tensors, or export with that axis fixed",
    )


def _write(writer: Writer, steps: Sequence[Step], values: dict[int, Wire], opset: int) -> None:
    """Writes each step.  Raises: OnnxError that names all that cannot be written."""
    faults: list[str] = []
    writer.write_steps = lambda steps, values: _write_steps(writer, steps, values, faults)
    _write_steps(writer, steps, values, faults)
    if faults:
        count = len(faults)
        raise OnnxError(
            f"export: {count} operation{'s' if count > 1 else ''} cannot be written in opset {opset}",
            given="\n            ".join(faults[:50]) + (f"\n            and {count - 50} more" if count > 50 else ""),
            expected="rows of the table that burn_torch.onnx.rows writes",
            mend="compute it otherwise, choose a newer opset, or tell how: burn_torch.onnx.row",
        )


def _write_steps(writer: Writer, steps: Sequence[Step], values: dict[int, Wire], faults: list[str]) -> None:
    for step in steps:
        if all(ident is None or ident in values for ident in step.makes):
            continue  # the weights of a recurrent layer, put together already
        reads = [values.get(x.id) if isinstance(x, Ref) else x for x in step.reads]
        lost = any(isinstance(x, Ref) and x.id not in values for x in step.reads)
        export_of = find(step.op.name)
        if export_of is None:
            if not any(isinstance(kind, NumberSpec) for kind in step.results):
                faults.append(f"{step.op.name}: {_why_not(step)}{origin_text(step.origin)}")
            continue
        if lost:  # what made it is among the faults; so is what its bodies hold
            for part in step.attrs.values():
                if isinstance(part, Part):
                    _write_steps(writer, part.steps, {}, faults)
            continue
        writer.origin, writer.results = step.origin, step.results  # type: ignore[assignment]  # rows make tensors
        try:
            results = export_of.rule(writer, *reads, **{k: v for k, v in step.attrs.items() if k != "live"})
        except Cannot as fault:
            faults.append(f"{step.op.name}: {fault}{origin_text(step.origin)}")
            continue
        parts = results if isinstance(results, tuple) else (results,)
        for ident, part, kind in zip(step.makes, parts, step.results, strict=True):
            if ident is not None and part is not None:
                assert isinstance(kind, Kind), step
                assert part.dtype is kind.dtype, f"{step.op.name}: {part.dtype} for {kind.dtype}"
                values[ident] = writer.met(Wire(str(part), kind.dtype, kind.shape))


def _why_not(step: Step) -> str:
    if step.op.random:
        return "draws random numbers, and ONNX has none that could be compared"
    return "a gradient" if step.op.name.endswith(("_backward", "_gradient")) else "ONNX has no such operator"


def _named_outputs(writer: Writer, wires: Sequence[Wire], names: Sequence[str], fixed: set[str]) -> list[Node]:
    """The nodes that are needed, with the outputs under their names."""
    renamed: dict[str, str] = {}
    writer.origin = None
    nodes = list(writer.nodes)
    for wire, name in zip(wires, names, strict=True):
        if wire in renamed or wire in fixed or str(wire) in writer.constants:
            nodes.append(Node("Identity", writer.unique(f"{name}.Identity"), (renamed.get(wire, wire),), (name,), {}))
        else:
            renamed[str(wire)] = name
    needed = set(names)
    kept: list[Node] = []
    for node in (each.renamed(renamed) for each in reversed(nodes)):
        outputs = node.outputs
        if needed.isdisjoint(outputs):
            continue
        needed |= node.reads
        if node.op in _OPTIONAL_OUTPUTS:
            while outputs[-1] not in needed:
                outputs = outputs[:-1]
        kept.append(node._replace(outputs=outputs))
    return kept[::-1]


_OPTIONAL_OUTPUTS: Final = frozenset({"GRU", "LSTM", "LayerNormalization", "MaxPool", "RNN"})
