"""The scheduler: which operations become one kernel.

Greedy and deterministic: of all pairs of groups that share a value, the one that saves the most bytes is joined first,
ties by the order of the program.  A pair is joined if the two are one kernel (`lowering.py` says so, or why not) and
nothing that lies between them needs the one and is needed by the other.  The plan is a function of the graph alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from burn_torch.fusion.bodies import Role, Source, role_of
from burn_torch.fusion.groups import Cut, Grouping
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
    groups = Grouping(source)
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


# -- the plan ------------------------------------------------------------------------------------------
def _written(source: Source, grouping: Grouping, whole: dict[int, tuple[Node, frozenset[int]]], strict: bool) -> Plan:
    graph = source.graph
    nodes: list[Node] = []
    groups: list[Group] = []
    cuts = grouping.cuts()
    last = {max(members): name for name, members in grouping.members.items()}
    inside = {n for members in grouping.members.values() for n in members}
    closed: dict[int, bool] = {}
    for n, node in enumerate(graph.nodes):
        if n in whole:
            composite, parts = whole[n]
            first = min(parts)
            if first not in closed:
                closed[first] = _stays_closed(grouping, parts, composite, cuts)
                if closed[first]:
                    nodes.append(composite)
            if closed[first]:
                continue
        if n not in inside:
            nodes.append(node)
            continue
        if n not in last:
            continue
        members, cut = grouping.members[last[n]], cuts.get(last[n])
        if cut is None:  # all that it makes, its readers make for themselves
            continue
        if len(members) == 1 and last[n] not in grouping.again:
            nodes.append(node)
            continue
        call = kernel.bind([source.specs[i] for i in cut.given], {"body": cut.body.to_json(), "strict": strict})
        origins = [graph.nodes[m].origin for m in sorted(members)]
        nodes.append(Node(call, cut.given, cut.wanted, next((o for o in origins if o is not None), None)))
        groups.append(_group(source, members | grouping.again.get(last[n], frozenset()), cut))
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


def _stays_closed(grouping: Grouping, parts: frozenset[int], composite: Node, cuts: Mapping[int, Cut]) -> bool:
    """Whether nothing joined a composite operation, or reads it within: its own kernel, tuned by hand, computes it."""
    own = {grouping.group_of[n] for n in parts if n in grouping.group_of}
    if not all(grouping.members[name] <= parts for name in own):
        return False
    nodes = grouping.source.graph.nodes
    within = {i for n in parts for i in nodes[n].outputs} - set(composite.outputs)
    return not any(i in within for name, cut in cuts.items() if name not in own for i in cut.given)


def _group(source: Source, members: frozenset[int], cut: Cut) -> Group:
    nodes = [source.graph.nodes[n] for n in sorted(members)]
    origins = dict.fromkeys(node.origin for node in nodes if node.origin is not None)
    written = set(cut.wanted)
    read = {base for node in nodes for i in node.inputs if isinstance(i, int) for base in source.bases(i)}
    made = [i for node in nodes for i in node.outputs if i is not None]
    return Group(
        rows=tuple(node.call.op.name for node in nodes),
        origins=tuple(origins),
        bytes_read=sum(map(source.bytes_of, cut.given)),
        bytes_written=sum(map(source.bytes_of, cut.wanted)),
        bytes_saved=sum(source.bytes_of(i) * ((i in read) + (i not in written)) for i in made),
        body=cut.body,
    )


def _boundaries(
    source: Source, grouping: Grouping, closed: dict[int, bool], whole: dict[int, tuple[Node, frozenset[int]]]
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


def _between(grouping: Grouping, maker: int, reader: int) -> Unfusible:
    fault = grouping.why.get((min(maker, reader), max(maker, reader))) or grouping.why.get((maker, reader))
    if fault is not None:
        return fault
    one, other = grouping.members[grouping.group_of[maker]], grouping.members[grouping.group_of[reader]]
    return grouping._fault(one, other) or Unfusible(Reason.LIMIT, "other groups came first")
