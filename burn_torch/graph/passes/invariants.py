"""Properties that no rewrite of a graph may change, checked after each pass where the library proves its own work.

    after = rewritten("algebra", algebra, graph)      # the pass; with BURN_TORCH_VERIFY, and all of this:

* the graph is what it says: `verify`
* it takes and gives what it took and gave: specs of inputs and outputs
* a value hangs on no random draw on which it did not hang before
* it sends to other processes what it sent, in that order

and of programs: an output shares no memory with what the caller holds, and nothing reads what was written over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from burn_torch.core.errors import GraphError
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes.sharing import alias_roots, constant_values
from burn_torch.graph.transfers import transfers
from burn_torch.graph.verifier import verify
from burn_torch.graph.verifying import is_proving
from burn_torch.ops.value import Primitive

__all__ = ["check_isolated", "check_overwrites", "check_rewrite", "check_transfers", "rewritten"]

Body = Callable[[Node], Graph | None]
"""The graph that a node stands for, such as that of a generated kernel; None for a row of the table."""

_Draw = tuple[Any, ...]
"""Key, stream and start of what a random row draws: numbers, or where they come from."""


def rewritten(name: str, rewrite: Callable[[Graph], Graph], graph: Graph, body: Body | None = None) -> Graph:
    """Returns the graph that a pass makes of a graph.

    Raises: GraphError, where the library proves its work, for a pass that breaks it.
    """
    after = rewrite(graph)
    if after is not graph and is_proving():
        check_rewrite(name, graph, after, body)
    return after


def check_rewrite(name: str, before: Graph, after: Graph, body: Body | None = None) -> None:
    """Raises: GraphError, with the name of the pass, where a rewrite broke what no rewrite may."""
    try:
        verify(after)
        if _signature(after) != _signature(before):
            raise _broken("changed what a graph takes or gives", str(_signature(after)), str(_signature(before)))
        _check_draws(before, after, body or (lambda node: None))
        check_transfers(before, after)
    except GraphError as fault:
        fault.add_note(f"after the pass {name}")
        raise


def check_transfers(before: Graph, after: Graph) -> None:
    """Raises: GraphError where a program would send other things than it was written to, or in another order."""
    one, other = ([_sends(graph.nodes[n]) for n in transfers(graph.nodes)] for graph in (before, after))
    if one != other:
        raise _broken("changed the order in which processes send", str(other), str(one))


def _sends(node: Node) -> tuple[object, ...]:
    sizes = tuple(spec.numel for spec in node.call.results if isinstance(spec, TensorSpec))
    return (node.call.op.name, *node.call.attrs.items(), sizes)


def check_isolated(graph: Graph, donated: Collection[int] = ()) -> None:
    """Raises: GraphError where an output may share memory with what others hold: an input that is not
    donated, a constant, another output, or itself where it repeats its elements.
    """
    root, specs = alias_roots(graph), graph.specs()
    theirs = {i for position, (i, _) in enumerate(graph.inputs) if position not in donated} | constant_values(graph)
    seen: set[int] = set()
    for i in graph.outputs:
        if i is None or isinstance(specs.get(i), NumberSpec):
            continue
        if root[i] in theirs or root[i] in seen or _is_larger(specs.get(i), specs.get(root[i])):
            raise _broken(
                "left an output in memory that another value holds",
                f"output %{i}, in the memory of %{root[i]}",
                "a copy, see isolate_outputs",
            )
        seen.add(root[i])


def _is_larger(view: object, whole: object) -> bool:
    return isinstance(view, TensorSpec) and isinstance(whole, TensorSpec) and bool(view.numel > whole.numel)


def check_overwrites(graph: Graph, donated: Collection[int], writes: Mapping[int, Mapping[int, int]]) -> None:
    """Raises: GraphError where a program would write over what it, or the caller, still reads.

    writes  for nodes by position: output -> the input of the node that it is written over
    """
    root = alias_roots(graph)
    kept = {i for position, (i, _) in enumerate(graph.inputs) if position not in donated} | constant_values(graph)
    last = {root[i]: n for n, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    last.update((root[i], len(graph.nodes)) for i in graph.outputs if i is not None)
    for number, pairs in writes.items():
        node = graph.nodes[number]
        for output, position in pairs.items():
            old = node.inputs[position]
            if not isinstance(old, int) or node.outputs[output] is None:
                continue
            readers = sum(isinstance(i, int) and root[i] == root[old] for i in node.inputs)
            if root[old] in kept or last[root[old]] != number or readers > 1:
                why = "the caller's" if root[old] in kept else f"read by node {last[root[old]]}, or twice by this one"
                raise _broken(
                    "writes over a value that is still needed",
                    f"node {number}, {node!r}: %{node.outputs[output]} over %{old}, which is {why}",
                    "to write over memory of the program's own after its last read",
                )


# -- draws -------------------------------------------------------------------------------------------------
def _check_draws(before: Graph, after: Graph, body: Body) -> None:
    hangs = _draws(after, body)
    if not hangs:
        return
    hung = _draws(before, body)
    same = set(hangs) & set(hung) if after.outputs == before.outputs else ()  # one of new numbers has its outputs only
    for now, then in (*((i, i) for i in same), *zip(after.outputs, before.outputs, strict=True)):
        if now is None or then is None:
            continue
        more = hangs.get(now, frozenset()) - hung.get(then, frozenset())
        if more:
            raise _broken(
                "made a value hang on other random numbers",
                f"%{now}, on {', '.join(map(str, more))}",
                f"among {', '.join(map(str, hung.get(then, ()))) or 'none'}",
            )


def _draws(graph: Graph, body: Body, given: Sequence[object] | None = None) -> dict[int, frozenset[_Draw]]:
    """For each value that hangs on random numbers, on which draws; `given` says what the inputs are made of."""
    hangs: dict[int, frozenset[_Draw]] = {}
    source: dict[int, Primitive] = {}
    """Host numbers -> the values that they are computed from."""
    for position, (i, _) in enumerate(graph.inputs):
        source[i] = ("input", position) if given is None else given[position]
        if isinstance(source[i], frozenset):
            hangs[i] = source[i]

    def origin(i: Input) -> Any:
        return source.get(i, ("value", i)) if isinstance(i, int) else i

    for node in graph.nodes:
        call, inside = node.call, body(node)
        if inside is None and call.multiple:  # a pass may open it, or close it: not all results hang on the same
            inside = expanded(call)
        reached = [hangs.get(i) if isinstance(i, int) else None for i in node.inputs]
        if inside is not None:
            pairs_in = zip(node.inputs, reached, call.specs, strict=True)
            inner = _draws(inside, body, [x or origin(i) for i, x, spec in pairs_in if spec is not None])
            pairs = zip(node.outputs, inside.outputs, strict=True)
            hangs.update((y, inner[i]) for y, i in pairs if y is not None and i is not None and i in inner)
            continue
        draws = frozenset[_Draw]().union(*(x for x in reached if x))
        if call.is_number:
            source.update((i, _number(node, [origin(i) for i in node.inputs])) for i in node.outputs if i is not None)
        elif any(name == "stream" for name, *_ in call.op.signature.inputs):
            draws |= {(*[origin(i) for i in node.inputs[-2:]], call.attrs.get("start"))}
        if draws:
            hangs.update((i, draws) for i in node.outputs if i is not None)
    return hangs


def _number(node: Node, given: Sequence[Primitive]) -> object:
    """Returns the expression of a host number: a number where all its operands are known."""
    scalar = node.call.op.scalar
    if scalar is not None and all(isinstance(x, Literal) for x in given):
        return Literal(scalar(*(x.value for x in given)))
    return (node.call.op.name, *given)


def _signature(graph: Graph) -> tuple[list[object], list[object]]:
    specs = graph.specs()
    return [spec for _, spec in graph.inputs], [None if i is None else specs.get(i) for i in graph.outputs]


def _broken(what: str, given: str, expected: str) -> GraphError:
    return GraphError(f"a pass {what}", given=given, expected=expected, mend="please report it with the program")
