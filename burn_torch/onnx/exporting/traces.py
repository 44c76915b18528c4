"""One function traced at several sizes of its dynamic axes, and run at some for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from burn_torch.core.data import TensorData
from burn_torch.core.errors import BurnTorchError
from burn_torch.graph import Graph
from burn_torch.onnx.exporting.request import Axes
from burn_torch.onnx.exporting.rolling import ExportRoller
from burn_torch.onnx.exporting.tracing import Inputs, Tracing, prepared, resized, traced
from burn_torch.onnx.exporting.unification import Step, unified
from burn_torch.tensor import Tensor
from burn_torch.transform.flatten import Walk
from burn_torch.transform.rolling import rolled_by
from burn_torch.transform.structure import Function

__all__ = ["Traces", "cases_of", "traced_at_sizes"]

_STEPS: Final = ((1, 3, 4, 9, 11), (2, 3, 7, 5, 8), (5, 2, 3, 8, 1), (4, 9, 1, 2, 12), (3, 8, 10, 1, 5))
"""Holds what is added to the sizes of dynamic axes, one row an axis: in each trace all have others, in no fixed
relation.
"""


@dataclass(frozen=True)
class Traces:
    """The function traced at one or several sizes of its dynamic axes, and what all traces do."""

    sizes: tuple[dict[str, int], ...]
    traces: tuple[Tracing, ...]
    graphs: tuple[Graph, ...]
    steps: list[Step]


def traced_at_sizes(
    run: Function, inputs: Inputs, tensors: Sequence[Tensor], axes: Axes, captures: Sequence[object], opset: int
) -> Traces:
    """The function at the example's sizes; with dynamic axes at some others too, none of them 1.

    An example at the limit of what the function takes, or of a size that is special to it, is left out: then all
    sizes lie above it, or below.
    """
    example = _sizes(tensors, axes)
    count = len(axes) + 4 if axes else 1
    plans = [[_at(example, axes, k, up=True) for k in range(count)]]
    if axes:
        plans += [[_at(example, axes, k, up=up) for k in range(1, count + 1)] for up in (True, False)]
    first: BurnTorchError | None = None
    for plan in plans:
        if any(size < 2 * axes[symbol].factor for sizes in plan for symbol, size in sizes.items()):
            continue
        sizes = plan[0]
        try:
            traces = []
            for sizes in plan:
                with rolled_by(ExportRoller(lambda graph: prepared(graph, opset))):
                    traces.append(traced(run, inputs, at_sizes(tensors, axes, sizes), captures))
                if not traces[0].outputs:
                    break
            graphs = [_prepare(trace, opset) for trace in traces]
            return Traces(tuple(plan), tuple(traces), tuple(graphs), unified(graphs))
        except BurnTorchError as err:
            if len(traces) < count and axes:
                err.add_note(
                    f"while the dynamic axes were tried at {_text(sizes)}; the name of one that must be a multiple"
                    ' says so: "16 * height"'
                )
            first = first or err
            if not axes or (plan is plans[0] and not traces):
                raise
    assert first is not None
    raise first


def _prepare(trace: Tracing, opset: int) -> Graph:
    outputs = trace.graph.outputs[: len(trace.outputs)]  # without running states that were handed in
    return prepared(Graph(trace.graph.inputs, trace.graph.nodes, outputs), opset)


def _sizes(tensors: Sequence[Tensor], axes: Axes) -> dict[str, int]:
    """The sizes of dynamic axes."""
    return {symbol: tensors[axis.places[0][0]].shape[axis.places[0][1]] for symbol, axis in axes.items()}


def _at(example: Mapping[str, int], axes: Axes, k: int, *, up: bool) -> dict[str, int]:
    """Sizes for trace k: those of the example, where they are 2 or more, then others; multiples where one is stated."""
    sizes: dict[str, int] = {}
    for i, (symbol, size) in enumerate(example.items()):
        steps = [0, *_STEPS[i], *(20 + 7 * i + j * j for j in range(8))]
        factor = axes[symbol].factor
        units = size // factor
        sizes[symbol] = factor * (max(units, 2) + steps[k] if up else units - steps[k])
    return sizes


def at_sizes(tensors: Sequence[Tensor], axes: Axes, sizes: Mapping[str, int]) -> list[Tensor]:
    wanted: dict[int, dict[int, int]] = {}
    for symbol, dynamic in axes.items():
        for i, axis in dynamic.places:
            wanted.setdefault(i, {})[axis] = sizes[symbol]
    return [resized(tensor, wanted.get(i, {})) for i, tensor in enumerate(tensors)]


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{symbol} {size}" for symbol, size in sizes.items())


def cases_of(
    run: Function, inputs: Inputs, tensors: Sequence[Tensor], axes: Axes, traces: Traces
) -> list[tuple[str, list[TensorData], list[TensorData]]]:
    """Inputs and outputs of the function itself: at the example, and at other sizes than it was traced at."""
    example = _sizes(tensors, axes)
    another = 1 if any(axis.factor > 1 for axis in axes.values()) else -1  # small: factors multiply each axis
    sizes = [example, traces.sizes[another]] if axes else [example]
    modules = list(inputs.modules.values())
    cases: list[tuple[str, list[TensorData], list[TensorData]]] = []
    for at in sizes:
        resized = at_sizes(tensors, axes, at)
        walk = Walk()
        walk.take(run(*inputs.put_together([*modules, *resized])))
        leaf = traces.traces[0].program.leaf
        cases.append((_text(at), [x.into_data() for x in resized], [leaf.into_data(y) for y in walk.leaves]))
    return cases
