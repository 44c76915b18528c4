"""Groups: which operations are computed by one kernel."""

from __future__ import annotations

import copy
import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import domain_of
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning.bodies import Role, Source
from burn_torch.fusion.planning.legality import SPENT, Legality
from burn_torch.fusion.rows.row import text_of
from burn_torch.fusion.rows.symbolic import scope_of
from burn_torch.fusion.triton.side_by_side import MOST_TENSORS
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.transfers import transfers
from burn_torch.ops.laws import Folds

__all__ = ["Cut", "Grouping"]

_ROUNDS: Final = 10

_FEW: Final = 8
"""Element-wise operations that are done again at most instead of reading what they make."""

_MOST_AGAIN: Final = 16
"""All that a group does again at most: each step of a recurrence could do all steps before it again."""

_WORK: Final = 1 << 15
_WORK_EACH: Final = 4
"""Operations in bodies that are written while one program is planned, and for each of its operations: a third of a
millisecond each.  Transformers and convolution networks take 2 to 30 an operation, programs of 4,000 operations in
recurrences 8.
"""

_SMALL_BYTES: Final = 4 << 20
"""The size of groups put side by side: alone they fill no device, so their launch costs more than their work."""

_FEW_BYTES: Final = 640 << 10
_MOST_SUMS: Final = 4
"""Reductions of more than so much in one kernel whose programs each do a part of all: twelve spilled registers."""

_SMALL_SHARE: Final = 256
"""The least ratio of the peak of memory to such a group's bytes: the first of them waits for the last."""


@final
@dataclass(frozen=True)
class Cut:
    """A group cut out of its graph: its body, the values that it reads, and those that it writes."""

    body: Graph
    inputs: tuple[int, ...]
    wanted: tuple[int, ...]

    @cached_property
    def text(self) -> str:
        """The text that stands for its body in a graph."""
        return text_of(self.body)


def _reduces_columns(node: Node) -> bool:
    """Asks whether it is a reduction that leaves the last axis."""
    x = node.call.specs[0] if node.call.specs else None
    dims = node.call.attrs.get("dims", ())
    return node.call.op.law(Folds) is not None and isinstance(x, TensorSpec) and bool(dims) and x.ndim - 1 not in dims


