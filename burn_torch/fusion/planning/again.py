"""Values that wait for the backward are made again there, by a kernel that reads all that it takes anyway.

    forward    h = linear(x); y = gelu(h); z = linear(y)             h and y wait: y for the gradient of the weight
    backward   dh = gelu_backward(dy, h)                             reads h, and so writes gelu(h) beside dh

So y need not wait: it costs one more write of it, and is not there when most else is.  The same of a norm's output,
whose backward reads the norm's input, mean and scale.  Kernels that read y there then run after that kernel.

If no kernel reads them, as a library's product ends with GELU's backward (`endings.py`), one is made for it, which
costs a read as well: under a limit of memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.planning.bodies import Role, role_of, without_origins
from burn_torch.fusion.planning.plan import Group, Plan, remember_groups
from burn_torch.fusion.rows.row import body_of, kernel, text_of
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.memory import memory_plan, peak_bytes
from burn_torch.graph.transfers import in_order
from burn_torch.graph.view import GraphView, first_free_id, positions_behind
from burn_torch.ops.gelu_products import linear_gelu
from burn_torch.ops.laws import Folds

__all__ = ["kept_less"]

_LONGEST: Final = 12
"""Operations that make a value again at most."""

_SMALL: Final = 16
"""A value this many times smaller may be read besides: the gain and offset of a norm."""

_SHARE: Final = 512
"""The largest ratio of the peak of memory to such a value: above it the value is not worth a write."""


def kept_less(plan: Plan, limit_bytes: int | None = None, donated: Collection[int] = ()) -> Plan:
    """The plan with kernels of the backward that make again what would wait for them; itself where there is nothing.

    limit_bytes  until the planned peak is as low as this; None takes what costs no more than writing it.  A kernel
                 that holds whole rows in registers has no room for more: for GPT-2's norms, 24 MiB each, it took 83 us
                 in place of 64, where the write alone is 6 (H200, 2026-11-22)
    donated      positions of inputs whose memory may be written over

    Its peak of memory is lower then.  Plans of symbolic sizes stay as they are.
    """
    if plan.symbolic is not None or not plan.groups:
        return plan
    again = _Again(plan, limit_bytes, donated)
    again.run()
    if not again.made:
        return plan
    remember_groups(again.groups)
    slimmer = replace(plan, graph=again.graph(), groups=tuple(again.groups), boundaries=tuple(again.boundaries))
    return slimmer if peak_bytes(slimmer.graph, donated) < peak_bytes(plan.graph, donated) else plan


@final
@dataclass(frozen=True)
class _Recipe:
    """How to make a value: nodes with ids of their own, and which values of the program stand for their inputs."""

    nodes: tuple[Node, ...]
    result: int
    inputs: dict[int, Input]


@final
class _Again:
    def __init__(self, plan: Plan, limit_bytes: int | None, donated: Collection[int]) -> None:
        graph = plan.graph
        self.limit: Final = limit_bytes
        self.donated: Final = frozenset(donated)
        self.inputs: Final = graph.inputs
        self.outputs: Final = graph.outputs
        self.nodes: Final[list[Node]] = list(graph.nodes)
        view = GraphView(graph)
        self._bytes: Final = view.bytes_of
        self.specs: Final = view.specs
        self.groups: Final = list(plan.groups)
        self.boundaries: Final = list(plan.boundaries)
        self.maker: Final = view.maker
        self.readers: Final = view.readers
        memory = memory_plan(graph, donated)
        self.peak: Final = memory.peak_at
        self.least: Final = max(1, memory.peak_bytes // _SHARE)
        self.planned = memory.peak_bytes
        """The rest of the peak, as far as it is known: each value that does not wait is gone from it."""
        self.fresh: Final = view.fresh
        self.made = 0
        self.count: Final = len(self.nodes)
        self.behind: Final[dict[int, list[int]]] = {}
        """For a kernel, the views of what it makes again."""

    def graph(self) -> Graph:
        """The program as it is now."""
        ordered: list[Node] = []
        for n in range(self.count):
            ordered += [self.nodes[n], *(self.nodes[m] for m in self.behind.get(n, ()))]
        sorted_graph = Graph(self.inputs, in_order(Graph(self.inputs, ordered, self.outputs), ordered), self.outputs)
        return dead_code(sorted_graph)  # a view that nobody reads any more would keep its value

    def run(self) -> None:
        """Goes through all values that wait across the peak: the largest first, and those that were made first."""
        candidates = [
            (-self._bytes(i), n, i)
            for n, node in enumerate(self.nodes[: self.peak + 1])
            if node.call.op in (kernel, linear_gelu) or node.call.op.pointwise is not None
            for i in node.outputs
            if i is not None and self._bytes(i) >= self.least
        ]
        # a kernel that is there costs a write; one of its own a read besides, and comes second
        for make in (self._try, self._try_alone) if self.limit is not None else (self._try,):
            for size, n, i in sorted(candidates):
                if self._is_low():
                    return
                if make(n, i):
                    self.planned += size

    def _is_low(self) -> bool:
        """Asks whether the peak is below the limit."""
        if self.limit is None or self.planned > self.limit:
            return False
        self.planned = peak_bytes(self.graph(), self.donated)  # it may be elsewhere by now
        return self.planned <= self.limit

    # -- one value -------------------------------------------------------------------------------------
    def _try(self, n: int, value: int) -> bool:
        late = self._late(value)
        if not late:
            return False
        for at in self._kernels(n, value):
            if at in late or self._needs(at, late) or (self.limit is None and self._holds_rows(at)):
                continue
            recipe = self._recipe(n, value, set(self.nodes[at].inputs))
            if recipe is not None and self._put(at, recipe, value, late):
                return True
        return False

    def _holds_rows(self, at: int) -> bool:
        """Asks whether the kernel at a position reduces whole rows."""
        body = _body(self.nodes[at])
        assert body is not None
        return any(
            node.call.op.law(Folds) is not None and node.call.specs[0].ndim - 1 in node.call.attrs.get("dims", ())  # type: ignore[union-attr]  # of a tensor
            for node in body.nodes
        )

    def _views(self, value: int) -> list[int]:
        """The value and all views of it."""
        views = [value]
        for i in views:
            for n in self.readers.get(i, ()):
                node = self.nodes[n]
                if node.call.aliases and node.inputs[0] == i:
                    views += [j for j in node.outputs if j is not None]
        return views

    def _late(self, value: int) -> list[int]:
        """The nodes that read the value, or a view of it, after the peak; none where it is returned."""
        views = self._views(value)
        if set(views) & set(self.outputs):
            return []
        readers = dict.fromkeys(n for i in views for n in self.readers.get(i, ()))
        return [n for n in readers if n > self.peak and not self.nodes[n].call.aliases]

    def _kernels(self, n: int, value: int) -> list[int]:
        """Kernels after the peak that read something that the value is made of, or that is made beside it."""
        near = [i for i in (*self.nodes[n].inputs, *self.nodes[n].outputs) if isinstance(i, int) and i != value]
        readers = {r for i in near if 2 * self._bytes(i) >= self._bytes(value) for r in self.readers.get(i, ())}
        return sorted(r for r in readers if r > self.peak and _body(self.nodes[r]) is not None)

    def _needs(self, at: int, late: Sequence[int]) -> bool:
        """Asks whether a node needs what one of the others makes."""
        return any(n in late for n in positions_behind(self.nodes[at].inputs, self.maker, self.nodes))

    def _recipe(self, n: int, value: int, there: set[Input]) -> _Recipe | None:
        """How to make a value of what is `there`, and of small values; None where it takes more."""
        node = self.nodes[n]
        body = _body(node)
        if body is None:
            return None
        outside: dict[int, Input] = {i: x for (i, _), x in zip(body.inputs, _read(node), strict=True)}
        names = dict(zip((i for i in body.outputs if i is not None), node.outputs, strict=True))
        result = next(i for i, name in names.items() if name == value)
        inner = {i: m for m in body.nodes for i in m.outputs if i is not None}
        sources: dict[int, Input] = {}
        chosen: dict[int, Node] = {}
        waiting = [result]
        while waiting:
            i = waiting.pop()
            source = outside.get(i, names.get(i)) if i != result else None
            if i in sources:
                continue
            if source is not None and (source in there or self._is_small(source, value)):
                sources[i] = source
                continue
            maker = inner.get(i)
            if maker is None:
                return None
            law = maker.call.op.pointwise is not None or role_of(maker.call)[0] == Role.FOLLOWS
            if not law or len(chosen) > _LONGEST:
                return None
            chosen[id(maker)] = maker
            waiting += [j for j in maker.inputs if isinstance(j, int)]
        nodes = tuple(m for m in body.nodes if id(m) in chosen)
        return _Recipe(nodes, result, sources)

    def _is_small(self, source: Input, value: int) -> bool:
        return not isinstance(source, int) or _SMALL * self._bytes(source) <= self._bytes(value)

    # -- a change ----------------------------------------------------------------------------------------
    def _try_alone(self, n: int, value: int) -> bool:
        """Makes the value again in a kernel of its own before the first that reads it late; whether that was done.

        Its inputs must be there anyway: small, or read after the peak.
        """
        late = self._late(value)
        first = min(late, default=0)
        if not 0 < first < self.count:
            return False
        near = (*self.nodes[n].inputs, *self.nodes[n].outputs)
        recipe = self._recipe(n, value, {i for i in near if i != value and self._last(i) > self.peak})
        if recipe is None:
            return False
        names = {i: k for k, i in enumerate(recipe.inputs)}
        inputs = [(k, self.specs[x]) for k, x in enumerate(recipe.inputs.values()) if isinstance(x, int)]
        nodes, outside = _named(recipe, names), tuple(recipe.inputs.values())
        body = without_origins(Graph(inputs, nodes, [names[recipe.result]])).dense()
        try:
            lower(body, strict=False)
        except Unfusible:
            return False
        call = kernel.bind([spec for _, spec in body.inputs], {"body": text_of(body), "strict": False})
        again = self._name(value)
        node = Node(call, outside, (again,), self.nodes[n].origin)
        rows = tuple(m.call.op.name for m in recipe.nodes)
        origins = () if node.origin is None else (node.origin,)
        read = sum(self._bytes(i) for i in outside if isinstance(i, int))
        self.groups.append(Group(rows, origins, read, self._bytes(value), 0, body))
        self.behind.setdefault(first - 1, []).append(len(self.nodes))
        self.maker[again] = len(self.nodes)
        for x in outside:
            if isinstance(x, int):
                self.readers.setdefault(x, []).append(len(self.nodes))
        self.nodes.append(node)
        self._read_again(again, value, first - 1, late)
        return True

    def _last(self, i: Input) -> int:
        """Returns the position of the last read of a value, or of a view of it; -1 if there is none."""
        if not isinstance(i, int):
            return -1
        return max((r for view in self._views(i) for r in self.readers.get(view, ())), default=-1)

    def _put(self, at: int, recipe: _Recipe, value: int, late: Sequence[int]) -> bool:
        """Makes the value again in the kernel at `at`, for those that read it late; whether that is a kernel."""
        node = self.nodes[at]
        body, read = _body(node), _read(node)
        assert body is not None
        strict = bool(node.call.attrs.get("strict", False))
        at_hand = {x: i for (i, _), x in zip(body.inputs, read, strict=True)}
        count = first_free_id(body)
        inputs, names = list(body.inputs), dict[int, int]()
        for i, source in recipe.inputs.items():
            if source not in at_hand:
                if not isinstance(source, int):
                    return False
                inputs.append((count, self.specs[source]))
                at_hand[source] = count
                read.append(source)
                count += 1
            names[i] = at_hand[source]
        nodes = [*body.nodes, *_named(recipe, names, count)]
        joined = without_origins(Graph(inputs, nodes, [*body.outputs, names[recipe.result]])).dense()
        try:
            lower(joined, strict=strict)
        except Unfusible:
            return False
        pairs = zip(read, joined.inputs, strict=True)
        specs = [self.specs[i] if isinstance(i, int) else spec for i, (_, spec) in pairs]
        call = kernel.bind(specs, {"body": text_of(joined), "strict": strict})
        again = self._name(value)
        outputs = [*node.outputs, again]
        self._regroup(node, joined, recipe, self._bytes(value))
        for x in read:
            if isinstance(x, int) and x not in node.inputs:
                self.readers.setdefault(x, []).append(at)
        self.nodes[at] = Node(call, tuple(read), tuple(outputs), node.origin)
        self.maker[again] = at
        self._read_again(again, value, at, late)
        return True

    def _read_again(self, again: int, value: int, at: int, late: Sequence[int]) -> None:
        """Lets late readers of a value read it as it is made again at a place."""
        names = {value: again}
        for n in late:
            old = self.nodes[n]
            crossed = [k for k, b in enumerate(self.boundaries) if b.value == value and b.consumer == old.call.op.name]
            if crossed:
                self.boundaries[crossed[-1]] = replace(self.boundaries[crossed[-1]], value=again)
            operands = [self._seen(i, names, at) if isinstance(i, int) else i for i in old.inputs]
            self.nodes[n] = Node(old.call, operands, old.outputs, old.origin)
            for i in operands:
                if isinstance(i, int):
                    self.readers.setdefault(i, []).append(n)
        views = set(self._views(value)) - set(names.values())
        for i in views:
            self.readers[i] = [n for n in self.readers.get(i, ()) if n not in late]
        self.made += 1

    def _seen(self, i: int, names: dict[int, int], at: int) -> int:
        """A value as the kernel at `at` makes it again: the same view of it."""
        if i in names or i not in self.maker:
            return names.get(i, i)
        node = self.nodes[self.maker[i]]
        base = node.inputs[0] if node.call.aliases and node.inputs else None
        if not isinstance(base, int) or (seen := self._seen(base, names, at)) == base:
            return i
        name = names[i] = self._name(i)
        outputs = [name if j == i else None if j is None else self._name(j) for j in node.outputs]
        self.behind.setdefault(at, []).append(len(self.nodes))
        self.nodes.append(Node(node.call, (seen, *node.inputs[1:]), tuple(outputs), node.origin))
        for j in outputs:
            if j is not None:
                self.maker[j] = len(self.nodes) - 1
        self.readers.setdefault(seen, []).append(len(self.nodes) - 1)
        return name

    def _name(self, like: int) -> int:
        return self.fresh(self.specs[like])

    def _regroup(self, node: Node, body: Graph, recipe: _Recipe, size: int) -> None:
        """The group of a kernel that makes something more."""
        rows = tuple(m.call.op.name for m in recipe.nodes)
        text = node.call.attrs.get("body")
        for number, group in enumerate(self.groups):
            if text is not None and text_of(group.body) == text:
                written = group.bytes_written + size
                self.groups[number] = replace(group, rows=group.rows + rows, bytes_written=written, body=body)
                return
        origins = () if node.origin is None else (node.origin,)
        read = sum(self._bytes(i) for i in dict.fromkeys(node.inputs) if isinstance(i, int))
        written_bytes = sum(self._bytes(i) for i in node.outputs if i is not None)
        self.groups.append(Group((node.call.op.name, *rows), origins, read, written_bytes + size, 0, body))


def _named(recipe: _Recipe, names: dict[int, int], count: int = 0) -> list[Node]:
    """The nodes of a recipe by other names, which `names` has of its inputs; new ones begin at `count`."""
    nodes: list[Node] = []
    count = max(count, len(names))
    for m in recipe.nodes:
        results = [None if i is None else count + k for k, i in enumerate(m.outputs)]
        names.update((i, count + k) for k, i in enumerate(m.outputs) if i is not None)
        count += len(results)
        nodes.append(Node(m.call, [names[i] if isinstance(i, int) else i for i in m.inputs], results))
    return nodes


def _body(node: Node) -> Graph | None:
    """Returns the body of the kernel that a node is; None where none is generated."""
    call = node.call
    if call.op is kernel:
        return None if call.attrs["dynamic"] else body_of(call.attrs["body"])
    if call.op is linear_gelu:
        parts = expanded(call)
        return None if parts is None else dead_code(parts)
    if call.op.pointwise is None or call.is_number or call.aliases or role_of(call)[0] != Role.COMPUTES:
        return None
    names: dict[Input, int] = {}
    for i in _read(node):
        names[i] = len(names)
    inputs = [names[i] if isinstance(i, int) else i for i in node.inputs]
    specs = dict(zip(node.inputs, call.specs, strict=True))
    outputs = range(len(names), len(names) + len(call.results))
    return Graph([(name, specs[i]) for i, name in names.items()], [Node(call, inputs, list(outputs))], list(outputs))  # type: ignore[misc]  # none is absent


def _read(node: Node) -> list[Input]:
    """Returns the values that a node gives to the inputs of its body."""
    return (
        list(node.inputs) if node.call.op is kernel else [i for i in dict.fromkeys(node.inputs) if isinstance(i, int)]
    )
