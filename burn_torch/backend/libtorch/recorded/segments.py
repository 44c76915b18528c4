"""Segments of a graph: recorded parts, parts that run between them, and numbers that go to the device.

`divide(graph, place)` gives segments in order.  Captured segments read numbers as 0-d tensors (slots); every other one
is launched plainly, with the numbers themselves, and its `Split` says why.  Numbers are computed from numbers alone, so
all of them are known before the first segment runs.  Nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from burn_torch.backend.libtorch.attached.programs import in_place_form
from burn_torch.backend.libtorch.attached.table import device_form
from burn_torch.backend.libtorch.forms.numbers import RUN_TIME, DeviceForm, run_time_numbers
from burn_torch.backend.libtorch.recorded.transfers import with_transfers_apart
from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, Spec, TensorSpec
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes import dead_code
from burn_torch.graph.view import GraphView
from burn_torch.ops.op import Call, PerCall, unlisted
from burn_torch.ops.torch_code import Over
from burn_torch.ops.value import Primitive

__all__ = ["Pack", "Segment", "Segmentation", "Split", "divide", "table_call"]


@dataclass(frozen=True)
class Split:
    """A node that cannot be part of a recorded program, and why."""

    call: str
    origin: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.call}: {self.reason}" + (f" (at {self.origin})" if self.origin else "")


@dataclass(frozen=True)
class Segment:
    """A run of nodes.  `reads[i]` and `makes[i]` are the ids, in the whole graph, of its own inputs and outputs.

    donated: positions of inputs of the whole program that it may overwrite, as positions among its own.
    """

    graph: Graph
    captured: bool
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    donated: tuple[int, ...]


@dataclass(frozen=True)
class Pack:
    """Numbers of the host that become slots: `pack(*values of numbers)` gives one value a slot."""

    numbers: tuple[int, ...]
    pack: Callable[..., Sequence[float | int | bool]]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Segmentation:
    """A graph made ready.

    numbers    computes all numbers from the graph's number inputs; its outputs are `number_ids`
    packs      which of them become slots; `slots` has the element type of each, by id
    outputs    the ids of the program's outputs; `takes` has for each the position of the donated input whose memory it
               takes over, or None
    """

    segments: tuple[Segment, ...]
    numbers: Graph
    number_ids: tuple[int, ...]
    packs: tuple[Pack, ...]
    slots: dict[int, DType]
    outputs: tuple[int | None, ...]
    takes: tuple[int | None, ...]
    splits: tuple[Split, ...]


Refused = Collection[tuple[Call, str]]
Form = Callable[[Call, Sequence[Primitive]], DeviceForm | None]


def divide(
    graph: Graph, place: str, donate: Collection[int] = (), *, refused: Refused = (), form: Form = device_form
) -> Segmentation:
    """Divides a graph for recording on `place`.

    donate: positions of inputs whose memory the program may overwrite.  refused: Calls that a recorder could not take,
    each with the reason.  form: how a Call reads its run-time numbers on the device.
    """
    graph = _expand_rows(with_transfers_apart(graph), form)
    numbers = _number_ids(graph)
    divider = _Divider(graph, place, numbers, dict(refused), form)
    runs = divider.runs()
    wanted = {i for i in graph.outputs if i is not None}
    segments: list[Segment] = []
    specs: dict[int, Spec] = graph.specs() | {i: TensorSpec.of((), dtype, place) for i, dtype in divider.slots.items()}
    owned = {i for position, (i, _) in enumerate(graph.inputs) if position in donate}
    for captured, nodes in reversed(runs):
        # a recording of nothing but views would launch nothing
        captured = captured and not all(node.call.aliases for node in nodes)
        segments.append(_segment(nodes, captured, specs, wanted, owned))
        wanted |= set(segments[-1].reads)
    needed = sorted({i for i in wanted if i in numbers} | {i for pack in divider.packs for i in pack.numbers})
    host = [node for node in graph.nodes if node.call.is_number]
    return Segmentation(
        tuple(reversed(segments)),
        dead_code(Graph([(i, spec) for i, spec in graph.inputs if isinstance(spec, NumberSpec)], host, needed)),
        tuple(needed),
        tuple(divider.packs),
        divider.slots,
        graph.outputs,
        _match_donated(graph, donate, [node for _, nodes in runs for node in nodes]),
        tuple(divider.splits),
    )


# -- dividing -----------------------------------------------------------------------------------------
class _Divider:
    """Walks the nodes: rewrites those that read numbers, refuses those that cannot be recorded."""

    def __init__(self, graph: Graph, place: str, numbers: set[int], refused: dict[Call, str], form: Form) -> None:
        self.graph: Final = graph
        self.place: Final = place
        self.numbers: Final = numbers
        self.refused: Final = refused
        self.form: Final = form
        self.packs: Final[list[Pack]] = []
        self.slots: Final[dict[int, DType]] = {}
        self.splits: Final[list[Split]] = []
        self._view: Final = GraphView(graph)
        self._packed: Final[dict[object, Pack]] = {}

    def runs(self) -> list[tuple[bool, list[Node]]]:
        """The nodes without those that compute numbers, in runs that are recorded or not."""
        runs: list[tuple[bool, list[Node]]] = []
        for node in self.graph.nodes:
            if node.call.is_number:
                continue
            ready: Node | str = self._reason(node) or self._on_device(node)
            captured = isinstance(ready, Node)
            if isinstance(ready, str):
                self.splits.append(Split(repr(node.call), _origin(node), ready))
                ready = node
            if not runs or runs[-1][0] is not captured:
                runs.append((captured, []))
            runs[-1][1].append(ready)
        return runs

    def _reason(self, node: Node) -> str:
        call = node.call
        if call in self.refused:
            return self.refused[call]
        if call.op.barrier:
            return "its shape depends on the data, so it waits for the device"
        if call.op.collective is not None:
            return "it needs other processes, which record programs of their own"
        tensors = [spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec)]
        elsewhere = sorted({spec.place for spec in tensors} - {self.place})
        return f"it computes on {', '.join(elsewhere)}, not on {self.place}" if elsewhere else ""

    def _on_device(self, node: Node) -> Node | str:
        """The node with its run-time numbers in slots, or why that cannot be."""
        known = known_numbers(node, self.numbers)
        at = run_time_numbers(known)
        if not at:
            return node
        form = self.form(node.call, known)
        if form is None:
            names = [node.call.op.signature.kinds(len(known))[i][0] for i in at]
            change = "changes" if len(at) == 1 else "change"
            return (
                f"its {' and '.join(names)} {change} from call to call, and no form of it reads numbers on the device"
            )
        pack = self._pack(tuple(node.inputs[i] for i in at), form)  # type: ignore[misc]  # ids
        others = [
            (x, spec) for i, (x, spec) in enumerate(zip(node.inputs, node.call.specs, strict=True)) if i not in at
        ]
        inputs: list[Input] = [*pack.slots, *(x for x, _ in others)]
        specs = [TensorSpec.of((), dtype, self.place) for dtype in form.dtypes] + [spec for _, spec in others]
        return Node(_device_call(node.call, form, specs), inputs, node.outputs, node.origin)

    def _pack(self, numbers: tuple[int, ...], form: DeviceForm) -> Pack:
        key = (numbers, form.dtypes, form.pack)
        pack = self._packed.get(key)
        if pack is None:
            slots = tuple(self._view.fresh() for _ in form.dtypes)
            self.slots.update(zip(slots, form.dtypes, strict=True))
            pack = self._packed[key] = Pack(numbers, form.pack, slots)
            self.packs.append(pack)
        return pack


def known_numbers(node: Node, numbers: Collection[int]) -> tuple[object, ...]:
    """For each input: the value of a literal, RUN_TIME for another number, None for a tensor or nothing."""
    return tuple(
        x.value if isinstance(x, Literal) else RUN_TIME if x is not None and x in numbers else None for x in node.inputs
    )


def _device_call(call: Call, form: DeviceForm, specs: Sequence[Spec | None]) -> Call:
    """A Call of a row that is in no table: the form's function over slots and the other inputs."""

    def rule(*xs: TensorSpec) -> None: ...

    rule.__name__ = f"{call.op.name}_on_device".replace("::", "_")
    rule.__doc__ = f"{call.op.name} with numbers on the device."
    compute = form.compute if form.over is None else _on_copies(form.compute, form.over)
    inplace = None if form.over is None else Over(form.compute, form.over)
    # an update's results lie as what they are written over, however its gradients do
    row = unlisted(rule, torch=PerCall(lambda _: compute), inplace=inplace, runs=call.op.runs)
    device_call = Call(row, tuple(specs), {}, call.results, call.multiple)
    device_call.memo["table_call"] = call
    return device_call


