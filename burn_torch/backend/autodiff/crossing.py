"""Moves between stacks: a value goes to another place or another backend, and its gradient comes back the same way.

    Autodiff(LibTorch)  ->  Autodiff(Fusion(LibTorch))      another backend under the tape
    Autodiff(NdArray)   ->  Autodiff(LibTorch)              by way of the host

Tapes meet level by level, the innermost first, so derivatives of derivatives cross as well.  One tape may then hold
nodes of several backends: each node's gradients are computed where its Call was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.autodiff.forward import Forward
from burn_torch.backend.autodiff.laid import levels, running
from burn_torch.backend.autodiff.tape import Node, Passage
from burn_torch.backend.base import Backend
from burn_torch.backend.decorator import leaf_primitive
from burn_torch.core.errors import AutodiffError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.value import Primitive

__all__ = ["crossed", "stack_for"]


def stack_for(source: object, target: object) -> object:
    """The stack on which a value of `source` lives once it has moved to a device of `target`.

    That is `target`, under the tapes that running transforms have laid over `source`: no device names these, so a
    function is differentiated through its moves too.
    """
    height = levels(source)
    if any(transform.own and levels(transform.tape) == height for transform in running()):
        for kind in _kinds_above(source, levels(target)):
            target = kind.above(target)
    return target


def crossed(source: Any, primitive: Primitive, spec: TensorSpec, target: Any, place: str) -> object:
    """A primitive of one stack as one of another, at `place`.

    If both have tapes, gradients flow through the move.  If one has fewer, its tapes are the inner ones: the value
    leaves the other's outer tapes, or is a constant on them.
    """
    above = levels(source) - levels(target)
    for _ in range(above):
        source, primitive = source.inner, source.unwrapped(primitive)
    for _ in range(-above):
        target = target.inner
    return _move_primitive(source, primitive, spec, target, place)


def _move_primitive(source: Any, primitive: Primitive, spec: TensorSpec, target: Any, place: str) -> object:
    if source is target and spec.place == place:
        return primitive
    if not isinstance(source, Autodiff):
        return _move_through_host(source, primitive, spec, target, place)
    inner = _move_primitive(source.inner, source.unwrapped(primitive), spec, target.inner, place)
    if not source.is_tracked(primitive):
        return inner
    crossing = Crossing(source, spec, target, place)
    if isinstance(source, Forward):
        if not isinstance(target, Forward):
            raise _no_tangents(target)
        tangent = source.tangent(primitive)
        moved = None if tangent is None else _move_primitive(source.inner, tangent, spec, target.inner, place)
        return target.carried(inner, crossing, moved, primitive.node.version)
    return target.tracked(inner, Node(crossing, ((primitive.node, primitive.index),), crossing.saved(), 0), 0)


def _kinds_above(stack: Any, height: int) -> list[type[Autodiff]]:
    """The kinds of the tapes of a stack above some height, the innermost first."""
    kinds = []
    while levels(stack) > height:
        kinds.append(type(stack))
        stack = stack.inner
    return kinds[::-1]


def _no_tangents(target: Backend) -> AutodiffError:
    return AutodiffError(
        "a value with a tangent was moved to a device with gradients, whose tape has no tangents",
        given=f"a move to {target.name} inside of a function that jvp differentiates",
        expected="a device without gradients, or one with as many as the arguments have",
        mend="move to device.no_grad(), or move the arguments before jvp",
    )


def _move_through_host(source: Any, primitive: Primitive, spec: TensorSpec, target: Any, place: str) -> object:
    leaf: Backend = source.leaf()
    other: Backend = target.leaf()
    if leaf is other:
        return _moved(leaf, leaf_primitive(source, primitive), spec, place)
    if other.session is not None and leaf.session is None:  # from outside into a trace: as all such tensors
        return _moved(other, other.lift(primitive, source), spec, place)
    return target.from_data(leaf.into_data(leaf_primitive(source, primitive)), place)


def _moved(leaf: Backend, primitive: Primitive, spec: TensorSpec, place: str) -> Any:
    """A leaf's primitive at another place of it."""
    if spec.place == place:
        return primitive
    return leaf.execute(REGISTRY["to_place"].bind([spec], {"place": place}), [primitive])[0]


@final
class Crossing(Passage):
    """The move of one tracked value from stack to stack."""

    __slots__ = ("_from", "_place", "_to")

    def __init__(self, source: Autodiff, spec: TensorSpec, target: Autodiff, place: str) -> None:
        super().__init__(REGISTRY["to_place"].bind([spec], {"place": place}), source.inner, target.origins)
        self._from: Final = spec.place
        self._to: Final = target.inner
        self._place: Final = place

    def saved(self) -> tuple[object, ...]:
        """The values that its node keeps: none but, over a trace, the line that it stands for."""
        return () if self.origins is None else (self.origins.last,)

    def _back(self, gradients: Sequence[Primitive], saved: Primitive) -> Sequence[Primitive]:
        if self.origins is not None:
            self.origins.walk(saved[-1])
        return (crossed(self._to, gradients[0], self.call.results[0], self.inner, self._from),)
