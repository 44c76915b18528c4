"""Patterns: a few operations that one row computes, users' and known ones (`known.py`).

    register_pattern(lambda x, y: ops.relu(x * y), mine, like=[x.spec, y.spec])

Before scheduling, operations that do what the pattern does are replaced by the row.  The pattern is traced at the
specs of the values at hand, so it fits where, and only where, it would have made the very same operations: shapes,
element types, attributes and literal numbers included.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.core.errors import BurnTorchError, ConfigError
from burn_torch.core.spec import NUMBER_SPECS, NumberSpec, Spec
from burn_torch.core.wording import first_line
from burn_torch.fusion.rewrites.known import forms
from burn_torch.fusion.rows.symbolic import scope_of
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.trace import Trace
from burn_torch.graph.view import GraphView, inlined
from burn_torch.ops.op import Candidate, Op
from burn_torch.ops.value import Attrs

__all__ = ["Pattern", "literals", "on_change", "register_pattern", "replaced", "unregister_pattern"]

_patterns: Final[list[Pattern]] = []
_listeners: Final[list[Callable[[], None]]] = []
_lock: Final = threading.Lock()


@final
@dataclass(frozen=True)
class Pattern:
    """The arguments of `register_pattern`.  `form` is the pattern at the specs it was shown with."""

    function: Candidate
    row: Op
    attrs: Attrs
    form: Graph
    by: Candidate | None = None
    """The function in place of one call of the row, for patterns that come with the framework."""


def register_pattern(
    function: Callable[..., object], row: Op, *, like: Sequence[Spec], attrs: Mapping[str, object] | None = None
) -> Pattern:
    """From now on, where kernels are generated, `row` computes what `function` says, in one call.

    function  the operations as a function of values; what it returns are the row's results
    row       takes the inputs of the function, with these `attrs`
    like      specs of inputs, to learn the operations from: `x.spec` of a tensor, FLOAT_NUMBER for a number; other
              shapes and element types fit as well, if the row takes them

    Patterns are tried in the order in which they were registered, each from the first operation on.  A value inside of
    the pattern that somebody else reads keeps it from being replaced.  The row must compute the same: nobody checks.
    Programs that are compiled already stay as they are.
    Raises: ConfigError for what is no row, and where the row does not take the inputs, or gives other results.
    """
    attrs = dict(attrs or {})
    if not isinstance(row, Op):
        raise ConfigError(
            "register_pattern: a row stands for the pattern",
            given=f"{row!r:.80}",
            expected="a row of the table, such as one that @op(namespace=...) made",
            mend="declare it: docs/building-blocks/custom-op.md",
        )
    form = _trace_function(function, like)
    _check(function, row, attrs, form, like)
    pattern = Pattern(function, row, attrs, form)
    with _lock:
        _patterns.append(pattern)
    _tell()
    return pattern


def unregister_pattern(pattern: Pattern) -> None:
    """Takes a pattern back; one that is not registered is no error."""
    with _lock:
        if pattern in _patterns:
            _patterns.remove(pattern)
    _tell()


def on_change(listener: Callable[[], None]) -> None:
    """Calls `listener` whenever a pattern comes or goes: what was planned before is planned again."""
    _listeners.append(listener)


def literals() -> dict[NumberSpec, dict[object, Literal]]:
    """The numbers that patterns name, by kind and value: a stream has to know them to find the pattern."""
    by_spec: dict[NumberSpec, dict[Any, Literal]] = {}
    for pattern in _patterns:
        for node in pattern.form.nodes:
            for i in node.inputs:
                if isinstance(i, Literal):
                    by_spec.setdefault(NUMBER_SPECS[type(i.value)], {})[i.value] = i
    return by_spec


@functools.cache
def _known_patterns() -> tuple[Pattern, ...]:
    """The patterns that come with the framework."""
    patterns = []
    for _, function, by, like in forms():
        form, target = _trace_function(function, like), _trace_function(by, like)
        assert [form.specs()[i] for i in form.outputs if i is not None] == [
            target.specs()[i] for i in target.outputs if i is not None
        ], "a known pattern and what computes it give other results"
        patterns.append(Pattern(function, target.nodes[-1].call.op, {}, form, by))
    return tuple(patterns)


def _tell() -> None:
    for listener in _listeners:
        listener()


# -- checking ----------------------------------------------------------------------------------------------
def _trace_function(function: Candidate, specs: Sequence[Spec]) -> Graph:
    trace = Trace()
    output = function(*[trace.input(spec) for spec in specs])
    outputs = list(output) if isinstance(output, tuple) else [output]
    return dead_code(trace.graph(outputs)).dense()


def _check(
    function: Callable[..., object], row: Op, attrs: Mapping[str, object], form: Graph, like: Sequence[Spec]
) -> None:
    name = getattr(function, "__name__", "the pattern")
    faults: list[str] = []
    if not form.nodes:
        faults.append(f"{name} computes nothing")
    read = {i for node in form.nodes for i in node.inputs}
    faults += [f"input {n} of {name} is not read" for n, (i, _) in enumerate(form.inputs) if i not in read]
    try:
        results: tuple[Any, ...] = row.bind(like, attrs).results
    except (BurnTorchError, TypeError) as fault:
        faults.append(f"{row.name} does not take its inputs: {first_line(fault)}")
    else:
        specs = form.specs()
        wanted = tuple(None if i is None else specs.get(i) for i in form.outputs)
        if results != wanted:
            faults.append(f"{row.name} gives {results}, {name} {wanted}")
    if faults:
        raise ConfigError(
            "register_pattern: the row cannot stand for the pattern",
            given="; ".join(faults),
            expected="a row of the same inputs and results as the function",
            mend=f"compare {row.name}({row.signature}) with {name}",
        )


# -- replacing ---------------------------------------------------------------------------------------------
def replaced(graph: Graph, *, strict: bool = False) -> Graph:
    """The graph with rows in place of what patterns say: users' first, then, unless roundings count, known ones."""
    for pattern in (*tuple(_patterns), *(() if strict or scope_of(graph) is not None else _known_patterns())):
        graph = _replace_pattern(graph, pattern)
    return graph