def _on_copies(compute: Callable[..., object], over: Collection[int]) -> Callable[..., object]:
    written = frozenset(over)
    return lambda *inputs: compute(*[x.clone() if i in written else x for i, x in enumerate(inputs)])


def table_call(call: Call) -> Call:
    """The Call of the table that one with numbers on the device stands for; any other is its own."""
    return call.memo.get("table_call", call)


def _origin(node: Node) -> str | None:
    return None if node.origin is None else str(node.origin)


def _number_ids(graph: Graph) -> set[int]:
    return {i for i, spec in graph.specs().items() if isinstance(spec, NumberSpec)}


# -- decompositions -----------------------------------------------------------------------------------------
def _expand_rows(graph: Graph, form: Form) -> Graph:
    """The graph with rows written in others where they read numbers that they cannot read from the device."""
    view = GraphView(graph)
    nodes: list[Node] = []
    numbers = {i for i, spec in graph.inputs if isinstance(spec, NumberSpec)}
    renamed: dict[int, Input] = {}  # results of expanded nodes, and numbers that turned out to be known

    def resolved(x: Input) -> Input:
        return renamed.get(x, x) if isinstance(x, int) else x

    def add(node: Node) -> None:
        inputs = [resolved(x) for x in node.inputs]
        if node.call.is_number:
            if all(isinstance(x, Literal) for x in inputs):
                assert node.call.op.scalar is not None
                value = node.call.op.scalar(*[x.value for x in inputs if isinstance(x, Literal)])
                renamed[node.outputs[0]] = Literal(value)  # type: ignore[index]  # numbers are always made
            else:
                numbers.add(node.outputs[0])  # type: ignore[arg-type]  # numbers are always made
        node = Node(node.call, inputs, node.outputs, node.origin)
        known = known_numbers(node, numbers)
        reads = not node.call.is_number and bool(run_time_numbers(known))
        # half of a transfer in other rows, and the other half as it is, would be no pair; they are not recorded anyway
        whole = node.call.op.decomposition is None or node.call.op.collective is not None
        if not reads or whole or form(node.call, known) is not None:
            nodes.append(node)
            return
        body = decomposed(node.call)
        present = iter(x for x, spec in zip(inputs, node.call.specs, strict=True) if spec is not None)
        inside: dict[int, Input] = {i: next(present) for i, _ in body.inputs}
        for part in body.nodes:
            read = [resolved(inside[x]) if isinstance(x, int) else x for x in part.inputs]
            inside.update((i, view.fresh()) for i in part.outputs if i is not None)
            outputs = [None if i is None else inside[i] for i in part.outputs]
            add(Node(part.call, read, outputs, node.origin))  # type: ignore[arg-type]  # fresh ids
        for outer, inner in zip(node.outputs, body.outputs, strict=True):
            if outer is not None and inner is not None:
                renamed[outer] = resolved(inside[inner])

    for node in graph.nodes:
        add(node)
    # a number that turned out to be known is still computed for those who ask for it
    outputs = [i if isinstance(renamed.get(i), Literal) else resolved(i) for i in graph.outputs]  # type: ignore[arg-type]  # None is in no dict
    return Graph(graph.inputs, nodes, outputs)  # type: ignore[arg-type]  # no literal is left


