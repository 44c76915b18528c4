"""Methods that compare and order: comparisons, maxima, sorting, clamping, one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import all_axes, axes, axis, axis_given, fitting, integer, new_axis
from burn_torch.tensor._numeric_methods import NumericMethods
from burn_torch.tensor.apply import apply, apply_one, beside_indices, binary, flat, indices, unary

__all__ = ["OrderMethods"]


class OrderMethods(NumericMethods):
    """Comparisons, maxima and minima, sorting, clamping, one-hot.

    Comparisons give bool.  Names that end in `_scalar` or `_elem` are Burn's for a number on the right; the plain
    names take both.
    """

    __slots__ = ()

    # -- comparison --------------------------------------------------------------------------
    def equal(self, other: Self | float) -> Self:
        """x == other, element by element."""
        return binary(ops.equal, self, other)

    def not_equal(self, other: Self | float) -> Self:
        """x != other, element by element."""
        return binary(ops.not_equal, self, other)

    def greater(self, other: Self | float) -> Self:
        """x > other.  PyTorch: gt."""
        return binary(ops.greater, self, other)

    def greater_equal(self, other: Self | float) -> Self:
        """x >= other.  PyTorch: ge."""
        return binary(ops.greater_equal, self, other)

    def lower(self, other: Self | float) -> Self:
        """x < other.  PyTorch: lt."""
        return binary(ops.lower, self, other)

    def lower_equal(self, other: Self | float) -> Self:
        """x <= other.  PyTorch: le."""
        return binary(ops.lower_equal, self, other)

    equal_scalar = equal_elem = equal
    not_equal_scalar = not_equal_elem = not_equal
    greater_scalar = greater_elem = greater
    greater_equal_scalar = greater_equal_elem = greater_equal
    lower_scalar = lower_elem = lower
    lower_equal_scalar = lower_equal_elem = lower_equal

    # -- largest --------------------------------------------------------------------------------
    def max(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """The largest element.  Shapes: x (*s) -> (1,).  Equal ones share the gradient."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "max", dim if axis is None else axis)
        return flat(unary(ops.amax, self, all_axes(self)))

    def max_dim(self, dim: int) -> Self:
        """The largest elements along an axis, which stays with size 1.  PyTorch: amax(dim, keepdim=True)."""
        return unary(ops.amax, self, (axis(self, dim),))

    def max_dims(self, dims: Sequence[int]) -> Self:
        """The largest elements over several axes, which stay with size 1."""
        return unary(ops.amax, self, axes(self, dims))

    def max_dim_with_indices(self, dim: int) -> tuple[Self, Self]:
        """The largest elements along an axis and where they are; the axis stays with size 1."""
        return beside_indices(apply(ops.max_with_indices, (self,), axis(self, dim)))

    def max_pair(self, other: Self) -> Self:
        """The larger of x and other, element by element.  PyTorch: torch.maximum."""
        return binary(ops.maximum, self, other)

    def max_abs(self) -> Self:
        """The largest absolute value.  Shapes: x (*s) -> (1,)."""
        return self.abs().max()

    def max_abs_dim(self, dim: int) -> Self:
        """The largest absolute values along an axis, which stays with size 1."""
        return self.abs().max_dim(dim)

    def max_abs_dims(self, dims: Sequence[int]) -> Self:
        """The largest absolute values over several axes, which stay with size 1."""
        return self.abs().max_dims(dims)

    def argmax(self, dim: int) -> Self:
        """Returns where the largest element along an axis is; the axis stays with size 1.  PyTorch:
        argmax(keepdim=True).
        """
        return indices(unary(ops.argmax, self, axis(self, dim)))

    # -- smallest -------------------------------------------------------------------------------
    def min(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """The smallest element.  Shapes: x (*s) -> (1,).  Equal ones share the gradient."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "min", dim if axis is None else axis)
        return flat(unary(ops.amin, self, all_axes(self)))

    def min_dim(self, dim: int) -> Self:
        """The smallest elements along an axis, which stays with size 1."""
        return unary(ops.amin, self, (axis(self, dim),))

    def min_dims(self, dims: Sequence[int]) -> Self:
        """The smallest elements over several axes, which stay with size 1."""
        return unary(ops.amin, self, axes(self, dims))

    def min_dim_with_indices(self, dim: int) -> tuple[Self, Self]:
        """The smallest elements along an axis and where they are; the axis stays with size 1."""
        return beside_indices(apply(ops.min_with_indices, (self,), axis(self, dim)))

    def min_pair(self, other: Self) -> Self:
        """The smaller of x and other, element by element.  PyTorch: torch.minimum."""
        return binary(ops.minimum, self, other)

    def argmin(self, dim: int) -> Self:
        """Returns where the smallest element along an axis is; the axis stays with size 1."""
        return indices(unary(ops.argmin, self, axis(self, dim)))

    # -- between bounds ---------------------------------------------------------------------------
    def clamp(self, min: float | None = None, max: float | None = None) -> Self:
        """x, but never below `min` nor above `max`.  The gradient passes at the bounds.

        Raises: ArgumentError where one of the two is missing.
        """
        if min is None or max is None:
            raise told(
                ArgumentError,
                "a bound is missing",
                given=f"min {min}, max {max}",
                expected="two numbers, as in x.clamp(0.0, 1.0)",
                mend="x.clamp_min(min) and x.clamp_max(max) have one bound",
            )
        dtype = self.spec.dtype
        return apply_one(ops.clamp, (self, fitting(dtype, min), fitting(dtype, max)))

    def clamp_min(self, min: float) -> Self:
        """x, but never below `min`."""
        return binary(ops.clamp_min, self, fitting(self.spec.dtype, min))

    def clamp_max(self, max: float) -> Self:
        """x, but never above `max`."""
        return binary(ops.clamp_max, self, fitting(self.spec.dtype, max))

    # -- running -----------------------------------------------------------------------------------
    def cummax(self, dim: int) -> Self:
        """Running maxima along an axis.  PyTorch: cummax(dim).values."""
        return unary(ops.cummax, self, axis(self, dim))

    def cummin(self, dim: int) -> Self:
        """Running minima along an axis.  PyTorch: cummin(dim).values."""
        return unary(ops.cummin, self, axis(self, dim))

    # -- order --------------------------------------------------------------------------------------
    def sort(self, dim: int) -> Self:
        """Ascending along an axis."""
        return self.sort_with_indices(dim)[0]

    def sort_descending(self, dim: int) -> Self:
        """Descending along an axis."""
        return self.sort_descending_with_indices(dim)[0]

    def sort_with_indices(self, dim: int) -> tuple[Self, Self]:
        """Ascending along an axis, and where each element was; equal ones keep their order."""
        return beside_indices(apply(ops.sort_with_indices, (self,), axis(self, dim), False))

    def sort_descending_with_indices(self, dim: int) -> tuple[Self, Self]:
        """Descending along an axis, and where each element was; equal ones keep their order."""
        return beside_indices(apply(ops.sort_with_indices, (self,), axis(self, dim), True))

    def argsort(self, dim: int) -> Self:
        """The indices that sort an axis ascending."""
        return self.sort_with_indices(dim)[1]

    def argsort_descending(self, dim: int) -> Self:
        """The indices that sort an axis descending."""
        return self.sort_descending_with_indices(dim)[1]

    def topk(self, k: int, dim: int) -> Self:
        """The k largest elements along an axis, the largest first."""
        return self.topk_with_indices(k, dim)[0]

    def topk_with_indices(self, k: int, dim: int) -> tuple[Self, Self]:
        """The k largest elements along an axis, the largest first, and where they are."""
        return beside_indices(apply(ops.topk_with_indices, (self,), integer(k, "k"), axis(self, dim), True))

    def argtopk(self, k: int, dim: int) -> Self:
        """Returns where the k largest elements along an axis are, the largest first."""
        return self.topk_with_indices(k, dim)[1]

    # -- classes ----------------------------------------------------------------------------------
    def one_hot(self, num_classes: int) -> Self:
        """1 at the place that an element names, 0 elsewhere, along a new last axis; of the element type of x.

        Shapes: x (*s) -> (*s, num_classes).
        """
        return self.one_hot_fill(num_classes, 1, 0, -1)

    def one_hot_fill(self, num_classes: int, on_value: float, off_value: float, axis: int) -> Self:
        """`on_value` at the place that an element names, `off_value` elsewhere, along a new axis."""
        dtype = self.spec.dtype
        indices = unary(ops.cast, self, DType.I64) if dtype.is_float else self
        values = (indices, fitting(dtype, on_value), fitting(dtype, off_value))
        return apply_one(ops.one_hot, values, integer(num_classes, "num_classes"), new_axis(self, axis), dtype)
