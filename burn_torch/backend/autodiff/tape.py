"""The tape: nodes that point at their parents.  There is no graph object; dropping the loss drops the tape."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final

from burn_torch.backend.autodiff.derive import Derivation, Key, derive, float_outputs
from burn_torch.backend.base import Backend
from burn_torch.core.errors import explain
from burn_torch.core.source import Source
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.origin import Origins
from burn_torch.ops.op import Call, Candidate, Op
from burn_torch.ops.value import Primitive

__all__ = [
    "CONSUMED", "Backward", "FunctionEntry", "Node", "Passage", "Shown", "TapeEntry", "Tracked", "next_id",
    "version_sum",
]  # fmt: skip

next_id: Final = itertools.count().__next__
"""Creation numbers: parents come before children, so they are a topological order on every thread."""

CONSUMED: Final = object()
"""In place of a node's saved values once a backward has used them."""

Edge = tuple["Node", int]

Backward: TypeAlias = Callable[[Sequence[Primitive], Any], Sequence[Primitive]]
"""(gradients of the results, what the node keeps) -> one gradient or None for each edge."""


class Tracked:
    """A primitive of Autodiff that carries gradients: the inner primitive and where it came from.

    Each Autodiff has a subclass of its own, so that a type test tells its values from those of an inner tape.
    """

    __slots__ = ("index", "node", "primitive")

    def __init__(self, primitive: object, node: Node, index: int) -> None:
        self.primitive = primitive
        self.node = node
        self.index = index


@final
class Node:
    """One recorded Call, the passage of a value, or a leaf (entry None)."""

    __slots__ = ("edges", "entry", "id", "saved", "version")

    def __init__(
        self, entry: TapeEntry | FunctionEntry | Passage | None, edges: tuple[Edge, ...], saved: Primitive, version: int
    ) -> None:
        self.id: Final = next_id()
        self.entry: Final = entry
        self.edges = edges
        self.saved = saved
        self.version = version


class Passage(ABC):
    """A TapeEntry for one value that goes to another stack or passes a cut: it keeps no value."""

    flat: Final = ()
    __slots__ = ("call", "inner", "only", "origins")

    def __init__(self, call: Any, inner: Any, origins: Origins | None) -> None:
        self.call: Final = call
        self.inner: Final = inner
        """The backend that adds up the gradients that it gives."""
        self.origins: Final = origins
        self.only: Final[Backward] = self._back

    def version(self, saved: Primitive) -> int:
        """No value is kept, so none can be written to."""
        return 0

    @abstractmethod
    def _back(self, gradients: Sequence[Primitive], saved: Primitive) -> Sequence[Primitive]:
        """The gradient of the value, where `inner` has it."""


class Named(NamedTuple):
    """Stands for a row where a whole function was called."""

    name: str


class Shown(NamedTuple):
    """Holds what the walk back, and its errors, read of a Call."""

    op: Op | Named
    results: tuple[TensorSpec, ...]


class FunctionEntry(ABC):
    """A TapeEntry for the call of a function: one node, whatever the function computes."""

    flat: Final = ()
    origins: Final = None
    only: Final = None
    __slots__ = ("call", "inner")

    def __init__(self, what: str, results: Iterable[TensorSpec], inner: Backend) -> None:
        """`what` is the call as errors name it, `results` are those that have a gradient."""
        self.call: Final = Shown(Named(what), tuple(results))
        self.inner: Final = inner

    @abstractmethod
    def version(self, saved: Any) -> int:
        """The sum of the versions of what the node keeps."""

    @abstractmethod
    def backward(self, present: tuple[bool, ...]) -> Backward:
        """A function (gradients of the results, what the node keeps) -> one gradient or None for each edge."""


