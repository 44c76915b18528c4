"""Branches, loops and recurrent layers as one node each: their bodies are graphs of their own.

A body is traced once, into the same trace as what stands around it, and is then taken out of it: so what it reads from
outside is known by its id.  Loops within loops are nodes of the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, final

from burn_torch.backend.tracing import Session, active
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.graph import Graph
from burn_torch.graph.trace import Slot
from burn_torch.ops.op import Call, Op, op
from burn_torch.ops.signature import Operand
from burn_torch.ops.value import Attrs
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import describe, mapped
from burn_torch.transform.control import require_alike, truth_of
from burn_torch.transform.rolling import Recurrence
from burn_torch.transform.structure import Argument, Function

__all__ = ["ExportRoller", "attributes_of", "branch", "loop", "recurrence", "scanned"]


_BODIES: Final = frozenset({"body", "chosen", "other"})
"""Attributes that are graphs, as `Graph.to_json` writes them with the lines that they are from."""


@lru_cache(maxsize=256)
def _read(text: str) -> Graph:
    return Graph.from_json(text)


def attributes_of(call: Call) -> Attrs:
    """The attributes of a call, with graphs for their texts."""
    if not call.op.name.startswith("onnx::"):
        return call.attrs
    return {name: _read(value) if name in _BODIES else value for name, value in call.attrs.items()}


def _results(body: str) -> tuple[TensorSpec, ...]:
    """The specs of what a body makes."""
    graph = _read(body)
    specs = graph.specs()
    return tuple(specs[i] for i in graph.outputs if i is not None)  # type: ignore[misc]  # bodies make tensors


@op(namespace="onnx", nondifferentiable=True, samples=())
def branch(pred: TensorSpec, *captured: Operand, chosen: str, other: str) -> tuple[TensorSpec, ...]:
    """One of two graphs of the captured values."""
    return _results(chosen)


@op(namespace="onnx", nondifferentiable=True, samples=())
def loop(pred: TensorSpec, *values: Operand, body: str, count: int, most: int | None) -> tuple[TensorSpec, ...]:
    """The first `count` values after `body`, which gives whether to go on and their next ones, ran some times.

    most   how often it runs at most, or None
    """
    return _results(body)[1:]


@op(namespace="onnx", nondifferentiable=True, samples=())
def scanned(
    *values: Operand, body: str, count: int, axes: tuple[int, ...], places: tuple[int, ...], reverse: bool
) -> tuple[TensorSpec, ...]:
    """`body` over slices: the first `count` values are carried, the next ones are cut along `axes`.

    places   the axes along which the results of the steps lie
    """
    specs, first = _results(body), values[count]
    assert isinstance(first, TensorSpec), "slices are cut from tensors"
    length = first.shape[axes[0]]
    stacks = [
        TensorSpec.of((*y.shape[:at], length, *y.shape[at:]), y.dtype, y.place)
        for y, at in zip(specs[count:], places, strict=True)
    ]
    return (*specs[:count], *stacks)


@op(namespace="onnx", nondifferentiable=True, samples=())
def recurrence(
    x: TensorSpec,
    w: TensorSpec,
    r: TensorSpec,
    b: TensorSpec | None,
    lengths: TensorSpec | None,
    initial_h: TensorSpec | None,
    initial_c: TensorSpec | None,
    *,
    kind: str,
    direction: str,
    activations: str,
    after: bool,
    coupled: bool,
) -> tuple[TensorSpec, ...]:
    """A recurrent layer, as `transform.rolling.Recurrence` has it; names of activations stand side by side."""
    (seq, batch, _), (directions, _, d_hidden) = x.shape, r.shape
    last = TensorSpec.of((directions, batch, d_hidden), x.dtype, x.place)
    all_states = TensorSpec.of((seq, *last.shape), x.dtype, x.place)
    return (all_states, last, last) if kind == "LSTM" else (all_states, last)


class _Traced(NamedTuple):
    """A body before it is prepared: its graph, whose last inputs are captured, and these."""

    graph: Graph
    captured: tuple[tuple[int, Spec], ...]


@final
class ExportRoller:
    """Writes branches and loops of the session that traces as rows of this file.

    prepare   makes a body ready to be written, as the graph around it will be made
    """

    def __init__(self, prepare: Callable[[Graph], Graph]) -> None:
        self.prepare: Final = prepare

    def takes(self, *values: object) -> bool:
        """Says whether all tensors of these values are slots of the trace itself."""
        session = active()
        every = [x for value in values for x in _tensors(value)]
        return session is not None and bool(every) and all(x.backend is session.leaf for x in every)

    # -- branches and loops -------------------------------------------------------------------------------------------
    def cond(self, pred: Tensor, true_fn: Function, false_fn: Function, operands: Sequence[object]) -> Argument:
        """One node of two bodies."""
        results: list[Argument] = []

        def run(fn: Function) -> Callable[[Sequence[Tensor]], list[Tensor]]:
            def body(_: Sequence[Tensor]) -> list[Tensor]:
                results.append(fn(*operands))
                return _tensors(results[-1])

            return body

        bodies = [self._body(run(fn), ()) for fn in (true_fn, false_fn)]
        require_alike("cond: the results of the branches", results[1], results[0], numbers=True)
        captured = {i: spec for body in bodies for i, spec in body.captured}
        chosen, other = (self._close(body, captured) for body in bodies)
        results_of_node = self._append(branch, [pred], captured, {"chosen": chosen, "other": other})
        return _rebuilt(results[0], results_of_node)

    def while_loop(self, cond_fn: Function, body_fn: Function, init: object, max_steps: int | None) -> Argument:
        """One node of one body, which also says whether to go on."""
        state = _tensors(init)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            before = _rebuilt(init, inputs)
            after = body_fn(before)
            require_alike("while_loop: the state", before, after)
            return [truth_of("while_loop", cond_fn(after)), *_tensors(after)]

        first = truth_of("while_loop", cond_fn(init))
        body = self._body(run, [x.spec for x in state])
        captured = dict(body.captured)
        attrs = {"body": self._close(body, captured), "count": len(state), "most": max_steps}
        return _rebuilt(init, self._append(loop, [first, *state], captured, attrs))

    def scan(
        self, fn: Function, init: object, xs: object, dim: int, length: int, reverse: bool
    ) -> tuple[Argument, Argument]:
        """One node of one body, with a slice of each input."""
        state, columns = _tensors(init), _tensors(xs)
        axes = tuple(dim % x.ndim for x in columns)
        slices = [
            TensorSpec.of((*x.shape[:at], *x.shape[at + 1 :]), x.dtype, x.spec.place)
            for x, at in zip(columns, axes, strict=True)
        ]
        results: list[Argument] = []

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            before = _rebuilt(init, inputs[: len(state)])
            pair = fn(before, _rebuilt(xs, inputs[len(state) :]))
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentError(
                    "scan: the function did not return a pair",
                    given=describe(pair),
                    expected="(carry, y); y may be None",
                    mend="return carry, None where nothing is collected",
                )
            require_alike("scan: the carry", before, pair[0])
            results.append(pair[1])
            return [*_tensors(pair[0]), *_tensors(pair[1])]

        body = self._body(run, [*(x.spec for x in state), *slices])
        captured, ys = dict(body.captured), _tensors(results[0])
        places = tuple(dim % (y.ndim + 1) for y in ys)
        attrs: dict[str, object] = {"body": self._close(body, captured), "count": len(state)}
        attrs |= {"axes": axes, "places": places, "reverse": reverse}
        results_of_node = self._append(scanned, [*state, *columns], captured, attrs)
        return _rebuilt(init, results_of_node[: len(state)]), _rebuilt(results[0], results_of_node[len(state) :])

    def recurrent(
        self,
        how: Recurrence,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        states: Sequence[Tensor | None],
        lengths: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """One node of a recurrent layer."""
        attrs: dict[str, object] = {"kind": how.kind, "direction": how.direction, "after": how.after}
        attrs |= {"coupled": how.coupled, "activations": " ".join(how.activations)}
        return tuple(self._append(recurrence, [x, w, r, b, lengths, *states, *[None] * (2 - len(states))], {}, attrs))

    # -- nodes --------------------------------------------------------------------------------------------------------
    def _body(self, run: Callable[[Sequence[Tensor]], list[Tensor]], specs: Sequence[TensorSpec]) -> _Traced:
        """The graph of a function of tensors of these specs, and what it reads from outside."""
        session = _session()
        trace, leaf = session.trace, session.leaf
        slots = [trace.parameter() for _ in specs]
        with trace.apart() as nodes:
            outputs = run([Tensor(leaf, slot, spec) for slot, spec in zip(slots, specs, strict=True)])
            # a result that a leaf of data holds becomes a slot
            primitives = [x.primitive if x.backend is leaf else leaf.lift(x.primitive, x.backend) for x in outputs]
        own = {slot.index for slot in slots} | {i for node in nodes for i in node.outputs}
        captured: dict[int, Spec] = {}
        for node in nodes:
            for x, spec in zip(node.inputs, node.call.specs, strict=True):
                if isinstance(x, int) and x not in own and spec is not None:
                    captured.setdefault(x, spec)
        for y, primitive in zip(outputs, primitives, strict=True):
            if primitive.index not in own:
                captured.setdefault(primitive.index, y.spec)
        inputs = [(slot.index, spec) for slot, spec in zip(slots, specs, strict=True)]
        graph = Graph(inputs, nodes, [primitive.index for primitive in primitives])
        return _Traced(graph, tuple(captured.items()))

    def _close(self, body: _Traced, captured: dict[int, Spec]) -> str:
        """The body as the text of a graph of its own inputs and of all that is captured."""
        graph = body.graph
        whole = self.prepare(Graph([*graph.inputs, *captured.items()], graph.nodes, graph.outputs))
        return whole.to_json(origins=True)

    @staticmethod
    def _append(
        row: Op, inputs: Sequence[Tensor | None], captured: dict[int, Spec], attrs: dict[str, object]
    ) -> list[Tensor]:
        session = _session()
        call = row.bind((*(None if x is None else x.spec for x in inputs), *captured.values()), attrs)
        slots = [None if x is None else x.primitive for x in inputs]
        outside = [Slot(session.trace, i) for i in captured]
        outputs = session.leaf.execute(call, [*slots, *outside])
        return [Tensor(session.leaf, slot, spec) for slot, spec in zip(outputs, call.results, strict=True)]


def _session() -> Session:
    session = active()
    assert session is not None, "a roller takes values of a trace alone"
    return session


def _tensors(value: object) -> list[Tensor]:
    """The tensors of a container, in order."""
    tensors: list[Tensor] = []

    def note(x: object, path: str) -> object:
        if isinstance(x, Tensor):
            tensors.append(x)
        return x

    mapped(value, note, "value")
    return tensors


def _rebuilt(value: object, tensors: Sequence[Tensor]) -> Argument:
    """The container with other tensors."""
    rest = iter(tensors)
    return mapped(value, lambda x, path: next(rest) if isinstance(x, Tensor) else x, "value")
