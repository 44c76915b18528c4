"""Regions: results that are parts of several tensors, as those of cat, pad and slice_assign.

    cat(a, b) of (4,) and (6,)      a at x where x < 4, else b at x - 4
    pad(a, 0) of (4,) to (6,)       a at x - 1 where x >= 1 and x < 5, else 0

A value is pulled in each region at the index that it has there, and chosen by where the element lies.  Outside of its
region that index is nothing to read at: what is read there is masked, and what is made of it is not chosen.  Programs
without an element in a region leave out its costly operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from burn_torch.fusion.body.index import Index, Part, constant, part_of
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.ops.laws import Regions
from burn_torch.ops.op import Call

__all__ = ["Region", "regions_at"]

_MOST: Final = 12
"""The largest number of regions that an index may be in: each element is pulled in all of them."""


@final
@dataclass(frozen=True)
class Region:
    """A source of an element: the input, and the index in it; `parts` say where the element is in the region."""

    input: int
    index: tuple[Index, ...]
    parts: tuple[Part, ...]

    @property
    def tests(self) -> list[str]:
        """Source that is true in the region."""
        return [test for part in self.parts for test in part.tests()]


def regions_at(call: Call, index: Sequence[Index]) -> list[Region]:
    """The regions that an index of the result may be in; the first that it is in counts, and it is in one of them.

    Raises: Unfusible for a Call without regions, and for many.
    """
    law = call.op.law(Regions)
    regions = None if law is None else law.of(call)
    if regions is None:
        raise Unfusible(Reason.UNSUPPORTED, f"no kernel is generated for this {call.op.name}")
    candidates: list[Region] = []
    for position, sizes in regions:
        places = [part_of(at, start, size) for at, (start, size) in zip(index, sizes, strict=True)]
        if any(place is None for place in places):
            continue
        parts = tuple(
            Part(at, start, size)
            for at, place, (start, size) in zip(index, places, sizes, strict=True)
            if place != at + start * -1
        )
        candidates.append(Region(position, tuple(constant(0) if place is None else place for place in places), parts))
        if not parts:
            break
    if len(candidates) > _MOST:
        raise Unfusible(Reason.LIMIT, f"{call.op.name} of {len(candidates)} parts")
    return candidates