@final
class TapeEntry:
    """How one Call is recorded and walked back for one set of inputs that need gradients."""

    __slots__ = (
        "_backwards",
        "_tape_over",
        "call",
        "edges",
        "flat",
        "floats",
        "inner",
        "needs",
        "only",
        "origins",
        "recompute",
        "record",
        "saves",
        "version",
    )

    def __init__(self, call: Call, needs: tuple[bool, ...], tracked: int, tape: Any) -> None:
        """`needs` says which inputs get gradients, `tracked` (bits) which ones come as Tracked."""
        self.call: Final = call
        self.needs: Final = needs
        self.recompute: Final[bool] = tape.checkpoint == "balanced"
        self.inner: Final = tape.inner
        self._tape_over: Final[Callable[[Any], Any]] = tape.over
        self.origins: Final[Origins | None] = tape.origins
        self.floats: Final = float_outputs(call)
        self._backwards: Final[dict[tuple[bool, ...], Candidate]] = {}
        edges: set[int] = set()
        saves: dict[Key, None] = {}
        if not call.op.nondifferentiable:
            for present in self._likely_presences():
                derivation = derive(call, needs, present, self.recompute, tape=self._tape_over)
                edges.update(derivation.edges)
                saves.update(dict.fromkeys(derivation.saves))
        self.edges: Final = tuple(sorted(edges))
        flat = (i for i, need in enumerate(needs) if need and i not in edges) if any(self.floats) else ()
        self.flat: Final = tuple(flat)
        """Inputs whose gradient is zero everywhere, as that of `round`: a node points at them behind its edges."""
        self.saves: Final = tuple(saves)
        self.version: Final = version_sum({"x": call.specs, "y": call.results}, self.saves, self.inner)
        self.record: Final = _recorder(self, tracked, tape.tracked)
        self.only: Backward | None = None
        """The backward where there is one output, once it was needed."""
        if not edges:
            self.only = lambda gradients, saved: ()

    def _likely_presences(self) -> list[tuple[bool, ...]]:
        # Which outputs get gradients is known at backward, what to save must be known now: the union over "all" and
        # "each alone".  "First output only" lost gradients of layer_norm's statistics.
        if not any(self.floats):
            return []
        presences = [self.floats]
        if sum(self.floats) > 1:
            presences += [tuple(i == j for i in range(len(self.floats))) for j, f in enumerate(self.floats) if f]
        return presences

    def backward(self, present: tuple[bool, ...]) -> Backward:
        """A function (gradients of all outputs, saved values) -> one gradient or None for each of `edges`."""
        backward = self._backwards.get(present)
        if backward is None:
            derivation = derive(self.call, self.needs, present, self.recompute, tape=self._tape_over)
            if not (set(derivation.saves) <= set(self.saves) and set(derivation.edges) <= set(self.edges)):
                raise _unforeseen(self.call, present)
            backward = self._backwards[present] = self._adapt(derivation)
            if not self.call.multiple:
                self.only = backward
        return backward

    def _adapt(self, derivation: Derivation) -> Backward:
        run = self.inner.compile(derivation.graph)
        arguments = ", ".join(
            f"g[{i}]" if kind == "g" else f"s[{self.saves.index((kind, i))}]" for kind, i in derivation.reads
        )
        source = Source("backward", run=run)
        with source.block("def backward(g, s):"):
            if self.origins is not None:  # the recorder saved the origin last
                source.add(f"{source.name(self.origins.walk)}(s[-1])")
            source.add(f"r = run({arguments})")
            positions = [derivation.edges.index(i) if i in derivation.edges else None for i in self.edges]
            picked = "".join("None, " if p is None else f"r[{p}], " for p in positions)
            source.add("return r" if derivation.edges == self.edges else f"return ({picked})")
        return source.function("backward")


def _unforeseen(call: Call, present: tuple[bool, ...]) -> TypeError:
    outputs = [i for i, carries in enumerate(present) if carries]
    return TypeError(
        explain(
            f"{call.op.name}: its gradient rule reads a value that the tape has not kept",
            given=f"gradients of outputs {outputs} together",
            expected="to read then only what it reads for one output alone, or for all of them",
            mend="let the rule add up the parts of its outputs: each where its own gradient is not None",
        )
    )


def _recorder(entry: TapeEntry, tracked: int, kind: type[Tracked]) -> Callable[[Sequence[Primitive]], Sequence[object]]:
    """A function from inputs to outputs that computes the Call on the inner backend and makes its node.

    Written as source for the needs at hand: 0.5 us less an operation than the same in loops.
    """
    call, edges = entry.call, entry.edges + entry.flat
    count = len(call.specs)
    execute = entry.inner.execute
    if edges:  # where the tape may keep what is computed, a lazy backend may leave it for later
        execute = getattr(entry.inner, "execute_taped", execute)
    source = Source(
        "recording", entry=entry, call=call, execute=execute, version=entry.version, Node=Node,
        Tracked=kind, origins=entry.origins,
    )  # fmt: skip
    with source.block("def record(inputs):"):
        if count:
            source.add(f"{''.join(f'i{i}, ' for i in range(count))}= inputs")
        source.add(*(f"x{i} = i{i}.primitive" if tracked >> i & 1 else f"x{i} = i{i}" for i in range(count)))
        source.add(f"y = execute(call, ({''.join(f'x{i}, ' for i in range(count))}))")
        if edges:
            saved = "".join(f"x{i}, " if key == "x" else f"y[{i}], " for key, i in entry.saves)
            if entry.origins is not None:
                saved += "origins.last, "
            parents = "".join(f"(i{i}.node, i{i}.index), " for i in edges)
            source.add(f"saved = ({saved})", f"node = Node(entry, ({parents}), saved, version(saved))")
            results = [
                f"Tracked(y[{i}], node, {i})" + (f" if y[{i}] is not None else None" if call.multiple else "")
                if carries
                else f"y[{i}]"
                for i, carries in enumerate(entry.floats)
            ]
            source.add(f"return ({''.join(f'{value}, ' for value in results)})")
        else:
            source.add("return y")
    return source.function("record")


def version_sum(specs: Mapping[str, Sequence[object]], saves: Sequence[Key], inner: Any) -> Callable[[Any], int]:
    """Returns the sum of versions of saved values: versions only grow, so it changes if any of them does."""
    tensors = [i for i, (kind, position) in enumerate(saves) if isinstance(specs[kind][position], TensorSpec)]
    expression = getattr(inner, "version_expression", None)
    if expression is not None:  # 35 ns a tensor; a method call would cost 60 more
        terms = " + ".join(expression.format(f"s[{i}]") for i in tensors)
        source = Source("version")
        source.add(f"def version(s): return {terms or '0'}")
        return source.function("version")
    version = inner.version
    return lambda saved: sum(version(saved[i]) for i in tensors)