# -- segments ------------------------------------------------------------------------------------------------
def _segment(
    nodes: Sequence[Node], captured: bool, specs: dict[int, Spec], wanted: Collection[int], owned: Collection[int]
) -> Segment:
    """Nodes as a graph of their own, with ids from 0; `wanted` is what later segments and the caller read."""
    written = {i for node in nodes for i in node.outputs if i is not None}
    reads = sorted({i for node in nodes for i in node.inputs if isinstance(i, int)} - written)
    makes = sorted(i for i in written if i in wanted)
    names: dict[int, int] = {i: name for name, i in enumerate(reads)}
    inside = []
    for node in nodes:
        for i in node.outputs:
            if i is not None:
                names[i] = len(names)
        inputs = [names[x] if isinstance(x, int) else x for x in node.inputs]
        inside.append(Node(node.call, inputs, [None if i is None else names[i] for i in node.outputs], node.origin))
    graph = Graph([(names[i], specs[i]) for i in reads], inside, [names[i] for i in makes])
    donated = tuple(position for position, i in enumerate(reads) if i in owned and i not in wanted)
    return Segment(graph, captured, tuple(reads), tuple(makes), donated)


def _match_donated(graph: Graph, donate: Collection[int], nodes: Sequence[Node]) -> tuple[int | None, ...]:
    """Returns for each output the donated input that it takes over.

    That which it is; that which the node that makes it would write over; else the first free one of its spec.
    """
    free = {position: graph.inputs[position] for position in sorted(donate)}
    takes: list[int | None] = [None] * len(graph.outputs)
    for number, i in enumerate(graph.outputs):
        own = next((position for position, (input_id, _) in free.items() if input_id == i), None)
        if i is not None and own is not None:
            takes[number] = own
            del free[own]
    seen = {graph.outputs[number] for number, position in enumerate(takes) if position is not None}
    positions = {i: position for position, (i, _) in free.items()}
    written = _written_over(nodes)
    for number, i in enumerate(graph.outputs):
        over = positions.get(written.get(i, -1)) if i is not None and i not in seen else None
        if over is not None and over in free:
            takes[number] = over
            seen.add(i)
            del free[over]
    specs = graph.specs()
    by_spec: dict[Spec, list[int]] = {}
    for position, (_, spec) in free.items():
        by_spec.setdefault(spec, []).append(position)
    for members in by_spec.values():
        members.reverse()
    for number, i in enumerate(graph.outputs):
        if i is None or takes[number] is not None or i in seen:
            continue
        result = specs.get(i)
        if isinstance(result, TensorSpec) and by_spec.get(result):
            takes[number] = by_spec[result].pop()
            seen.add(i)
    return tuple(takes)


def _written_over(nodes: Sequence[Node]) -> dict[int, int]:
    """For results of nodes with an in-place form: the id whose memory that form would write to."""
    overwritten: dict[int, int] = {}
    for node in nodes:
        form = in_place_form(node.call)
        if form is None:
            continue
        for i, position in zip(node.outputs, form[1], strict=True):
            read = node.inputs[position]
            if i is not None and isinstance(read, int):
                overwritten[i] = read
    return overwritten
