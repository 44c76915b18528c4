"""Methods that count, search and replace: unique, bincount, searchsorted, quantile, index_put, where, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BoundsError, BurnTorchError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.ops.rules import broadcast_shapes
from burn_torch.ops.value import Value
from burn_torch.tensor._arguments import axis, fitting, integer, real, sizes, truth
from burn_torch.tensor._creation_methods import CreationMethods
from burn_torch.tensor.apply import apply_one, number, require_tensor, unary, widen
from burn_torch.tensor.options import creation

__all__ = ["SetMethods", "Unique"]

T = TypeVar("T", bound=Value)
S = TypeVar("S", bound="SetMethods")
Mask: TypeAlias = NDArray[np.bool_]


class Unique(NamedTuple, Generic[T]):
    """The different elements of a tensor, or slices along an axis, in ascending order."""

    values: T
    first: T
    """Returns where each is met first."""
    inverse: T
    """Tells which of the values each element is."""
    counts: T
    """The number of times that each is met."""


class SetMethods(CreationMethods):
    """Counting, searching, replacing."""

    __slots__ = ()

    # -- sets and counts ----------------------------------------------------------------------------
    def unique(self, dim: int | None = None) -> Self:
        """The different elements in ascending order, or the different slices along an axis.

        See `unique_with_counts`.  PyTorch: torch.unique; numpy.unique.
        """
        return self.unique_with_counts(dim).values

    def unique_with_counts(self, dim: int | None = None) -> Unique[Self]:
        """The different elements in ascending order, where each is first, which each element is, how often each is met.

        Along an axis slices are compared, element by element.  Each NaN differs from all others and comes last, as in
        torch.  The gradient of the values goes to the elements that come first.  The size depends on the data.
        Shapes: x (*s) -> values (n,), first (n,), inverse (*s), counts (n,); along an axis values (.., n, ..) and
        inverse (size,).  Dtypes: any -> the same, and i64.
        """
        items = self.flatten() if dim is None else self
        at = 0 if dim is None else axis(self, dim)
        plain = items.cast(DType.U8) if items.dtype.is_bool else items
        ranks = unary(ops.row_ranks, plain.movedim(at, 0).flatten(1) if plain.ndim > 1 else plain.unsqueeze_dim(1))
        counts = ranks.bincount()
        first = ranks.argsort(0).select(0, counts.cumsum(0) - counts)
        inverse = ranks if dim is not None else unary(ops.reshape, ranks, self.shape)
        return Unique(items.select(at, first), first, inverse, counts)

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """The number of times that each whole number from 0 on is met, or the sum of its weights.

        Shapes: x (n,), weights (n,) -> (k,), k the largest number + 1, at least minlength; it depends on the data.
        Dtypes: x integers; weights any numbers -> the same, i64 without weights.
        Raises: BoundsError for a number below 0.  PyTorch: torch.bincount; numpy.bincount.
        """
        least = integer(minlength, "minlength")
        if self.ndim != 1 or not self.dtype.is_int or least < 0:
            raise told(
                DTypeError if self.ndim == 1 and least >= 0 else ShapeError,
                "only a list of whole numbers can be counted",
                given=f"x {self.spec}, minlength {least}",
                expected="x (n,) of integers, minlength of 0 or more",
                mend="x.flatten().int() makes one",
            )
        if weights is None:
            values = self.cast(DType.I64).ones_like()
        else:
            require_tensor(weights, "weights")
            values = weights
        if self.shape[0]:
            low, high = int(self.min().item()), int(self.max().item())
            if low < 0:
                raise told(
                    BoundsError,
                    "a number is below 0",
                    given=f"numbers from {low} to {high}",
                    expected="whole numbers of 0 or more",
                    mend="add a constant first, or clamp them",
                )
            least = max(least, high + 1)
        nothing: Self = values.new_full((least,), fitting(values.dtype, 0))
        return nothing.select_assign(0, self, values, "add")

    def searchsorted(self, values: Self, right: bool = False) -> Self:
        """Returns where values would be inserted into x, which is ascending: before equal elements, or behind them.

        Shapes: x (n,), values (*s) -> (*s); or x (*batch, n), values (*batch, m) -> (*batch, m).
        Dtypes: numbers, both the same -> i64.  PyTorch: torch.searchsorted(x, values); numpy.searchsorted.
        """
        require_tensor(values, "values")
        behind = truth(right, "right")
        if self.ndim != 1 or values.ndim == 1:
            return apply_one(ops.searchsorted, (self, values), behind)
        return unary(ops.reshape, apply_one(ops.searchsorted, (self, values.flatten()), behind), values.shape)

    # -- statistics -------------------------------------------------------------------------------------
    def std(self, dim: int) -> Self:
        """The standard deviation along an axis, over n - 1; the axis stays with size 1.

        Where all elements are equal, they get no gradient.  PyTorch: std(dim, keepdim=True).
        """
        return _root(self, widen(self).var(dim))

    def std_bias(self, dim: int) -> Self:
        """The standard deviation along an axis, over n; the axis stays with size 1.

        PyTorch: std(dim, correction=0, keepdim=True).
        """
        return _root(self, widen(self).var_bias(dim))

    def quantile(self, q: float | Sequence[float], dim: int, interpolation: str = "linear") -> Self:
        """The values below which the parts q of an axis lie; NaN where the axis holds NaN.

        interpolation   between the two nearest elements: "linear", "lower", "higher", "midpoint" or "nearest"
        Shapes: x (.., n, ..) -> (.., 1, ..), or (.., k, ..) for k numbers q.  Dtypes: any float, the same out.
        PyTorch: torch.quantile, which puts several q on an axis in front.
        """
        at = axis(self, dim)
        parts = [real(part, "q") for part in (q if isinstance(q, list | tuple) else [q])]
        if not all(0.0 <= part <= 1.0 for part in parts) or interpolation not in _INTERPOLATIONS or not parts:
            raise told(
                ArgumentError,
                "there is no such quantile",
                given=f"q {q}, interpolation {interpolation!r}",
                expected=f"numbers from 0 to 1; {', '.join(map(repr, _INTERPOLATIONS))}",
                mend="the median is x.quantile(0.5, dim)",
            )
        if not self.dtype.is_float or not self.shape[at]:
            raise told(
                DTypeError if self.shape[at] else ShapeError,
                "quantiles are of floats, and of one element or more",
                given=f"x {self.spec} along axis {at}",
                expected="a float type, and an axis that is not empty",
                mend="x.float() converts",
            )
        x = widen(self).sort(at)
        values = [_between(x, at, part * (self.shape[at] - 1), interpolation) for part in parts]
        y = type(self).cat(values, at) if len(values) > 1 else values[0]
        return y.mask_fill(self.is_nan().any_dim(at), math.nan).cast(self.dtype)

    # -- replacing ----------------------------------------------------------------------------------------
    def where(self, condition: Self, other: Self | float) -> Self:
        """x where the condition is true, `other` elsewhere; all three broadcast.  The other side gets no gradient.

        `mask_where` has them the other way round.  PyTorch: torch.where(condition, x, other).
        """
        require_tensor(condition, "condition")
        if isinstance(other, Value):
            return apply_one(ops.mask_where, (other, condition, self))
        return apply_one(ops.mask_where, (self, condition.bool_not(), fitting(self.dtype, other)))

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Numbers in place of NaN and of infinities: for None the largest and the least of the type.

        What is replaced gets no gradient.  PyTorch: torch.nan_to_num; numpy.nan_to_num.
        """
        if not self.dtype.is_float:
            return self
        low, high = self.dtype.limits
        y = self.mask_fill(self.is_nan(), real(nan, "nan"))
        y = y.mask_fill(self.equal(math.inf), high if posinf is None else real(posinf, "posinf"))
        return y.mask_fill(self.equal(-math.inf), low if neginf is None else real(neginf, "neginf"))

    def index_put(self, indices: Sequence[Self], values: Self | float, accumulate: bool = False) -> Self:
        """With values put where `x[indices]` reads, or added to what is there.

        indices     one tensor for each of the first axes: integers, which broadcast and may count from the end, or a
                    mask, which stands for the axes it has
        values      broadcast to what `x[indices]` gives; of several at one place the last stays, unless they are added
        PyTorch: index_put; numpy: x[indices] = values, numpy.add.at.
        """
        places = self._places(indices)
        shape = (*places.shape[:-1], *self.shape[places.shape[-1] :])
        if isinstance(values, Value):
            parts = unary(ops.expand, values, shape)
        else:
            parts = self.new_full(shape, fitting(self.dtype, number(values)))
        return self.scatter_nd(places, parts, "add" if truth(accumulate, "accumulate") else "assign")

    def _places(self, indices: Sequence[Self]) -> Self:
        """Indices of the first axes, counted from the front, along a last axis."""
        if not isinstance(indices, list | tuple) or not indices:
            raise _no_indices(self, indices)
        lists: list[Self] = []
        for x in indices:
            require_tensor(x, "an index")
            first = len(lists)
            if x.dtype.is_float or (x.dtype.is_bool and x.shape != self.shape[first : first + x.ndim]):
                raise _no_indices(self, indices)
            lists += x.nonzero() if x.dtype.is_bool else [x.cast(DType.I64)]
        if len(lists) > self.ndim:
            raise _no_indices(self, indices)
        shape = broadcast_shapes(*(x.shape for x in lists))
        columns = [unary(ops.expand, x.mask_where(x.lower(0), x + self.shape[i]), shape) for i, x in enumerate(lists)]
        return type(self).stack(columns, len(shape))

    # -- constants ---------------------------------------------------------------------------------------
    @classmethod
    def linspace(cls, start: float, end: float, steps: int, options: object) -> Self:
        """Numbers at equal distances from `start` to `end`, both included; of f32 unless the options say otherwise.

        Shapes: -> (steps,).  PyTorch: torch.linspace; numpy.linspace.
        """
        device, dtype = creation(options, DType.F32)
        count, first, last = integer(steps, "steps"), real(start, "start"), real(end, "end")
        if not 0 <= count < _LARGEST:
            raise told(
                ArgumentError,
                "steps is below 0" if count < 0 else "steps is larger than any memory",
                given=f"steps {count}",
                expected="the number of elements: 0 or more, below 2^40",
                mend="check how it was computed",
            )
        values = np.linspace(first, last, count, dtype=np.float64)
        return cls.from_data(values if dtype.is_float else np.trunc(values), (device, dtype))

    @classmethod
    def tril_indices(cls, rows: int, cols: int, offset: int, options: object) -> Self:
        """The rows and the columns of the elements on and below a diagonal of a matrix, in row-major order.

        Shapes: -> (2, n).  Dtypes: i64.  PyTorch: torch.tril_indices; numpy.tril_indices.
        """
        return cls._triangle_indices(np.tril, rows, cols, offset, options)

    @classmethod
    def triu_indices(cls, rows: int, cols: int, offset: int, options: object) -> Self:
        """The rows and the columns of the elements on and above a diagonal of a matrix; see `tril_indices`."""
        return cls._triangle_indices(np.triu, rows, cols, offset, options)

    @classmethod
    def _triangle_indices(
        cls, triangle: Callable[[Mask, int], Mask], rows: int, cols: int, offset: int, options: object
    ) -> Self:
        shape = sizes((rows, cols))
        device, dtype = creation(options, DType.I64)
        if min(shape) < 0:
            raise told(
                ShapeError,
                "a matrix has no negative sizes",
                given=f"rows {rows}, cols {cols}",
                expected="0 or more of both",
                mend="check how the sizes were computed",
            )
        within = max(-shape[0], min(integer(offset, "offset"), shape[1]))
        return cls.from_data(np.stack(np.nonzero(triangle(np.ones(shape, np.bool_), within))), (device, dtype))


