"""The one intermediate representation: a flat list of Calls in single-assignment form.

Gradient rules, decompositions, compiled steps, the lazy stream, exports and remote programs are all Graphs.  A Graph
is functional: views are ops, nothing is written in place; that is a leaf's choice when it executes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from burn_torch.core.spec import Spec
from burn_torch.graph.origin import Origin
from burn_torch.ops.op import Call

__all__ = ["Graph", "Literal", "Node"]


@final
class Literal:
    """A host number written into a graph.  Equal if type and bits are: 1, 1.0, True and -0.0 all differ."""

    __slots__ = ("value",)

    def __init__(self, value: float | int | bool) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


Input = int | Literal | None
"""An id, a number, or None for an optional input that is absent."""


@final
class Node:
    """One Call with the ids it reads and the ids it makes (None for an output that is not computed).

    `origin` says where it comes from, if that was collected.  It is no part of equality and hash.
    """

    __slots__ = ("call", "inputs", "origin", "outputs")

    def __init__(
        self, call: Call, inputs: Sequence[Input], outputs: Sequence[int | None], origin: Origin | None = None
    ) -> None:
        self.call: Final = call
        self.inputs: Final = tuple(inputs)
        self.outputs: Final = tuple(outputs)
        self.origin: Final = origin

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Node)
            and self.call is other.call
            and self.inputs == other.inputs
            and self.outputs == other.outputs
        )

    def __hash__(self) -> int:
        return hash((id(self.call), self.inputs, self.outputs))

    def __repr__(self) -> str:
        made = ", ".join("_" if i is None else f"%{i}" for i in self.outputs)
        read = ", ".join(f"%{i}" if isinstance(i, int) else repr(i) for i in self.inputs)
        attrs = "".join(f", {name}={value}" for name, value in self.call.attrs.items())
        return f"{made} = {self.call.op.name}({read}{attrs})"


@final
class Graph:
    """Inputs (id, spec), nodes in order, output ids.  Immutable and hashable; ids are dense from 0 in order of making.

    An output is an id, or None where there is no value (an input without a gradient).
    """

    __slots__ = ("_hash", "inputs", "nodes", "outputs")

    def __init__(
        self, inputs: Sequence[tuple[int, Spec]], nodes: Sequence[Node], outputs: Sequence[int | None]
    ) -> None:
        self.inputs: Final = tuple(inputs)
        self.nodes: Final = tuple(nodes)
        self.outputs: Final = tuple(outputs)
        self._hash: Final = hash((tuple(spec for _, spec in self.inputs), self.nodes, self.outputs))

    def specs(self) -> dict[int, Spec]:
        """The spec of each id; ids whose shape depends on data are absent."""
        specs: dict[int, Spec] = dict(self.inputs)
        for node in self.nodes:
            for i, spec in zip(node.outputs, node.call.results, strict=True):
                if i is not None and spec is not None:
                    specs[i] = spec
        return specs

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Graph)
            and self.inputs == other.inputs
            and self.nodes == other.nodes
            and self.outputs == other.outputs
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        specs: dict[int, Any] = self.specs()
        lines = [f"graph({', '.join(f'%{i}: {spec}' for i, spec in self.inputs)})"]
        for node in self.nodes:
            made = ", ".join("" if i is None else str(specs.get(i, "shape from data")) for i in node.outputs)
            lines.append(f"  {node!r}  # {made}")
        lines.append(f"  return {', '.join('None' if i is None else f'%{i}' for i in self.outputs)}")
        return "\n".join(lines)
