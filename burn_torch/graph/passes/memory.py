"""The memory plan: how long each value lives, what is written over what, and where the rest lies.

A plan is data.  An executor may follow it (an arena with offsets, writes in place), or only report it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.layout import CONTIGUOUS, DENSE, Layouts
from burn_torch.graph.passes.sharing import alias_roots, constant_values
from burn_torch.ops.op import Call, PerCall
from burn_torch.ops.torch_code import Over
from burn_torch.symbolic.sizes import size_hint

__all__ = ["Buffer", "MemoryPlan", "memory_plan", "peak_bytes"]

_ALIGNMENT_CPU: Final = 64  # a cache line, and the widest vector
_ALIGNMENT: Final = 512  # what CUDA's own allocator gives


@final
@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory and all values that lie in it, one after the other or as views of each other.

    It is in use from node `first` to node `last`, both included; -1 is before the first node, the number of nodes
    after the last.  region: "input" (somebody else's), "state" (donated), "constant", "activation" or "output".
    `offset` is its place in the arena of its region and place; None where the memory is not ours to lay out.
    """

    values: tuple[int, ...]
    bytes: int
    place: str
    region: str
    first: int
    last: int
    offset: int | None = None


@final
@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory that a graph needs; see `memory_plan`.

    in_place: node -> (output, input) positions, where the row's `inplace` form may write over the input.
    arena_bytes: (region, place) -> size.  peak_bytes counts inputs too; peak_at is the node where it is reached.
    """

    buffers: tuple[Buffer, ...]
    buffer_of: Mapping[int, int]
    in_place: Mapping[int, tuple[tuple[int, int], ...]]
    peak_bytes: int
    peak_at: int
    arena_bytes: Mapping[tuple[str, str], int]


def memory_plan(graph: Graph, donated: Collection[int] = ()) -> MemoryPlan:
    """Plans the memory of a graph whose outputs are isolated (`isolate_outputs`).

    `donated` names positions of inputs that the program may overwrite; their tensors are dense, and nobody else holds
    them.  A value may be written over one that is not needed any more if the row has an in-place form, both have one
    spec and one layout, the memory is ours or donated and occurs once among the inputs.  Views count nothing; a reshape
    counts as a view, though a leaf may have to copy.  Values whose shape depends on data are not counted.
    """
    lives = _Lives(graph, donated)
    timeline = lives.timeline()
    offsets, arenas = _laid_out(lives)
    buffers = tuple(
        Buffer(tuple(values), size, place, region, first, last, offset)
        for values, size, place, region, first, last, offset in zip(
            lives.values(), lives.bytes, lives.place, lives.region, lives.first, lives.last, offsets, strict=True
        )
    )
    peak_at = int(timeline.argmax())
    return MemoryPlan(buffers, lives.buffer_of, lives.in_place, int(timeline[peak_at]), peak_at - 1, arenas)


def peak_bytes(graph: Graph, donated: Collection[int] = (), *, over: bool = True) -> int:
    """The most memory in use at once, as `memory_plan` plans it; cheaper.  over: values may be written over others."""
    return int(_Lives(graph, donated, over=over).timeline().max())


# -- lifetimes ---------------------------------------------------------------------------------------
@final
class _Lives:
    """The buffers of a graph, in columns: one entry a buffer."""

    def __init__(self, graph: Graph, donated: Collection[int], *, over: bool = True) -> None:
        self._over: Final = over
        donated = frozenset(donated)
        self.nodes: Final = len(graph.nodes)
        self.first: Final[list[int]] = []
        self.last: Final[list[int]] = []
        self.bytes: Final[list[int]] = []
        self.place: Final[list[str]] = []
        self.region: Final[list[str]] = []
        self.buffer_of: Final[dict[int, int]] = {}
        """Value -> buffer; views are in the buffer of what they are views of."""
        self.in_place: Final[dict[int, tuple[tuple[int, int], ...]]] = {}
        self._root: Final = alias_roots(graph)
        self._whole: Final[set[Input]] = {i for i, _ in graph.inputs}
        """Values that are all of their buffer, each element once: a write to one is a write to the buffer."""
        self._inputs(graph, donated)
        self._walk(graph, donated, self._last_uses(graph))

    def _new(self, i: int, spec: TensorSpec, region: str, first: int, last: int) -> None:
        self.buffer_of[i] = len(self.first)
        self.first.append(first)
        self.last.append(last)
        self.bytes.append(size_hint(spec.numel) * spec.dtype.itemsize)
        self.place.append(spec.place)
        self.region.append(region)

    def _inputs(self, graph: Graph, donated: Collection[int]) -> None:
        for position, (i, spec) in enumerate(graph.inputs):
            if isinstance(spec, TensorSpec):
                is_donated = position in donated
                self._new(i, spec, "state" if is_donated else "input", -1, -1 if is_donated else self.nodes)

    def _last_uses(self, graph: Graph) -> dict[int, int]:
        """For each root the last node that reads it or a view of it; the number of nodes if it is an output."""
        root = self._root
        last: dict[int, int] = {}
        for position, node in enumerate(graph.nodes):
            for i in node.inputs:
                if i.__class__ is int:
                    last[root[i]] = position
        for y in graph.outputs:
            if y is not None:
                last[root[y]] = self.nodes
        return last

    def _walk(self, graph: Graph, donated: Collection[int], last_use: Mapping[int, int]) -> None:
        root, end = self._root, self.nodes
        constant = constant_values(graph)
        layouts = Layouts(graph, dense=[graph.inputs[position][0] for position in donated])
        for i in self.buffer_of:
            number = self.buffer_of[i]
            self.last[number] = max(self.last[number], last_use.get(i, -1))
        for position, node in enumerate(graph.nodes):
            layouts.add(node)
            over = self._overwritten(node, position, last_use, layouts) if self._over else {}
            if over:
                self.in_place[position] = tuple((j, k) for j, (k, _) in over.items())
            for j, (y, spec) in enumerate(zip(node.outputs, node.call.results, strict=True)):
                if y is None:
                    continue
                base = root[y]
                if base == y:
                    self._whole.add(y)
                else:
                    whole = node.call.is_input or node.call.op.packed in ("input", "order")
                    if whole and node.inputs[0] in self._whole:
                        self._whole.add(y)
                    if base in self.buffer_of:
                        self.buffer_of[y] = self.buffer_of[base]
                    continue
                if j in over:
                    number = self.buffer_of[y] = self.buffer_of[over[j][1]]
                    self.last[number] = last_use.get(y, position)
                    if self.last[number] == end and self.region[number] != "state":
                        self.region[number] = "output"
                elif isinstance(spec, TensorSpec):
                    last = last_use.get(y, position)
                    region = "output" if last == end else "constant" if y in constant else "activation"
                    self._new(y, spec, region, position, last)

    def _overwritten(
        self, node: Node, position: int, last_use: Mapping[int, int], layouts: Layouts
    ) -> dict[int, tuple[int, int]]:
        """Output -> input of the node and its value, where the output may be written over it."""
        call, root = node.call, self._root
        over: dict[int, tuple[int, int]] = {}
        read: Counter[int] | None = None
        taken: set[int] = set()
        for j, k in _written_over(call):
            old = node.inputs[k]
            if j in over or k in taken:
                continue
            if old not in self._whole or not isinstance(old, int) or node.outputs[j] is None:
                continue
            base = root[old]
            if last_use.get(base) != position or self.region[self.buffer_of[base]] in ("input", "constant"):
                continue
            if read is None:
                read = Counter([root[i] for i in node.inputs if isinstance(i, int)])
            if read[base] > 1:
                continue
            follows = call.op.packed == "follows" or call.op.runs is not None
            alone = call.memo.get("chooses") and layouts.of(old) >= DENSE  # the leaf looks whether it is row-major
            if (
                alone
                or (follows and layouts.is_its_own_copy(old, call.specs[k]))
                or all(layouts.of(i) == CONTIGUOUS for i in node.inputs)
            ):
                over[j] = (k, old)
                taken.add(k)
        return over

    def timeline(self) -> Any:
        """Bytes in use: before the first node, at each node, after the last."""
        change = np.zeros(self.nodes + 3, np.int64)
        if self.first:
            sizes = np.array(self.bytes, np.int64)
            np.add.at(change, np.array(self.first) + 1, sizes)
            np.subtract.at(change, np.array(self.last) + 2, sizes)
        return np.cumsum(change)[:-1]

    def values(self) -> list[list[int]]:
        """The values in each buffer, in the order of making."""
        values: list[list[int]] = [[] for _ in self.first]
        for i, number in self.buffer_of.items():
            values[number].append(i)
        return values


def _written_over(call: Call) -> Sequence[tuple[int, int]]:
    """(output, input) pairs of the row's in-place form at this Call; nothing where it has none.

    For floats only: an operation that refuses numbers beyond an integer type does not do so in place.
    """
    form = call.op.inplace
    if form is None or call.is_number or call.aliases:
        return ()
    pairs: Sequence[tuple[int, int]] | None = call.memo.get("written over")
    if pairs is None:
        built = form.build(call) if isinstance(form, PerCall) else form
        inputs = () if built is None else built.over if isinstance(built, Over) else (0,)
        chosen = built.choices if isinstance(built, Over) else ()
        call.memo["chooses"] = bool(chosen)
        pairs = [
            (j, k)
            for j, k in chosen or enumerate(inputs)
            if (spec := call.results[j]) is call.specs[k] and isinstance(spec, TensorSpec) and spec.dtype.is_float
        ]
        call.memo["written over"] = pairs
    return pairs


# -- arenas -------------------------------------------------------------------------------------------
def _laid_out(lives: _Lives) -> tuple[list[int | None], dict[tuple[str, str], int]]:
    """Places each buffer of ours, the largest first, in the smallest gap that is free all its life."""
    arenas: dict[tuple[str, str], list[int]] = {}
    for number, (region, place) in enumerate(zip(lives.region, lives.place, strict=True)):
        if region in ("activation", "output"):
            arenas.setdefault((region, place), []).append(number)
    offsets: list[int | None] = [None] * len(lives.first)
    sizes: dict[tuple[str, str], int] = {}
    for key, numbers in arenas.items():
        alignment = _ALIGNMENT_CPU if key[1] == "cpu" else _ALIGNMENT
        numbers.sort(key=lambda n: (-lives.bytes[n], lives.first[n], n))
        count = len(numbers)
        first, last, start, stop = np.zeros((4, count), np.int64)
        for placed, n in enumerate(numbers):
            size = -(-lives.bytes[n] // alignment) * alignment
            offset = 0
            if size:
                together = (first[:placed] <= lives.last[n]) & (last[:placed] >= lives.first[n])
                offset = _best_gap(start[:placed][together], stop[:placed][together], size)
            first[placed], last[placed] = lives.first[n], lives.last[n]
            start[placed], stop[placed] = offset, offset + size
            offsets[n] = offset
        sizes[key] = int(stop.max(initial=0))
    return offsets, sizes


def _best_gap(start: Any, stop: Any, size: int) -> int:
    if not start.size:
        return 0
    order = np.argsort(start, kind="stable")
    start, stop = start[order], stop[order]
    filled = np.concatenate([[0], np.maximum.accumulate(stop)])  # up to here, before each gap
    gaps = start - filled[:-1]
    fits = np.flatnonzero(gaps >= size)
    return int(filled[fits[np.argmin(gaps[fits])]] if fits.size else filled[-1])
