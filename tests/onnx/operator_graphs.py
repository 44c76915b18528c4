"""Random models of plain operators: every node is computed by onnxruntime when it is drawn, so its value is known.

`OperatorGraph(seed)` draws one model of a few nodes: attributes, shapes (0 and 1 among them), element types, opsets,
inputs that are left out, constants as weights, nodes and inputs of the model.  What onnxruntime refuses is drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import defs, helper, numpy_helper

__all__ = ["DRAWS", "OperatorGraph", "Rejected", "draws"]

ONNX_TYPES = {
    np.dtype(name): helper.np_dtype_to_tensor_dtype(np.dtype(name))
    for name in (
        "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "bool",
    )
}  # fmt: skip
OPSETS = (7, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22, 23, 24)
VERSIONS: dict[str, list[Any]] = {}
for _schema in defs.get_all_schemas_with_history():
    if not _schema.domain:
        VERSIONS.setdefault(_schema.name, []).append(_schema)

MICROSOFT = "com.microsoft."
"""Stands before the names of operators of onnxruntime's own domain."""


def first_opset(op: str) -> int:
    """The first opset that has an operator; onnxruntime takes its own with any that it knows."""
    return min((schema.since_version for schema in VERSIONS.get(op, ())), default=7)


DRAWS: dict[str, Callable[[OperatorGraph], None]] = {}
"""For each operator a function that appends a node of it to a graph."""


