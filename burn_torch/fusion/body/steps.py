"""The steps of a kernel, as data: what it loads, computes, gathers and stores, in the order in which it does.

    Load(v1, EACH, 0, x)         v1 = input 0 at x
    Compute(v2, EACH, exp, v1)   v2 = exp(v1)
    Store(0, v2, x)              output 0 at x = v2

A `Dialect` writes them as source; nothing here knows a language.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body.index import Index
from burn_torch.fusion.body.regions import Region
from burn_torch.graph.ir import Node

__all__ = [
    "Barrier", "BeginPass", "Cast", "Choose", "Compute", "Draw", "EndPass", "Full", "Gather", "IncreaseSums", "Join",
    "Keep", "Load", "Only", "Place", "Recall", "Round", "RoundSums", "Step", "Store", "SumColumn", "Value", "Words",
]  # fmt: skip


@final
class Value:
    """A value of a kernel: its type, and which loops it varies with."""

    __slots__ = ("dtype", "r", "x")

    def __init__(self, dtype: DType, x: bool, r: bool) -> None:
        self.dtype = dtype
        self.x = x
        self.r = r


@final
class Place(Enum):
    """The place of a step: before all rows of a part, once for each x, or in a pass over r."""

    HEAD = auto()
    EACH = auto()
    LOOP = auto()


@final
class Words(Enum):
    """How the random words of a tile are drawn: neighbours share a cipher where they can."""

    BLOCK = auto()
    """Those of the elements that a program has, in order."""
    ROW = auto()
    """Those of a stretch of a row that begins a block of four."""
    FOURS = auto()
    """Four by four: each fourth place of the loop begins a block."""
    EACH = auto()
    """Each by itself."""


@final
class Load(NamedTuple):
    """An element of an input.  raw: as it lies in memory, for units that compute on halves."""

    into: Value
    place: Place
    input: int
    at: Index
    raw: bool = False


@final
class Compute(NamedTuple):
    """An element-wise row of values, and of numbers as `kind`; rounded: the half type that the result is rounded to."""

    into: Value
    place: Place
    node: Node
    operands: Sequence[Value | None]
    kind: DType
    rounded: DType | None


@final
class Cast(NamedTuple):
    """A value in another type."""

    into: Value
    place: Place
    of: Value


@final
class Round(NamedTuple):
    """A value as a half type holds it."""

    into: Value
    place: Place
    of: Value
    dtype: DType


@final
class Full(NamedTuple):
    """A number of a row everywhere."""

    into: Value
    place: Place
    node: Node
    position: int


@final
class Choose(NamedTuple):
    """The value of the region that an element is in; a number of the row where an operand is none."""

    into: Value
    place: Place
    node: Node
    regions: Sequence[Region]
    operands: Sequence[Value | None]


@final
class Draw(NamedTuple):
    """A random value.  first: where the words of a tile begin, as `words` has them."""

    into: Value
    place: Place
    node: Node
    at: Index
    words: Words
    first: Index


@final
class Only(NamedTuple):
    """Steps that programs without an element in a region leave out, and the value that they make."""

    into: Value
    place: Place
    region: Region
    steps: Sequence[Step]
    of: Value


@final
class Gather(NamedTuple):
    """Adds a value to what a reduction gathers in a pass."""

    total: Value
    kind: str
    of: Value


@final
class Join(NamedTuple):
    """A reduction's result: what a pass gathered, or a whole row at once where `gathered` says no."""

    into: Value
    place: Place
    of: Value
    kind: str
    kept_in: DType
    gathered: bool


@final
class SumColumn(NamedTuple):
    """Adds a value to the sum of its column, which is an output."""

    number: int
    of: Value
    kept_in: DType


@final
class Store(NamedTuple):
    """Writes an element of an output.  full: one for each step of both loops."""

    number: int
    of: Value
    at: Index
    place: Place
    full: bool


@final
class Keep(NamedTuple):
    """Puts a value of an earlier pass over a row into a buffer."""

    buffer: Value
    of: Value
    in_pass: int


@final
class Recall(NamedTuple):
    """Takes a value of an earlier pass from its buffer."""

    into: Value
    buffer: Value


@final
class Barrier(NamedTuple):
    """All threads come here before one goes on.  small: in tiles where threads share elements."""

    place: Place
    small: bool


@final
class BeginPass(NamedTuple):
    """A pass over r begins."""


@final
class EndPass(NamedTuple):
    """It ends."""


@final
class IncreaseSums(NamedTuple):
    """Adds a value to the sums of a product."""

    of: Value


@final
class RoundSums(NamedTuple):
    """Rounds the sums of a product or a convolution to a half type."""

    sums: Value
    dtype: DType


Step = (
    Load | Compute | Cast | Round | Full | Choose | Draw | Only | Gather | Join | SumColumn | Store | Keep | Recall
    | Barrier | BeginPass | EndPass | IncreaseSums | RoundSums
)  # fmt: skip
