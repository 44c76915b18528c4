"""Decides which constants of a file are parameters, which are states, and which stand in the source.

A file does not say what was trained: a float tensor of more than one number that the file stores is a weight.  So is
what is folded from one, a stored number whose name is a path in a module, and what feeds a layer, even from a Constant
node.  Not weights are

    statistics      of batch norms
    what the        ones and zeros of a norm without weights, initial states of zeros: constants without a name of
    exporter made   the module's
    masks           infinite, or as large as numbers get
    sizes           from which the host works out a shape, an axis or a condition

Exporters store equal tensors once, so fresh norms and biases share one tensor of ones or zeros.  Such a tensor becomes
a parameter for each node that reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.onnx.ir import Graph, Node
from burn_torch.onnx.operators.registry import find

__all__ = ["ON_HOST", "SMALL", "Usage", "is_generated", "is_uniform", "is_weight"]

SMALL: Final = 64
"""Elements of a constant, not a weight, that stands in the source although no size is worked out from it."""
ON_HOST: Final = frozenset({"Shape", "Size", "SequenceLength", "OptionalHasElement", "NonMaxSuppression"})
"""Operators whose results are known on the host wherever their inputs lie."""

_STATISTICS: Final = {
    "BatchNormalization": (3, 4), "DequantizeLinear": (1, 2), "DynamicQuantizeMatMul": (2,),
    "MatMulIntegerToFloat": (2, 3), "QGemm": (1, 4, 7), "QuantizeDequantizeLinear": (1, 2),
}  # fmt: skip
"""Inputs that training does not change."""
_INITIAL_STATES: Final = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
_NORMS: Final = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"}
)
_LAYERS: Final = _NORMS | {"Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "PRelu", "RNN"}
"""Operators whose constant inputs are weights even where they come from nodes."""
_WITHOUT_WEIGHTS: Final = frozenset({"Clip", "OneHot", "Pad", "QLinearConv", "QLinearMatMul", "QuantizeLinear"})
_GENERATED: Final = re.compile(r"(onnx::)?(\w+_)?\d+")
"""Names that exporters give what has none: "412", "onnx::MatMul_93", "val_8"."""
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
_LARGEST: Final = 1e30


class Usage:
    """How the values of a model are read: how often, and whether the host works out sizes from them.

    Names are unique over all graphs of the model.
    """

    def __init__(self, graph: Graph) -> None:
        self.reads = Counter(name for node in graph.all_nodes() for name in node.inputs if name)
        self.sizes: set[str] = set()
        self._device = {info.name for info in graph.inputs if info.kind == "tensor"}
        self._mark_device(graph)
        count = -1
        while count < len(self.sizes):  # again where a loop hands on what its next iteration reads
            count = len(self.sizes)
            self._mark_sizes(graph)

    def _mark_device(self, graph: Graph) -> None:
        """Notes the values that surely lie on a device: a size is not worked out from them unless a node reads them."""
        for node in graph.nodes:
            inner = node.graphs
            for body in inner:
                self._mark_device(body)
            if not inner and self._on_device(node):
                self._device.update(node.outputs)

    def _on_device(self, node: Node) -> bool:
        entry = find(node.domain, node.op, node.opset)
        if entry is None or node.op in ON_HOST:
            return False
        return any(x in self._device and entry.kind(i) != "host" for i, x in enumerate(node.inputs))

    def _mark_sizes(self, graph: Graph) -> None:
        for node in reversed(graph.nodes):
            entry = find(node.domain, node.op, node.opset)
            if entry is None:
                continue
            self.sizes.update(x for i, x in enumerate(node.inputs) if x and entry.kind(i) == "host")
            inner = node.graphs
            needed = not self.sizes.isdisjoint(node.outputs)
            for body in inner:
                if needed:
                    self.sizes.update(info.name for info in body.outputs)
                self._mark_sizes(body)
                needed = needed or any(info.name in self.sizes for info in body.inputs)
            if needed and node.op not in ON_HOST and (inner or not self._on_device(node)):
                self.sizes.update(x for x in node.inputs if x)


def is_weight(name: str, data: TensorData, node: Node, position: int, usage: Usage, *, from_file: bool) -> bool:
    """Returns whether a constant that a node reads at a position is trained; `from_file` unless a node of the file
    makes it.
    """
    if not data.dtype.is_float or not data.array.size or node.op in _WITHOUT_WEIGHTS:
        return False
    if position in _STATISTICS.get(node.op, ()):
        return False
    stored = from_file and not is_generated(name)
    if not stored and position in _INITIAL_STATES.get(node.op, ()) and is_uniform(data):
        return False
    if not stored and node.op in _NORMS and is_uniform(data, (None, 1.0, 0.0)[min(position, 2)]):
        return False
    if node.op in _LAYERS:
        return True
    if not from_file or name in usage.sizes or _is_mask(data):
        return False
    return data.array.size > 1 or _PATH.fullmatch(name) is not None


def is_generated(name: str) -> bool:
    """Returns whether a name is one that exporters give what has none."""
    return _GENERATED.fullmatch(name) is not None


def is_uniform(data: TensorData, value: float | None = None) -> bool:
    """Returns whether all elements are one number, this one if it is given."""
    values = data.values
    first = values.reshape(-1)[0] if value is None else value
    return bool((values == first).all())


def _is_mask(data: TensorData) -> bool:
    with np.errstate(all="ignore"):
        return not bool((np.abs(data.values) < _LARGEST).all())
