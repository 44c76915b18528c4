"""From a module or function and example inputs to a graph: traced without data, decomposed where no row is written,
and passed through the passes that change no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from burn_torch.backend.tracing import Bound
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.graph import Graph, Literal, Node
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.passes import dead_code, pipeline
from burn_torch.graph.view import GraphView
from burn_torch.module.tree import Tree
from burn_torch.onnx.rows.registry import find
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import mapped
from burn_torch.transform.flatten import Walk
from burn_torch.transform.structure import Number, leaf_of
from burn_torch.transform.tracing import Traced, trace

__all__ = ["Inputs", "Tracing", "converted", "prepared", "resized", "traced"]


class Inputs:
    """The example inputs of an export taken apart: modules, tensors by name, all else is compiled in."""

    def __init__(self, given: Sequence[Any], names: Sequence[str]) -> None:
        self.given: Final = tuple(given)
        self.modules: Final[dict[str, Tree]] = {}
        self.tensors: Final[dict[str, Tensor]] = {}
        for name, value in zip(names, given, strict=True):
            mapped(value, self._noted, name)

    def _noted(self, given: object, path: str) -> object:
        leaf = given
        if isinstance(leaf, Tree):
            self.modules[path] = inference(leaf)
        elif isinstance(leaf, Tensor):
            while leaf.device.is_autodiff():
                leaf = leaf.inner()
            self.tensors[_plain(path)] = leaf
        return given

    def put_together(self, leaves: Sequence[object]) -> list[object]:
        """The inputs with other modules and tensors, in the order of `modules`, then `tensors`."""
        left, right = iter(leaves[: len(self.modules)]), iter(leaves[len(self.modules) :])

        def change(leaf: object, path: str) -> object:
            return next(left) if isinstance(leaf, Tree) else next(right) if isinstance(leaf, Tensor) else leaf

        return [mapped(value, change, "") for value in self.given]


def _plain(path: str) -> str:
    """ "x['mask'][0]" as "x.mask.0"."""
    return path.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "")


def inference(tree: Any) -> Any:
    """A module as it computes when it does not train.  One that is on no device with gradients is so already."""
    while any(device.is_autodiff() for device in (tree.devices() if hasattr(tree, "devices") else ())):
        tree = tree.valid()
    return tree


def converted(inputs: object, dtype: DType) -> Any:
    """The same containers with float tensors in another element type."""
    return mapped(inputs, lambda x, _: x.cast(dtype) if isinstance(x, Tensor) and x.dtype.is_float else x, "")


def resized(tensor: Tensor, sizes: dict[int, int]) -> Tensor:
    """The tensor with other sizes of some axes: what it holds, over again; floats a little smaller each time, so that
    there are no ties.
    """
    if all(tensor.shape[axis] == size for axis, size in sizes.items()):
        return tensor
    data = tensor.into_data()
    array = data.array
    for axis, size in sizes.items():
        have = array.shape[axis]
        if have == 0:
            array = np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
        else:
            rounds, places = np.divmod(np.arange(size), have)
            array = np.take(array, places, axis)
            if data.dtype in (DType.F64, DType.F32):
                array = array * (1 - rounds / 64).astype(array.dtype).reshape(-1, *(1,) * (array.ndim - 1 - axis))
    return Tensor.from_data(TensorData(np.ascontiguousarray(array), data.dtype), tensor.device)


@dataclass(frozen=True)
class Tracing:
    """One trace: its graph, what its inputs are, and what the function returned.

    weights   for each input of the graph beside the tensors given: its name and primitive, by position
    result    names of the outputs, as the function's result is built
    """

    graph: Graph
    sources: dict[int, tuple[str, object]]
    tensor_places: tuple[int, ...]
    outputs: tuple[str, ...]
    program: Traced


def traced(
    function: Callable[..., object], inputs: Inputs, tensors: Sequence[Tensor], captures: Sequence[object]
) -> Tracing:
    """Traces the function over these tensors in the place of the example inputs.

    Raises: TraceError for what a trace cannot hold, and whatever the function raises.
    """
    arguments = [*inputs.modules.values(), *tensors]
    names = [*inputs.modules, *inputs.tensors]
    walk = Walk()
    structures = [walk.take(argument) for argument in arguments]
    call = lambda leaves: function(*inputs.put_together(leaves))  # noqa: E731
    program = trace(function, call, structures, names, captures, watched=False)
    sources: dict[int, tuple[str, object]] = {}
    numbers: dict[int, Literal] = {}
    positions: list[int] = []
    position = 0
    single = len(inputs.modules) == 1
    for name, structure in zip(names, structures, strict=True):
        is_module = name in inputs.modules
        for path, part in structure.parts("" if is_module and single else name):
            if leaf_of(part) is not None:
                if is_module:
                    sources[position] = (_plain(path).lstrip("."), walk.leaves[position])
                else:
                    positions.append(position)
            elif isinstance(part, Number):
                numbers[position] = Literal(walk.leaves[position])
            position += part.size
    count = len(walk.leaves)
    for i, source in enumerate(program.sources):
        if isinstance(source, Bound):
            sources[count + i] = (f"constant.{i}", source.primitive)
    return Tracing(_with_numbers(program.graph, numbers), sources, tuple(positions), _output_names(program), program)


def _output_names(program: Traced) -> tuple[str, ...]:
    """The names of the outputs that are tensors, as the result is built.  Raises: ArgumentError for numbers."""
    parts = [(path, part) for path, part in program.result.parts("output") if part.size]
    numbers = [
        f"{path} = {value!r}" for (position, value) in program.literals for path, _ in parts[position : position + 1]
    ]
    if numbers or any(isinstance(part, Number) for _, part in parts):
        raise ArgumentError(
            "export: a result is a number, not a tensor",
            given=", ".join(numbers) or "a number that was computed while tracing",
            expected="tensors, and containers of tensors",
            mend="return tensors only: Tensor.from_floats([x], device)",
        )
    names = [_plain(path) for path, _ in parts]
    inside = [name.removeprefix("output").lstrip(".") for name in names]
    if all(inside) and not any(name.partition(".")[0].isdigit() for name in inside):
        return tuple(inside)  # the keys of a dict, the fields of a dataclass
    return tuple(name.replace(".", "_") for name in names)


# -- before it is written --------------------------------------------------------------------------------------
def prepared(graph: Graph, opset: int) -> Graph:
    """The graph in rows that are written themselves as far as may be, and without what is not needed."""
    return pipeline(_expand(dead_code(graph), opset), profile="export")[0].dense()


def _with_numbers(graph: Graph, numbers: dict[int, Literal]) -> Graph:
    """The graph with the numbers of a module in the place of inputs; those inputs stay, and nothing reads them."""
    known: dict[int, Any] = {graph.inputs[i][0]: literal for i, literal in numbers.items()}
    if not known:
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        _add(nodes, known, node.call, [known.get(i, i) if isinstance(i, int) else i for i in node.inputs], node)
    return Graph(graph.inputs, nodes, graph.outputs)


def _add(nodes: list[Node], known: dict[int, Any], call: Any, inputs: Sequence[Any], node: Node) -> None:
    """Appends a node, or works out a number that is known now."""
    if call.is_number and call.op.scalar is not None and all(isinstance(i, Literal) for i in inputs):
        assert node.outputs[0] is not None
        known[node.outputs[0]] = Literal(call.op.scalar(*(i.value for i in inputs)))
        return
    nodes.append(Node(call, inputs, node.outputs, node.origin))


def _expand(graph: Graph, opset: int) -> Graph:
    """The graph with the decompositions of rows that are not written themselves at this opset."""
    writing = _Expanding(graph, opset)
    read = {i for node in graph.nodes for i in node.inputs if isinstance(i, int)} | set(graph.outputs)
    for node in graph.nodes:
        writing.add(node, [i in read and i is not None for i in node.outputs])
    return Graph(graph.inputs, writing.nodes, [writing.known.get(i, i) for i in graph.outputs])


class _Expanding:
    """Rows written as their decompositions, into one list of nodes."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.nodes: list[Node] = []
        self.known: dict[Any, Any] = {}
        self._view = GraphView(graph)
        self._opset = opset

    def add(self, node: Node, used: Sequence[bool]) -> None:
        """Appends a node or what it decomposes into; `used` says which of its outputs are read."""
        call = node.call
        inputs = [self.known.get(i, i) if isinstance(i, int) else i for i in node.inputs]
        export = find(call.op.name)
        if (export is not None and export.stands_for(call, used, self._opset)) or call.op.decomposition is None:
            _add(self.nodes, self.known, call, inputs, node)
            return
        inner = decomposed(call)
        present = [x for x, spec in zip(inputs, call.specs, strict=True) if spec is not None]
        ids: dict[int, Any] = {i: x for (i, _), x in zip(inner.inputs, present, strict=True)}
        wanted = {i for i, read in zip(inner.outputs, used, strict=True) if read}
        read = {i for each in inner.nodes for i in each.inputs if isinstance(i, int)} | wanted
        for each in inner.nodes:
            ids.update((i, self._view.fresh()) for i in each.outputs if i is not None)
            outputs = [None if i is None else ids[i] for i in each.outputs]
            renamed = [ids[i] if isinstance(i, int) else i for i in each.inputs]
            renamed = [self.known.get(i, i) if isinstance(i, int) else i for i in renamed]
            self.add(Node(each.call, renamed, outputs, node.origin), [i in read for i in each.outputs])
        for outer, i in zip(node.outputs, inner.outputs, strict=True):
            if outer is not None and i is not None:
                self.known[outer] = self.known.get(ids[i], ids[i])
