"""export: a module or a function as an ONNX file, by way of the Graph IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burn_torch.core.checking import checked as checked_arguments
from burn_torch.core.wording import counted
from burn_torch.onnx.exporting.assembly import assembled
from burn_torch.onnx.exporting.checking import Comparison, checked, compared
from burn_torch.onnx.exporting.document import EXTERNAL_BYTES, written
from burn_torch.onnx.exporting.request import (
    DEFAULT_OPSET,
    called,
    dynamic_axes,
    input_names_of,
    name_of,
    output_names_of,
    require_inference,
    require_opset,
)
from burn_torch.onnx.exporting.traces import cases_of, traced_at_sizes
from burn_torch.onnx.exporting.tracing import Inputs
from burn_torch.onnx.exporting.writer import all_nodes

__all__ = ["ExportReport", "export"]


@dataclass(frozen=True)
class ExportReport:
    """Holds what was written, and how it compares.  `print(report)` shows it."""

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
    """Holds what the outputs were compared in, or why they were not."""
    comparisons: tuple[Comparison, ...]

    @property
    def error(self) -> float | None:
        """The largest difference of an output from that of burn_torch; None where nothing was compared."""
        return max((comparison.error for comparison in self.comparisons), default=None)

    def __str__(self) -> str:
        nodes = sum(self.operators.values())
        data = "" if self.data_path is None else f", in {self.data_path.name}"
        size = counted(self.weight_bytes, "byte", grouped=True)
        lines = [
            f"{self.path}: opset {self.opset}",
            f"  inputs      {', '.join(self.inputs) or 'none'}",
            f"  outputs     {', '.join(self.outputs)}",
            f"  weights     {counted(self.weights, 'tensor')}, {size}{data}",
            f"  operators   {counted(nodes, 'node')}: " + ", ".join(f"{op} x {n}" for op, n in self.operators.items()),
            f"  compared in {self.runtime}",
        ]
        return "\n".join([*lines, *(f"    {comparison}" for comparison in self.comparisons)])


@checked_arguments
def export(
    function: object,
    example_inputs: object,
    path: str | Path,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_batch: bool = False,
    dynamic_dims: Mapping[str, Mapping[int, str]] | None = None,
    opset: int = DEFAULT_OPSET,
    metadata: Mapping[str, str] | None = None,
    captures: Sequence[object] = (),
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
    dynamic_dims     other axes that may: {"tokens": {1: "seq"}}; one name is one size wherever it stands, and
                     "16 * height" is any multiple of 16
    opset            13 to the newest that the installed onnx knows
    metadata         texts that the file carries, as metadata_props
    captures         tensors and modules that the function reads besides its arguments, for inference already
    external_bytes   beyond so many bytes weights lie in a file beside the model
    check            whether onnx.checker looks at the file
    compare          whether onnxruntime, if it is installed, runs it at the example and at other sizes

    With dynamic axes the function is traced at several sizes, and what differs between the traces becomes a formula
    of the axes.  Raises: OnnxError for rows that have no operator, all at once with the user's lines, for what
    depends on a size in another way, and for a file that computes other values; TraceError for what cannot be
    traced; ArgumentError for names and axes that do not fit; ArtifactError where nothing can be written.  After an
    error the path is as it was.
    """
    target = Path(path)
    run, arguments, names = called(function, example_inputs)
    inputs = Inputs(arguments, names)
    require_inference(captures)
    require_opset(opset)
    input_words = input_names_of(inputs, input_names)
    axes = dynamic_axes(inputs, input_words, dynamic_batch, dynamic_dims or {})
    tensors = list(inputs.tensors.values())
    traces = traced_at_sizes(run, inputs, tensors, axes, captures, opset)
    outputs = output_names_of(traces.traces[0], output_names, input_words)
    document = assembled(name_of(function), traces, input_words, outputs, axes, opset, metadata or {})
    cases = cases_of(run, inputs, tensors, axes, traces) if compare else []
    with written(document, target, external_bytes) as (temporary, data):
        if check:
            checked(temporary, document.name)
        runtime, comparisons = "nothing: compare=False", list[Comparison]()
        if compare:
            runtime, comparisons = compared(temporary, (input_words, outputs), cases)
    return ExportReport(
        target,
        data,
        opset,
        dict(
            sorted(Counter(node.op for node in all_nodes(document.nodes)).items(), key=lambda item: (-item[1], item[0]))
        ),
        tuple(input_words),
        tuple(outputs),
        len(document.weights),
        document.weight_bytes,
        runtime,
        tuple(comparisons),
    )
