"""Needs of a body where programs compute tiles, as on a GPU.

A reduction is one step where its row fits a program; else the loop over `r` runs in steps of a tile, and once more for
each reduction that needs the result of another.  Element-wise work has two loops instead of one where memory wants it:

    x + bias[c] over (256, 64, 3136)    rows of 3136: what hangs on the channel alone is read and computed once a row
    x.transpose(0, 1) + y               tiles: neighbours of y lie along their rows, those of x along their columns
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Self, Unpack

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body import steps
from burn_torch.fusion.body.index import Index, Var, in_fours, index_of
from burn_torch.fusion.body.loops import Domain, domain_of, tensor
from burn_torch.fusion.body.needs import Key, Needs, Output, Terms
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.body.regions import Region
from burn_torch.fusion.body.steps import Place, Value, Words
from burn_torch.graph.ir import Graph
from burn_torch.symbolic.sizes import Size, known_below, known_multiple, same_size

if TYPE_CHECKING:
    from burn_torch.fusion.body.dialect import Dialect

__all__ = ["FOURTH", "ONE_EACH", "TileNeeds", "decide_tiles"]

ONE_EACH: Final = 1024
"""Elements of a tile of which each thread has its own."""

LONGEST_COLUMN: Final = 512
"""Elements of each column that a program holds, which holds 32 of them side by side: less is not 64 bytes of a row."""

SHORT_COLUMN: Final = 64
"""Elements of columns that are held though one pass over them would do: they are a step anyway."""

FOURTH: Final = "(FOURTH)"
"""The variable of a loop over every fourth place of r."""


class TileNeeds(Needs):
    """The steps of a kernel of tiles.

    over      results may lie over inputs: all is read before anything is written
    loads     how many elements of inputs it loads for one of a result
    streamed  bytes for each step of both loops, of all that is read
    """

    def __init__(
        self, body: Graph, domain: Domain, dialect: type[Dialect], *, over: bool = False, **terms: Unpack[Terms]
    ) -> None:
        super().__init__(body, domain, dialect, **terms)
        self._waiting: Final[list[steps.Store] | None] = [] if over else None
        """Stores that wait until all is read."""
        self._waiting_in_pass: list[steps.Store] = []
        self._read_at: Final[dict[int, set[Index | None]]] = {}
        self._written_at: Final[dict[int, Index]] = {}
        self._in_full: Final[set[int]] = set()
        """Outputs that have an element for each step of both loops."""
        self.flat: Final[set[Index]] = set()
        """Indexes of all that is read or written."""
        self.along_x = 0
        self.along_r = 0
        """Bytes of an element of all that lies side by side along a loop, of what is read or written in both."""
        self.loads = 0
        self.streamed = 0

    def decide(self) -> Self:
        """Itself, with all steps.  Raises: Unfusible, with the reason."""
        outputs: list[Output] = self.outputs()
        if self.whole_rows or not self.reduces:
            for output in outputs:
                self.write(output)
        else:
            self.run_passes(outputs)
        if self._waiting:
            if self.columns is not None:
                self.steps.append(steps.Barrier(Place.EACH, small=True))
            elif self.reduces or not known_below(ONE_EACH - 1, self.domain.rows):
                self.steps.append(steps.Barrier(Place.EACH, small=False))
            self.steps.extend(self._waiting)
        return self

    def place_of(self, x: bool, r: bool) -> Place:
        """Returns the place of a step that varies with these loops."""
        if self.columns is not None and not x:
            return Place.HEAD
        return Place.LOOP if self.in_pass and r else Place.EACH

    # -- accesses ----------------------------------------------------------------------------------------
    def _count_access(self, flat: Index, spec: TensorSpec) -> bool:
        """Adds to what lies side by side along a loop; whether an element is there for each step of both."""
        self.flat.add(flat)
        if not all(self.varies(flat)):
            return False
        self.along_x += spec.dtype.itemsize if same_size(flat.stride(self.x_var), 1) else 0
        self.along_r += spec.dtype.itemsize if same_size(flat.stride(self.r_var), 1) else 0
        return True

    def note_load(self, i: int, flat: Index, *, row_major: bool) -> None:
        """Notes that an element of an input is loaded."""
        spec = tensor(self.specs[i])
        self.loads += 1
        self._read_at.setdefault(i, set()).add(flat if row_major else None)
        self.streamed += spec.dtype.itemsize if self._count_access(flat, spec) else 0

    def store(self, number: int, value: Value, at: Index, full: bool) -> None:
        """Writes an element of an output; in a step of a loop, and where it may lie over an input, after all loads.

        In a step tiles with an element for each thread need no barrier: nothing of later steps would be on its way.
        """
        self._written_at[number] = at
        self._count_access(at, self.results[number])
        self._in_full.update([number] * full)
        in_pass = self.in_pass and full
        step = steps.Store(number, value, at, Place.LOOP if in_pass else Place.EACH, full)
        if self._waiting is None:
            self.steps.append(step)
        else:
            (self._waiting_in_pass if in_pass else self._waiting).append(step)

    def end_pass(self) -> None:
        """Ends a pass, after the stores that waited."""
        if self._waiting_in_pass:
            self.steps += [steps.Barrier(Place.LOOP, small=True), *self._waiting_in_pass]
            self._waiting_in_pass = []
        super().end_pass()

    def over(self) -> tuple[tuple[int, int], ...]:
        """Pairs of outputs and inputs that they may overwrite: each element is read where it is written, nowhere else.

        Not where a row is read in steps more than once; in a loop, not what each step has one of: nothing there waits
        for all threads.
        """
        if self.reduces and not self.whole_rows and self.phases > 1:
            return ()
        return tuple(
            (number, self.position[i])
            for number, at in self._written_at.items()
            for i in self.read
            if self._read_at[i] == {at} and self.specs[i] is self.specs[self.made[number]]
            if self.columns is None or number in self._in_full
        )

    # -- values ------------------------------------------------------------------------------------------
    def value_in(self, region: Region, key: Key) -> Value:
        """A value that is wanted in a region: where it costs much, programs that lie outside leave it out."""
        if self.reduces or not region.parts or key in self.known:
            return self.value(*key)
        begin, before = len(self.steps), set(self.known)
        value = self.value(*key)
        inner = self.steps[begin:]
        if not value.x or not any(map(self.is_costly, inner)):
            return value
        for other in set(self.known) - before:
            del self.known[other]
        chosen = Value(value.dtype, True, False)
        self.steps[begin:] = [steps.Only(chosen, Place.EACH, region, inner, value)]
        return chosen

    def words_of(self, flat: Index) -> tuple[Words, Index]:
        """How the words of a random tile are drawn: neighbours share a cipher where they can."""
        if not self.reduces and flat == self.x and self.domain.rows >= 4:
            return Words.BLOCK, flat
        rest = flat + self.r * -1
        along = self.reduces and self.r_var not in rest.variables()
        fours = along and all(known_multiple(count, 4) for count in (*rest.terms.values(), rest.constant))
        if fours and self.domain.length >= 4:
            return Words.ROW, rest
        if self.reduces and self.columns is None and self.domain.length >= 4 and in_fours(flat, self.r_var):
            return Words.FOURS, flat.replaced({self.r_var: index_of(Var(FOURTH, self.r_var.size))})
        return Words.EACH, flat

    # -- better loops ------------------------------------------------------------------------------------
    @property
    def rows_together(self) -> bool:
        """Tells if neighbours in memory lie along `x`, though `r` is there too: columns are reduced."""
        return self.reduces and self.along_x > self.along_r

    @property
    def steps_are_better(self) -> bool:
        """Tells if columns are reduced that are too long to be held, by many at a time, without need."""
        if not (self.rows_together and self.whole_rows) or self.columns is not None:
            return False
        if self.phases == 1:
            return not known_below(self.domain.length, SHORT_COLUMN + 1)
        return bool(self.domain.length > LONGEST_COLUMN)


def decide_tiles(body: Graph, dialect: type[Dialect], *, over: bool = False, **terms: Unpack[Terms]) -> TileNeeds:
    """The steps of the kernel of a body, in the loops that suit it.  Raises: Unfusible, with the reason."""

    def decided(domain: Domain, *, in_steps: bool = False) -> TileNeeds:
        chosen: Terms = {**terms, "in_steps": in_steps}
        return TileNeeds(body, domain, dialect, over=over, **chosen).decide()

    needs = decided(domain_of(body))
    if needs.steps_are_better:
        return decided(needs.domain, in_steps=True)
    turned = _tiles_of_turned(needs.domain, needs.x_var, needs.flat)
    domain = turned or _rows_of(needs.domain, needs.x_var, needs.flat)
    if domain is None:
        return needs
    try:
        return decided(domain, in_steps=turned is not None)
    except Unfusible:
        return needs


# -- two loops in place of one ------------------------------------------------------------------------------
_SHORTEST_ROW: Final = 256
_LONGEST_HELD: Final = 4096
"""Elements of a row that a program holds without a loop."""

_SHORTEST_SIDE: Final = 32

_FEWEST_PROGRAMS: Final = 128
"""Programs: about one for each multiprocessor of a large device."""

_ALIGNED: Final = 8
"""Rows begin where 16 bytes of a half type do, else a row would be read element by element."""


def _rows_of(domain: Domain, x: Var, read: Collection[Index]) -> Domain | None:
    """The rows within which some of what is read stays the same; None where one loop is as good."""
    if domain.reduced is not None or any(isinstance(size, Size) for size in domain.shape):
        return None
    lengths = {run for index in read if x in index.variables() and (run := index.constant_run(x))}
    if not lengths:
        return None
    length = min(lengths)
    if not _SHORTEST_ROW <= length <= _LONGEST_HELD or length % _ALIGNED or domain.rows < 4 * _FEWEST_PROGRAMS * length:
        return None
    return _with_last(domain, length)


def _tiles_of_turned(domain: Domain, x: Var, read: Collection[Index]) -> Domain | None:
    """Tiles over the last two axes, along the first of which some of what is read lies side by side; None without."""
    shape = domain.shape
    if domain.reduced is not None or any(isinstance(size, Size) for size in shape) or len(shape) < 2:
        return None
    turned = [index for index in read if index.stride(x) not in (0, 1)]
    if min(shape[-2:]) < _SHORTEST_SIDE or not turned:
        return None
    first = len(shape) == 2 and shape[0] < shape[1]
    other_domain = Domain(shape[1:], shape[:1], shape, (0,)) if first else _with_last(domain, shape[-1])
    if other_domain is None or other_domain.rows < _FEWEST_PROGRAMS * _SHORTEST_SIDE:
        return None
    along, other = Var("x", other_domain.rows), Var("r", other_domain.length)
    flat = (
        index_of(other) * other_domain.rows + index_of(along)
        if first
        else index_of(along) * other_domain.length + index_of(other)
    )
    other, along = (along, other) if first else (other, along)
    return other_domain if any(index.replaced({x: flat}).stride(along) == 1 for index in turned) else None


def _with_last(domain: Domain, length: int) -> Domain | None:
    """The loops over rows of the last axes, `length` elements each."""
    shape = domain.shape
    for axis in range(1, len(shape)):
        if math.prod(shape[axis:]) == length:
            return Domain(shape[:axis], shape[axis:], shape, tuple(range(axis, len(shape))))
    return None
