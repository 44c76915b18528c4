"""Defines what an importer says before it does anything: operators, counts, what is not supported, inputs, outputs,
weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from burn_torch.core.checking import checked
from burn_torch.core.errors import OnnxError
from burn_torch.core.wording import counted, one_line
from burn_torch.onnx.ir import Graph, Model, Node
from burn_torch.onnx.operators.axes import OTHER_DTYPES
from burn_torch.onnx.operators.registry import INJECTED, find, known

__all__ = ["Report", "Unsupported", "report_on"]


@dataclass(frozen=True)
class Unsupported:
    """A node that cannot be imported, and why."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return one_line(f"{self.operator} {self.node!r}: {self.reason}")


@dataclass(frozen=True)
class Report:
    """Holds what a model holds.  `print(report)` shows it."""

    source: str
    producer: str
    opsets: dict[str, int]
    operators: dict[str, int]
    unsupported: tuple[Unsupported, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: int
    elements: int
    """Weights in the file: how many, and how many numbers they hold."""

    @property
    def ok(self) -> bool:
        """Returns whether every node can be imported."""
        return not self.unsupported

    def check(self) -> None:
        """Raises OnnxError that names every node which is not supported."""
        if self.ok:
            return
        count = len(self.unsupported)
        shown = "\n            ".join(str(fault) for fault in self.unsupported[:50])
        more = "" if count <= 50 else f"\n            and {count - 50} more"
        raise OnnxError(
            f"{count} node{'s' if count > 1 else ''} of {self.source} cannot be imported",
            given=shown + more,
            expected="operators that burn_torch.onnx.operators knows",
            mend="export the model without them, or register them with burn_torch.onnx.operator",
        )

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in self.opsets.items())
        nodes = sum(self.operators.values())
        texts = [
            f"{self.source}: opset {opsets}" + (f", made by {self.producer}" if self.producer else ""),
            f"  inputs      {'; '.join(self.inputs) or 'none'}",
            f"  outputs     {'; '.join(self.outputs)}",
            f"  weights     {counted(self.tensors, 'tensor')}, {counted(self.elements, 'number', grouped=True)}",
            f"  operators   {counted(nodes, 'node')}: " + ", ".join(f"{op} x {n}" for op, n in self.operators.items()),
        ]
        lines = [one_line(text) for text in texts]
        if self.ok:
            return "\n".join([*lines, "  all of them can be imported"])
        lines.append(f"  {counted(len(self.unsupported), 'node')} cannot be imported:")
        return "\n".join([*lines, *(f"    {fault}" for fault in self.unsupported)])


@checked
def report_on(model: Model) -> Report:
    """Looks at every node of a model, those of graphs within nodes too."""
    counts = Counter(node.kind for node in model.graph.all_nodes())
    foreign = {info.name: info.foreign for info in model.graph.inputs if info.foreign is not None}
    faults = [fault for node in model.graph.all_nodes() for fault in _faults(node, foreign)]
    constants = [data.shape for graph in model.graph.all_graphs() for data in graph.constants.values()]
    return Report(
        model.source,
        model.producer,
        dict(model.opsets),
        dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        tuple(faults),
        tuple(str(info) for info in model.graph.inputs),
        tuple(str(info) for info in model.graph.outputs),
        len(constants),
        sum(math.prod(shape) for shape in constants),
    )


_LAID_OUT: Final = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Domains of operators whose weights onnxruntime has laid out for the processor that it ran on; no file says how."""

_TYPED: Final = ("to", "dtype", "output_dtype")
"""Attributes that name an element type."""
_BODIES: Final = ("body", "then_branch", "else_branch")
"""Attributes that are graphs."""


def _faults(node: Node, foreign: Mapping[str, str]) -> list[Unsupported]:
    def fault(reason: str) -> Unsupported:
        return Unsupported(node.name, f"{node.kind} (opset {node.opset})", reason)

    if node.op == "Constant" and not node.domain:
        return []
    entry = find(node.domain, node.op, node.opset)
    if entry is None and node.domain in _LAID_OUT:
        return [fault("laid out for the processor that saved it; save the model at ORT_ENABLE_EXTENDED")]
    if entry is None:
        versions = known(node.domain).get(node.op, [])
        spans = ", ".join(f"{e.since}-{e.until}" if e.until else f"{e.since} and newer" for e in versions)
        return [fault(f"known for opset {spans} only" if versions else "not supported")]
    faults = [fault(f"reads {name!r} of {foreign[name]}") for name in dict.fromkeys(node.inputs) if name in foreign]
    faults += [
        fault(f"{name} {OTHER_DTYPES[value]}")
        for name, value in node.attributes.items()
        if name in _TYPED and isinstance(value, int) and value in OTHER_DTYPES
    ]
    count = len(node.read)
    if count > (entry.most if entry.most is not None else count) or any(
        parameter.required and (i >= count or not node.inputs[i]) for i, parameter in enumerate(entry.inputs)
    ):
        most = "any number of" if entry.most is None else f"{entry.least} to {entry.most}"
        faults.append(fault(f"{count} inputs where {most} are taken, or one that is needed is left out"))
    unknown = [name for name in node.attributes if name not in entry.attributes or name in INJECTED]
    if unknown:
        faults.append(fault(f"attributes that are not supported: {', '.join(sorted(unknown))}"))
    flat = [name for name in _BODIES if name in node.attributes and not isinstance(node.attributes[name], Graph)]
    if flat and not node.domain:
        faults.append(fault(f"attributes that are no graphs: {', '.join(flat)}"))
    missing = [
        name
        for name, default in entry.attributes.items()
        if default is entry.REQUIRED and name not in node.attributes and name not in INJECTED
    ]
    if missing:
        faults.append(fault(f"attributes that are missing: {', '.join(missing)}"))
    return faults
