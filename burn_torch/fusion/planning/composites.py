"""Composite operations (softmax, norms) opened into what they are made of, and long reductions into two steps.

The scheduler groups the parts as it groups anything else, and knows of each which operation it came from: where a group
holds all of them the operation is named, and where planning gains nothing it stays whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from burn_torch.core.errors import BurnTorchError
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.needs import LONGEST_ROW
from burn_torch.fusion.body.reasons import Unsymbolic
from burn_torch.fusion.planning.bodies import Role, role_of
from burn_torch.fusion.rewrites.deviations import deviations
from burn_torch.fusion.rewrites.splitting import beside_rows, columns_in_two_steps, in_two_steps, rows_reduced
from burn_torch.fusion.rows.row import kernel
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.driver import pipeline
from burn_torch.graph.view import GraphView, inlined
from burn_torch.ops.laws import Folds
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, size_hint

__all__ = ["Whole", "open_composites"]

Split = Callable[[Call], Graph | None]

Whole = dict[int, tuple[Node, frozenset[int]]]
"""For positions of a graph that came from a composite operation: that operation, and the positions of its parts."""


def open_composites(graph: Graph) -> tuple[Graph, Whole]:
    """The graph with composite operations (softmax, norms) replaced by what they are made of, and long reductions by
    two steps.

    Also, for each position in it that came from one, that operation and the positions of all its parts.
    """
    opened, whole = _with_deviations(*_in_parts(graph, {}, lambda _, node: _parts(node)))
    rows = rows_reduced(opened)
    folds = {n: node.call for n, node in enumerate(opened.nodes) if node.call.op.law(Folds) is not None}
    kept = {_over(folds[n]) for n in folds if n in whole and columns_in_two_steps(folds[n]) is None}

    def split(n: int, node: Node) -> Graph | None:
        if role_of(node.call)[0] != Role.COMPUTES or n not in folds:
            return None
        beside = beside_rows(node.call, rows)
        if beside is not None:
            return beside if _fits(beside) else None
        if n not in whole and _over(node.call) in kept:
            return None  # the kernel that reduces the same in one step can take this one along
        return _keep_parts(node.call, columns_in_two_steps if n in whole else in_two_steps)

    return _without_unread(*_in_parts(opened, whole, split))


def _with_deviations(graph: Graph, whole: Whole) -> tuple[Graph, Whole]:
    """The graph with sums of squared deviations in the pass over what they deviate from, where rows are long."""

    def long(n: int, call: Call) -> bool:
        if role_of(call)[0] != Role.COMPUTES:
            return False
        x = call.tensor(0)
        length = math.prod(size_hint(x.shape[dim]) for dim in call.attrs["dims"])
        return length > LONGEST_ROW or (columns_in_two_steps if n in whole else in_two_steps)(call) is not None

    deviation_of = deviations(graph, long)
    if not deviation_of:
        return graph, whole
    totals = {one.total: one for one in deviation_of.values()}
    calls = {n: graph.nodes[n] for n in (*deviation_of, *totals)}
    split, whole = _in_parts(graph, whole, lambda n, node: totals[n].sum_in_parts(node.call) if n in totals else None)
    now = {node.outputs[0]: n for n, node in enumerate(split.nodes) if node.outputs}
    specs = split.specs()

    def taken_along(n: int, node: Node) -> tuple[Graph, list[int]] | None:
        one = after.get(n)
        if one is None:
            return None
        finish = now[calls[one.total].outputs[0]]
        sums = next(
            i
            for node in reversed(split.nodes[:finish])
            for i in node.outputs
            if i is not None and _folds_parts(node, one.apart)
        )
        x, b = specs[one.x], specs[one.b]
        assert isinstance(x, TensorSpec)
        assert isinstance(b, TensorSpec)
        return one.sum_of(node.call, x, b), [one.x, one.b, sums]

    after = {now[calls[n].outputs[0]]: one for n, one in deviation_of.items()}
    return _in_parts(split, whole, taken_along)


def _folds_parts(node: Node, apart: Sequence[int]) -> bool:
    """Asks whether it sums over parts of this shape."""
    x = node.call.specs[0] if node.call.specs else None
    return node.call.op.law(Folds) is not None and isinstance(x, TensorSpec) and x.shape == tuple(apart)


def _over(call: Call) -> tuple[object, ...]:
    """Returns the shape that a reduction reduces, and its axes."""
    x = call.specs[0]
    return (x.shape if isinstance(x, TensorSpec) else None), tuple(sorted(call.attrs["dims"]))


def _in_parts(
    graph: Graph, whole: Whole, parts: Callable[[int, Node], Graph | tuple[Graph, list[int]] | None]
) -> tuple[Graph, Whole]:
    """The graph with `parts` in place of nodes; what came from a composite operation still does.

    Parts read what the node reads, or the values that come with them.
    """
    nodes: list[Node] = []
    now: dict[int, list[int]] = {}
    alone: Whole = {}
    fresh = GraphView(graph).fresh
    for n, node in enumerate(graph.nodes):
        first = len(nodes)
        body = parts(n, node)
        if body is None:
            nodes.append(node)
            now[n] = [first]
            continue
        operands: list[Primitive] = [i for i in node.inputs if i is not None]
        if isinstance(body, tuple):
            body, operands = body
        nodes += inlined(body, operands, node.outputs, fresh, node.origin)
        now[n] = list(range(first, len(nodes)))
        if n not in whole:
            alone.update((position, (node, frozenset(now[n]))) for position in now[n])
    moved = {members: frozenset(at for m in members for at in now[m]) for _, members in whole.values()}
    left = {at: (node, moved[members]) for n, (node, members) in whole.items() for at in now[n]}
    return Graph(graph.inputs, nodes, graph.outputs), left | alone


def _without_unread(graph: Graph, whole: Whole) -> tuple[Graph, Whole]:
    """Without parts that have no reader: a composite operation makes more than its readers want."""
    needed = {i for i in graph.outputs if i is not None}
    kept: list[int] = []
    for n in reversed(range(len(graph.nodes))):
        node = graph.nodes[n]
        if node.call.op.collective is not None or any(i in needed for i in node.outputs):
            needed.update(i for i in node.inputs if isinstance(i, int))
            kept.append(n)
    now = {n: position for position, n in enumerate(reversed(kept))}
    parts = {members: frozenset(now[n] for n in members if n in now) for _, members in whole.values()}
    left = {now[n]: (node, parts[members]) for n, (node, members) in whole.items() if n in now}
    return Graph(graph.inputs, [graph.nodes[n] for n in now], graph.outputs), left


def _parts(node: Node) -> Graph | None:
    """Returns the parts of a composite operation, if kernels compute all of them.

    Raises: Unsymbolic where its decomposition does not work with symbols.
    """
    call = node.call
    if role_of(call)[0] != Role.APART or call.is_number or call.op is kernel or call.op.runs is not None:
        return None
    try:
        return _keep_parts(call, expanded)
    except (BurnTorchError, AssertionError) as fault:
        # written for numbers: a loop over as many steps as it finds, or sizes that must not be negative
        if not any(isinstance(size, Size) for spec in call.specs for size in getattr(spec, "shape", ())):
            raise
        raise Unsymbolic(f"what {call.op.name} is made of takes no symbols: {fault}") from fault


def _keep_parts(call: Call, parts: Split) -> Graph | None:
    key = ("parts", parts)
    body: Graph | bool | None = call.memo.get(key, False)
    if body is False:
        body = parts(call)
        if body is not None:
            body, _ = pipeline(body, profile="body", numerics="fast")  # without casts to the type that a value has
        if body is not None and not _fits(body):
            body = None
        call.memo[key] = body
    assert not isinstance(body, bool)
    return body


def _fits(body: Graph) -> bool:
    """Asks whether kernels can compute all parts, each of which has a name of its own in the graph around it."""
    inputs = {i for i, _ in body.inputs}
    outputs = [i for i in body.outputs if i is not None]
    distinct = len(set(outputs)) == len(outputs) and not inputs & set(outputs)
    return distinct and bool(body.nodes) and all(role_of(part.call)[0] != Role.APART for part in body.nodes)
