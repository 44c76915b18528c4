"""Checks that a Graph is what it says it is.

A Trace writes graphs that are right by construction; what passes make and files hold is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from burn_torch.core.errors import BurnTorchError, GraphError
from burn_torch.core.faults import Fault, raise_faults
from burn_torch.core.spec import NUMBER_SPECS, NumberSpec, Spec, TensorSpec
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.printer import spec_text
from burn_torch.ops.op import REGISTRY

__all__ = ["spec_list", "verify"]

_UNKNOWN: Final = object()


def verify(graph: Graph, *, dense: bool = False) -> Graph:
    """Returns the graph if each id is made once and before it is read, and all specs are those of the Calls.

    dense: ids must also be 0 to n - 1 without gaps.
    Raises: GraphError, which tells all faults with their nodes and where those come from.
    """
    faults = list(_faults(graph))
    if dense and not faults:
        faults += _gaps(graph)
    if faults:
        raise_faults("graph", faults, error=GraphError)
    return graph


def _faults(graph: Graph) -> Iterator[Fault]:
    known: dict[int, Spec | object] = {}
    later = {i for node in graph.nodes for i in node.outputs if i is not None}
    for position, (i, spec) in enumerate(graph.inputs):
        where = f"input {position}: %{i}"
        if not _is_spec(spec):
            yield Fault("it has no spec", where, "a TensorSpec or a NumberSpec", "declare it with trace.input(spec)")
        yield from _new_id(i, known, where)
        known[i] = spec
    for number, node in enumerate(graph.nodes):
        where = f"node {number}, {node!r}" + ("" if node.origin is None else f", from {node.origin}")
        yield from _call(node, where)
        yield from _reads(node, known, later, where)
        yield from _makes(node, known, where)
    for position, output in enumerate(graph.outputs):
        if output is not None and output not in known:
            yield Fault(
                f"nothing makes %{output}",
                f"output {position}",
                "the id of an input or of a node's output, or None",
                "make the value, or give None where there is none",
            )


def _call(node: Node, where: str) -> Iterator[Fault]:
    call = node.call
    if REGISTRY.get(call.op.name) is not call.op:
        yield Fault(
            f"the row {call.op.name} is not in the table",
            where,
            "a row of the table, or one that a module you import declares",
            "import the module that declares it; a row that was declared again is another one",
        )
        return
    try:
        rightly = call.op.bind(call.specs, call.attrs)
    except (BurnTorchError, TypeError) as error:
        yield Fault(
            f"the row does not take these inputs: {str(error).partition(chr(10))[0]}",
            where,
            f"{call.op.name}({call.op.signature})",
            "make Calls with op.bind(specs, attrs)",
        )
        return
    if rightly is not call:
        yield Fault(
            f"its results are {spec_list(call.results)}",
            where,
            f"{spec_list(rightly.results)}, as the row's rule says",
            "make Calls with op.bind(specs, attrs)",
        )


def _reads(node: Node, known: dict[int, Spec | object], later: set[int], where: str) -> Iterator[Fault]:
    wanted = node.call.specs
    if len(node.inputs) != len(wanted):
        yield Fault(
            f"it reads {len(node.inputs)} inputs",
            where,
            f"{len(wanted)}, as its Call has specs: {spec_list(wanted)}",
            "bind the row to the specs of the inputs",
        )
        return
    for position, (x, spec) in enumerate(zip(node.inputs, wanted, strict=True)):
        if isinstance(x, int) and x not in known:
            soon = x in later
            yield Fault(
                f"input {position} reads %{x} before it is made" if soon else f"input {position}: nothing makes %{x}",
                where,
                "ids of inputs and of earlier nodes",
                "order nodes so that each comes after what it reads" if soon else "make the value first",
            )
            known[x] = _UNKNOWN  # told once
        elif not _fits(x, spec, known):
            described = (
                f"is %{x}, {_spec_text(known[x])}"
                if isinstance(x, int)
                else "is absent"
                if x is None
                else f"is the {type(x.value).__name__} {x!r}"
                if isinstance(x, Literal)
                else f"is a {type(x).__name__}"
            )
            yield Fault(
                f"input {position} {described}",
                where,
                f"{'None' if spec is None else spec_text(spec)}, as its Call says",
                "bind the row to the specs of the inputs",
            )


def _is_spec(spec: object) -> bool:
    return isinstance(spec, TensorSpec | NumberSpec)


def _fits(x: object, spec: Spec | None, known: dict[int, Spec | object]) -> bool:
    if type(x) is int:
        there = known[x]
        return there is spec or there is _UNKNOWN or (there is None and isinstance(spec, TensorSpec))
    if isinstance(x, Literal):
        return spec is not None and NUMBER_SPECS.get(type(x.value)) is spec
    return x is None and spec is None


def _makes(node: Node, known: dict[int, Spec | object], where: str) -> Iterator[Fault]:
    results = node.call.results
    if len(node.outputs) != len(results):
        yield Fault(
            f"it makes {len(node.outputs)} outputs",
            where,
            f"{len(results)}, as the row has: {spec_list(results)}",
            "give one id an output, None for one that nothing reads",
        )
    live = node.call.attrs.get("live")
    if live is not None and len(live) == len(node.outputs):
        for position, (i, alive) in enumerate(zip(node.outputs, live, strict=True)):
            if alive is (i is None):
                yield Fault(
                    f"output {position} is {'absent' if i is None else f'%{i}'}, and live={live}",
                    where,
                    "an id exactly where `live` is true",
                    "bind the row with the `live` of what is read; dead_code does",
                )
    for position, i in enumerate(node.outputs):
        if i is not None:
            yield from _new_id(i, known, where)
            known[i] = results[position] if position < len(results) else _UNKNOWN


def _new_id(i: object, known: dict[int, Spec | object], where: str) -> Iterator[Fault]:
    if type(i) is not int or i < 0:
        yield Fault(f"{i!r} is no id", where, "whole numbers of 0 or more", "number the values from 0 on")
    elif i in known and known[i] is not _UNKNOWN:
        yield Fault(f"%{i} is made twice", where, "each id made once", "give the second value an id of its own")


def _gaps(graph: Graph) -> list[Fault]:
    ids = sorted([i for i, _ in graph.inputs] + [i for node in graph.nodes for i in node.outputs if i is not None])
    missing = sorted(set(range(ids[-1] + 1)) - set(ids)) if ids else []
    if not missing:
        return []
    absent = ", ".join(f"%{i}" for i in missing[:8]) + (", ..." if len(missing) > 8 else "")
    return [Fault("the ids have gaps", f"no {absent}", f"all ids from 0 to {len(ids) - 1}", "graph.dense()")]


def spec_list(specs: Sequence[Spec | None]) -> str:
    """Specs as errors name them; "none" for no spec."""
    return ", ".join("None" if spec is None else spec_text(spec) for spec in specs) or "none"


def _spec_text(spec: object) -> str:
    return spec_text(spec) if isinstance(spec, TensorSpec | NumberSpec) else "of unknown shape"
