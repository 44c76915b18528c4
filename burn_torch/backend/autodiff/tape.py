"""The tape: nodes that point at their parents.  There is no graph object; dropping the loss drops the tape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from burn_torch.backend.autodiff.derive import Derivation, derive, float_outputs
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call

__all__ = ["CONSUMED", "Node", "Recording", "Tracked", "next_id"]

next_id: Final = itertools.count().__next__
"""Creation numbers: parents come before children, so they are a topological order on every thread."""

CONSUMED: Final = object()
"""In place of a node's saved values once a backward has used them."""

Edge = tuple["Node", int]


class Tracked:
    """A primitive of Autodiff that carries gradients: the inner primitive and where it came from.

    Each Autodiff has a subclass of its own, so that a type test tells its values from those of an inner tape.
    """

    __slots__ = ("index", "node", "primitive")

    def __init__(self, primitive: Any, node: Node, index: int) -> None:
        self.primitive = primitive
        self.node = node
        self.index = index


@final
class Node:
    """One recorded Call, or a leaf (recording None)."""

    __slots__ = ("edges", "id", "recording", "saved", "version")

    def __init__(self, recording: Recording | None, edges: tuple[Edge, ...], saved: Any, version: int) -> None:
        self.id: Final = next_id()
        self.recording: Final = recording
        self.edges = edges
        self.saved = saved
        self.version = version


@final
class Recording:
    """How one Call is recorded and walked back for one set of inputs that need gradients."""

    __slots__ = ("_backwards", "call", "edges", "floats", "inner", "needs", "recompute", "save", "saves", "version")

    def __init__(self, call: Call, needs: tuple[bool, ...], recompute: bool, inner: Any) -> None:
        self.call: Final = call
        self.needs: Final = needs
        self.recompute: Final = recompute
        self.inner: Final = inner
        self.floats: Final = float_outputs(call)
        self._backwards: Final[dict[tuple[bool, ...], Callable[..., Any]]] = {}
        edges: set[int] = set()
        saves: dict[tuple[str, int], None] = {}
        if not call.op.nondifferentiable:
            for present in self._likely_presences():
                derivation = derive(call, needs, present, recompute)
                edges.update(derivation.edges)
                saves.update(dict.fromkeys(derivation.saves))
        self.edges: Final = tuple(sorted(edges))
        self.saves: Final = tuple(saves)
        self.save: Final = _selector(self.saves)
        self.version: Final = _version_sum(call, self.saves, inner)

    def _likely_presences(self) -> list[tuple[bool, ...]]:
        # Which outputs get gradients is known at backward, what to save must be known now: the union over "all" and
        # "each alone".  "First output only" lost gradients of layer_norm's statistics.
        if not any(self.floats):
            return []
        presences = [self.floats]
        if sum(self.floats) > 1:
            presences += [tuple(i == j for i in range(len(self.floats))) for j, f in enumerate(self.floats) if f]
        return presences

    def backward(self, present: tuple[bool, ...]) -> Callable[[Sequence[Any], Any], Sequence[Any]]:
        """A function (gradients of all outputs, saved values) -> one gradient or None for each of `edges`."""
        backward = self._backwards.get(present)
        if backward is None:
            derivation = derive(self.call, self.needs, present, self.recompute)
            backward = self._backwards[present] = self._adapted(derivation)
        return backward

    def _adapted(self, derivation: Derivation) -> Callable[[Sequence[Any], Any], Sequence[Any]]:
        run = self.inner.compile(derivation.graph)
        arguments = ", ".join(
            f"g[{i}]" if kind == "g" else f"s[{self.saves.index((kind, i))}]" for kind, i in derivation.reads
        )
        result = f"run({arguments})"
        if derivation.edges != self.edges:
            positions = [derivation.edges.index(i) if i in derivation.edges else None for i in self.edges]
            picked = "".join("None, " if p is None else f"r[{p}], " for p in positions)
            result = f"(lambda r: ({picked}))({result})"
        backward: Callable[[Sequence[Any], Any], Sequence[Any]] = eval(f"lambda g, s: {result}", {"run": run})
        return backward


_selectors: dict[str, Any] = {}


def _function(source: str) -> Any:
    function = _selectors.get(source)
    if function is None:
        function = _selectors[source] = eval(source, {"__builtins__": {"sum": sum}})
    return function


def _selector(saves: Sequence[tuple[str, int]]) -> Callable[[Any, Any], tuple[Any, ...]]:
    items = "".join(f"{kind}[{i}], " for kind, i in saves)
    return _function(f"lambda x, y: ({items})")


def _version_sum(call: Call, saves: Sequence[tuple[str, int]], inner: Any) -> Callable[[Any], int]:
    """Of saved values, the sum of their versions: versions only grow, so it changes if any of them does."""
    specs = {"x": call.specs, "y": call.results}
    tensors = [i for i, (kind, position) in enumerate(saves) if isinstance(specs[kind][position], TensorSpec)]
    expression = getattr(inner, "version_expression", None)
    if expression is not None:  # 35 ns a tensor; a method call would cost 60 more
        terms = " + ".join(expression.format(f"s[{i}]") for i in tensors)
        return _function(f"lambda s: {terms or '0'}")
    version = getattr(inner, "version", None)
    if version is None or not tensors:  # a trace has no memory
        return _function("lambda s: 0")
    return lambda saved: sum(version(saved[i]) for i in tensors)
