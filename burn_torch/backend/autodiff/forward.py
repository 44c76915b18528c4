"""Forward: a tape that carries tangents along instead of writing down how to walk back.

Each Call is computed with the tangents of its inputs beside it, so nothing is kept: an intermediate value dies with
its last reader.  A row's rule is its gradient transposed: g J is linear in g, and the gradient of (g J) v by g is J v.
That is traced once for a Call, and dead code is removed, so only J v is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeGuard, final

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.autodiff.derive import Key, derive, float_outputs
from burn_torch.backend.autodiff.tape import Node, TapeEntry, Tracked
from burn_torch.core.errors import AutodiffError
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.value import Primitive, Value

__all__ = ["Forward", "find_reverse_tapes", "is_forward"]

Bools = tuple[bool, ...]


@final
class Forward(Autodiff):
    """Adds tangents to a backend.  A node keeps the tangents of its outputs, None for zeros, and has no parents."""

    def _entry(self, call: Call, needs: int) -> TapeEntry:
        entry: Primitive = Entry(call, needs, self)  # which has what a walk back would ask
        if self._own is None:
            call.memo[self, needs] = entry
        else:
            self._own[call, needs] = entry
        return entry

    def track(self, primitive: object, spec: object, tangent: object = None, bit: int = 0) -> Tracked:
        """A value with a tangent; `bit` names it among what results tell that they depend on."""
        return self.carried(primitive, None, tangent, bit)

    def carried(self, primitive: object, entry: object, tangent: object, bits: int) -> Tracked:
        """A value that carries a tangent, at a node of its own."""
        node: Node = Node(entry, (), (tangent,), bits)  # type: ignore[arg-type]  # nothing walks back through it
        return self.tracked(primitive, node, 0)

    def tangent(self, primitive: Primitive) -> object:
        """The tangent of a value, on the inner backend; None for zeros."""
        return primitive.node.saved[primitive.index] if self.is_tracked(primitive) else None

    def _walk(self, roots: object, retain_graph: bool, since: int, older: object = None) -> NoReturn:
        raise AutodiffError(
            "backward inside of a function that jvp differentiates",
            given="a tensor with a tangent: derivatives are carried forward here, and no tape leads back",
            expected="burn_torch.grad, value_and_grad or vjp inside of the function",
            mend="write grad(loss_fn)(model, x) in place of loss_fn(model, x).backward()",
        )


@final
class Entry:
    """How one Call is computed with tangents, for the inputs that carry some (bits)."""

    flat: Final = ()
    __slots__ = ("_floats", "_pushes", "_tape", "_tracked", "call", "record")

    def __init__(self, call: Call, tracked: int, tape: Forward) -> None:
        self.call: Final = call
        self._tape: Final = tape
        self._tracked: Final = [bool(tracked >> i & 1) for i in range(len(call.specs))]
        self._floats: Final = float_outputs(call)
        self._pushes: Final[dict[Bools, Callable[..., Sequence[object]]]] = {}
        self.record: Final[Callable[[Sequence[Any]], Sequence[object]]] = self._record

    def _record(self, inputs: Sequence[Any]) -> Sequence[object]:
        bare = [x.primitive if t else x for x, t in zip(inputs, self._tracked, strict=True)]
        outputs = self._tape.inner.execute(self.call, bare)
        if self.call.op.nondifferentiable or not any(self._floats):
            return outputs
        tangents = [x.node.saved[x.index] if t else None for x, t in zip(inputs, self._tracked, strict=True)]
        present = tuple([t is not None for t in tangents])
        changes: Sequence[object] = [None] * len(outputs)
        if any(present):
            push = self._pushes.get(present) or self._push(present)
            changes = push(bare, outputs, tangents)
        bits = 0
        for x, t in zip(inputs, self._tracked, strict=True):
            bits |= x.node.version if t else 0
        node: Node = Node(self, (), changes, bits)  # type: ignore[arg-type]  # nothing walks back through it
        return [
            self._tape.tracked(y, node, i) if carries and y is not None else y
            for i, (y, carries) in enumerate(zip(outputs, self._floats, strict=True))
        ]

    def _push(self, present: Bools) -> Callable[..., Sequence[object]]:
        """A function (inputs, outputs, tangents of inputs) -> tangents of outputs."""
        count = len(self.call.results)
        graph, reads, reached = pushforward(self.call, present)
        run = self._tape.inner.compile(graph)

        def push(x: object, y: object, t: object) -> Sequence[object]:
            values: Primitive = {"x": x, "y": y, "t": t}
            changes = iter(run(*[values[kind][i] for kind, i in reads]))
            return [next(changes) if i in reached else None for i in range(count)]

        self._pushes[present] = push
        return push


def pushforward(call: Call, present: Bools) -> tuple[Graph, Sequence[Key], Sequence[int]]:
    """The graph of J v for the inputs that have tangents: the graph, what it reads, and the outputs that it gives.

    It reads inputs ("x", i), outputs ("y", i) and tangents ("t", i).
    """
    key = ("tangent", present)
    push: tuple[Graph, Sequence[Key], Sequence[int]] | None = call.memo.get(key)
    if push is None:
        push = call.memo[key] = _transpose(call, present)
    return push


def _transpose(call: Call, present: Bools) -> tuple[Graph, Sequence[Key], Sequence[int]]:
    floats = float_outputs(call)
    back = derive(call, present, floats, False, tape=Autodiff.over)
    trace = Trace()
    tape = Autodiff.over(trace)
    keys: list[Key] = []
    slots: dict[int, Primitive] = {}
    operands: list[Primitive] = []
    for (kind, i), _ in zip(back.reads, back.graph.inputs, strict=True):
        spec: Any = call.results[i] if kind != "x" else call.specs[i]
        if kind == "g":
            attrs = {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place}
            zero = REGISTRY["full"].run(trace, Value, (0.0,), attrs)
            slots[i] = tape.track(zero.primitive, spec)
            operands.append(slots[i])
        else:
            keys.append((kind, i))
            operands.append(trace.input(spec).primitive)
    rows = interpret(back.graph, tape, operands)
    roots = []
    for i, row in zip(back.edges, rows, strict=True):
        keys.append(("t", i))
        tangent = trace.input(call.specs[i]).primitive  # type: ignore[arg-type]  # a float tensor: it has an edge
        if tape.is_tracked(row):
            roots.append((row, tangent))
    by_node = tape.backward(roots) if roots else {}
    reached = [i for i, slot in slots.items() if slot.node.id in by_node]
    from burn_torch.graph.passes.dead import dead_code  # and all passes, which only derivatives need

    graph = dead_code(trace.graph([Value(trace, by_node[slots[i].node.id], call.results[i]) for i in sorted(reached)]))
    read = {i for node in graph.nodes for i in node.inputs if isinstance(i, int)} | set(graph.outputs)
    kept = [(key, slot) for key, slot in zip(keys, graph.inputs, strict=True) if slot[0] in read]
    return Graph([slot for _, slot in kept], graph.nodes, graph.outputs), [key for key, _ in kept], sorted(reached)


def find_reverse_tapes(stacks: Iterable[object]) -> list[Autodiff]:
    """The tapes among these stacks that are walked back: those that carry no tangents along."""
    return [stack for stack in stacks if isinstance(stack, Autodiff) and not is_forward(stack)]


def is_forward(stack: object) -> TypeGuard[Forward]:
    """Returns whether a stack carries tangents along."""
    return isinstance(stack, Forward)
