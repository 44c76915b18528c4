"""Autodiff: a decorator that records what is computed from tracked values, and walks it back.

`backward` changes no tensor: it returns gradients.  The inner backend computes everything, gradients too, so
`Autodiff(Autodiff(B))` differentiates twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from heapq import heappop, heappush
from typing import Any, NoReturn, Self

from burn_torch.backend.autodiff.tape import CONSUMED, Node, Shown, TapeEntry, Tracked
from burn_torch.backend.base import Backend
from burn_torch.backend.decorator import Decorator, detached
from burn_torch.core.errors import AutodiffError, DeviceError
from burn_torch.core.frames import unwatched
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.origin import Origins
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.value import Executor, Primitive

__all__ = ["Autodiff"]


class Autodiff(Decorator):
    """Adds gradients to a backend.  `Autodiff(inner, checkpoint)` with equal arguments is one object.

    checkpoint: "none" saves what gradients read; "balanced" computes the outputs of cheap rows again instead.
    trains: whether layers such as Dropout train here.  A transform of a function of plain values says no: it
    differentiates what the function computes without it.

    A primitive is the inner primitive itself where nothing is tracked, else a Tracked.
    """

    is_autodiff = True

    checkpoint: str
    trains: bool
    tracked: type[Tracked]
    origins: Origins | None
    """The record of the trace below, of what its nodes come from; None over anything that computes."""

    def __new__(cls, inner: Backend, checkpoint: str = "none", *, trains: bool = True) -> Self:
        """The stack of this composition: equal stacks are one object."""
        if checkpoint not in ("none", "balanced"):
            raise AutodiffError(
                "Autodiff: unknown checkpointing strategy",
                given=repr(checkpoint),
                expected='"none" or "balanced"',
                mend='Autodiff(inner, checkpoint="balanced") computes cheap values again in the backward',
            )
        return cls._intern(inner, checkpoint, trains)

    @classmethod
    def over(cls, inner: Executor, checkpoint: str = "none", *, trains: bool = True) -> Autodiff:
        """A tape over any executor, a Trace for instance; not interned, and nothing of it is kept on Calls."""
        stack = cls._make(inner, checkpoint, trains)
        stack._own = {}
        stack.lasting = False
        return stack

    @classmethod
    def above(cls, inner: Any) -> Self:
        """The tape that a transform lays over an executor: layers train on it if they train on `inner`."""
        return cls(inner, getattr(inner, "checkpoint", "none"), trains=inner.trains)

    def _begin(self, checkpoint: str, trains: bool) -> None:
        inner = self.inner
        self.checkpoint = checkpoint
        self.trains = trains
        options = ("" if checkpoint == "none" else f", {checkpoint!r}") + ("" if trains else ", trains=False")
        self.name = f"{type(self).__name__}({inner.name}{options})"
        self.tracked = type("Tracked", (Tracked,), {"__slots__": ()})
        self.origins = getattr(inner, "origins", None)
        self._inner_execute = inner.execute
        self._own = None if inner.lasting else {}

    _inner_execute: Callable[[Call, Sequence[Primitive]], Sequence[object]]
    _own: dict[tuple[Call, int], TapeEntry] | None

    # -- recording ----------------------------------------------------------------------
    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Primitive]:
        """Computes on the inner backend; records the Call if an input is tracked."""
        tracked = self.tracked
        needs = 0
        bit = 1
        for x in inputs:
            if x.__class__ is tracked:
                needs |= bit
            bit <<= 1
        if not needs:
            return self._inner_execute(call, inputs)
        return (call.memo.get((self, needs)) or self._entry(call, needs)).record(inputs)

    def _entry(self, call: Call, needs: int) -> TapeEntry:
        if self._own is not None and (call, needs) in self._own:
            return self._own[call, needs]
        mask = tuple(
            bool(needs >> i & 1) and isinstance(spec, TensorSpec) and spec.dtype.is_float
            for i, spec in enumerate(call.specs)
        )
        with nullcontext() if "::" in call.op.name else unwatched():  # the gradient rule of a user's row runs here
            entry = TapeEntry(call, mask, needs, self)
        if self._own is None:
            call.memo[self, needs] = entry
        else:
            self._own[call, needs] = entry
        return entry

    # -- walking back -----------------------------------------------------------------------
    def backward(
        self, roots: Sequence[tuple[object, object]], retain_graph: bool = False, since: int = 0
    ) -> dict[int, Primitive]:
        """Gradients of the leaves under tracked `roots`, each with the gradient it starts from: {leaf id: primitive}.

        Nodes run in the reverse of their creation, so sums are the same every time.  A node older than the creation
        number `since` is constant.  Consumes the tape unless `retain_graph`.
        Raises: AutodiffError through a consumed tape, or over a saved value written to since.
        """
        if self.origins is None:
            return self._walk(roots, retain_graph, since)
        with self.origins.scope(), unwatched():
            return self._walk(roots, retain_graph, since)

    def backward_to(self, roots: Sequence[tuple[object, object]], since: int) -> dict[tuple[int, int], Primitive]:
        """Gradients of the values older than `since` that roots were computed from: {(node id, output): primitive}."""
        older: dict[tuple[int, int], Primitive] = {}
        self._walk(roots, False, since, older)
        return older

    def _walk(
        self,
        roots: Sequence[tuple[Any, Any]],
        retain_graph: bool,
        since: int,
        older: dict[tuple[int, int], Primitive] | None = None,
    ) -> dict[int, Primitive]:
        pending: dict[int, list[Any]] = {}
        heap: list[int] = []
        execute = self._inner_execute
        for root, gradient in roots:
            if root.node.id >= since:
                _contribute(pending, heap, execute, root.node, root.index, gradient)
        leaves: dict[int, Primitive] = {}
        flat: list[tuple[Any, Node]] = []
        while heap:
            number = -heappop(heap)
            waiting = pending.pop(number)
            node: Node = waiting.pop()
            entry = node.entry
            if entry is None:  # a root that is a leaf itself
                before = leaves.get(number)
                leaves[number] = waiting[0] if before is None else _sum(execute, node.saved, before, waiting[0])
                continue
            saved = node.saved
            if not retain_graph:
                node.saved = CONSUMED
            if saved is CONSUMED:
                raise _consumed_error(entry.call)
            if entry.version(saved) != node.version:
                raise _written_to(entry.call)
            backward = entry.only or entry.backward(tuple([g is not None for g in waiting]))
            for (parent, index), gradient in zip(node.edges, backward(waiting, saved)):  # noqa: B905  # flat ones are behind
                if gradient is None or parent.id < since:
                    if gradient is not None and older is not None:
                        before = older.get((parent.id, index))
                        older[parent.id, index] = (
                            gradient if before is None else _add_gradients(entry, parent, index, before, gradient)
                        )
                    continue
                if parent.entry is None:  # a leaf waits for nothing
                    before = leaves.get(parent.id)
                    leaves[parent.id] = (
                        gradient if before is None else _add_gradients(entry, parent, index, before, gradient)
                    )
                    continue
                slots = pending.get(parent.id)
                if slots is None:
                    _contribute(pending, heap, execute, parent, index, gradient)
                elif slots[index] is None:
                    slots[index] = gradient
                else:
                    slots[index] = _add_gradients(entry, parent, index, slots[index], gradient)
            if entry.flat:
                flat += [(entry, parent) for parent, _ in node.edges[-len(entry.flat) :]]
            if not retain_graph:
                node.edges = ()
        _fill_zeros(leaves, flat, since)
        return leaves

    def track(self, primitive: object, spec: TensorSpec) -> Tracked:
        """A leaf of the tape: a value to which gradients are asked."""
        return self.tracked(primitive, Node(None, (), spec, 0), 0)

    def is_tracked(self, primitive: object) -> bool:
        """Asks whether gradients flow to or through this primitive."""
        return primitive.__class__ is self.tracked

    def is_leaf(self, primitive: object) -> bool:
        """Asks whether gradients were asked for this very primitive."""
        return primitive.__class__ is self.tracked and primitive.node.entry is None

    def unwrapped(self, primitive: Primitive) -> Any:
        """The value without its tape."""
        return primitive.primitive if primitive.__class__ is self.tracked else primitive

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Primitive]]:
        """Calls of `execute` for each node; over a trace, where code is run once, they are interpreted."""
        if self._own is None:
            return super().compile(graph, donate)
        return lambda *inputs: interpret(graph, self, inputs)

    def detached(self, primitive: Primitive) -> Primitive:
        """The value without this tape and those beneath."""
        return detached(self.inner, self.unwrapped(primitive))

    def _refuse(self, source: Executor) -> NoReturn:
        if isinstance(source, Autodiff) and source.inner is self.inner and source.trains != self.trains:
            raise _another_mode(self, source) from None
        super()._refuse(source)


def _spec_of(node: Node, index: int) -> TensorSpec:
    # a leaf saves nothing, so its spec has that place
    return node.saved if node.entry is None else node.entry.call.results[index]


def _contribute(
    pending: dict[int, list[object]], heap: list[int], execute: object, node: Node, index: int, gradient: object
) -> None:
    slots = pending.get(node.id)
    if slots is None:
        width = 1 if node.entry is None else len(node.entry.call.results)
        slots = [None] * width
        slots.append(node)
        pending[node.id] = slots
        heappush(heap, -node.id)
    slots[index] = gradient if slots[index] is None else _sum(execute, _spec_of(node, index), slots[index], gradient)


def _fill_zeros(leaves: dict[int, Primitive], flat: list[tuple[Any, Node]], since: int) -> None:
    """Zeros for the leaves that are reached through flat inputs alone; `flat` holds (what read a node, the node)."""
    seen: set[int] = set()
    while flat:
        child, node = flat.pop()
        if node.id < since or node.id in seen:
            continue
        seen.add(node.id)
        if node.entry is not None:
            flat += [(node.entry, parent) for parent, _ in node.edges]
        elif node.id not in leaves:
            spec = node.saved
            call = REGISTRY["full"].bind(
                [FLOAT_NUMBER], {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place}
            )
            leaves[node.id] = child.inner.execute(call, (0.0,))[0]


def _add_gradients(child: Any, node: Node, index: int, a: Primitive, b: Primitive) -> object:
    """The sum of two gradients of one output, on the backend where `child` read it: a tape may hold several."""
    return _sum(child.inner.execute, _spec_of(node, index), a, b)


def _sum(execute: Any, spec: TensorSpec, a: Primitive, b: Primitive) -> object:
    add = REGISTRY["add"]  # a row that the tape knows: a gradient is the sum of its contributions
    key = (spec, spec)
    call = add.calls.get(key) or add.remember(key, add.bind(key, {}))
    return execute(call, (a, b))[0]


def _another_mode(tape: Autodiff, source: Autodiff) -> DeviceError:
    return DeviceError(
        "a transform of a function on a plain device met a value of a device with gradients",
        given=f"values of {tape.name} and {source.name}",
        expected="arguments on the device of what the function reads, so that it is known whether layers train",
        mend="pass the model as an argument, close over model.valid(), or move the arguments first:"
        " x.to_device(device.autodiff())",
    )


def _consumed_error(call: Call | Shown) -> AutodiffError:
    return AutodiffError(
        "backward went through a part of the tape that an earlier backward has used up",
        given=f"a second backward through {call.op.name} {call.results}",
        expected="one backward for each forward",
        mend="compute the forward again, or keep the tape with loss.backward(retain_graph=True) in the first one",
    )


def _written_to(call: Call | Shown) -> AutodiffError:
    return AutodiffError(
        "a value that the backward needs was written to after it was used",
        given=f"an input or output of {call.op.name} {call.results}, shared with torch and changed in place since",
        expected="values that stay as they were until the backward has run",
        mend="write to a copy: Tensor.from_torch(tensor.clone()), or tensor.into_torch().clone()",
    )
