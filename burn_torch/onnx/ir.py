"""Defines what an ONNX model says, in plain data: no protobuf beyond the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.wording import one_line
from burn_torch.ops.value import Attrs

__all__ = ["Graph", "Model", "Node", "ValueInfo", "split_multiple"]


_MULTIPLE: Final = re.compile(r"\s*([1-9][0-9]{0,8})\s*\*\s*(\w.*)")


def split_multiple(size: str) -> tuple[int, str]:
    """A size that varies as a factor and a name: "16 * height" is any multiple of 16."""
    parts = _MULTIPLE.fullmatch(size)
    return (1, size) if parts is None else (int(parts[1]), parts[2].strip())


@dataclass(frozen=True)
class ValueInfo:
    """A named input or output; sizes are numbers, names of what varies, or None.  `dtype` is None where unknown."""

    name: str
    dtype: DType | None = None
    shape: tuple[int | str | None, ...] | None = None
    kind: str = "tensor"
    foreign: str | None = None
    """ONNX's name of an element type that tensors here do not have."""

    def __str__(self) -> str:
        if self.kind != "tensor":
            return one_line(f"{self.name}: {self.kind}")
        sizes = "?" if self.shape is None else ", ".join("?" if s is None else str(s) for s in self.shape)
        dtype = self.foreign or ("?" if self.dtype is None else self.dtype.name)
        return one_line(f"{self.name} ({sizes}) {dtype}")


@dataclass(frozen=True)
class Node:
    """One operator.  An empty name stands for an input that is left out, or an output that nobody reads."""

    name: str
    domain: str
    op: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attrs = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How errors name it."""
        return f"{one_line(self.kind)} (opset {self.opset}) {self.name!r}"

    @property
    def read(self) -> tuple[str, ...]:
        """The inputs, without those at the end that are left out."""
        count = max((i + 1 for i, name in enumerate(self.inputs) if name), default=0)
        return self.inputs[:count]

    @property
    def kind(self) -> str:
        """The operator, with its domain where that is not ONNX's own."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def graphs(self) -> list[Graph]:
        """The graphs within it, such as the body of a loop."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, TensorData]

    def all_nodes(self) -> Iterator[Node]:
        """The nodes, and those of graphs within them."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.all_nodes()

    def all_graphs(self) -> Iterator[Graph]:
        """This, and the graphs within its nodes."""
        yield self
        for node in self.all_nodes():
            yield from node.graphs


@dataclass(frozen=True)
class Model:
    """A graph with what the file says about it."""

    graph: Graph
    opsets: Mapping[str, int]
    producer: str
    ir_version: int
    source: str
