"""Cutting a body out of a graph: the operations that become one kernel, as a Graph of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.templates import KERNEL_TYPES
from burn_torch.fusion.triton.lowering import lower
from burn_torch.fusion.triton.products import may_be_product
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.view import GraphView
from burn_torch.ops.convolution import conv
from burn_torch.ops.laws import Copies, Draws, Fill, Folds, Moves, Regions
from burn_torch.ops.op import Call

__all__ = ["Role", "Source", "role_of"]


@final
class Role:
    """The role of an operation for the scheduler."""

    COMPUTES: Final = "computes"
    """A kernel can be made of it."""
    FOLLOWS: Final = "follows"
    """Nothing but index arithmetic or a constant: whoever reads it does it on the way."""
    APART: Final = "apart"
    """A library, or the host, computes it."""


def role_of(call: Call) -> tuple[str, Unfusible | None]:
    """An operation's role, and why no kernel is made of it."""
    role: tuple[str, Unfusible | None] | None = call.memo.get(Role)
    if role is None:
        role = call.memo[Role] = _role_of(call)
    return role


def _role_of(call: Call) -> tuple[str, Unfusible | None]:
    op = call.op
    if call.is_number:
        return Role.APART, Unfusible(Reason.BARRIER, f"{op.name} is computed on the host")
    if op.barrier or any(spec is None for spec in call.results):
        return Role.APART, Unfusible(Reason.BARRIER, f"the shape of {op.name} depends on data")
    tensors = [spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec)]
    if any(spec.dtype not in KERNEL_TYPES for spec in tensors):
        return Role.APART, Unfusible(
            Reason.DTYPE, f"kernels do not take {next(s.dtype for s in tensors if s.dtype not in KERNEL_TYPES)}"
        )
    if not call.results or any(not spec.numel for spec in call.results):
        return Role.APART, Unfusible(Reason.SHAPE, "there is nothing to compute")
    if op.law(Moves) is not None or op.law(Fill) is not None or op.law(Copies) is not None:
        return (
            (Role.APART, Unfusible(Reason.ALIAS, f"{op.name} is there to copy"))
            if op.law(Copies)
            else (Role.FOLLOWS, None)
        )
    if call.is_input:
        return Role.FOLLOWS, None
    if op.pointwise is None and not any(op.law(law) for law in (Folds, Draws, Regions)):
        if may_be_product(call):
            return Role.APART, Unfusible(Reason.LIBRARY, f"no timing puts a generated {op.name} before the library's")
        if op is conv:
            return Role.APART, Unfusible(Reason.LIBRARY, "nothing says that a kernel of its own beats the library's")
        known = Reason.LIBRARY if op.cost == "expensive" else Reason.UNSUPPORTED
        return Role.APART, Unfusible(known, f"no kernel is generated for {op.name}")
    try:
        inputs: list[tuple[int, TensorSpec]] = []
        operands: list[Input] = []
        for spec in call.specs:
            operands.append(None if spec is None else len(inputs))
            if spec is not None:
                inputs.append((len(inputs), spec))  # type: ignore[arg-type]  # numbers too
        outputs = range(len(inputs), len(inputs) + len(call.results))
        lower(Graph(inputs, [Node(call, operands, list(outputs))], list(outputs)))
    except Unfusible as fault:
        return Role.APART, fault
    return Role.COMPUTES, None


@final
class Source:
    """A graph to cut bodies from."""

    def __init__(self, graph: Graph) -> None:
        view = GraphView(graph)
        self.graph: Final = graph
        self.specs: Final = view.specs
        self.bytes_of: Final = view.bytes_of
        self.maker: Final = view.maker
        self.readers: Final = view.readers
        self.returned: Final = view.returned
        self.role: Final = [role_of(node.call) for node in graph.nodes]

    def bases(self, i: int) -> list[int]:
        """The values that a value is made of by index arithmetic alone: itself, where it is computed."""
        roots: dict[int, None] = {}
        waiting = [i]
        while waiting:
            value = waiting.pop()
            maker = self.maker.get(value)
            if maker is not None and self.role[maker][0] == Role.FOLLOWS:
                waiting += [j for j in self.graph.nodes[maker].inputs if isinstance(j, int)]
            else:
                roots[value] = None
        return list(roots)

    def body(self, members: Collection[int], wanted: Iterable[int]) -> tuple[Graph, list[int]]:
        """The nodes `members` as a graph that makes `wanted`, and the values of this graph that are its inputs.

        Values that they read through index arithmetic are followed to where they are computed.
        """
        nodes: list[int] = []
        inputs: dict[int, None] = {}
        seen: set[int] = set()
        waiting: list[tuple[int, bool]] = [(i, False) for i in reversed(list(wanted))]
        while waiting:  # depth first; what a node needs comes before it
            i, done = waiting.pop()
            maker = self.maker.get(i)
            inside = maker is not None and (maker in members or self.role[maker][0] == Role.FOLLOWS)
            if not inside:
                inputs[i] = None
                continue
            assert maker is not None
            if done:
                if maker not in seen:
                    seen.add(maker)
                    nodes.append(maker)
                continue
            if maker in seen:
                continue
            waiting.append((i, True))
            waiting += [(j, False) for j in reversed(self.graph.nodes[maker].inputs) if isinstance(j, int)]
        chosen = [self.graph.nodes[n] for n in nodes]
        reads = list(inputs)
        graph = Graph([(i, self.specs[i]) for i in reads], chosen, list(wanted))
        return without_origins(graph).dense(), reads

    def read_outside(self, members: Collection[int]) -> list[int]:
        """The values that members make and others read, or that the graph returns; in the order they are made."""
        outside: list[int] = []
        for n in sorted(members):
            results = [i for i in self.graph.nodes[n].outputs if i is not None]
            outside += [i for i in results if i in self.returned or self._leaves(i, members)]
        return outside

    def _leaves(self, i: int, members: Collection[int]) -> bool:
        waiting = [i]
        while waiting:
            value = waiting.pop()
            for n in self.readers.get(value, ()):
                if n in members:
                    continue
                if self.role[n][0] != Role.FOLLOWS:
                    return True
                results = [j for j in self.graph.nodes[n].outputs if j is not None]
                if any(j in self.returned for j in results):
                    return True
                waiting += results
        return False


def without_origins(graph: Graph) -> Graph:
    """The graph without the users' lines: equal bodies of several layers are one."""
    return Graph(graph.inputs, [Node(node.call, node.inputs, node.outputs) for node in graph.nodes], graph.outputs)
