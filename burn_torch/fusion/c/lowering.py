"""From a body, a Graph whose operations become one kernel, to C source for a CPU: which loops, and whether it pays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import Domain, Lowered, Text, domain_of
from burn_torch.fusion.body.needs import Terms
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.c.dialect import C
from burn_torch.fusion.c.lanes import LaneNeeds, Loops
from burn_torch.graph.ir import Graph
from burn_torch.ops.laws import Moves
from burn_torch.symbolic.sizes import size_hint

__all__ = ["CKernel", "lower_to_c", "lowered_for_cpu"]

FEW: Final = 4
MANY: Final = 1 << 17
"""Operations, and elements of the largest tensor, from which on a kernel pays."""

_FEW_LANES: Final = 16
"""Lanes that are no vector."""


@final
@dataclass(frozen=True)
class CKernel(Lowered):
    """A body as a C function: pointers to inputs and outputs, numbers, and how many threads it may use.

    over     (output, position of the body's input): the first may be written over the second
    work     operations on elements, which say whether threads are worth their start
    """

    domain: Domain
    over: tuple[tuple[int, int], ...]
    work: Any


def lower_to_c(body: Graph, **terms: Unpack[Terms]) -> CKernel:
    """The kernel of a body; of all ways to cut its loops, the one whose lanes lie side by side most often.

    strict    rounds after each operation, as unfused execution does
    layouts   strides of the body's inputs in elements, None for row-major ones; symbolic ones where sizes are

    Raises: Unfusible, with the reason.
    """
    domain = domain_of(body)
    best: LaneNeeds | None = None
    reason: Unfusible | None = None
    for loops in _ways(domain):
        try:
            needs = LaneNeeds(body, domain, C, loops, **terms).decide()
        except Unfusible as fault:
            reason = fault
            continue
        if best is None or needs.cost < best.cost:
            best = needs
        if needs.is_side_by_side and size_hint(loops.inner) >= _FEW_LANES:
            break
    if best is None:
        assert reason is not None
        raise reason
    chosen, work = best, domain.rows * domain.length * max(len(body.nodes), 1)
    return CKernel(Text(lambda: C(chosen).text()), best.inputs, best.results, domain, best.over(), work)


def lowered_for_cpu(body: Graph, *, strict: bool) -> CKernel | None:
    """The kernel of a body for contiguous inputs; None where its operations do better one by one."""
    if not _pays(body):
        return None
    try:
        return lower_to_c(body, strict=strict)
    except Unfusible:
        return None


def _pays(body: Graph) -> bool:
    """Measured (benchmarks/notes/fusion_cpu.md): a call costs about as much as two of torch's operations."""
    work = sum(node.call.op.law(Moves) is None for node in body.nodes)
    elements = max((size_hint(spec.numel) for spec in body.specs().values() if isinstance(spec, TensorSpec)), default=0)
    return work >= FEW or (work > 1 and elements >= MANY)


def _ways(domain: Domain) -> Iterator[Loops]:
    """Ways to cut the loops, the longest stretches of lanes first."""
    for inner in _stretches(domain.shape if domain.reduced is None else domain.reduced):
        yield Loops(inner)
    if domain.reduced is not None and not domain.parts:
        for inner in _stretches(domain.kept):
            yield Loops(inner, columns=True)


def _stretches(shape: Sequence[int]) -> list[int]:
    """The numbers of elements of the last axes together: all of them, all but the first, ..."""
    sizes = [math.prod(shape[axis:]) for axis in range(len(shape))]
    return list(dict.fromkeys(sizes)) or [1]
