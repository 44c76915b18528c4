"""The scheduler: which operations become one kernel.

Greedy and deterministic: of all pairs of groups that share a value, the one that saves the most bytes is joined first,
ties by the order of the program.  A pair is joined if the two are one kernel (`lowering.py` says so, or why not) and
nothing that lies between them needs the one and is needed by the other.  The plan is a function of the graph alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.bodies import Role, Source, role_of
from burn_torch.fusion.lowering import lower
from burn_torch.fusion.patterns import replaced
from burn_torch.fusion.reasons import Reason, Unfusible
from burn_torch.fusion.row import kernel
from burn_torch.fusion.splitting import columns_in_two_steps, in_two_steps
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.origin import Origin
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.grouping import in_order
from burn_torch.graph.passes.view_chains import fold_views
from burn_torch.ops.op import Call

__all__ = ["Boundary", "Group", "Plan", "fuse", "plan_of"]

_ROUNDS: Final = 10

Split = Callable[[Call], Graph | None]


@final
@dataclass(frozen=True)
class Group:
    """Operations that are one kernel.

    rows         names of the operations, in order
    origins      the users' lines that they come from, each once
    bytes_saved  of values between them: not read again, and not written where nobody else reads them
    body         what it computes
    """

    rows: tuple[str, ...]
    origins: tuple[Origin, ...]
    bytes_read: int
    bytes_written: int
    bytes_saved: int
    body: Graph


@final
@dataclass(frozen=True)
class Boundary:
    """A value that one kernel or library function writes and another one reads, and why they are two."""

    value: int
    bytes: int
    producer: str
    consumer: str
    reason: Reason
    detail: str


@final
@dataclass(frozen=True)
class Plan:
    """What fusion made of a graph."""

    graph: Graph
    groups: tuple[Group, ...]
    boundaries: tuple[Boundary, ...]

    @property
    def kernels(self) -> int:
        """How many operations of the graph compute on tensors: generated kernels and those of libraries."""
        return sum(not node.call.is_number and not node.call.aliases for node in self.graph.nodes)


def fuse(graph: Graph, *, strict: bool = False) -> Graph:
    """The graph with generated kernels in place of what they compute."""
    return plan_of(graph, strict=strict).graph


def plan_of(graph: Graph, *, strict: bool = False) -> Plan:
    """The kernels of a graph.  strict: they round after each operation, as unfused execution does."""
    opened, whole = _opened(dead_code(replaced(dead_code(graph))))
    source = Source(opened)
    groups = _Grouping(source)
    groups.run()
    return _written(source, groups, whole, strict)


# -- composite operations ------------------------------------------------------------------------------
def _opened(graph: Graph, split: Split = in_two_steps) -> tuple[Graph, dict[int, tuple[Node, frozenset[int]]]]:
    """The graph with composite operations (softmax, norms) replaced by what they are made of.

    Also, for each position in it that came from one, that operation and the positions of all its parts.
    """
    nodes: list[Node] = []
    whole: dict[int, tuple[Node, frozenset[int]]] = {}
    highest = max(
        [i for i, _ in graph.inputs] + [i for n in graph.nodes for i in n.outputs if i is not None], default=0
    )
    for node in graph.nodes:
        body = _parts(node, split)
        if body is None:
            nodes.append(node)
            continue
        given = [i for i in node.inputs if i is not None]
        names: dict[int, Input] = dict(zip((i for i, _ in body.inputs), given, strict=True))
        for made, wanted in zip(body.outputs, node.outputs, strict=True):
            if made is not None and wanted is not None and made not in names:
                names[made] = wanted
        first = len(nodes)
        for part in body.nodes:
            for i in part.outputs:
                if i is not None and i not in names:
                    highest += 1
                    names[i] = highest
            nodes.append(
                Node(
                    part.call,
                    [names[i] if isinstance(i, int) else i for i in part.inputs],
                    [None if i is None else names[i] for i in part.outputs],  # type: ignore[misc]  # outputs are ids
                    node.origin,
                )
            )
        members = frozenset(range(first, len(nodes)))
        whole.update((n, (node, members)) for n in members)
    return Graph(graph.inputs, nodes, graph.outputs), whole


def _parts(node: Node, split: Split) -> Graph | None:
    call = node.call
    if role_of(call)[0] == Role.COMPUTES:
        return _kept(call, split)
    if role_of(call)[0] != Role.APART or call.is_number or call.op is kernel or call.op.runs is not None:
        return None
    return _kept(call, expanded)


def _kept(call: Call, parts: Split) -> Graph | None:
    key = ("parts", parts)
    body: Graph | bool | None = call.memo.get(key, False)
    if body is False:
        body = parts(call)
        if body is not None:
            body = dead_code(fold_views(body, "fast"))  # without casts to the type that a value has
            body = _opened(body, columns_in_two_steps)[0] if parts is expanded else body
        if body is not None and not _fits(body):
            body = None
        call.memo[key] = body
    assert not isinstance(body, bool)
    return body


def _fits(body: Graph) -> bool:
    """Whether kernels can be made of all parts, each of which has a name of its own in the graph around it."""
    inputs = {i for i, _ in body.inputs}
    outputs = [i for i in body.outputs if i is not None]
    distinct = len(set(outputs)) == len(outputs) and not inputs & set(outputs)
    return distinct and bool(body.nodes) and all(role_of(part.call)[0] != Role.APART for part in body.nodes)


# -- groups --------------------------------------------------------------------------------------------
@final
class _Grouping:
    """Joins operations into groups."""

    def __init__(self, source: Source) -> None:
        self.source: Final = source
        self.members: Final[dict[int, frozenset[int]]] = {
            n: frozenset([n]) for n, (role, _) in enumerate(source.role) if role == Role.COMPUTES
        }
        self.group_of: Final[dict[int, int]] = {n: n for n in self.members}
        self.refused: Final[dict[tuple[frozenset[int], frozenset[int]], Unfusible]] = {}
        self.why: Final[dict[tuple[int, int], Unfusible]] = {}
        self.lowered: Final[dict[Graph, Unfusible | None]] = {}
        self.next_readers: Final = self._next_readers()

    def _next_readers(self) -> list[list[int]]:
        """For each position, the positions that read what it makes."""
        source = self.source
        return [
            sorted({r for i in node.outputs if i is not None for r in source.readers.get(i, ())})
            for node in source.graph.nodes
        ]

    def run(self) -> None:
        """Joins until nothing is left to join."""
        for _ in range(_ROUNDS):
            joined = False
            for _, a, b in sorted(self._pairs()):
                one, other = self.group_of.get(a), self.group_of.get(b)
                if one is not None and other is not None and one != other:
                    joined = self._join(min(one, other), max(one, other)) or joined
            if not joined:
                return

    def _pairs(self) -> list[tuple[int, int, int]]:
        """(-bytes saved, first, second) of each two groups that share a value."""
        source = self.source
        readers: dict[int, set[int]] = {}
        for name, members in self.members.items():
            for n in members:
                for i in source.graph.nodes[n].inputs:
                    if isinstance(i, int):
                        for base in source.bases(i):
                            readers.setdefault(base, set()).add(name)
        saved: dict[tuple[int, int], int] = {}
        for value, names in readers.items():
            size = source.bytes_of(value)
            if not size:
                continue
            maker = source.maker.get(value)
            made_in = None if maker is None else self.group_of.get(maker)
            together = sorted(names | ({made_in} if made_in is not None else set()))
            if len(together) > 12:  # a value that everybody reads, such as a mask
                together = together[:12]
            for position, a in enumerate(together):
                for b in together[position + 1 :]:
                    through = size * (2 if made_in in (a, b) else 1)
                    saved[a, b] = saved.get((a, b), 0) + through
        return [(-size, a, b) for (a, b), size in saved.items()]

    def _join(self, a: int, b: int) -> bool:
        one, other = self.members[a], self.members[b]
        fault = self.refused.get((one, other)) or self._fault(one, other)
        if fault is not None:
            self.refused[one, other] = fault
            for n in one:
                for m in other:
                    self.why[n, m] = fault
            return False
        del self.members[b]
        self.members[a] = one | other
        for n in other:
            self.group_of[n] = a
        return True

    def _fault(self, one: frozenset[int], other: frozenset[int]) -> Unfusible | None:
        """Why two groups are not one kernel; None if they are."""
        both = one | other
        if len(both) > 64:
            return Unfusible(Reason.LIMIT, f"{len(both)} operations")
        places = {
            spec.place for n in both for spec in self.source.graph.nodes[n].call.results if isinstance(spec, TensorSpec)
        }
        if len(places) > 1:
            return Unfusible(Reason.LIBRARY, f"they run on {' and '.join(sorted(places))}")
        if self._passes_outside(both):
            return Unfusible(Reason.BARRIER, "an operation between them needs the one and is needed by the other")
        body, _ = self.source.body(both, self.source.read_outside(both))
        if body not in self.lowered:
            try:
                lower(body)
            except Unfusible as fault:
                self.lowered[body] = fault
            else:
                self.lowered[body] = None
        return self.lowered[body]

    def _passes_outside(self, both: Collection[int]) -> bool:
        """Whether a way from a member to a member leads through other operations."""
        last = max(both)
        waiting = [r for n in both for r in self.next_readers[n] if r not in both and r < last]
        seen = set(waiting)
        while waiting:
            n = waiting.pop()
            whole = self.members[self.group_of[n]] if n in self.group_of else (n,)
            follows = self.source.role[n][0] == Role.FOLLOWS
            for m in whole:
                for r in self.next_readers[m]:
                    if r in both:
                        if not follows or self._has_group_before(n, both):
                            return True
                    elif r not in seen:
                        seen.add(r)
                        waiting.append(r)
        return False

    def _has_group_before(self, n: int, both: Collection[int]) -> bool:
        """Whether index arithmetic at n reads, on its way from the members, what others compute."""
        for base in (i for j in self.source.graph.nodes[n].inputs if isinstance(j, int) for i in self.source.bases(j)):
            maker = self.source.maker.get(base)
            if maker is not None and maker not in both and self._reaches(both, maker):
                return True
        return False

    def _reaches(self, both: Collection[int], target: int) -> bool:
        waiting, seen = list(both), set(both)
        while waiting:
            n = waiting.pop()
            for r in self.next_readers[n]:
                if r == target:
                    return True
                if r not in seen and r <= target:
                    seen.add(r)
                    waiting.append(r)
        return False


# -- the plan ------------------------------------------------------------------------------------------
def _written(source: Source, grouping: _Grouping, whole: dict[int, tuple[Node, frozenset[int]]], strict: bool) -> Plan:
    graph = source.graph
    nodes: list[Node] = []
    groups: list[Group] = []
    last = {max(members): members for members in grouping.members.values()}
    inside = {n for members in grouping.members.values() for n in members}
    closed: dict[int, bool] = {}
    for n, node in enumerate(graph.nodes):
        if n in whole:
            composite, parts = whole[n]
            first = min(parts)
            if first not in closed:
                closed[first] = _stays_closed(grouping, parts)
                if closed[first]:
                    nodes.append(composite)
            if closed[first]:
                continue
        if n not in inside:
            nodes.append(node)
            continue
        if n not in last:
            continue
        members = last[n]
        wanted = source.read_outside(members)
        if len(members) == 1:
            nodes.append(node)
            continue
        body, given = source.body(members, wanted)
        call = kernel.bind([source.specs[i] for i in given], {"body": body.to_json(), "strict": strict})
        origins = [graph.nodes[m].origin for m in sorted(members)]
        nodes.append(Node(call, given, wanted, next((o for o in origins if o is not None), None)))
        groups.append(_group(source, members, given, wanted, body))
    planned = Graph(graph.inputs, in_order(graph, _needed(nodes, graph.outputs)), graph.outputs)
    return Plan(planned, tuple(groups), tuple(_boundaries(source, grouping, closed, whole)))


def _needed(nodes: Sequence[Node], outputs: Sequence[int | None]) -> list[Node]:
    """The nodes that outputs need; index arithmetic that kernels do by themselves is not among them."""
    maker = {i: n for n, node in enumerate(nodes) for i in node.outputs if i is not None}
    waiting = [maker[i] for i in outputs if i in maker]
    found = set(waiting)
    while waiting:
        for i in nodes[waiting.pop()].inputs:
            if isinstance(i, int) and i in maker and maker[i] not in found:
                found.add(maker[i])
                waiting.append(maker[i])
    return [node for n, node in enumerate(nodes) if n in found]


def _stays_closed(grouping: _Grouping, parts: frozenset[int]) -> bool:
    """Whether nothing joined a composite operation: its own kernel, tuned by hand, then computes it."""
    own = {grouping.group_of[n] for n in parts if n in grouping.group_of}
    return all(grouping.members[name] <= parts for name in own)


def _group(source: Source, members: frozenset[int], given: Sequence[int], wanted: Sequence[int], body: Graph) -> Group:
    nodes = [source.graph.nodes[n] for n in sorted(members)]
    origins = dict.fromkeys(node.origin for node in nodes if node.origin is not None)
    written = set(wanted)
    read = {base for node in nodes for i in node.inputs if isinstance(i, int) for base in source.bases(i)}
    made = [i for node in nodes for i in node.outputs if i is not None]
    return Group(
        rows=tuple(node.call.op.name for node in nodes),
        origins=tuple(origins),
        bytes_read=sum(map(source.bytes_of, given)),
        bytes_written=sum(map(source.bytes_of, wanted)),
        bytes_saved=sum(source.bytes_of(i) * ((i in read) + (i not in written)) for i in made),
        body=body,
    )


def _boundaries(
    source: Source, grouping: _Grouping, closed: dict[int, bool], whole: dict[int, tuple[Node, frozenset[int]]]
) -> list[Boundary]:
    found: list[Boundary] = []

    def composite(n: int) -> int | None:
        first = min(whole[n][1]) if n in whole else None
        return first if first is not None and closed[first] else None

    for n, node in enumerate(source.graph.nodes):
        role, fault = source.role[n]
        if role == Role.FOLLOWS:
            continue
        for i in node.inputs:
            for base in source.bases(i) if isinstance(i, int) else ():
                maker = source.maker.get(base)
                if maker is None or not source.bytes_of(base) or source.role[maker][0] == Role.FOLLOWS:
                    continue
                one, other = grouping.group_of.get(maker), grouping.group_of.get(n)
                together = composite(maker)
                if (one is not None and one == other) or (together is not None and together == composite(n)):
                    continue
                why = fault or source.role[maker][1] or _between(grouping, maker, n)
                names = source.graph.nodes[maker].call.op.name, node.call.op.name
                found.append(Boundary(base, source.bytes_of(base), *names, why.reason, why.detail))
    return found


def _between(grouping: _Grouping, maker: int, reader: int) -> Unfusible:
    fault = grouping.why.get((min(maker, reader), max(maker, reader))) or grouping.why.get((maker, reader))
    if fault is not None:
        return fault
    one, other = grouping.members[grouping.group_of[maker]], grouping.members[grouping.group_of[reader]]
    return grouping._fault(one, other) or Unfusible(Reason.LIMIT, "other groups came first")
