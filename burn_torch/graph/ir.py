"""The one intermediate representation: a flat list of Calls in single-assignment form.

Gradient rules, decompositions, compiled steps, the lazy stream, exports and remote programs are all Graphs.  A Graph
is functional: views are ops, nothing is written in place; that is a leaf's choice when it executes one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from burn_torch.core.spec import Spec
from burn_torch.graph.origin import Origin
from burn_torch.graph.printer import graph_text, node_text
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["Graph", "Literal", "Node"]


@final
class Literal:
    """A host number written into a graph.  Equal if type and value are: 1, 1.0, True, 0.0 and -0.0 all differ.

    NaN is equal to NaN.
    """

    __slots__ = ("value",)

    def __init__(
        self, value: Primitive
    ) -> None:  # a float, int or bool; in graphs of symbolic sizes also a Size or Real
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, object]:
        kind = type(self.value)  # repr tells -0.0 and NaN; a whole number may have more digits than it writes
        return kind, repr(self.value) if kind is float else self.value

    def __repr__(self) -> str:
        return repr(self.value)


Input = int | Literal | None
"""An id, a number, or None for an optional input that is absent."""


@final
class Node:
    """One Call with the ids it reads and the ids it makes (None for an output that nothing reads).

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

    def read(self, position: int) -> int:
        """The id of an input that is known to be a value, no literal and not absent."""
        i = self.inputs[position]
        assert isinstance(i, int), f"input {position} of {self} is no value"
        return i

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
        return node_text(self)


@final
class Graph:
    """Inputs (id, spec), nodes in order, output ids.  Immutable and hashable.

    An id is a whole number that is made once, by an input or a node.  Passes leave gaps: `dense()` numbers anew.
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

    def dense(self) -> Graph:
        """The same with ids from 0 on, inputs first, then nodes in order: graphs that do the same in the same order
        are equal.
        """
        ids = [i for i, _ in self.inputs] + [i for node in self.nodes for i in node.outputs if i is not None]
        new = {old: i for i, old in enumerate(ids)}
        nodes = [
            Node(
                node.call,
                [new[i] if isinstance(i, int) else i for i in node.inputs],
                [None if i is None else new[i] for i in node.outputs],
                node.origin,
            )
            for node in self.nodes
        ]
        outputs = [None if i is None else new[i] for i in self.outputs]
        return Graph([(new[i], spec) for i, spec in self.inputs], nodes, outputs)

    def text(self, *, origins: bool = False) -> str:
        """The graph for people to read: one line an input and node, under the path of its module where it has one.

        origins: with the user's line beside each node that knows it.
        """
        return graph_text(self, origins=origins)

    def show(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes a picture and returns its path: SVG where the name ends in .svg, else a page of HTML.

        Without a path it is a new temporary file.  Boxes are coloured by module; hovering one tells its specs and the
        user's line.  It opens nothing.
        """
        from burn_torch.graph.drawing import show  # which knows graphs

        return show(self, path)

    # -- as data -----------------------------------------------------------------------
    def to_json(self, *, origins: bool = False) -> str:
        """The graph as JSON text, every bit of its numbers included.

        origins: with the users' lines and their source, which tell names of files of this machine.
        """
        from burn_torch.graph import serialisation  # which knows graphs

        return serialisation.write(self, origins=origins)

    @staticmethod
    def from_json(text: str | bytes) -> Graph:
        """The graph that `to_json` wrote, verified.  Nothing in the text is run.

        Raises: GraphError for whatever is wrong with the text, a row or a version that is not known here.
        """
        from burn_torch.graph import serialisation

        return serialisation.read(text)

    def save(self, path: str | os.PathLike[str], *, origins: bool = False) -> Path:
        """Writes `to_json` to a file, whole or not at all; returns its path."""
        from burn_torch.graph import serialisation

        return serialisation.write_file(self, path, origins=origins)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Graph:
        """The graph that `save` wrote.  Raises: GraphError as `from_json`, and where the file cannot be read."""
        from burn_torch.graph import serialisation

        return serialisation.read_file(path)

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
        return self.text()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Graph, (self.inputs, self.nodes, self.outputs))  # hashes are those of one process
