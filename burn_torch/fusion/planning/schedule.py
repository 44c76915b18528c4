"""The scheduler: which operations become one kernel.

Greedy and deterministic: of all pairs of groups that share a value, the one that saves the most bytes is joined first,
ties by the order of the program.  A pair is joined if the two are one kernel (`body/needs.py` says so, or why not) and
nothing that lies between them needs the one and is needed by the other.  The schedule is a function of the graph alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning.bodies import Role, Source
from burn_torch.fusion.planning.composites import Whole
from burn_torch.fusion.planning.groups import Cut, Grouping
from burn_torch.fusion.planning.legality import SPENT
from burn_torch.fusion.planning.order import least_alive
from burn_torch.fusion.planning.plan import Boundary, Group, Plan
from burn_torch.fusion.rows.row import kernel
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.memory import memory_plan, peak_bytes
from burn_torch.graph.transfers import in_order
from burn_torch.graph.view import GraphView, positions_behind
from burn_torch.ops.laws import Folds

__all__ = ["schedule"]


def schedule(graph: Graph, opened: Graph, whole: Whole, strict: bool) -> Plan:
    """The kernels of a graph, each product and convolution by itself, at no higher peak of memory than it has.

    opened  the graph with its composite operations opened, and `whole` what they were
    """
    source = Source(opened)
    most = peak_bytes(graph) + _workspace(source, whole)
    grouping = Grouping(source)
    grouping.run()
    written = _lightest(_write_graph(grouping, whole, strict), most)
    if peak_bytes(written.graph) <= most:
        beside = grouping.side_by_side(most)
        launches = _lightest(_write_graph(beside, whole, strict), most)
        if peak_bytes(launches.graph) <= most:
            grouping, written = beside, launches
    long = len(opened.nodes) > _LONG
    for turn in itertools.count():
        peak = peak_bytes(written.graph)
        if peak <= most:
            break
        why = Unfusible(Reason.MEMORY, f"{peak} bytes, not {most}")
        if turn < _TURNS and not long:
            less = _with_less(grouping, written, whole, strict, most, why)
        else:
            less = _undo_groups(
                grouping, written, whole, strict, most, why, 1 << max(turn - (0 if long else _SINGLE_TURNS), 0)
            )
        if less is None:  # composite operations that stay open take more by themselves
            return Plan(graph, (), tuple(_boundaries(grouping.source, grouping, written.closed, whole)))
        grouping, written = less
    return _plan(grouping, written, whole).with_notes(str(SPENT) if grouping.legality.is_spent else "")


def _lightest(written: _Written, most: int) -> _Written:
    """In another order, where that keeps the peak of memory below `most`, or at least lower."""
    peak = peak_bytes(written.graph)
    if peak <= most:
        return written
    other = least_alive(written.graph)
    return replace(written, graph=other) if peak_bytes(other) < peak else written


def _workspace(source: Source, whole: Whole) -> int:
    """Bytes of the first steps of reductions in two steps: a library's reduction takes them too, and tells no plan."""
    nodes = source.graph.nodes
    return sum(
        source.bytes_of(i)
        for n, (_, parts) in whole.items()
        if nodes[n].call.op.law(Folds) is not None
        for i in nodes[n].outputs
        if i is not None and any(r in parts and nodes[r].call.op is nodes[n].call.op for r in source.readers.get(i, ()))
    )


_TRIED: Final = 4
"""Kernels next to the peak of memory, one of which is made smaller."""

_LONG: Final = 3072
"""Operations of a program for which each turn takes so long that kernels are undone by 1, 2, 4, ... at once."""

_TURNS: Final = 4
_SINGLE_TURNS: Final = 40
"""So often one kernel is made smaller by trying several, which takes nine times as long as the program is; up to so
often the one next to the peak is undone; then 2 at once, 4, 8.  Programs take none to two turns, but one in which cheap
values are computed again may be above its peak in every layer."""


def _next_to_peak(written: _Written, grouping: Grouping) -> list[int]:
    """The groups that are kernels, those next to the peak of memory first."""
    at = memory_plan(written.graph).peak_at
    of_values = {cut.wanted: name for name, cut in grouping.cuts().items() if name in written.named}
    near = sorted(
        (abs(n - at), n, of_values[node.outputs])  # type: ignore[index]  # all outputs of these are wanted
        for n, node in enumerate(written.graph.nodes)
        if node.call.op is kernel and node.outputs in of_values
    )
    return [name for _, _, name in near]


