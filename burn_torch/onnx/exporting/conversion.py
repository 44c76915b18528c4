"""export: a module or a function as an ONNX file, by way of the Graph IR."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from burn_torch.core.data import TensorData
from burn_torch.core.errors import ArgumentError, BurnTorchError, OnnxError, explain
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph import Graph
from burn_torch.module.tree import Tree
from burn_torch.onnx.exporting.checking import Comparison, checked, compared
from burn_torch.onnx.exporting.document import EXTERNAL_BYTES, Document, written
from burn_torch.onnx.exporting.sizes import Size, Symbol
from burn_torch.onnx.exporting.tracing import Inputs, Tracing, prepared, resized, traced
from burn_torch.onnx.exporting.unification import Kind, Ref, Step, kind_of, origin_text, unified
from burn_torch.onnx.exporting.writer import Cannot, Node, Wire, Writer
from burn_torch.onnx.rows.registry import find
from burn_torch.tensor import Tensor
from burn_torch.transform.flatten import Walk

__all__ = ["DEFAULT_OPSET", "LEAST_OPSET", "ExportReport", "export"]

LEAST_OPSET: Final = 13
DEFAULT_OPSET: Final = 18
"""Read by every runtime of the last years; a newer one writes layers such as Gelu as one operator."""

_STEPS: Final = ((1, 3, 4, 9, 11), (2, 3, 7, 5, 8), (5, 2, 3, 8, 1), (4, 9, 1, 2, 12), (3, 8, 10, 1, 5))
"""What is added to the sizes of dynamic axes, one row an axis: in each trace all have others, in no fixed relation."""


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it compares.  `print(report)` shows it."""

    path: Path
    data_path: Path | None
    """The file beside it that holds the weights, where they are large."""
    opset: int
    operators: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: int
    """How many tensors."""
    weight_bytes: int
    runtime: str
    """What the outputs were compared in, or why they were not."""
    comparisons: tuple[Comparison, ...]

    @property
    def error(self) -> float | None:
        """The largest difference of an output from that of burn_torch; None where nothing was compared."""
        return max((comparison.error for comparison in self.comparisons), default=None)

    def __str__(self) -> str:
        nodes = sum(self.operators.values())
        data = "" if self.data_path is None else f", in {self.data_path.name}"
        lines = [
            f"{self.path}: opset {self.opset}",
            f"  inputs      {', '.join(self.inputs) or 'none'}",
            f"  outputs     {', '.join(self.outputs)}",
            f"  weights     {self.weights} tensors, {self.weight_bytes:,} bytes{data}",
            f"  operators   {nodes} nodes: " + ", ".join(f"{op} x {n}" for op, n in self.operators.items()),
            f"  compared in {self.runtime}",
        ]
        return "\n".join([*lines, *(f"    {comparison}" for comparison in self.comparisons)])


def export(
    function: Any,
    example_inputs: Any,
    path: str | Path,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_batch: bool = False,
    dynamic_dims: Mapping[str, Mapping[int, str]] | None = None,
    opset: int = DEFAULT_OPSET,
    metadata: Mapping[str, str] | None = None,
    captures: Sequence[Any] = (),
    external_bytes: int = EXTERNAL_BYTES,
    check: bool = True,
    compare: bool = True,
) -> ExportReport:
    """Writes a module, or a function of tensors, as an ONNX file, and says how it compares.

        export(model, (image,), "model.onnx", dynamic_batch=True)

    It is traced as `compile` traces it, for inference: a module as `model.valid()`, so dropout is off and batch norm
    uses its running statistics.  A function takes what it computes from as arguments, modules too:
    `export(lambda model, x: model.encode(x), (model, x), path)`.  Numbers and texts among the inputs are compiled in.

    function         a module, whose `forward` is exported, one of its methods, or a function
    example_inputs   a tensor, or a tuple of what it is called with; containers of tensors are several inputs
    input_names      of all tensors in order; else those of the parameters
    output_names     of all results; else keys and fields, or "output"
    dynamic_batch    axis 0 of every input may have any size
    dynamic_dims     other axes that may: {"tokens": {1: "seq"}}; one name is one size wherever it stands
    opset            13 to the newest that the installed onnx knows
    metadata         texts that the file carries, as metadata_props
    captures         tensors and modules that the function reads besides its arguments, for inference already
    external_bytes   weights beyond that lie in a file beside the model
    check            whether onnx.checker looks at the file
    compare          whether onnxruntime, if it is installed, runs it at the example and at other sizes

    With dynamic axes the function is traced at several sizes, and what differs between the traces becomes a formula
    of the axes.  Raises: OnnxError for rows that have no operator, all at once with the user's lines, for what
    depends on a size in another way, and for a file that computes other values; TraceError for what cannot be
    traced; ArgumentError for names and axes that do not fit; ArtifactError where nothing can be written.  After an
    error the path is as it was.
    """
    target = Path(path)
    run, given, names = _called(function, example_inputs)
    inputs = Inputs(given, names)
    _require_inference(captures)
    _require_opset(opset)
    told = _input_names(inputs, input_names)
    axes = _dynamic_axes(inputs, told, dynamic_batch, dynamic_dims or {})
    tensors = list(inputs.tensors.values())
    found = _traces(run, inputs, tensors, axes, captures, opset)
    outputs = _output_names(found.traces[0], output_names, told)
    document = _document(_name_of(function), found, told, outputs, axes, opset, metadata or {})
    with written(document, target, external_bytes) as (temporary, data):
        if check:
            checked(temporary, document.name)
        runtime, comparisons = "nothing: compare=False", list[Comparison]()
        if compare:
            cases = _cases(run, inputs, tensors, axes, found)
            runtime, comparisons = compared(temporary, (told, list(outputs)), cases)
    return ExportReport(
        target,
        data,
        opset,
        dict(sorted(Counter(node.op for node in document.nodes).items(), key=lambda item: (-item[1], item[0]))),
        tuple(told),
        tuple(outputs),
        len(document.weights),
        document.weight_bytes,
        runtime,
        tuple(comparisons),
    )