def _replace_pattern(graph: Graph, pattern: Pattern) -> Graph:
    rows = [node.call.op for node in pattern.form.nodes]
    if not set(rows) <= {node.call.op for node in graph.nodes}:
        return graph
    matcher = _Matcher(graph, pattern)
    for n, node in enumerate(graph.nodes):
        if node.call.op is rows[-1] and not matcher.view.is_gone(node):
            matcher.try_at(n)
    return matcher.view.done()


@final
class _Matcher:
    """Finds a pattern in a graph, and replaces it there."""

    def __init__(self, graph: Graph, pattern: Pattern) -> None:
        self.graph: Final = graph
        self.pattern: Final = pattern
        self.view: Final = GraphView(graph)
        self.form_maker: Final = GraphView(pattern.form).maker

    def try_at(self, last: int) -> None:
        """Replaces the pattern whose last operation is at `last`, if it is there."""
        match = self._find_match(last)
        if match is None:
            return
        members, operands = match
        specs = [self._spec(i) for i in operands]
        try:
            exact = _trace_function(self.pattern.function, specs)
            by = self.pattern.by
            replacement = None if by is None else _trace_function(by, specs)
            call = self.pattern.row.bind(specs, self.pattern.attrs) if replacement is None else None
        except (BurnTorchError, TypeError):  # other specs than the row or the pattern takes
            return
        outputs = self._outputs(exact, members, operands)
        if outputs is None:
            return
        replaced = [self.graph.nodes[n] for n in members.values()]
        inside = {i for node in replaced for i in node.outputs if i is not None} - set(outputs)
        if any(self.view.is_read_outside(i, replaced) for i in inside):
            return
        wanted = tuple(self.view.specs.get(i) for i in outputs)
        origin = self.graph.nodes[last].origin
        if call is not None:
            nodes, results = [Node(call, operands, outputs, origin)], call.results
        else:
            assert replacement is not None
            found_specs = replacement.specs()
            nodes = inlined(replacement, operands, outputs, self.view.fresh, origin)
            results = tuple(None if i is None else found_specs.get(i) for i in replacement.outputs)
        if wanted == results:
            self.view.replace(replaced, nodes, at=self.graph.nodes[last])

    def _find_match(self, last: int) -> tuple[dict[int, int], list[Input]] | None:
        """For each operation of the form its position, and what stands for each of its inputs; by names alone."""
        form = self.pattern.form
        members: dict[int, int] = {}
        sources: dict[int, Input] = {}
        waiting = [(len(form.nodes) - 1, last)]
        while waiting:
            wanted, n = waiting.pop()
            if members.setdefault(wanted, n) != n:
                return None
            here, there = form.nodes[wanted], self.graph.nodes[n]
            if self.view.is_gone(there) or here.call.op is not there.call.op or len(here.inputs) != len(there.inputs):
                return None
            for i, j in zip(here.inputs, there.inputs, strict=True):
                if not isinstance(i, int):
                    if i != j:
                        return None
                elif i in self.form_maker:
                    made_at = self.view.maker.get(j) if isinstance(j, int) else None
                    if made_at is None:
                        return None
                    maker = form.nodes[self.form_maker[i]], self.graph.nodes[made_at]
                    if len(maker[0].outputs) != len(maker[1].outputs):
                        return None
                    if maker[0].outputs.index(i) != maker[1].outputs.index(j):
                        return None
                    waiting.append((self.form_maker[i], made_at))
                elif j is None or sources.setdefault(i, j) != j:
                    return None
        if len(members) != len(form.nodes) or len(set(members.values())) != len(members):
            return None  # the last operation does not need all others, or one stands for two
        return members, [sources[i] for i, _ in form.inputs]

    def _outputs(self, exact: Graph, members: dict[int, int], given: Sequence[Input]) -> list[int] | None:
        """The ids of the pattern's results, if the members are exactly what the pattern makes of what is given."""
        if len(exact.nodes) != len(self.pattern.form.nodes):
            return None
        names: dict[int, Input] = dict(zip((i for i, _ in exact.inputs), given, strict=True))
        for position, node in enumerate(exact.nodes):
            there = self.graph.nodes[members[position]]
            read = tuple(names[i] if isinstance(i, int) else i for i in node.inputs)
            if node.call is not there.call or read != there.inputs:
                return None
            names.update((i, j) for i, j in zip(node.outputs, there.outputs, strict=True) if i is not None)
        outputs = [None if i is None else names[i] for i in exact.outputs]
        return [i for i in outputs if isinstance(i, int)] if all(isinstance(i, int) for i in outputs) else None

    def _spec(self, i: Input) -> Spec:
        if isinstance(i, Literal):
            return NUMBER_SPECS[type(i.value)]
        assert isinstance(i, int)
        return self.view.specs[i]
