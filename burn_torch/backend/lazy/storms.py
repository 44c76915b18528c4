"""Storms: one program that is planned again and again, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from burn_torch.core.errors import explain
from burn_torch.fusion.rows.symbolic import Sites
from burn_torch.fusion.shapes.variants import Variants
from burn_torch.graph.ir import Graph

__all__ = ["MOST_PLANS", "Shapes"]

MOST_PLANS: Final = 8
"""Plans of one program, exact and symbolic ones; beyond, what fits none runs unplanned until it comes again."""


@final
class Shapes:
    """The shapes of one program.

    outside  which values from outside are its first inputs, once there is a plan of symbolic sizes
    told     whether a storm was told of
    """

    def __init__(self) -> None:
        self.variants: Final = Variants()
        self.outside: Sequence[int] | None = None
        self.told = False

    @property
    def plans(self) -> int:
        """How many were made so far."""
        return self.variants.exact + self.variants.planned

    @property
    def many(self) -> bool:
        """Asks whether it is planned too often."""
        return self.plans > MOST_PLANS

    def report(self, graph: Graph) -> str:
        """Reports what differs between the shapes, with the users' lines."""
        differing: list[str] = []
        for position, site in Sites(graph).at.items():
            values = sorted({sizes[position] for sizes in self.variants.seen})
            if len(values) > 1:
                shown = ", ".join(map(str, values[:6]))
                differing.append(f"{site}: {shown}{', ...' if len(values) > 6 else ''}")
        return explain(
            "the same operations are planned again and again for other shapes",
            given=f"{self.plans} plans, {self.variants.planned} of them of symbolic sizes; {'; '.join(differing[:4])}",
            expected="shapes that one plan of symbolic sizes fits: see the guards in device.explain()",
            mend="pad or bucket what varies, for example to the next power of two",
        )
