"""Laws: what holds of a row's results, as data, so that a pass of the graph can use it and name no row.

A law is exact where the rewritten graph gives the same bits, -0.0, infinities and subnormals included.  Every NaN
counts as equal to every other: IEEE 754 leaves the sign and the payload of a NaN open, and no row reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

if TYPE_CHECKING:
    from burn_torch.ops.op import PerCall

__all__ = [
    "Associative",
    "Converts",
    "Copies",
    "Draws",
    "EndsHead",
    "EndsProduct",
    "Exchange",
    "Expands",
    "Fill",
    "Folds",
    "Idempotent",
    "Law",
    "LawT",
    "Moves",
    "Multiplies",
    "Neutral",
    "OfEqual",
    "OnHost",
    "Onto",
    "Regions",
    "Rewrite",
    "Select",
    "SelfInverse",
    "Uniform",
    "Unsigned",
]


@final
@dataclass(frozen=True, slots=True)
class Neutral:
    """With this number at one of the positions the result is the other one of two inputs: x * 1, x - 0, x + -0.

    Exact if the number's bits are these.  Of floats 0.0 and -0.0 are told apart unless numerics are "fast".
    """

    number: float
    at: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class SelfInverse:
    """f(f(x)) = x, exactly: neg, bool_not."""


@final
@dataclass(frozen=True, slots=True)
class Idempotent:
    """f(f(x)) = f(x), exactly: abs, relu, floor."""


@final
@dataclass(frozen=True, slots=True)
class Exchange:
    """The first two inputs may be swapped, exactly.  (`commutative` allows results that differ in the sign of 0.)"""


@final
@dataclass(frozen=True, slots=True)
class Associative:
    """f(f(x, a), b) = f(x, f(a, b)), but for rounding: sums and products with numbers."""


@final
@dataclass(frozen=True, slots=True)
class Rewrite:
    """With a number at input 1, another row does the same but for rounding: x / 4 = x * 0.25, x ** 2 = x * x.

    number: the input 1 of the other row, made of this number; None if this number does not allow it; "x" for input 0.
    """

    row: str
    number: Callable[[float], float | str | None]


@final
@dataclass(frozen=True, slots=True)
class Copies:
    """The result is input 0 in memory of its own.  That is all it is for: it is never joined, hoisted or left out."""


@final
@dataclass(frozen=True, slots=True)
class Fill:
    """Every element of the result is the number at this input, converted."""

    at: int = 0


@final
@dataclass(frozen=True, slots=True)
class Converts:
    """Every element of the result is the element of input 0 in its place, converted."""


@final
@dataclass(frozen=True, slots=True)
class Moves:
    """Every element of the result is an element of input 0.

    source  `source(call, output, index)`: the index of that element in input 0, of one in an output; written with
            + - * // % and whole numbers alone, as the index may be symbolic (`fusion/body/index.py`)
    tight   of contiguous memory it makes contiguous memory of as many elements
    ordered element i of the result is element i of input 0, both counted row by row: a reshape, and no flip
    axes    `axes(call)`: for each axis of the result the axis of input 0 that it is, where nothing else changes
    """

    source: Callable[[Any, int, Sequence[Any]], Sequence[Any]]
    tight: bool = False
    ordered: bool = False
    axes: Callable[[Any], tuple[int, ...]] | None = None


@final
@dataclass(frozen=True, slots=True)
class Regions:
    """Every element of the result is an element of one of the inputs; which one, its place in the result says.

    of  `of(call)`: regions of the result, each as its input and (start, size) on each axis; the input's element lies at
        the place less the starts.  An element is that of the first region that it is in; it is in one of them.  A
        number has a region too.  Starts and sizes may be symbolic.  None: this Call has no such regions.
    """

    of: Callable[[Any], Sequence[tuple[int, Sequence[tuple[Any, Any]]]] | None]


@final
@dataclass(frozen=True, slots=True)
class Folds:
    """Input 0 is reduced over the axes of the attribute `dims`, which stay with size 1, in any order.

    kind: "sum", "mean", "prod", "max", "min", "any" or "all"; a maximum and a minimum propagate NaN.
    """

    kind: str


@final
@dataclass(frozen=True, slots=True)
class Expands:
    """The same with other rows, for whoever wants to see into it: `body(*inputs, **attrs)`, on values.

    The body gives None for a Call that it has no rows for.
    Unlike a decomposition, it is nothing to compute with: rounding and layout may differ.
    """

    body: Callable[..., Any]


@final
@dataclass(frozen=True, slots=True)
class Draws:
    """Element i of the result is made of word i of the stream, by (key, stream), its last two inputs.

    numbers  host numbers made of the inputs before them, here named a, b, ...
    value    how a kernel writes the value: an expression of `word` (32 bits, as an unsigned number) and of those
    """

    numbers: Callable[..., Sequence[float | int]]
    value: str


@final
@dataclass(frozen=True, slots=True)
class Uniform:
    """At these positions a number gives the bits of a tensor full of it, if the element type holds it exactly."""

    at: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class OnHost:
    """`scalar` on values of float32 or float64, rounded to their type, is what a leaf computes.

    on_cpu: on the CPU alone.  (CUDA divides by a number by multiplying with its reciprocal.)
    """

    on_cpu: bool = False


@final
@dataclass(frozen=True, slots=True)
class OfEqual:
    """The reduction of `count` elements that are all `value`, but for rounding."""

    reduce: Callable[[float, int], float]


@final
@dataclass(frozen=True, slots=True)
class Select:
    """Input `true` where input `mask` is true, input `false` elsewhere."""

    mask: int
    true: int
    false: int


@final
@dataclass(frozen=True, slots=True)
class Multiplies:
    """Matrices: input 0 @ input 1, plus input 2 where the row has one and it is not None."""


@final
@dataclass(frozen=True, slots=True)
class EndsProduct:
    """Another row computes a product, and this of its result: y = f(a @ b) as (a @ b, y), dz = g(a @ b, z) as
    (dz, the sum of the rows of dz).

    row     takes the inputs of the product, then those of this row after input 0, and `rank`
    ending  how `Asked.ending` names it, for the chooser of a library's algorithm
    """

    row: str
    ending: str


@final
@dataclass(frozen=True, slots=True)
class EndsHead:
    """The gradient, by g, of the losses of logits; another row computes it with the products before and after it.

    row   (g, x, weight, targets) -> losses, dx, dweight, for logits = x weight^T
    loss  the row of the losses: of the inputs of this one but g
    """

    row: str
    loss: str


@final
@dataclass(frozen=True, slots=True)
class Onto:
    """x + f(*inputs) is what another row makes of (x, *inputs), which may write over x."""

    row: str


@final
@dataclass(frozen=True, slots=True)
class Unsigned:
    """How a leaf without u16, u32 and u64 computes them, on signed integers of the same bits.

    by       "bits": modulo 2^n the result is that of the signed integers, as of sums and products
             "order": the order of the elements decides, which the top bit, turned over, keeps among signed integers
             a function of the Call that says which; or a PerCall from bits, and numbers as they are, to bits
    indices  positions of inputs that are indices, and stay as they are
    """

    by: str | Callable[..., str] | PerCall
    indices: tuple[int, ...] = ()


Law = (
    Neutral
    | SelfInverse
    | Idempotent
    | Exchange
    | Associative
    | Rewrite
    | Copies
    | Fill
    | Folds
    | Expands
    | Draws
    | Converts
    | Moves
    | Regions
    | Uniform
    | OnHost
    | OfEqual
    | Select
    | Multiplies
    | EndsProduct
    | EndsHead
    | Onto
    | Unsigned
)

LawT = TypeVar("LawT", bound=Law)
