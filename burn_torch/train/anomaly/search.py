"""Decides which operation of a graph is the first whose result is not finite, though all it read was.

The graph of a step is run operation by operation, as the interpreter does it, so with the bits of the step.  NaN and
infinities are followed from the results back to where they began.  An infinity that somebody wrote (a mask of -inf, a
maximum that starts at -inf) is no fault: if a NaN came of it, the operation that made the NaN is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from burn_torch.backend import Backend
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.graph import Graph
from burn_torch.graph.interpreter import stepwise
from burn_torch.graph.ir import Literal, Node
from burn_torch.graph.origin import Origin
from burn_torch.tensor import Tensor

__all__ = ["Fault", "Found", "Values", "find", "is_finite"]

_NAN: Final = 1
_INF: Final = 2


@final
@dataclass(frozen=True)
class Values:
    """Holds what the values of a tensor are like."""

    dtype: str
    shape: tuple[int, ...]
    nan: int
    infinite: int
    first: tuple[int, ...] | None
    """Says where the first one is that is not finite."""
    lowest: float | None
    """The highest finite value; None if no value is finite."""
    highest: float | None

    @staticmethod
    def of(data: TensorData) -> Values:
        """The description of values on the host."""
        values = np.asarray(data.values, np.float64)
        finite = np.isfinite(values)
        nan = int(np.isnan(values).sum())
        wrong = values.size - int(finite.sum())
        first = tuple(int(i) for i in np.argwhere(~finite)[0]) if wrong else None
        sound = values[finite]
        ends = (float(sound.min()), float(sound.max())) if sound.size else (None, None)
        return Values(str(data.dtype), tuple(data.shape), nan, wrong - nan, first, *ends)

    @property
    def flags(self) -> int:
        """Returns which kinds of values that are not finite there are."""
        return (_NAN if self.nan else 0) | (_INF if self.infinite else 0)

    def __str__(self) -> str:
        total = math.prod(self.shape)
        counts = [f"{count} {name}" for count, name in ((self.nan, "NaN"), (self.infinite, "infinite")) if count]
        shape = f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''}) {self.dtype}"
        parts = [shape]
        if counts:
            parts.append(f"{' and '.join(counts)} of {total}, the first at {list(self.first or ())}")
        if self.lowest is not None:
            parts.append(f"{'else ' if counts else ''}from {self.lowest:.6g} to {self.highest:.6g}")
        return ", ".join(parts)


@final
@dataclass(frozen=True)
class Fault:
    """Says where values stop being finite."""

    op: str | None
    """The operation; None if it is an input of the step."""
    name: str
    """How the graph writes the operation, or the name of the input."""
    path: str
    """The path of the module, "blocks.3.norm"; "" outside of any."""
    where: str
    """The user's line; "" where none is known."""
    backward: bool
    """Says whether it is in the gradient of the operation of that line."""
    values: Values
    became: str | None
    """The later operation that made NaN of an infinity; None where there is none."""

    def __str__(self) -> str:
        what = "NaN" if self.values.nan else "infinity"
        if self.op is None:
            return f"{what} in the input {self.name}"
        of = "the gradient of " if self.backward else ""
        place = f" in {of}{self.path}" if self.path else f" in {of.removesuffix(' of ')}" if of else ""
        return f"{what} from {self.op}{place}"


@final
@dataclass(frozen=True)
class Found:
    """A fault with the part of the graph that leads to it."""

    fault: Fault
    graph: Graph
    inputs: tuple[int, ...]
    """Positions, among the inputs of the whole graph, of those that the part has."""