def _undo_groups(
    grouping: Grouping, written: _Written, whole: Whole, strict: bool, most: int, why: Unfusible, count: int
) -> tuple[Grouping, _Written] | None:
    """The plan without so many kernels next to the peak; None where none is left."""
    names = _next_to_peak(written, grouping)[:count]
    if not names:
        return None
    for name in names:
        grouping = grouping.parted(name, [frozenset([n]) for n in sorted(grouping.members[name])], why)
    return grouping, _lightest(_write_graph(grouping, whole, strict), most)


def _with_less(
    grouping: Grouping, written: _Written, whole: Whole, strict: bool, most: int, why: Unfusible
) -> tuple[Grouping, _Written] | None:
    """The plan with a smaller kernel: one of those next to the peak as two, or undone.

    As two where that lowers the peak; of what fits the fewest kernels, else what needs the least memory.  None where no
    kernel is left.
    """
    peak = peak_bytes(written.graph)
    trials: list[tuple[bool, int, int, Grouping, _Written]] = []
    for name in _next_to_peak(written, grouping)[:_TRIED]:
        singles = [frozenset([n]) for n in sorted(grouping.members[name])]
        for parts in (*grouping.cut_in_two(name), singles):
            other = grouping.parted(name, parts, why)
            lightest = _lightest(_write_graph(other, whole, strict), most)
            trials.append((parts is not singles, peak_bytes(lightest.graph), len(trials), other, lightest))
    if not trials:
        return None
    lower = [trial for trial in trials if trial[0] and trial[1] < peak] or trials
    fitting = [trial for trial in lower if trial[1] <= most]
    if fitting:
        return min(fitting, key=lambda trial: (len(trial[4].graph.nodes), trial[2]))[3:]
    return min(lower, key=lambda trial: trial[1:3])[3:]


# -- the plan ------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class _Written:
    """A graph with generated kernels, which groups they are, and which composite operations (first parts) are whole."""

    graph: Graph
    named: tuple[int, ...]
    closed: Mapping[int, bool]


def _write_graph(grouping: Grouping, whole: Whole, strict: bool) -> _Written:
    source, cuts = grouping.source, grouping.legal_cuts()
    closed = {min(parts): _stays_closed(grouping, parts, composite, cuts) for composite, parts in whole.values()}
    while True:
        nodes, named = _emit_nodes(source, grouping, cuts, whole, closed, strict)
        nodes = _needed_nodes(Graph(source.graph.inputs, nodes, source.graph.outputs))
        blocking = _blocking(source, nodes, whole, closed)
        if blocking is None:
            break
        closed[blocking] = False
    graph = source.graph
    return _Written(Graph(graph.inputs, in_order(graph, nodes), graph.outputs), tuple(named), closed)


def _plan(grouping: Grouping, written: _Written, whole: Whole) -> Plan:
    source, cuts = grouping.source, grouping.cuts()
    groups = [
        _group(source, grouping.members[name] | grouping.again.get(name, frozenset()), cuts[name])
        for name in written.named
    ]
    return Plan(written.graph, tuple(groups), tuple(_boundaries(source, grouping, written.closed, whole)))


def _emit_nodes(
    source: Source, grouping: Grouping, cuts: Mapping[int, Cut], whole: Whole, closed: Mapping[int, bool], strict: bool
) -> tuple[list[Node], list[int]]:
    """The operations of the plan, and which groups are generated kernels among them."""
    graph = source.graph
    nodes: list[Node] = []
    named: list[int] = []
    last = {max(members): name for name, members in grouping.members.items()}
    inside = {n for members in grouping.members.values() for n in members}
    for n, node in enumerate(graph.nodes):
        if n in whole and closed[min(whole[n][1])]:
            if n == min(whole[n][1]):
                nodes.append(whole[n][0])
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
        call = kernel.bind([source.specs[i] for i in cut.inputs], {"body": cut.text, "strict": strict})
        origins = [graph.nodes[m].origin for m in sorted(members)]
        nodes.append(Node(call, cut.inputs, cut.wanted, next((o for o in origins if o is not None), None)))
        named.append(last[n])
    return nodes, named


def _blocking(source: Source, nodes: Sequence[Node], whole: Whole, closed: Mapping[int, bool]) -> int | None:
    """A composite operation (its first part) that cannot stay whole; None where all can.

    Somebody reads what only its parts make, or it reads what nobody needs but itself, or waits for what waits for it.
    """
    known = {i for i, _ in source.graph.inputs}
    waiting = list(nodes)
    while waiting:
        later = []
        for node in waiting:
            if all(i in known for i in node.inputs if isinstance(i, int)):
                known.update(i for i in node.outputs if i is not None)
            else:
                later.append(node)
        if len(later) == len(waiting):
            break
        waiting = later
    if not waiting:
        return None
    results = {i for node in nodes for i in node.outputs}
    first_of = {composite: min(parts) for composite, parts in whole.values() if closed[min(parts)]}
    for node in waiting:
        for i in node.inputs:
            if not isinstance(i, int) or i in known or i in results:
                continue
            maker = source.maker.get(i)
            if maker in whole and closed[min(whole[maker][1])]:
                return min(whole[maker][1])
            if node in first_of:
                return first_of[node]
    return next(first_of[node] for node in waiting if node in first_of)


