"""Gradients are derived, not interpreted.

For a Call, the inputs that need a gradient and the outputs whose gradients are present, the row's rule is traced once
and dead code removed.  The tape saves the inputs and outputs that the remaining graph still reads: no list of saved
values is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from burn_torch.core.errors import AutodiffError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive, Value

__all__ = ["Derivation", "Key", "derive", "float_outputs"]

Key = tuple[str, int]
"""("g", i): gradient of output i; ("x", i): input i; ("y", i): output i."""

Tape = Callable[[Any], Any]
"""Lays a tape over the trace on which a rule is written: `Autodiff.over`."""

Values = list[Value | None]


@final
class Derivation:
    """The backward of a Call for one set of needs.

    `graph` takes `reads` in order and gives one output for each of `edges`, the inputs that get a gradient.
    """

    __slots__ = ("edges", "graph", "reads")

    def __init__(self, graph: Graph, reads: Sequence[Key], edges: Sequence[int]) -> None:
        self.graph: Final = graph
        self.reads: Final = tuple(reads)
        self.edges: Final = tuple(edges)

    @property
    def saves(self) -> tuple[Key, ...]:
        """The values that it reads beside gradients."""
        return tuple(key for key in self.reads if key[0] != "g")


def derive(call: Call, needs: Sequence[bool], present: Sequence[bool], recompute: bool, *, tape: Tape) -> Derivation:
    """The backward of `call` for the inputs in `needs`, given gradients of the outputs in `present`.

    With `recompute`, a row that is cheap is computed again from its inputs instead of saving its outputs.
    `tape` lays a tape over the trace on which a rule is written: `Autodiff.over`.  Rows without a rule need it.
    """
    key = ("gradient", tuple(needs), tuple(present), recompute and call.op.cost == "cheap")
    derivation = call.memo.get(key)
    if derivation is None:
        derivation = call.memo[key] = _derive(call, needs, present, key[3], tape)
    return derivation


def _derive(call: Call, needs: Sequence[bool], present: Sequence[bool], recompute: bool, tape: Tape) -> Derivation:
    trace = Trace()
    keys: list[Key] = []
    gradients: Values = []
    for i, spec in enumerate(call.results):
        if present[i]:
            keys.append(("g", i))
            gradients.append(trace.input(spec))
        else:
            gradients.append(None)
    inputs: list[Primitive] = []
    for i, spec in enumerate(call.specs):
        if spec is not None:
            keys.append(("x", i))
        inputs.append(None if spec is None else trace.input(spec))
    if recompute:
        output = call.op.run(trace, Value, inputs, call.attrs)
        outputs = output if call.multiple else (output,)
    else:
        outputs = []
        for i, spec in enumerate(call.results):
            keys.append(("y", i))
            outputs.append(trace.input(spec))
    entries = _entries(call, gradients, inputs, tuple(outputs), needs, tape)
    edges = [i for i, entry in enumerate(entries) if needs[i] and entry is not None]
    for i in edges:
        spec = call.specs[i]
        assert entries[i].spec is spec, (
            f"the gradient rule of {call} gives {entries[i].spec} for input {i}, which is {spec}"
        )
    from burn_torch.graph.passes.dead import dead_code  # and all passes, which only gradients need

    graph = dead_code(trace.graph([entries[i] for i in edges]))
    read = {i for node in graph.nodes for i in node.inputs if isinstance(i, int)} | set(graph.outputs)
    kept = [(key, slot) for key, slot in zip(keys, graph.inputs, strict=True) if slot[0] in read]
    return Derivation(Graph([slot for _, slot in kept], graph.nodes, graph.outputs), [key for key, _ in kept], edges)


def _entries(
    call: Call, gradients: Values, inputs: list[Primitive], outputs: Sequence[object], needs: Sequence[bool], tape: Tape
) -> Sequence[Primitive]:
    rule = call.op.gradient_rule
    if rule is not None:
        g, y = (tuple(gradients), outputs) if call.multiple else (gradients[0], outputs[0])
        entries = rule(g, y, *inputs, **call.attrs)
        if entries is not NotImplemented:
            entries = tuple(entries) if isinstance(entries, tuple | list) else (entries,)
            assert len(entries) == len(inputs), f"the gradient rule of {call.op.name} gives {len(entries)} entries"
            return entries
    if call.op.decomposition is None:
        raise AutodiffError(
            f"{call.op.name} has neither a gradient nor a decomposition",
            given=f"{call!r}, of which a gradient is needed",
            expected="a row with @NAME.gradient, a decomposition, or nondifferentiable=True",
            mend="declare one of them, or compute it of values without a tape: x.detach()",
        )
    return _through_decomposition(call, gradients, inputs, needs, tape)


def _through_decomposition(
    call: Call, gradients: Values, inputs: list[Primitive], needs: Sequence[bool], tape_over: Tape
) -> Values:
    # Records the decomposition on a tape over the same trace, then walks it back: recomputes from the inputs.
    trace = next(value.backend for value in inputs if value is not None)
    tape = tape_over(trace)
    primitives: list[Primitive] = [
        None if x is None else tape.track(x.primitive, x.spec) if need else x.primitive
        for x, need in zip(inputs, needs, strict=True)
    ]
    outputs = interpret(decomposed(call), tape, [p for p in primitives if p is not None])
    roots = [
        (output, gradient.primitive)
        for output, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None and tape.is_tracked(output)
    ]
    slots = tape.backward(roots) if roots else {}
    entries: Values = []
    for x, primitive, need in zip(inputs, primitives, needs, strict=True):
        slot = slots.get(primitive.node.id) if need and x is not None else None
        entries.append(None if slot is None else Value(trace, slot, x.spec))
    return entries


def float_outputs(call: Call) -> tuple[bool, ...]:
    """Returns for each output whether it can carry a gradient."""
    return tuple(isinstance(spec, TensorSpec) and spec.dtype.is_float for spec in call.results)
