"""Needs of a body where loops run over lanes of vectors, as on a CPU.

A CPU works best on neighbours in memory, so each loop is cut in two, and the innermost one, whose iterations are the
lanes, runs over the longest stretch of axes along which every tensor has its elements side by side:

    element-wise   for x (in parallel): for ri in lanes: ...
    rows           for x (in parallel): for each reduction in turn: for ro: for ri in lanes: ...
    columns        for xo, parts of xi (in parallel): for each reduction in turn: for r: for xi in lanes: ...

Values that one pass over a row makes and a later one needs lie in a buffer of a row's length.

The steps up to a pass make one stretch with it, and what follows the last pass is the last stretch.  Stores stand at
the end of a pass, or of all, so in each stretch all loads of an iteration precede its stores.  An output may therefore
lie over an input that each iteration reads at the element it writes, in the stretch of the store or before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, final

from burn_torch.fusion.body import steps
from burn_torch.fusion.body.index import Index, Var, constant, index_of
from burn_torch.fusion.body.loops import Domain
from burn_torch.fusion.body.needs import Key, Needs, Terms
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.regions import Region
from burn_torch.fusion.body.steps import Place, Step, Value, Words
from burn_torch.graph.ir import Graph
from burn_torch.symbolic.sizes import exact_quotient, known_multiple, same_size, size_hint

if TYPE_CHECKING:
    from burn_torch.fusion.body.dialect import Dialect

__all__ = ["LaneNeeds", "Loops", "stretches_in"]

_LONGEST_BUFFER: Final = 16384
_LARGEST_BUFFERS: Final = 1 << 18
"""Bytes, on the stack of a thread."""


@final
@dataclass(frozen=True)
class Loops:
    """How the loops are cut: `inner` elements of `r` (or of `x`, where columns are reduced) are lanes."""

    inner: int
    columns: bool = False


def stretches_in(count: Any, inner: Any) -> Any:
    """How many stretches of `inner` elements a loop is; it is a whole number of them."""
    quotient = 1 if same_size(count, inner) else exact_quotient(count, inner)
    return count // inner if quotient is None else quotient


@final
class LaneNeeds(Needs):
    """The steps of a kernel of lanes, for one way to cut the loops."""

    def __init__(
        self, body: Graph, domain: Domain, dialect: type[Dialect], loops: Loops, **terms: Unpack[Terms]
    ) -> None:
        super().__init__(body, domain, dialect, **terms)
        self.by_columns: Final = loops.columns
        self.inner: Final = loops.inner
        self.lane: Final = Var("xi" if loops.columns else "ri", loops.inner)
        lane = index_of(self.lane)
        if domain.reduced is None:
            self.x = index_of(Var("x", stretches_in(domain.rows, loops.inner))) * loops.inner + lane
            self.r = constant(0)
        elif loops.columns:
            self.x = index_of(Var("xo", stretches_in(domain.rows, loops.inner))) * loops.inner + lane
            self.r = index_of(Var("r", domain.length))
        else:
            self.x = index_of(Var("x", domain.rows))
            self.r = index_of(Var("ro", stretches_in(domain.length, loops.inner))) * loops.inner + lane
        self._beside = 0
        self._apart = 0
        """Accesses of the innermost loop whose lanes lie side by side, and others."""
        self._stretch = 0
        self._loads: Final[dict[int, set[tuple[int, Index | None]]]] = {}
        self._stores: Final[dict[int, tuple[int, Index]]] = {}
        """In which stretch an input is loaded, and an output is stored, and at which index."""
        self._before: Final[dict[Key, tuple[Value, int]]] = {}
        """Values that earlier passes over a row computed, and the number of the pass."""
        self._buffers: Final[dict[Key, Value]] = {}
        self._buffer_bytes = 0

    def decide(self) -> Self:
        """Itself, with all steps.  Raises: Unfusible, with the reason."""
        outputs = self.outputs()
        if self.reduces:
            self.run_passes(outputs)
        else:
            self.begin_pass()
            for output in outputs:
                self.write(output._replace(full=True))
            self.end_pass()
        return self

    @property
    def is_side_by_side(self) -> bool:
        """Tells if the lanes of all accesses lie side by side."""
        return not self._apart

    @property
    def cost(self) -> float:
        """The cost of the accesses of the innermost loop; a short one costs more."""
        return (self._apart * 8 + self._beside) * (1.0 + 16.0 / size_hint(self.inner))

    def place_of(self, x: bool, r: bool) -> Place:
        """Returns the place of a step that varies with these loops."""
        return Place.LOOP if r else Place.EACH

    def varies(self, flat: Index) -> tuple[bool, bool]:
        """Tells if an index depends on x and on r; of element-wise work the lanes are both."""
        letters = {variable.name[0] for variable in flat.variables()}
        return "x" in letters or (not self.reduces and "r" in letters), "r" in letters

    # -- passes ------------------------------------------------------------------------------------------
    def end_pass(self) -> None:
        """Ends a pass, whose values later ones may take from buffers."""
        for key, value in self.known_in_pass.items():
            self._before.setdefault(key, (value, self._stretch))
        self._stretch += 1
        super().end_pass()

    def value(self, i: int, index: tuple[Index, ...]) -> Value:
        """A value at an index, computed where it is not known yet, and in no buffer."""
        key = (i, index)
        if self.in_pass and key not in self.known and key not in self.known_in_pass:
            value = self._recall(key)
            if value is not None:
                self.known_in_pass[key] = value
                return value
        return super().value(i, index)

    def _recall(self, key: Key) -> Value | None:
        """A value that an earlier pass over the row made, from a buffer; None where there is none."""
        before, length = self._before.get(key), self.domain.length
        if before is None or key[0] in self.position or self.by_columns or length > _LONGEST_BUFFER:
            return None
        value, in_pass = before
        if key not in self._buffers:
            size = length * value.dtype.itemsize
            if self._buffer_bytes + size > _LARGEST_BUFFERS:
                return None
            self._buffer_bytes += size
            self._buffers[key] = Value(value.dtype, value.x, value.r)
            self.steps.append(steps.Keep(self._buffers[key], value, in_pass))
        recalled = Value(value.dtype, value.x, value.r)
        self.steps.append(steps.Recall(recalled, self._buffers[key]))
        return recalled

    def value_in(self, region: Region, key: Key) -> Value:
        """A value that is wanted in a region: lanes outside of it compute it too, 6 times slower if it is a tanh."""
        begin = len(self.steps)
        value = self.value(*key)
        if region.parts and self.in_pass and any(map(self._is_costly_in_pass, self.steps[begin:])):
            raise Unfusible(Reason.LIMIT, "every element would be computed in every part of what is joined")
        return value

    def _is_costly_in_pass(self, step: Step) -> bool:
        return getattr(step, "place", Place.EACH) is Place.LOOP and self.is_costly(step)

    def words_of(self, flat: Index) -> tuple[Words, Index]:
        """How the words are drawn: neighbours share a cipher where four of them begin a block."""
        rest = flat + index_of(self.lane) * -1
        fours = all(known_multiple(count, 4) for count in (*rest.terms.values(), rest.constant, self.inner))
        if self.by_columns or not fours or any(self.lane in atom.variables() for atom in rest.terms):
            return Words.EACH, flat
        return Words.ROW, rest

    # -- memory ------------------------------------------------------------------------------------------
    def note_load(self, i: int, flat: Index, *, row_major: bool) -> None:
        """Notes that an element of an input is loaded, in which stretch, and whether lanes lie side by side."""
        self._count(flat)
        self._loads.setdefault(i, set()).add((self._stretch, flat if row_major else None))

    def store(self, number: int, value: Value, at: Index, full: bool) -> None:
        """Writes an element of an output, at the end of the pass or of all."""
        self._count(at)
        self._stores[number] = self._stretch, at
        self.steps.append(steps.Store(number, value, at, Place.LOOP if full else Place.EACH, full))

    def _count(self, flat: Index) -> None:
        if not any(self.lane in atom.variables() for atom in flat.terms):
            return
        if flat.step(self.lane) == 1:
            self._beside += 1
        else:
            self._apart += 1

    def may_cover(self, output: int, i: int) -> bool:
        """Tells if an output may lie over an input: each iteration reads what it writes, no later than it writes it."""
        stored = self._stores.get(output)
        if stored is None:
            return False
        stretch, at = stored
        return all(read_at == at and read_in <= stretch for read_in, read_at in self._loads[i])

    def over(self) -> tuple[tuple[int, int], ...]:
        """Pairs of outputs and the inputs that they may overwrite."""
        return tuple(
            (number, self.position[i])
            for number, j in enumerate(self.made)
            for i in self.read
            if self.specs[i] is self.specs[j] and self.may_cover(number, i)
        )
