"""Anchors: products of matrices, and convolutions, that take up the element-wise work around them, where that pays.

After scheduling, a product and the kernel that reads it, and the kernels that make its operands and nothing else, may
become one (`products.py`); so may a convolution of few channels and the kernel that reads it (`convolutions.py`).  Its
rival is what the plan has already: the library's function, and the kernels by themselves.  `Choices` says which is
faster; where it knows nothing, the library is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning.bodies import without_origins
from burn_torch.fusion.planning.plan import Boundary, Group, Plan
from burn_torch.fusion.rewrites.choices import Choices
from burn_torch.fusion.rows.product_row import convolution as convolution_row
from burn_torch.fusion.rows.product_row import product as product_row
from burn_torch.fusion.rows.row import body_of, kernel
from burn_torch.fusion.rows.symbolic import scope_of
from burn_torch.fusion.triton.convolutions import ConvolutionTiles, convolution_in, is_convolution, lower_convolution
from burn_torch.fusion.triton.products import ProductTiles, is_product, lower_product, product_in
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.transfers import in_order
from burn_torch.graph.view import GraphView, inlined, positions_behind
from burn_torch.ops.laws import Draws, Moves
from burn_torch.ops.op import Call, Candidate

__all__ = ["anchored"]


def anchored(plan: Plan, choices: Choices, *, strict: bool) -> Plan:
    """The plan with products and convolutions that took up what lies around them.

    None of symbolic sizes, for which no tile is known.
    """
    kinds = _kinds(choices)
    if not kinds or scope_of(plan.graph) is not None:
        return plan
    tried: set[tuple[int | None, ...]] = set()
    anchors = _Anchors(plan, strict)
    while waiting := [(n, kind) for n, kind in anchors.found(kinds) if plan.graph.nodes[n].outputs not in tried]:
        n, kind = waiting[0]
        tried.add(plan.graph.nodes[n].outputs)
        joined = anchors.joined(n, kind)
        if joined is not None:
            plan, anchors = joined, _Anchors(joined, strict)
    return plan


@final
@dataclass(frozen=True)
class _Kind:
    """A kind of operation that may be an anchor.

    is_one    whether an operation is one
    of        the operation of a body, and its sizes
    lower     the kernel of a body
    choose    tiles for sizes and what lies around, or None
    row       what stands for a kernel
    operands  how many inputs may be made in the kernel
    """

    is_one: Callable[[Call], bool]
    of: Callable[[Graph], tuple[Node, Any]]
    lower: Candidate
    choose: Callable[[Any, str], Any]
    row: Any
    operands: int


def _kinds(choices: Choices) -> list[_Kind]:
    """The kinds about which a question is answered."""
    kinds: list[_Kind] = []
    if choices.product is not None:
        kinds.append(_Kind(is_product, product_in, lower_product, choices.product, product_row, 2))
    if choices.convolution is not None:
        ask = choices.convolution
        kinds.append(_Kind(is_convolution, convolution_in, lower_convolution, ask, convolution_row, 0))
    return kinds


@final
@dataclass(frozen=True)
class _Joined:
    """The parts of one kernel: positions in the graph, and the body with its inputs and outputs."""

    before: tuple[int, ...]
    product: int
    after: int | None
    members: tuple[int, ...]
    body: Graph
    inputs: tuple[int, ...]
    wanted: tuple[int, ...]


@final
class _Anchors:
    """The products of a plan's graph, and what could join them."""

    def __init__(self, plan: Plan, strict: bool) -> None:
        self.plan: Final = plan
        self.strict: Final = strict
        self.graph: Final = plan.graph
        self.nodes: Final = plan.graph.nodes
        view = GraphView(plan.graph)
        self.specs: Final = view.specs
        self._bytes: Final = view.bytes_of
        self.maker: Final = view.maker
        self.readers: Final = view.readers
        self.returned: Final = view.returned
        self.fresh: Final = view.fresh

    def found(self, kinds: Sequence[_Kind]) -> list[tuple[int, _Kind]]:
        """The positions of what kernels could compute."""
        return [(n, kind) for n, node in enumerate(self.nodes) for kind in kinds if kind.is_one(node.call)]

    # -- who joins --------------------------------------------------------------------------------------
    def joined(self, n: int, kind: _Kind) -> Plan | None:
        """The plan with the anchor at n and what joins it as one kernel; None where the library's is to stay."""
        operands = self.nodes[n].inputs[: kind.operands]
        before = tuple(p for i in operands for p in [self._producer(i, n)] if p is not None)
        after = self._consumer(n)
        for some_before, some_after in dict.fromkeys([(before, after), ((), after), (before, None)]):
            if not some_before and some_after is None:
                continue
            cut = self._cut(some_before, n, some_after)
            _, size = kind.of(cut.body)
            words = ["before"] * bool(some_before) + ["after"] * (some_after is not None)
            words += ["kept"] * (some_after is not None and self.nodes[n].outputs[0] in cut.wanted)
            tiles = kind.choose(size, " ".join(words))
            if tiles is None:
                continue
            try:
                kind.lower(cut.body, strict=self.strict)
            except Unfusible:
                continue
            return self._with(cut, tiles, kind.row)
        return None

    def _elementwise(self, n: int) -> bool:
        call = self.nodes[n].call
        return call.op is kernel or (not call.is_number and (call.op.pointwise is not None or _parts(call) is not None))

    def _consumer(self, n: int) -> int | None:
        """The first element-wise work that reads the product, if nothing between them needs the one and the other."""
        value: int | None = self.nodes[n].outputs[0]
        while value is not None and self.readers.get(value):
            first, *others = self.readers[value]
            if self._elementwise(first):
                behind = positions_behind(self.nodes[first].inputs, self.maker, self.nodes) if others else ()
                return None if any(n in others for n in behind) else first
            (value, *more) = self.nodes[first].outputs
            if others or more or not self.nodes[first].call.aliases or value in self.returned:
                return None
        return None

    def _producer(self, i: Input, reader: int) -> int | None:
        """The element-wise work that makes an operand, and makes it for this product alone."""
        while isinstance(i, int) and i in self.maker and i not in self.returned and self.readers[i] == [reader]:
            n = self.maker[i]
            node = self.nodes[n]
            if self._elementwise(n):
                return n if len(node.outputs) == 1 else None
            if not node.call.aliases:
                return None
            i, reader = node.inputs[0], n
        return None

    # -- the body ---------------------------------------------------------------------------------------
    def _cut(self, before: Sequence[int], n: int, after: int | None) -> _Joined:
        members = [*before, n, *([] if after is None else [after])]
        views = [v for p in before for v in self._between(p, n)] + ([] if after is None else self._between(n, after))
        order = sorted({*members, *views})
        inside = {i for m in order for i in self.nodes[m].outputs if i is not None}
        inputs = tuple(
            dict.fromkeys(i for m in order for i in self.nodes[m].inputs if isinstance(i, int) and i not in inside)
        )
        wanted = tuple(i for m in order for i in self.nodes[m].outputs if i is not None and self._is_wanted(i, order))
        nodes = [part for m in order for part in self._parts_of(self.nodes[m])]
        body = without_origins(Graph([(i, self.specs[i]) for i in inputs], nodes, list(wanted))).dense()
        return _Joined(tuple(before), n, after, tuple(order), body, inputs, wanted)

    def _parts_of(self, node: Node) -> list[Node]:
        """A node as the operations that it is made of."""
        body = _parts(node.call)
        if body is None:
            return [node]
        operands = node.inputs if node.call.op is kernel else [i for i in node.inputs if i is not None]
        return inlined(body, operands, node.outputs, self.fresh)

    def _between(self, p: int, n: int) -> list[int]:
        """The views that lead from the result of one operation to another."""
        between: list[int] = []
        (i,) = self.nodes[p].outputs
        while n not in self.readers[i]:  # type: ignore[index]  # it has readers
            r = self.readers[i][0]  # type: ignore[index]  # it has readers
            between.append(r)
            (i,) = self.nodes[r].outputs
        return between

    def _is_wanted(self, i: int, members: Sequence[int]) -> bool:
        return i in self.returned or any(r not in members for r in self.readers.get(i, ()))

    # -- the plan ---------------------------------------------------------------------------------------
    def _with(self, cut: _Joined, tiles: ProductTiles | ConvolutionTiles, row: Any) -> Plan | None:
        attrs: dict[str, Any] = {"body": cut.body.to_json(), "strict": self.strict, "tiles": tiles.numbers()}
        call = row.bind([self.specs[i] for i in cut.inputs], attrs)
        members = cut.members
        origins = [self.nodes[m].origin for m in (cut.product, *members)]
        one = Node(call, cut.inputs, cut.wanted, next((o for o in origins if o is not None), None))
        last = max(members)
        nodes = [one if n == last else node for n, node in enumerate(self.nodes) if n == last or n not in members]
        graph = Graph(self.graph.inputs, in_order(self.graph, nodes), self.graph.outputs)
        if peak_bytes(graph) > peak_bytes(self.graph):  # what it reads lives longer than what it would have read
            return None
        groups, boundaries = self._groups(cut, graph, one), self._boundaries(cut)
        return replace(self.plan, graph=graph, groups=groups, boundaries=boundaries)

    def _groups(self, cut: _Joined, graph: Graph, one: Node) -> tuple[Group, ...]:
        """The groups of all generated kernels, in the order of the graph."""
        of_body: dict[str, list[Group]] = {}
        for group in self.plan.groups:
            of_body.setdefault(group.body.to_json(), []).append(group)
        old = {
            node.outputs: of_body[node.call.attrs["body"]].pop(0) for node in self.nodes if "body" in node.call.attrs
        }
        members = cut.members
        parts = [(self.nodes[m], old.get(self.nodes[m].outputs)) for m in members]
        rows = tuple(
            row
            for node, part in parts
            for row in (part.rows if part is not None else () if node.call.aliases else (node.call.op.name,))
        )
        origins = dict.fromkeys(
            origin
            for node, part in parts
            for origin in (part.origins if part is not None else (node.origin,))
            if origin is not None
        )
        through = {
            i for m in members for i in self.nodes[m].outputs if i is not None and not self.nodes[m].call.aliases
        }
        read = {i for m in members for i in self.nodes[m].inputs if isinstance(i, int)}
        saved = sum(self._bytes(i) * ((i in read) + (i not in cut.wanted)) for i in through)
        saved += sum(part.bytes_saved for _, part in parts if part is not None)
        group = Group(
            rows, tuple(origins), sum(map(self._bytes, cut.inputs)), sum(map(self._bytes, cut.wanted)), saved, cut.body
        )
        now = {**old, one.outputs: group}
        return tuple(now[node.outputs] for node in graph.nodes if node.outputs in now and "body" in node.call.attrs)

    def _boundaries(self, cut: _Joined) -> tuple[Boundary, ...]:
        """Those that are left: what lies inside of the new kernel is none."""
        (result,) = self.nodes[cut.product].outputs
        name = self.nodes[cut.product].call.op.name
        inside = set() if cut.after is None else set(self._rows(cut.after))
        results_before = {i for p in cut.before for i in self.nodes[p].outputs}
        kept = [
            b
            for b in self.plan.boundaries
            if not (b.value == result and b.consumer in inside)
            and not (b.value in results_before and b.consumer == name)
        ]
        why = f"{name} and what lies around it are one kernel, and nothing more is joined to it"
        only = {i for i in self.nodes[cut.product].inputs if isinstance(i, int)} - {
            i for n in self._named(name) if n != cut.product for i in self.nodes[n].inputs
        }
        read = {self._base(i) for i in only}
        return tuple(
            replace(b, reason=Reason.LIMIT, detail=why)
            if b.value == result or (b.value in read and b.consumer == name)
            else b
            for b in kept
        )

    def _named(self, name: str) -> list[int]:
        return [n for n, node in enumerate(self.nodes) if node.call.op.name == name]

    def _base(self, i: int) -> int:
        """The value that a view is of."""
        while i in self.maker and self.nodes[self.maker[i]].call.aliases:
            i = self.nodes[self.maker[i]].read(0)
        return i

    def _rows(self, n: int) -> list[str]:
        """The operations at n: those of a kernel, or what boundaries call a composite one and its parts."""
        call = self.nodes[n].call
        body = _parts(call)
        return [call.op.name, *([] if body is None else [node.call.op.name for node in body.nodes])]


def _parts(call: Call) -> Graph | None:
    """Returns the parts of an operation without an expression, such as dropout, if all are element-wise."""
    if call.op is kernel:
        return body_of(call.attrs["body"], call.attrs["dynamic"], call.attrs["sizes"])
    if call.op.pointwise is not None or call.aliases or is_product(call) or call.op.runs is not None:
        return None
    body = expanded(call)
    if body is None:
        return None
    body = dead_code(body)
    inside = all(
        part.call.op.pointwise is not None or part.call.op.law(Moves) or part.call.op.law(Draws) for part in body.nodes
    )
    distinct = not {i for i, _ in body.inputs} & {i for i in body.outputs if i is not None}
    return body if inside and distinct and body.nodes else None