# -- what is asked for ---------------------------------------------------------------------------------------------
def _called(function: Any, example_inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...], list[str]]:
    """A function of modules and inputs, these, and the names of its parameters."""
    given = example_inputs if type(example_inputs) is tuple else (example_inputs,)
    owner = getattr(function, "__self__", None)
    run: Callable[..., Any]
    if isinstance(function, Tree) or isinstance(owner, Tree):
        module = function if isinstance(function, Tree) else owner
        method = "forward" if isinstance(function, Tree) else function.__name__
        if not callable(getattr(module, method, None)):
            raise ArgumentError(
                explain(
                    "export: the module has no forward",
                    given=type(module).__name__,
                    expected="a module with a method forward, or one of its methods",
                    mend="export(model.encode, inputs, path) exports another method",
                )
            )

        def run(tree: Any, *inputs: Any) -> Any:
            return getattr(tree, method)(*inputs)

        return run, (module, *given), ["", *_parameters(getattr(module, method), len(given))]
    return function, given, _parameters(function, len(given))


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first positional parameters; numbered where there are none of that name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]  # no parameters that could be named
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return [*names[:count], *(f"input_{i}" for i in range(len(names), count))]


def _name_of(function: Any) -> str:
    return type(function).__name__ if isinstance(function, Tree) else getattr(function, "__name__", "function")


def _require_inference(captures: Sequence[Any]) -> None:
    training = [
        type(capture).__name__
        for capture in captures
        if isinstance(capture, Tree) and any(device.is_autodiff() for device in getattr(capture, "devices", list)())
    ]
    if training:
        raise ArgumentError(
            explain(
                "export: a captured module would train",
                given=", ".join(training),
                expected="modules for inference, where dropout is off and batch norm uses its running statistics",
                mend="capture model.valid(), or pass the module among example_inputs",
            )
        )


def _require_opset(opset: int) -> None:
    try:
        from onnx import defs
    except ImportError as err:
        raise OnnxError(
            explain(
                "writing ONNX files needs the package onnx",
                given=f"{err}",
                expected="onnx 1.19 or newer",
                mend="pip install 'burn-torch[onnx]'",
            )
        ) from err
    newest = defs.onnx_opset_version()
    if not LEAST_OPSET <= opset <= newest:
        raise ArgumentError(
            explain(
                "export: this opset cannot be written",
                given=f"opset {opset}",
                expected=f"{LEAST_OPSET} to {newest}, the newest that the installed onnx knows",
                mend=f"leave it out for {DEFAULT_OPSET}",
            )
        )


def _input_names(inputs: Inputs, wanted: Sequence[str] | None) -> list[str]:
    names = list(inputs.tensors) if wanted is None else list(wanted)
    if len(names) != len(inputs.tensors) or len(set(names)) < len(names) or not all(names):
        raise ArgumentError(
            explain(
                "export: input_names does not name the inputs",
                given=", ".join(map(repr, names)) or "no name",
                expected=f"{len(inputs.tensors)} distinct names, for {', '.join(inputs.tensors) or 'no tensors'}",
                mend="give one name for each tensor, in that order",
            )
        )
    return names


