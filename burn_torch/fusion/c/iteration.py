"""What a kernel in C does for each x, in order; the kernel's text is written from this.

    steps    once for each x: loads and computations
    pass     a loop over r: the loads and computations of one element, and after them its stores
    ...      steps and passes in turn
    ends     once for each x, after all else: the stores of what there is one of

The steps up to a pass make one stretch with it, and what follows the last pass is the last stretch.  Nothing else holds
a store, so in each stretch all loads of an iteration precede its stores.  An output may therefore lie over an input
that each iteration reads at the element it writes, in the stretch of the store or before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from burn_torch.fusion.body.index import Index
from burn_torch.fusion.c.totals import Total

__all__ = ["Iteration", "Lanes", "Pass"]


@final
@dataclass(frozen=True)
class Lanes:
    """A line that runs for each of the columns side by side."""

    line: str


@final
@dataclass(frozen=True)
class Pass:
    """A loop over r: what each element loads and computes, what is gathered of it, and what it stores."""

    reads: list[str] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The body of the loop."""
        return [*self.reads, *self.stores]


@final
class Iteration:
    """The steps and passes of one x, with where each load and store stands among them."""

    def __init__(self) -> None:
        self.steps: Final[list[str | Lanes | Pass]] = []
        self.ends: Final[list[str | Lanes]] = []
        self._stretch = 0
        self._loads: Final[dict[int, set[tuple[int, Index | None]]]] = {}
        self._stores: Final[dict[int, tuple[int, Index]]] = {}

    def add(self, step: str | Lanes | Pass) -> None:
        """Appends a step, which stores nothing, or the pass that ends a stretch."""
        self.steps.append(step)
        self._stretch += isinstance(step, Pass)

    def note_load(self, i: int, at: Index | None) -> None:
        """Says that this stretch loads an element of an input; at: None where the input is not row-major."""
        self._loads.setdefault(i, set()).add((self._stretch, at))

    def store(self, output: int, at: Index, line: str | Lanes, within: Pass | None) -> None:
        """Stores an element of an output: at the end of the pass that is being written, or of all."""
        if within is None:
            self.ends.append(line)
        else:
            assert isinstance(line, str)
            within.stores.append(line)
        self._stores[output] = self._stretch, at

    def may_cover(self, output: int, i: int) -> bool:
        """Whether an output may lie over an input: each iteration reads what it writes, no later than it writes it."""
        stored = self._stores.get(output)
        if stored is None:
            return False
        stretch, at = stored
        return all(read_at == at and read_in <= stretch for read_in, read_at in self._loads[i])