def draws(*ops: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function of a graph and an operator's name as what draws these operators."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for op in ops:
            DRAWS[op] = lambda g, op=op: function(g, op)  # type: ignore[misc]
        return function

    return register


class Rejected(Exception):
    """onnxruntime does not compute this node."""


class OperatorGraph:
    """One model that is being drawn.  `values` are what onnxruntime computed for each name."""

    def __init__(self, seed: int, only: str | None = None, nodes: int | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        least = 7 if only is None else first_opset(only)
        self.opset = int(self.rng.choice([n for n in OPSETS if n >= least]))
        self.values: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.weights: list[str] = []
        self.nodes: list[Any] = []
        self.made: list[str] = []
        self.rejected: list[str] = []
        self.operators: list[str] = []
        self.count = 0
        self._draw(only, nodes or int(self.rng.integers(1, 6)))
        if self.made:
            self.proto = self._model()

    def _draw(self, only: str | None, nodes: int) -> None:
        names = sorted(op for op in DRAWS if first_opset(op) <= self.opset)
        for i in range(nodes):
            for _ in range(8):
                op = only if only is not None and i == 0 else names[self.rng.integers(len(names))]
                before = (len(self.inputs), len(self.weights), len(self.nodes), len(self.made), set(self.values))
                try:
                    DRAWS[op](self)
                except Rejected as error:
                    self.rejected.append(f"{op}: {error}")
                    del self.inputs[before[0] :], self.weights[before[1] :], self.nodes[before[2] :]
                    del self.made[before[3] :]
                    for name in set(self.values) - before[4]:
                        del self.values[name]
                    continue
                self.operators.append(op)
                break

    # -- drawing numbers -----------------------------------------------------------------------------------------
    def chance(self, probability: float) -> bool:
        """True this often."""
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, *choices: Any) -> Any:
        """One of these."""
        return choices[self.rng.integers(len(choices))]

    def sizes(self, rank: int, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """Sizes of axes; 0 at times where low is 1."""
        if low == 1 and self.chance(0.03):
            low = 0
        return tuple(int(n) for n in self.rng.integers(low, high + 1, rank))

    def array(self, dtype: Any, shape: Sequence[int], low: float = -3, high: float = 3) -> Any:
        """Numbers; floats are multiples of an eighth."""
        if any(size < 0 for size in shape):
            raise Rejected("a negative size")
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(np.bool_)
        if dtype.kind == "f":
            return (self.rng.integers(round(low * 8), round(high * 8) + 1, shape) / 8).astype(dtype)
        low = max(low, 0) if dtype.kind == "u" else low
        return self.rng.integers(int(low), int(high) + 1, shape).astype(dtype)

    # -- values ------------------------------------------------------------------------------------------------------
    def name(self) -> str:
        """A new name."""
        self.count += 1
        return f"v{self.count}"

    def value(self, array: Any, *, constant: float = 0.4) -> str:
        """An input of the model, a weight, or a Constant node that holds an array."""
        array = np.asarray(array)
        name = self.name()
        self.values[name] = array
        if not self.chance(constant):
            self.inputs.append(name)
        elif self.chance(0.6):
            self.weights.append(name)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def known(self, numbers: Any, dtype: Any = np.int64) -> str:
        """Axes, sizes, pads: mostly constants."""
        return self.value(np.asarray(numbers, dtype), constant=0.8)

    def tensor(
        self,
        dtype: Any = np.float32,
        shape: Sequence[int] | None = None,
        *,
        rank: tuple[int, int] = (0, 4),
        low: float = -3,
        high: float = 3,
        reuse: float = 0.4,
        constant: float = 0.3,
    ) -> str:
        """A value of this type; one that a node made, where there is one that fits."""
        dtype = np.dtype(dtype)
        if self.chance(reuse):
            fit = [
                name
                for name in self.made
                if isinstance(self.values[name], np.ndarray)
                and self.values[name].dtype == dtype
                and (
                    rank[0] <= self.values[name].ndim <= rank[1] if shape is None else self.shape(name) == tuple(shape)
                )
                and (self.values[name].size == 0 or self._inside(self.values[name], low, high))
            ]
            if fit:
                return fit[self.rng.integers(len(fit))]
        if shape is None:
            shape = self.sizes(self.number(*rank))
        return self.value(self.array(dtype, tuple(shape), low, high), constant=constant)

    @staticmethod
    def _inside(array: Any, low: float, high: float) -> bool:
        if array.dtype == np.bool_:
            return True
        with np.errstate(all="ignore"):
            return bool((array >= low).all() and (array <= high).all())

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.values[name].shape)

    def rank(self, name: str) -> int:
        """How many axes a value has."""
        return int(self.values[name].ndim)

    def axis(self, rank: int) -> int:
        """An axis, at times counted from the end."""
        return int(self.rng.integers(-rank, rank))

    def axes(self, rank: int, low: int = 0) -> list[int]:
        """Some axes, each once, in any order, at times counted from the end."""
        chosen = self.rng.permutation(rank)[: self.number(min(low, rank), rank)]
        return [int(axis) - (rank if self.chance(0.3) else 0) for axis in chosen]

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        cut = self.number(0, len(shape)) if self.chance(0.5) else 0
        return tuple(1 if self.chance(0.25) else size for size in shape[cut:])

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def node(
        self, op: str, inputs: Sequence[str | None], outputs: int = 1, *, only: Sequence[int] = (), **attributes: Any
    ) -> list[str]:
        """Appends a node, and computes it.  `only` are the outputs that have a name; all of them unless given."""
        attributes = {name: value for name, value in attributes.items() if value is not None and value != []}
        names = ["" if x is None else x for x in inputs]
        while names and not names[-1]:
            names.pop()
        results = [self.name() for _ in range(outputs)]
        kind = op.removeprefix(MICROSOFT)
        node = helper.make_node(kind, names, results, domain=MICROSOFT[:-1] if kind != op else "", **attributes)
        values = compute(node, {name: self.values[name] for name in names if name}, self.opset)
        node.output[:] = [name if not only or i in only else "" for i, name in enumerate(results)]
        named = [name for name in node.output if name]
        self.values.update((name, value) for name, value in zip(results, values, strict=True) if name in named)
        self.nodes.append(node)
        self.made += named
        return named

    # -- the model -----------------------------------------------------------------------------------------------------
    def _model(self) -> Any:
        last = [name for name in self.nodes[-1].output if name]
        chosen = [name for name in self.made if name in last or self.chance(0.6)]
        self.outputs = [chosen[i] for i in self.rng.permutation(len(chosen))]
        infos = [self._info(name) for name in self.inputs]
        results = [
            helper.make_tensor_value_info(name, ONNX_TYPES[self.values[name].dtype], None) for name in self.outputs
        ]
        weights = [numpy_helper.from_array(self.values[name], name) for name in self.weights]
        graph = helper.make_graph(self.nodes, "main", infos, results, weights)
        return helper.make_model(graph, opset_imports=imports(self.opset), ir_version=8)

    def _info(self, name: str) -> Any:
        array = self.values[name]
        sizes: list[Any] | None = list(array.shape)
        choice = self.rng.random()
        if choice < 0.2:
            sizes = None
        elif choice < 0.6:
            sizes = [self.one_of(size, None, f"n{size}") for size in array.shape]
        return helper.make_tensor_value_info(name, ONNX_TYPES[array.dtype], sizes)

    def feeds(self) -> dict[str, Any]:
        """Values of the inputs."""
        return {name: self.values[name] for name in self.inputs}

    def text(self) -> str:
        """The model in lines."""
        lines = [f"opset {self.opset}"]
        for kind, names in (("input", self.inputs), ("weight", self.weights)):
            lines += [f"  {kind} {name} {self.values[name].dtype} {self.values[name].tolist()!r}" for name in names]
        for node in self.nodes:
            words = ", ".join(
                f"{a.name}={'...' if a.type == a.TENSOR else helper.get_attribute_value(a)}" for a in node.attribute
            )
            kinds = [f"{name} {self.values[name].dtype} {self.shape(name)}" if name else "-" for name in node.output]
            lines.append(f"  {', '.join(kinds)} = {node.op_type}({', '.join(node.input)}; {words})")
            if node.op_type == "Constant":
                lines.append(f"      {self.values[node.output[0]].tolist()!r}")
        return "\n".join(lines)


def imports(opset: int) -> list[Any]:
    """The domains that a model may take operators from."""
    return [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT[:-1], 1)]


def compute(node: Any, feeds: dict[str, Any], opset: int) -> list[Any]:
    """Returns what onnxruntime computes for one node.  Raises: Rejected."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    infos = [helper.make_tensor_value_info(name, ONNX_TYPES[x.dtype], list(x.shape)) for name, x in feeds.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "one", infos, results)
    proto = helper.make_model(graph, opset_imports=imports(opset), ir_version=8)
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        arrays = session.run(None, feeds)
    except Exception as error:  # onnxruntime's errors have no common base that it exports
        raise Rejected(str(error)[:200]) from error
    if any(not isinstance(y, np.ndarray) or y.dtype not in ONNX_TYPES for y in arrays):
        raise Rejected("no tensor")
    if sum(y.size for y in arrays) > 50_000:
        raise Rejected("large")
    return list(arrays)