def _needed_nodes(graph: Graph) -> list[Node]:
    """The nodes that outputs or other processes need; index arithmetic that kernels do is not among them."""
    sent = [n for n, node in enumerate(graph.nodes) if node.call.op.collective is not None]
    read = [*graph.outputs, *(i for n in sent for i in graph.nodes[n].inputs)]
    needed = {*sent, *positions_behind(read, GraphView(graph).maker, graph.nodes)}
    return [node for n, node in enumerate(graph.nodes) if n in needed]


def _stays_closed(grouping: Grouping, parts: frozenset[int], composite: Node, cuts: Mapping[int, Cut]) -> bool:
    """Asks whether nothing joined a composite operation, or reads it within: then its own tuned kernel computes it."""
    own = {grouping.group_of[n] for n in parts if n in grouping.group_of}
    if not all(grouping.members[name] <= parts for name in own):
        return False
    nodes = grouping.source.graph.nodes
    within = {i for n in parts for i in nodes[n].outputs} - set(composite.outputs)
    return not any(i in within for name, cut in cuts.items() if name not in own for i in cut.inputs)


def _group(source: Source, members: frozenset[int], cut: Cut) -> Group:
    nodes = [source.graph.nodes[n] for n in sorted(members)]
    origins = dict.fromkeys(node.origin for node in nodes if node.origin is not None)
    written = set(cut.wanted)
    read = {base for node in nodes for i in node.inputs if isinstance(i, int) for base in source.bases(i)}
    results = [i for node in nodes for i in node.outputs if i is not None]
    return Group(
        rows=tuple(node.call.op.name for node in nodes),
        origins=tuple(origins),
        bytes_read=sum(map(source.bytes_of, cut.inputs)),
        bytes_written=sum(map(source.bytes_of, cut.wanted)),
        bytes_saved=sum(source.bytes_of(i) * ((i in read) + (i not in written)) for i in results),
        body=cut.body,
    )


def _boundaries(source: Source, grouping: Grouping, closed: Mapping[int, bool], whole: Whole) -> list[Boundary]:
    """Returns the values that each kernel and each library function reads of another one."""

    def composite(n: int) -> int | None:
        first = min(whole[n][1]) if n in whole else None
        return first if first is not None and closed[first] else None

    by_reader: list[tuple[int, Boundary]] = []

    def told(value: int, reader: int, name: int | None) -> None:
        maker = source.maker.get(value)
        if maker is None or not source.bytes_of(value) or source.role[maker][0] == Role.FOLLOWS:
            return
        together = composite(maker)
        if together is not None and together == composite(reader):
            return
        why = source.role[reader][1] or source.role[maker][1]
        if why is None:
            assert name is not None
            why = _between(grouping, maker, name)
        names = source.graph.nodes[maker].call.op.name, source.graph.nodes[reader].call.op.name
        by_reader.append((reader, Boundary(value, source.bytes_of(value), *names, why.reason, why.detail)))

    def read(n: int) -> dict[int, None]:
        inputs = source.graph.nodes[n].inputs
        return dict.fromkeys(base for i in inputs if isinstance(i, int) for base in source.bases(i))

    for n, (role, _) in enumerate(source.role):
        if role == Role.APART:
            for value in read(n):
                told(value, n, None)
    for name, cut in grouping.cuts().items():
        members = sorted(grouping.members[name] | grouping.again.get(name, frozenset()))
        for value in cut.inputs:
            told(value, next(n for n in members if value in read(n)), name)
    return [boundary for _, boundary in sorted(by_reader, key=lambda pair: (pair[0], pair[1].value))]


def _between(grouping: Grouping, maker: int, name: int) -> Unfusible:
    """Why a group is not one kernel with what makes a value that it reads."""
    for n in sorted(grouping.members[name]):
        fault = grouping.why.get((min(maker, n), max(maker, n))) or grouping.why.get((maker, n))
        if fault is not None:
            return fault
    one, other = grouping.members[grouping.group_of[maker]], grouping.members[name]
    return grouping._fault(one, other) or Unfusible(Reason.LIMIT, "other groups came first")