def find(graph: Graph, leaf: Backend, inputs: Sequence[object], names: Sequence[str]) -> Found | None:
    """The first fault of a graph on these inputs, which are primitives of `leaf` and numbers; None if all is finite."""
    flags, values = _flags(graph, leaf, inputs)
    ends = {i for i in graph.outputs if i is not None}
    for kind in (_NAN, _INF):
        targets = {i for i in ends if flags.get(i, 0) & kind}
        if targets:
            break
    else:
        return None
    begun = _beginnings(graph, flags, targets, kind)
    first = begun[0] if kind is _NAN else next((place for place in begun if not _is_written(place)), begun[0])
    origin: Place = first
    if kind is _NAN and isinstance(first, Node):
        infinite = {i for i in first.inputs if isinstance(i, int) and flags.get(i, 0) & _INF}
        sources = [place for place in _beginnings(graph, flags, infinite, _INF) if not _is_written(place)]
        if sources and all(isinstance(place, Node) for place in sources):
            origin = sources[0]
    wanted = {i for place in (origin, first) for i in _ids(place) if flags.get(i)}
    part = _part(graph, wanted)
    known = {i: position for position, (i, _) in enumerate(graph.inputs)}
    bad = next(i for i in _ids(origin) if flags.get(i))
    fault = _fault(origin, None if first is origin else first, values[bad], names, known)
    return Found(fault, part, tuple(known[i] for i, _ in part.inputs))


def is_finite(leaf: Backend, primitive: object) -> bool:
    """Returns whether all values of a tensor are finite: a sum tells most, and what it does not the values
    themselves.
    """
    spec = leaf.spec(primitive)
    if not spec.dtype.is_float:
        return True
    total = float(Tensor(leaf, primitive, spec).sum().into_scalar())
    return math.isfinite(total) or bool(np.isfinite(leaf.into_data(primitive).values).all())


# -- looking at values ---------------------------------------------------------------------------------
def _flags(graph: Graph, leaf: Backend, inputs: Sequence[object]) -> tuple[dict[int, int], dict[int, Values]]:
    """For each value of a graph that is not all finite: which kinds there are, and what it is like."""
    flags: dict[int, int] = {}
    values: dict[int, Values] = {}

    def look(i: int, x: object) -> None:
        if isinstance(x, int | float):
            if not math.isfinite(x):
                values[i] = Values.of(TensorData(np.array(float(x)), DType.F64))
        elif x is not None and not is_finite(leaf, x):
            values[i] = Values.of(leaf.into_data(x))
        if i in values:
            flags[i] = values[i].flags

    for (ident, _), x in zip(graph.inputs, inputs, strict=True):
        look(ident, x)
    for node, outputs in stepwise(graph, leaf, inputs):
        for i, x in zip(node.outputs, outputs, strict=True):
            if i is not None:
                look(i, x)
    return flags, values


# -- following it back -----------------------------------------------------------------------------------
Place = Node | int
"""A node, or the id of an input."""


def _ids(place: Place) -> Iterator[int]:
    if isinstance(place, Node):
        yield from (i for i in place.outputs if i is not None)
    else:
        yield place


def _beginnings(graph: Graph, flags: dict[int, int], targets: Iterable[int], kind: int) -> list[Place]:
    """Returns where values of a kind that reach the targets begin: inputs, and nodes that read none of them; in
    order.
    """
    live = set(targets)
    places: list[Place] = []
    for node in reversed(graph.nodes):
        if live.isdisjoint(i for i in node.outputs if i is not None):
            continue
        before = {i for i in node.inputs if isinstance(i, int) and flags.get(i, 0) & kind}
        live |= before
        if not before:
            places.append(node)
    places += [i for i, _ in reversed(graph.inputs) if i in live]
    return places[::-1]


def _is_written(place: Place) -> bool:
    """Returns whether somebody wrote the infinity: it is a number of the graph, or came in with an input."""
    if not isinstance(place, Node):
        return True
    return any(isinstance(i, Literal) and not math.isfinite(i.value) for i in place.inputs)


def _part(graph: Graph, wanted: set[int]) -> Graph:
    """Returns what leads to these ids, and no more."""
    live = set(wanted)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(i for i in node.outputs if i is not None):
            nodes.append(node)
            live.update(i for i in node.inputs if isinstance(i, int))
    inputs = [(i, spec) for i, spec in graph.inputs if i in live]
    return Graph(inputs, nodes[::-1], sorted(wanted))


def _fault(place: Place, became: Place | None, values: Values, names: Sequence[str], known: dict[int, int]) -> Fault:
    if not isinstance(place, Node):
        return Fault(None, names[known[place]], "", "", False, values, None)
    origin = place.origin or Origin("", 0, "")
    later = None
    if isinstance(became, Node):
        later = f"{became.call.op.name}{'' if became.origin is None else f' at {became.origin}'}"
    return Fault(place.call.op.name, repr(place), origin.path, origin.where, origin.backward, values, later)