_LARGEST = 1 << 40
"""The number of elements that no memory holds, and that numpy would refuse in words of its own."""
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _between(x: T, dim: int, place: float, interpolation: str) -> T:
    """The value at a fractional place of a sorted axis."""
    below, above = math.floor(place), math.ceil(place)
    part = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5, "nearest": float(round(place) > below)}.get(
        interpolation, place - below
    )
    if below == above or part in (0.0, 1.0):
        return _narrow(x, dim, above if part == 1.0 else below)
    low = _narrow(x, dim, below)
    y: T = low + (_narrow(x, dim, above) - low) * part
    return y


def _narrow(x: T, dim: int, at: int) -> T:
    return unary(ops.slice, x, tuple([(at, at + 1, 1) if i == dim else (0, n, 1) for i, n in enumerate(x.shape)]))


def _root(x: S, variance: S) -> S:
    flat = variance.equal(0.0)  # where the slope of the root is infinite
    return variance.mask_fill(flat, 1.0).sqrt().mask_fill(flat, 0.0).cast(x.dtype)


def _no_indices(x: Value, indices: object) -> BurnTorchError:
    listed = indices if isinstance(indices, list | tuple) else [indices]
    shown = ", ".join(str(i.spec) if isinstance(i, Value) else repr(i) for i in listed)
    return told(
        ShapeError,
        "the indices do not fit the axes",
        given=f"x {x.spec}, indices {shown:.200}",
        expected=f"a list of 1 to {x.ndim} tensors, one for each of the first axes: integers, or masks of their sizes",
        mend="x.index_put([rows, columns], values)",
    )
