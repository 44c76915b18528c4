"""Tracing a function for a program: the graph of one structure of arguments, and what its Python read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, final

from burn_torch.backend import Backend, LibTorch
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.backend.tracing import Bound, Session
from burn_torch.core.errors import TraceError
from burn_torch.graph import Graph
from burn_torch.graph.trace import Slot, Trace
from burn_torch.module import RunningState
from burn_torch.ops.value import Primitive
from burn_torch.transform.closed_over import Watch, changed, name_of
from burn_torch.transform.connected import Connection, connection
from burn_torch.transform.flatten import Fault, Walk
from burn_torch.transform.guard import Guard
from burn_torch.transform.readings import Readings
from burn_torch.transform.scope import TraceScope
from burn_torch.transform.structure import Argument, Function, Leaf, Number, Structure, leaf_of, placed
from burn_torch.transform.unflatten import TracedArguments

__all__ = ["BoundState", "Traced", "trace"]


Call = Callable[[Sequence[Any]], Any]


class Traced(NamedTuple):
    """Holds what tracing gives: the graph, where its inputs come from, and what its outputs are."""

    leaf: Backend
    graph: Graph
    sources: Sequence[Any]
    """For each input beyond the arguments' leaves: a Bound or a DrawPart."""
    result: Structure
    literals: Sequence[tuple[int, Any]]
    """Leaves of the result that are numbers known when it was traced: (position, number)."""
    handed_in: Sequence[tuple[int, str, Leaf]]
    """Running states that are the last outputs: (tree among the arguments, path in it, what it is)."""
    guard: Guard | None
    """Holds what its Python read besides the arguments."""
    prints: str | None
    """The line that printed, if one did."""
    connection: Connection | None
    """Says which results hang on which arguments."""


@final
class BoundState(Bound):
    """The source of an input that is a captured running state: each call reads its present value."""

    __slots__ = ("cell",)

    def __init__(self, primitive: Primitive, cell: RunningState) -> None:
        super().__init__(primitive)
        self.cell: Final = cell


def trace(
    function: Function,
    call: Call,
    structures: Sequence[Structure],
    names: Sequence[str],
    captures: Sequence[Argument],
    watched: bool = True,
    hand_in: bool = True,
) -> Traced:
    """Runs a function once over a trace; `call(arguments)` passes the arguments as the user does, `names` are theirs.

    watched  whether what its Python reads is noted; what is traced to be written to a file is not run again
    hand_in  whether new values of running states are results
    Raises: TraceError for what a trace cannot hold, and whatever the function raises.
    """
    scope: TraceScope | None = None

    def path_of(node: object) -> str | None:
        return None if scope is None else scope.place_of(node)

    session = Session(_leaf_of(structures, names), Trace(origins=True, paths=path_of), name_of)
    wrap = TracedArguments(session)
    leaves = [_input(session, part) for structure in structures for _, part in structure.parts("") if part.size]
    count = len(leaves)
    declared = Walk(as_read=True)
    for capture in captures:
        declared.take(capture)
    with session.opened():
        captured = declared.cells()
        for i, primitive in enumerate(declared.leaves):
            if not isinstance(primitive, int | float):
                cell = captured.get(i)
                source = None if cell is None else BoundState(primitive, cell)
                session.bind(primitive, session.real.spec(primitive), source)
        arguments = [part.build(leaves[at : at + part.size], 0, wrap, {}) for at, part in placed(structures)]
        watch = Watch(function, wrap.trees, zip(names, arguments, strict=True))
        scope = TraceScope(session, wrap.trees)
        with scope:
            walk, states, before = Walk(of_results=True), Walk(), Walk()
            taken = [before.take(argument) for argument in arguments]
            readings = Readings(function, arguments)
            begun = next_id()
            with readings if watched else nullcontext():
                returned = call(arguments)
            result = _take_result(walk, returned)
            del returned
            after, cells = Walk(), before.cells()
            for name, argument, structure in zip(names, arguments, taken, strict=True):
                at = len(after.leaves)
                same = after.take(argument) is structure
                if not same or any(after.leaves[i] is not before.leaves[i] for i in range(at, at + structure.size)
                                   if i not in cells):  # fmt: skip
                    raise changed(function, name, argument)
            link = connection(arguments, [(at, x) for at, x in walk.loose if at not in walk.cells()], begun)
            new = scope.handed_in() if hand_in else {}
            handed_in = [(*place, states.take(value)) for place, value in new.items()]
        watch.check()
        guard = readings.guard() if watched else None
        leaves_out = walk.leaves + states.leaves
        slots = [x if isinstance(x, Slot | int | float) else session.leaf.lift(x, session.real) for x in leaves_out]
    literals = [(i, x) for i, x in enumerate(slots) if not isinstance(x, Slot)]
    graph = session.graph([x for x in slots if isinstance(x, Slot)])
    places = [(number, path, leaf) for number, path, leaf in handed_in if isinstance(leaf, Leaf)]
    return Traced(session.real, graph, session.sources[count:], result, literals, places, guard, readings.prints, link)


def _take_result(walk: Walk, result: object) -> Structure:
    try:
        return walk.take(result)
    except Fault as fault:
        raise fault.error("the result") from None


def _input(session: Session, part: Structure) -> Any:
    if isinstance(part, Number):
        return session.input(part.spec, None)
    leaf = leaf_of(part)
    assert leaf is not None
    return session.input(leaf.spec, None).primitive


def _leaf_of(structures: Sequence[Structure], names: Sequence[str]) -> Backend:
    """The one leaf under all tensors among the arguments; LibTorch where there is none."""
    paths: dict[Backend, str] = {}
    for name, structure in zip(names, structures, strict=True):
        for path, part in structure.parts(name):
            leaf = leaf_of(part)
            if leaf is not None:
                paths.setdefault(leaf.stack.leaf(), path)
    if len(paths) > 1:
        raise TraceError(
            "a compiled function computes on one backend",
            given=", ".join(f"{path} on {leaf.name}" for leaf, path in paths.items()),
            expected="arguments on one backend",
            mend="move them first with .to_device(device)",
        )
    return next(iter(paths), LibTorch())