@final
class Grouping:
    """Joins operations into groups."""

    def __init__(self, source: Source) -> None:
        self.source: Final = source
        self.members: Final[dict[int, frozenset[int]]] = {
            n: frozenset([n]) for n, (role, _) in enumerate(source.role) if role == Role.COMPUTES
        }
        self.group_of: Final[dict[int, int]] = {n: n for n in self.members}
        self._beyond: Final[list[int]] = list(range(len(source.graph.nodes)))
        """For each operation the first one, it or later, that no group reaches across: no way leads back from there."""
        self.why: Final[dict[tuple[int, int], Unfusible]] = {}
        self.again: Final[dict[int, frozenset[int]]] = {}
        """For a group, operations of other groups that it does once more instead of reading what they made."""
        self.legality: Final = Legality(_WORK + _WORK_EACH * len(source.graph.nodes))
        self._never: Final[set[object]] = set()
        """Pairs of groups that are not one kernel, nor become one while the two stay as they are: others only grow."""
        self.next_readers: Final = self._next_readers()
        self.apart: Final = self._read_apart()
        """Values that no kernel may leave out: others read them, or the graph returns them."""
        self.graph_inputs: Final = {i for i, _ in source.graph.inputs}
        self._cut: Final[dict[object, Cut]] = {}

    def _read_apart(self) -> set[int]:
        source = self.source
        read = [i for node, (role, _) in zip(source.graph.nodes, source.role, strict=True) if role == Role.APART
                for i in node.inputs if isinstance(i, int)]  # fmt: skip
        return {base for i in (*read, *source.returned) for base in source.bases(i)}

    def _next_readers(self) -> list[tuple[int, ...]]:
        """For each position, the positions that read what it makes, as it is or through index arithmetic; for a
        transfer also the one that is sent next.
        """
        source = self.source
        next_readers: list[tuple[int, ...]] = [()] * len(source.graph.nodes)
        for n in reversed(range(len(next_readers))):
            readers: set[int] = set()
            for i in source.graph.nodes[n].outputs:
                for r in source.readers.get(i, ()) if i is not None else ():
                    readers.update(next_readers[r] if source.role[r][0] == Role.FOLLOWS else (r,))
            next_readers[n] = tuple(sorted(readers))
        sent = transfers(source.graph.nodes)
        for n, following in itertools.pairwise(sent):  # a kernel of what lies before and behind them would turn them
            next_readers[n] = tuple(sorted({*next_readers[n], following}))
        return next_readers

    def run(self) -> None:
        """Joins until nothing is left to join.

        Reductions of columns come last: what they reduce, rows have made, and it is computed again rather than written.
        """
        columns = frozenset(n for n in self.members if _reduces_columns(self.source.graph.nodes[n]))
        self._rounds(columns)
        self._rounds(frozenset())
        while self._compute_again():
            self._rounds(frozenset())
        self._alike_side_by_side()

    def _rounds(self, left_out: frozenset[int]) -> None:
        for _ in range(_ROUNDS):
            joined = False
            for _, a, b in sorted(self._pairs()):
                one, other = self.group_of.get(a), self.group_of.get(b)
                if one is None or other is None or one == other:
                    continue
                if left_out and (self.members[one] | self.members[other]) & left_out:
                    continue
                joined = self._join(min(one, other), max(one, other)) or joined
            if not joined:
                return

    # -- computing again -------------------------------------------------------------------------------
    def _compute_again(self) -> bool:
        """Lets groups compute what they would read, where that moves no more bytes; whether any does now."""
        changed = False
        cuts = self.cuts()
        written = {i for cut in cuts.values() for i in cut.wanted}
        readers = Counter(i for cut in cuts.values() for i in cut.inputs)
        for name in sorted(cuts):
            cut = cuts[name]
            for value in sorted(cut.inputs, key=lambda i: (-self.source.bytes_of(i), i)):
                maker = self.source.maker.get(value)
                if maker is None or maker not in self.group_of or maker in self.members[name]:
                    continue
                chain = self._chain(value, written)
                if chain is None:
                    continue
                again = self.again.get(name, frozenset()) | chain
                if len(again) > _MOST_AGAIN:
                    continue
                body, reads = self.source.body(self.members[name] | again, cut.wanted)
                kept = readers[value] > 1 or value in self.apart
                before = sum(map(self.source.bytes_of, cut.inputs)) + (0 if kept else self.source.bytes_of(value))
                small = sum(self.source.bytes_of(i) for i in reads if 16 * self.source.bytes_of(i) < before)
                if sum(map(self.source.bytes_of, reads)) - small <= before and self.legality.likely_fault(body) is None:
                    self.again[name], changed = again, True
                    cut = Cut(body, tuple(reads), cut.wanted)
        return changed

    def _chain(self, value: int, written: Collection[int]) -> frozenset[int] | None:
        """The element-wise operations that make a value of what is in memory; None where they are many."""
        members: set[int] = set()
        waiting = [self.source.maker[value]]
        while waiting:
            n = waiting.pop()
            node = self.source.graph.nodes[n]
            if node.call.op.pointwise is None or len(members) >= _FEW:
                return None
            members.add(n)
            for i in node.inputs:
                for base in self.source.bases(i) if isinstance(i, int) else ():
                    maker = self.source.maker.get(base)
                    if maker is None or maker not in self.group_of or base in written or maker in members:
                        continue
                    waiting.append(maker)
        return frozenset(members)

    # -- small groups side by side ---------------------------------------------------------------------
    def _alike_side_by_side(self) -> None:
        """Joins small groups that share nothing but the number of their elements: one launch instead of many."""
        alike: dict[tuple[int, int], list[int]] = {}
        for name, cut in self._small(_SMALL_BYTES):
            domain = domain_of(cut.body)
            alike.setdefault((domain.rows, domain.length), []).append(name)
        for names in alike.values():
            into, held = names[0], self._sums(names[0])
            for name in names[1:]:
                more = self._sums(name)
                if held + more <= _MOST_SUMS and self._join(into, name):
                    held += more
                else:
                    into, held = name, more

    def _sums(self, name: int) -> int:
        """How many reductions of much a group has: each holds a tile of its own in registers."""
        nodes = [self.source.graph.nodes[n] for n in self.members[name]]
        read = sum(self.source.bytes_of(i) for node in nodes for i in node.inputs if isinstance(i, int))
        return sum(node.call.op.law(Folds) is not None for node in nodes) if read > _FEW_BYTES else 0

    def side_by_side(self, peak: int) -> Grouping:
        """Another grouping: small groups that need nothing of each other in one launch, each with programs of its own.

        peak  of memory; what such a group holds is next to nothing of it, as the first of them waits for the last
        """
        other = self._copy_grouping()
        reachable, tensors, joined = other._reachable(), Counter[int](), list[int]()
        for name, cut in other._small(min(_SMALL_BYTES, peak // _SMALL_SHARE)):
            if scope_of(cut.body) is not None:  # how many programs each takes is not known
                continue
            count = len(cut.inputs) + len(cut.wanted)
            for into in joined:
                apart = not (reachable[into] >> name | reachable[name] >> into) & 1
                same_place = len(other._places(other.members[into] | other.members[name])) == 1
                if apart and same_place and tensors[into] + count <= MOST_TENSORS:
                    other._join(into, name, beside=True)
                    tensors[into] += count
                    reachable = other._reachable()
                    break
            else:
                joined.append(name)
                tensors[name] = count
        return other

    def _small(self, most: int) -> list[tuple[int, Cut]]:
        return [
            (name, cut)
            for name, cut in sorted(self.cuts().items())
            if sum(map(self.source.bytes_of, [*cut.inputs, *cut.wanted])) <= most or self._begins(name, cut)
        ]

    def _begins(self, name: int, cut: Cut) -> bool:
        """Asks whether it is one element-wise operation on inputs, such as the cast of a weight: a program has 50 of
        them, which nothing delays, and what they make waits anyway.
        """
        (node, *more) = [self.source.graph.nodes[n] for n in self.members[name]]
        return not more and node.call.op.pointwise is not None and all(i in self.graph_inputs for i in cut.inputs)

    def _reachable(self) -> dict[int, int]:
        """For each group, and each operation in none, the bits of those that wait for it."""
        unit = [self.group_of.get(n, n) for n in range(len(self.next_readers))]
        after: dict[int, set[int]] = {}
        missing: Counter[int] = Counter()
        for n, readers in enumerate(self.next_readers):
            for other in {unit[r] for r in readers} - {unit[n]} - after.setdefault(unit[n], set()):
                after[unit[n]].add(other)
                missing[other] += 1
        order = [name for name in after if not missing[name]]
        for name in order:
            for other in after[name]:
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)
        reach: dict[int, int] = {}
        for name in reversed(order):
            bits = 0
            for other in after[name]:
                bits |= reach[other] | 1 << other
            reach[name] = bits
        return reach

    def _places(self, members: Collection[int]) -> set[str]:
        nodes = self.source.graph.nodes
        return {spec.place for n in members for spec in nodes[n].call.results if isinstance(spec, TensorSpec)}

    # -- what is read and written ----------------------------------------------------------------------
    def cuts(self) -> dict[int, Cut]:
        """Each group that somebody reads, cut out: what it reads and writes, when all others do as they are told."""
        cuts: dict[int, Cut] = {}
        needed = set(self.apart)
        waiting: list[tuple[int, int]] = []
        """Groups whose values are read, those that others read last: most of them once."""

        def wait(values: Iterable[int]) -> None:
            for value in values:
                maker = self.source.maker.get(value)
                if maker is not None and maker in self.group_of:
                    name = self.group_of[maker]
                    heapq.heappush(waiting, (-max(self.members[name]), name))

        wait(needed)
        while waiting:
            _, name = heapq.heappop(waiting)
            members = self.members[name]
            results = [i for n in sorted(members) for i in self.source.graph.nodes[n].outputs if i in needed]
            now = tuple(i for i in results if i is not None)
            if name in cuts and cuts[name].wanted == now:
                continue
            key = (members, self.again.get(name), now)
            if key not in self._cut:
                body, inputs = self.source.body(members | self.again.get(name, frozenset()), now)
                self._cut[key] = Cut(body, tuple(inputs), now)
            cut = cuts[name] = self._cut[key]
            fresh = [i for i in cut.inputs if i not in needed]
            needed.update(fresh)
            wait(fresh)
        return cuts

    def legal_cuts(self) -> dict[int, Cut]:
        """The same, each one a kernel.

        A group is joined as far as its own kernel goes; but a group that does again what another one made reads what
        that one read, so the makers of those values must write them besides, and may have more results than a kernel
        can.  Such a group no longer does again what others make, or becomes two.
        """
        while True:
            cuts = self.cuts()
            faults = {
                name: fault
                for name, cut in cuts.items()
                if (len(self.members[name]) > 1 or name in self.again) and (fault := self.legality.fault(cut.body))
            }
            if not faults:
                return cuts
            for name, fault in faults.items():
                if self.again.pop(name, None) is None:
                    members = sorted(self.members[name])
                    half = len(members) // 2
                    self._part(name, [frozenset(members[:half]), frozenset(members[half:])], fault)

    def _pairs(self) -> list[tuple[int, int, int]]:
        """(-bytes saved, first, second) of each two groups that share a value."""
        source = self.source
        readers: dict[int, set[int]] = {}
        for name, cut in self.cuts().items():
            for value in (*cut.inputs, *cut.wanted):
                readers.setdefault(value, set()).add(name)
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

    def _join(self, a: int, b: int, *, beside: bool = False) -> bool:
        one, other = self.members[a], self.members[b]
        if not beside:
            key = one, other, self.again.get(a), self.again.get(b)
            if key in self._never:
                return False
            fault = SPENT if self.legality.is_spent else self._fault(one, other)
            if fault is not None:
                self._never.add(key)
                for n in one:
                    for m in other:
                        self.why[n, m] = fault
                return False
        del self.members[b]
        self.members[a] = one | other
        if again := (self.again.pop(a, frozenset()) | self.again.pop(b, frozenset())) - self.members[a]:
            self.again[a] = again
        for n in other:
            self.group_of[n] = a
        self._reach_across(min(self.members[a]), max(self.members[a]))
        return True

    def _reach_across(self, first: int, last: int) -> None:
        beyond = self._beyond
        end = beyond[last]
        for n in range(first, last):
            beyond[n] = max(beyond[n], end)
        n = first - 1
        while n >= 0 and beyond[n] >= first:
            beyond[n] = max(beyond[n], end)
            n -= 1

    # -- undoing -----------------------------------------------------------------------------------------
    def cut_in_two(self, name: int) -> list[list[frozenset[int]]]:
        """A group as two kernels, the second of which needs the first alone: halves; all but the first, or the last."""
        members = sorted(self.members[name])
        count = len(members)
        ways: list[list[frozenset[int]]] = []
        for at in dict.fromkeys((count // 2, 1, count - 1)) if count > 2 else ():
            parts = [frozenset(members[:at]), frozenset(members[at:])]
            bodies = [self.source.body(part, self.source.read_outside(part))[0] for part in parts]
            if all(body.outputs and self.legality.fault(body) is None for body in bodies):
                ways.append(parts)
        return ways

    def _copy_grouping(self) -> Grouping:
        other = copy.copy(self)
        other.members, other.group_of = dict(self.members), dict(self.group_of)  # type: ignore[misc]  # a copy's own
        other.again, other.why = dict(self.again), dict(self.why)  # type: ignore[misc]  # a copy's own
        return other

    def parted(self, name: int, parts: Collection[frozenset[int]], why: Unfusible) -> Grouping:
        """Another grouping: this one with several groups in place of one."""
        other = self._copy_grouping()
        other._part(name, parts, why)
        return other

    def _part(self, name: int, parts: Collection[frozenset[int]], why: Unfusible) -> None:
        members = self.members.pop(name)
        self.again.pop(name, None)
        for part in parts:
            self.members[min(part)] = part
            self.group_of.update(dict.fromkeys(part, min(part)))
        where = {n: number for number, part in enumerate(parts) for n in part}
        self.why.update(((n, m), why) for n in members for m in members if n < m and where[n] != where[m])

    def _fault(self, one: frozenset[int], other: frozenset[int]) -> Unfusible | None:
        """Why two groups are not one kernel; None if they are."""
        both = one | other
        if len(both) > 64:
            return Unfusible(Reason.LIMIT, f"{len(both)} operations")
        places = self._places(both)
        if len(places) > 1:
            return Unfusible(Reason.LIBRARY, f"they run on {' and '.join(sorted(places))}")
        if self._passes_outside(both):
            return Unfusible(Reason.BARRIER, "an operation between them needs the one and is needed by the other")
        again = self.again.get(self.group_of[min(one)], frozenset()) | self.again.get(
            self.group_of[min(other)], frozenset()
        )
        body, _ = self.source.body(both | again, self.source.read_outside(both))
        return self.legality.likely_fault(body)

    def _passes_outside(self, both: Collection[int]) -> bool:
        """Asks whether a way from a member to a member leads through other operations.

        Who comes to a member of a group goes on from all of them: a kernel starts when all that it reads is there.
        """
        end, group_of, next_readers = self._beyond[max(both)], self.group_of, self.next_readers
        waiting = [r for n in both for r in next_readers[n] if r <= end and r not in both]
        seen: set[int] = set()
        while waiting:
            n = waiting.pop()
            name = group_of.get(n, n)
            if name in seen:
                continue
            seen.add(name)
            for m in self.members.get(name, (n,)):
                for r in next_readers[m]:
                    if r in both:
                        self.legality.look(len(seen))
                        return True
                    if r <= end and group_of.get(r, r) not in seen:
                        waiting.append(r)
        self.legality.look(len(seen))
        return False