def _output_names(trace: Tracing, wanted: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    names = [_apart(name, inputs) for name in trace.outputs] if wanted is None else list(wanted)
    clash = [name for name in names if name in inputs]
    if len(names) != len(trace.outputs) or len(set(names)) < len(names) or clash or not names or not all(names):
        raise ArgumentError(
            explain(
                "export: the outputs need names of their own" if names else "export: nothing is returned",
                given=", ".join(map(repr, names)) or "no output",
                expected=f"{max(len(trace.outputs), 1)} distinct names, none of them that of an input",
                mend=f"give output_names for {', '.join(trace.outputs) or 'what the function returns'}",
            )
        )
    return names


def _apart(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"{name}_out"
    return name


Axes = dict[str, list[tuple[int, int]]]
"""For each dynamic axis by name: (number of the input, axis)."""


def _dynamic_axes(inputs: Inputs, names: Sequence[str], batch: bool, dims: Mapping[str, Mapping[int, str]]) -> Axes:
    tensors = list(inputs.tensors.values())
    faults = [f"no input {name!r}, but {', '.join(names)}" for name in dims if name not in names]
    axes: Axes = {}
    for i, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        wanted = {0: "batch"} if batch and tensor.ndim else {}
        for axis, symbol in {**wanted, **dims.get(name, {})}.items():
            if not -tensor.ndim <= axis < tensor.ndim or not symbol:
                faults.append(f"no axis {axis} of {name} {tensor.shape}, or no name for it")
            else:
                axes.setdefault(symbol, []).append((i, axis % tensor.ndim))
    for symbol, places in axes.items():
        sizes = {tensors[i].shape[axis] for i, axis in places}
        if len(sizes) > 1:
            at = ", ".join(f"axis {axis} of {names[i]} is {tensors[i].shape[axis]}" for i, axis in places)
            faults.append(f"{symbol}: {at}")
    if len(axes) > len(_STEPS):
        faults.append(f"{len(axes)} dynamic axes, of {len(_STEPS)} at most")
    if faults:
        raise ArgumentError(
            explain(
                "export: the dynamic axes do not fit the example inputs",
                given="; ".join(faults),
                expected="axes of the inputs, those of one name with one size",
                mend='write dynamic_dims={"x": {0: "batch", 1: "seq"}}',
            )
        )
    return axes


# -- tracing --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Traces:
    """The function traced at one or several sizes of its dynamic axes, and what all traces do."""

    sizes: tuple[dict[str, int], ...]
    traces: tuple[Tracing, ...]
    graphs: tuple[Graph, ...]
    steps: list[Step]


def _traces(
    run: Callable[..., Any],
    inputs: Inputs,
    tensors: Sequence[Tensor],
    axes: Axes,
    captures: Sequence[Any],
    opset: int,
) -> _Traces:
    """The function at the example's sizes; with dynamic axes at some others too, none of them 1.

    An example at the limit of what the function takes, or of a size that is special to it, is left out: then all
    sizes lie above it, or below.
    """
    example = {symbol: tensors[places[0][0]].shape[places[0][1]] for symbol, places in axes.items()}
    count = len(axes) + 4 if axes else 1
    plans = [[_at(example, k, up=True) for k in range(count)]]
    if axes:
        plans += [[_at(example, k, up=up) for k in range(1, count + 1)] for up in (True, False)]
    first: BurnTorchError | None = None
    for plan in plans:
        if any(size < 2 for sizes in plan for size in sizes.values()):
            continue
        sizes = plan[0]
        try:
            traces = []
            for sizes in plan:
                traces.append(traced(run, inputs, _resized(tensors, axes, sizes), captures))
                if not traces[0].outputs:
                    break
            graphs = [_prepared(trace, opset) for trace in traces]
            return _Traces(tuple(plan), tuple(traces), tuple(graphs), unified(graphs))
        except BurnTorchError as err:
            if len(traces) < count and axes:
                err.add_note(f"while the dynamic axes were tried at {_sizes_text(sizes)}")
            first = first or err
            if not axes or (plan is plans[0] and not traces):
                raise
    assert first is not None
    raise first


def _prepared(trace: Tracing, opset: int) -> Graph:
    outputs = trace.graph.outputs[: len(trace.outputs)]  # without running states that were handed in
    return prepared(Graph(trace.graph.inputs, trace.graph.nodes, outputs), opset)


def _at(example: Mapping[str, int], k: int, *, up: bool) -> dict[str, int]:
    """Sizes for trace k: those of the example, where they are 2 or more, then others."""
    sizes: dict[str, int] = {}
    for i, (symbol, size) in enumerate(example.items()):
        steps = [0, *_STEPS[i], *(20 + 7 * i + j * j for j in range(8))]
        sizes[symbol] = max(size, 2) + steps[k] if up else size - steps[k]
    return sizes


def _resized(tensors: Sequence[Tensor], axes: Axes, sizes: Mapping[str, int]) -> list[Tensor]:
    wanted: dict[int, dict[int, int]] = {}
    for symbol, places in axes.items():
        for i, axis in places:
            wanted.setdefault(i, {})[axis] = sizes[symbol]
    return [resized(tensor, wanted.get(i, {})) for i, tensor in enumerate(tensors)]


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{symbol} {size}" for symbol, size in sizes.items())


def _cases(
    run: Callable[..., Any],
    inputs: Inputs,
    tensors: Sequence[Tensor],
    axes: Axes,
    found: _Traces,
) -> list[tuple[str, list[TensorData], list[TensorData]]]:
    """Inputs and outputs of the function itself: at the example, and at other sizes than it was traced at."""
    example = {symbol: tensors[places[0][0]].shape[places[0][1]] for symbol, places in axes.items()}
    sizes = [example, found.sizes[-1]] if axes else [example]
    modules = list(inputs.modules.values())
    cases: list[tuple[str, list[TensorData], list[TensorData]]] = []
    for at in sizes:
        given = _resized(tensors, axes, at)
        walk = Walk()
        walk.take(run(*inputs.put_together([*modules, *given])))
        leaf = found.traces[0].found.leaf
        cases.append((_sizes_text(at), [x.into_data() for x in given], [leaf.into_data(y) for y in walk.leaves]))
    return cases


# -- writing --------------------------------------------------------------------------------------------------------
def _document(
    name: str,
    found: _Traces,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Axes,
    opset: int,
    metadata: Mapping[str, str],
) -> Document:
    traces, graphs, steps = found.traces, found.graphs, found.steps
    first = traces[0]
    kinds = [
        kind_of(specs) if isinstance(specs[0], TensorSpec) else None
        for specs in zip(*([spec for _, spec in graph.inputs] for graph in graphs), strict=True)
    ]
    given = {place: i for i, place in enumerate(first.given)}
    writer = _writer(inputs, outputs, axes, found, [kinds[place] for place in first.given], opset)
    values: dict[int, Wire] = {}
    weights: dict[str, Callable[[], TensorData]] = {}
    sizes: dict[str, int] = {}
    stored: dict[int, Wire] = {}
    read = {x.id for step in steps for x in step.reads if isinstance(x, Ref)} | set(graphs[0].outputs)
    for place, ((ident, _), kind) in enumerate(zip(graphs[0].inputs, kinds, strict=True)):
        if kind is None:
            continue
        if place in given:
            values[ident] = writer.met(Wire(inputs[given[place]], kind.dtype, kind.shape))
        elif ident in read and place in first.sources:
            wish, primitive = first.sources[place]
            wire = stored.get(id(primitive))
            if wire is None:
                wire = stored[id(primitive)] = Wire(writer.unique(wish), kind.dtype, kind.shape)
                weights[str(wire)] = _reading(first, primitive)
                sizes[str(wire)] = math.prod(_fixed(kind)) * kind.dtype.itemsize
            values[ident] = wire
    _require_equal_weights(traces)
    _write(writer, steps, values, opset)
    nodes = _named_outputs(
        writer, [values[i] for i in graphs[0].outputs if i is not None], outputs, {*inputs, *weights}
    )
    constants = {str(key): (lambda data=data: data) for key, data in writer.constants.items()}
    used = {x for node in nodes for x in node.inputs}
    sizes.update({key: data.array.nbytes for key, data in writer.constants.items()})
    kept = {key: make for key, make in {**weights, **constants}.items() if key in used}
    return Document(
        name,
        opset,
        nodes,
        kept,
        {key: sizes[key] for key in kept},
        {n: kind for n, place in zip(inputs, first.given, strict=True) if (kind := kinds[place]) is not None},
        {
            n: Kind(values[i].shape, values[i].dtype)
            for n, i in zip(outputs, graphs[0].outputs, strict=True)
            if i is not None
        },
        writer.symbols,
        metadata,
    )


def _fixed(kind: Kind) -> list[int]:
    return [size for size in kind.shape if not isinstance(size, Size)]


def _reading(trace: Tracing, primitive: Any) -> Callable[[], TensorData]:
    return lambda: trace.found.leaf.into_data(primitive)


def _writer(
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Axes,
    found: _Traces,
    kinds: Sequence[Kind | None],
    opset: int,
) -> Writer:
    symbols: list[Symbol] = []
    for symbol, places in axes.items():
        i, axis = places[0]
        kind = kinds[i]
        assert kind is not None
        source = Wire(inputs[i], kind.dtype, kind.shape)
        symbols.append(Symbol(symbol, Size(tuple(sizes[symbol] for sizes in found.sizes)), source, axis))
    writer = Writer(opset, symbols)
    for name in (*inputs, *outputs):
        writer.unique(name)
    return writer


def _require_equal_weights(traces: Sequence[Tracing]) -> None:
    """Constants that the function made must not depend on a size: a trace has those of its own."""
    first = traces[0]
    for place, (name, primitive) in first.sources.items():
        for other in traces[1:]:
            found = other.sources.get(place)
            if found is None or (
                found[1] is not primitive
                and first.found.leaf.into_data(primitive) != other.found.leaf.into_data(found[1])
            ):
                raise OnnxError(
                    explain(
                        "export: data that the function makes depends on the size of a dynamic axis",
                        given=f"{name}, which differs between two sizes",
                        expected="tensors made by operations of a size, such as Tensor.arange, not by from_data",
                        mend="make it with operations on tensors, or export with that axis fixed",
                    )
                )


def _write(writer: Writer, steps: Sequence[Step], values: dict[int, Wire], opset: int) -> None:
    """Writes each step.  Raises: OnnxError that names all that cannot be written."""
    faults: list[str] = []
    for step in steps:
        reads = [values.get(x.id) if isinstance(x, Ref) else x for x in step.reads]
        lost = any(isinstance(x, Ref) and x.id not in values for x in step.reads)
        export_of = find(step.op.name)
        if export_of is None:
            if not _is_number(step):
                faults.append(f"{step.op.name}: {_why_not(step)}{origin_text(step.origin)}")
            continue
        if lost:
            continue  # what made it is among the faults
        writer.origin, writer.results = step.origin, step.results  # type: ignore[assignment]  # rows make tensors
        try:
            made = export_of.rule(writer, *reads, **{k: v for k, v in step.attrs.items() if k != "live"})
        except Cannot as fault:
            faults.append(f"{step.op.name}: {fault}{origin_text(step.origin)}")
            continue
        parts = made if isinstance(made, tuple) else (made,)
        for ident, part, kind in zip(step.makes, parts, step.results, strict=True):
            if ident is not None and part is not None:
                assert isinstance(kind, Kind), step
                assert part.dtype is kind.dtype, f"{step.op.name}: {part.dtype} for {kind.dtype}"
                values[ident] = writer.met(Wire(str(part), kind.dtype, kind.shape))
    if faults:
        count = len(faults)
        raise OnnxError(
            explain(
                f"export: {count} operation{'s' if count > 1 else ''} cannot be written in opset {opset}",
                given="\n            ".join(faults[:50])
                + (f"\n            and {count - 50} more" if count > 50 else ""),
                expected="rows of the table that burn_torch.onnx.rows writes",
                mend="compute it otherwise, choose a newer opset, or tell how: burn_torch.onnx.row",
            )
        )


def _is_number(step: Step) -> bool:
    return any(isinstance(kind, NumberSpec) for kind in step.results)


def _why_not(step: Step) -> str:
    if step.op.random:
        return "draws random numbers, and ONNX has none that could be compared"
    return "a gradient" if step.op.name.endswith(("_backward", "_gradient")) else "ONNX has no such operator"


def _named_outputs(writer: Writer, made: Sequence[Wire], names: Sequence[str], fixed: set[str]) -> list[Node]:
    """The nodes that are needed, with the outputs under their names."""
    renamed: dict[str, str] = {}
    writer.origin = None
    nodes = list(writer.nodes)
    for wire, name in zip(made, names, strict=True):
        if wire in renamed or wire in fixed or str(wire) in writer.constants:
            nodes.append(Node("Identity", writer.unique(f"{name}.Identity"), (renamed.get(wire, wire),), (name,), {}))
        else:
            renamed[str(wire)] = name
    needed = set(names)
    kept: list[Node] = []
    for node in reversed(nodes):
        outputs = tuple(renamed.get(y, y) for y in node.outputs)
        if needed.isdisjoint(outputs):
            continue
        inputs = tuple(renamed.get(x, x) for x in node.inputs)
        needed.update(inputs)
        if node.op in _OPTIONAL_OUTPUTS:
            while outputs[-1] not in needed:
                outputs = outputs[:-1]
        kept.append(Node(node.op, node.name, inputs, outputs, node.attributes))
    return kept[::-1]


_OPTIONAL_OUTPUTS: Final = frozenset({"MaxPool", "LayerNormalization"})
