"""Cuts: places where a tape takes a gradient, or a value computed from one, for a constant.

A gradient that lies under its tape no longer knows what it was computed from.  If it enters a computation that is
recorded, a `Cut` stands there on the tape: it hands gradients on as they are, and writes down that a backward passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.autodiff.forward import Forward
from burn_torch.backend.autodiff.tape import Node, Passage, Shown
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.value import Primitive

__all__ = ["Cut", "behind_cut", "passing", "walk_back"]


class _Passed(threading.local):
    def __init__(self) -> None:
        self.cuts: list[Cut] = []
        """Those of the innermost walk back that runs."""


_passed: Final = _Passed()


def walk_back(
    tape: Autodiff, roots: Sequence[tuple[object, object]], retain_graph: bool = False, since: int = 0
) -> tuple[dict[int, object], list[Cut]]:
    """Returns the gradients of `tape.backward`, and the cuts that it passed."""
    with passing() as cuts:
        return tape.backward(roots, retain_graph, since), cuts


@contextmanager
def passing() -> Iterator[list[Cut]]:
    """A block that gives the cuts which derivatives pass in it."""
    around = _passed.cuts
    cuts = _passed.cuts = []
    try:
        yield cuts
    finally:
        _passed.cuts = around


@final
class Cut(Passage):
    """A result of which some input is constant though it depends on leaves.

    line     where the constant entered
    depends  whether what it was computed from can be the leaf with a creation number
    """

    __slots__ = ("depends", "line")

    def __init__(
        self, stack: Autodiff, behind: Node, spec: TensorSpec, line: str, depends: Callable[[int], bool]
    ) -> None:
        before = behind.entry
        shown = Shown(REGISTRY["to_place"] if before is None else before.call.op, (spec,))
        super().__init__(shown, stack.inner, stack.origins)
        self.line: Final = line
        self.depends: Final = depends

    def _back(self, gradients: Sequence[Primitive], saved: Primitive) -> Sequence[Primitive]:
        _passed.cuts.append(self)
        return (gradients[0],)


def behind_cut(
    stack: object, primitive: Primitive, spec: TensorSpec, line: str, depends: Callable[[int], bool]
) -> object:
    """A primitive behind a cut on each of its tapes on which it is tracked; itself where it is on none."""
    if not isinstance(stack, Autodiff):
        return primitive
    inner = behind_cut(stack.inner, stack.unwrapped(primitive), spec, line, depends)
    if not stack.is_tracked(primitive):
        return inner
    cut = Cut(stack, primitive.node, spec, line, depends)
    if isinstance(stack, Forward):  # which carries the tangent past the cut now
        _passed.cuts.append(cut)
        return stack.carried(inner, cut, stack.tangent(primitive), primitive.node.version)
    return stack.tracked(inner, Node(cut, ((primitive.node, primitive.index),), (), 0), 0)
