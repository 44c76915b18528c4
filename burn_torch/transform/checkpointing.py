"""checkpoint: a function whose inner values are computed again in the backward, and not kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, final

from burn_torch.backend import Autodiff
from burn_torch.backend.autodiff.forward import find_reverse_tapes
from burn_torch.backend.autodiff.laid import resumed, running
from burn_torch.backend.autodiff.tape import FunctionEntry, Node, next_id
from burn_torch.backend.samples import running_samples
from burn_torch.core.checking import checked
from burn_torch.module.scope import current_scope
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import mapped
from burn_torch.transform.differentiation import named
from burn_torch.transform.draws import DrawPlayer, DrawRecorder
from burn_torch.transform.structure import Argument, Function

__all__ = ["checkpoint"]


@checked
def checkpoint(fn: Function) -> Function:
    """A function that computes what `fn` computes, and keeps of it for the backward only its arguments.

        y = checkpoint(block.forward)(x)

    The backward calls `fn` again, with the same arguments, the same random draws and without updates of running states,
    so gradients have the bits that they have without it, but for the order of the sum where a value is read inside and
    elsewhere too.  What `fn` closes over is differentiated as well; it must not change before the backward.
    Time: one more forward of fn.  Memory: the inner values of one checkpoint at a time.

    Inside `compile` equal computations are one, so there a program keeps what it keeps without it; forward mode keeps
    nothing anyway.  `Device.autodiff(checkpoint="balanced")` computes single cheap operations again.
    PyTorch: torch.utils.checkpoint.checkpoint.  JAX: jax.checkpoint.
    """

    @functools.wraps(fn)
    def checkpointed(*args: object, **kwargs: object) -> Argument:
        begun = next_id()
        with DrawRecorder() as recorder:
            result = fn(*args, **kwargs)
        again = _Again(fn, args, kwargs, recorder.draws)
        outputs = _tensors(result)
        calls = [_Call(named("checkpoint", fn), tape, again, outputs, begun) for tape in _tapes(outputs)]
        new = iter(
            [Tensor(y.backend, _behind(calls, y.backend, y.primitive, k), y.spec) for k, y in enumerate(outputs)]
        )
        return mapped(result, lambda y, path: next(new) if isinstance(y, Tensor) else y, "the result")

    return checkpointed


def _tensors(result: Argument) -> list[Tensor]:
    tensors: list[Tensor] = []

    def note(y: Argument, path: str) -> object:
        if isinstance(y, Tensor):
            tensors.append(y)
        return y

    mapped(result, note, "the result")
    return tensors


def _levels(y: Tensor) -> Sequence[tuple[Argument, Primitive]]:
    """The stacks under a tensor, with its primitive on each; samples are looked into."""
    stack: Argument = y.backend
    primitive = y.primitive
    levels = []
    while stack is not None and (stack.is_autodiff or stack.is_batched):
        levels.append((stack, primitive))
        is_many = stack.is_batched and stack.is_many(primitive)
        primitive = primitive.primitive if is_many else stack.unwrapped(primitive)
        stack = stack.inner
    return levels


def _tapes(outputs: Sequence[Tensor]) -> list[Autodiff]:
    tapes = {stack: None for y in outputs for stack, _ in _levels(y)}
    return find_reverse_tapes(tapes)


def _behind(calls: Sequence[_Call], stack: Argument, primitive: Primitive, k: int) -> Primitive:
    """A primitive of output `k` whose nodes are those of the calls, on each tape."""
    if stack is None or not (stack.is_autodiff or stack.is_batched):
        return primitive
    if stack.is_batched:
        if stack.is_many(primitive):
            return stack.wrap(_behind(calls, stack.inner, primitive.primitive, k))
        return _behind(calls, stack.inner, primitive, k)
    inner = _behind(calls, stack.inner, stack.unwrapped(primitive), k)
    if not stack.is_tracked(primitive):
        return inner
    place = next((call.places[k] for call in calls if call.inner is stack.inner and k in call.places), None)
    node, index = (primitive.node, primitive.index) if place is None else place
    return stack.tracked(inner, node, index)


# -- once more -------------------------------------------------------------------------------------------------
@final
class _Again:
    """A call that can be made again: under the transforms that ran, with its draws."""

    def __init__(
        self, fn: Function, args: Sequence[Argument], kwargs: dict[str, object], draws: Sequence[tuple[Argument, int]]
    ) -> None:
        self._call: Final = functools.partial(fn, *args, **kwargs)
        self._draws: Final = draws
        around = current_scope()
        self._share: Final = None if around is None else around.share
        self._transforms: Final = tuple(running())
        self._samples: Final = [stack.resuming() for stack in running_samples()]  # type: ignore[attr-defined]  # Batched

    def __call__(self) -> list[Tensor]:
        """Calls the function again and returns the tensors of its result."""
        with ExitStack() as stack:
            for samples in self._samples:
                stack.enter_context(samples())
            stack.enter_context(resumed(self._transforms))
            stack.enter_context(DrawPlayer(self._draws, self._share))
            return _tensors(self._call())


@final
class _Call(FunctionEntry):
    """The part of a checkpoint that stands on one tape."""

    __slots__ = ("_again", "_edges", "_outputs", "_tape", "places")

    def __init__(self, what: str, tape: Autodiff, again: _Again, outputs: Sequence[Tensor], begun: int) -> None:
        """Finds the outputs that were computed on the tape since `begun`, and what they were computed from."""
        self._tape: Final = tape
        self._again: Final = again
        roots = {k: p.node for k, y in enumerate(outputs) if (p := self._on_tape(y)) is not None}
        roots = {k: node for k, node in roots.items() if node.id >= begun and node.entry is not None}
        self._outputs: Final = list(roots)
        edges: dict[tuple[int, int], tuple[Node, int]] = {}
        waiting, seen = list(roots.values()), {node.id for node in roots.values()}
        while waiting:
            for parent, index in waiting.pop().edges:
                if parent.id < begun:
                    edges[parent.id, index] = (parent, index)
                elif parent.id not in seen:
                    seen.add(parent.id)
                    waiting.append(parent)
        self._edges: Final = tuple(edges[key] for key in sorted(edges))
        specs = []
        for k in roots:
            call: Argument = roots[k].entry
            specs.append(call.call.results[self._on_tape(outputs[k]).index])
        super().__init__(what, specs, tape.inner)
        node = Node(self, self._edges, (), 0)
        self.places: Final = {k: (node, index) for index, k in enumerate(roots)}
        """Holds, for each output that was computed on the tape, its node and index."""

    def _on_tape(self, y: Tensor) -> Argument:
        tape = self._tape
        return next((p for stack, p in _levels(y) if stack is tape and tape.is_tracked(p)), None)

    def version(self, saved: object) -> int:
        """Nothing is kept that could be written to."""
        return 0

    def backward(self, present: tuple[bool, ...]) -> Function:
        """A function (gradients of the outputs, nothing) -> the gradients of what they were computed from."""

        def back(gradients: Sequence[object], saved: object) -> Sequence[object]:
            since = next_id()
            outputs = self._again()
            roots = [
                (self._on_tape(outputs[k]), g) for k, g in zip(self._outputs, gradients, strict=True) if g is not None
            ]
            older = self._tape.backward_to(roots, since)
            return [older.get((node.id, index)) for node, index in self._edges]

        return back
