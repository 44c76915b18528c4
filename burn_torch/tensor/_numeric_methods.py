"""Methods of numbers: arithmetic, reductions, scans, matrix products, bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import all_axes, axes, axis, axis_given, integer, whole_list
from burn_torch.tensor._index_methods import IndexMethods
from burn_torch.tensor.apply import apply_one, binary, flat, require_tensor, unary

__all__ = ["NumericMethods"]


class NumericMethods(IndexMethods):
    """Arithmetic, reductions, scans, matrix products, bits.

    Names that end in `_scalar` are Burn's for a number on the right; the plain names take both.  A reduction named
    `_dim` or `_dims` keeps the reduced axes with size 1; one without arguments gives shape (1,).
    """

    __slots__ = ()

    # -- arithmetic -----------------------------------------------------------------------
    def add(self, other: Self | float) -> Self:
        """x + other."""
        return binary(ops.add, self, other)

    def sub(self, other: Self | float) -> Self:
        """x - other."""
        return binary(ops.sub, self, other)

    def mul(self, other: Self | float) -> Self:
        """x * other, element by element."""
        return binary(ops.mul, self, other)

    def div(self, other: Self | float) -> Self:
        """x / other; of integers the whole part, cut toward zero.  PyTorch: / of integers gives floats."""
        return binary(ops.div, self, other)

    def remainder(self, other: Self | float) -> Self:
        """x % other, with the sign of `other`."""
        return binary(ops.remainder, self, other)

    def neg(self) -> Self:
        """-x."""
        return unary(ops.neg, self)

    def sign(self) -> Self:
        """-1, 0 or 1."""
        return unary(ops.sign, self)

    def abs(self) -> Self:
        """x without its sign."""
        return unary(ops.abs, self)

    def square(self) -> Self:
        """x * x."""
        return unary(ops.square, self)

    def powi(self, other: Self | int) -> Self:
        """x to an integer power."""
        return binary(ops.pow, self, other)

    def powf(self, other: Self | float) -> Self:
        """x to a power."""
        return binary(ops.pow, self, other)

    add_scalar = add
    sub_scalar = sub
    mul_scalar = mul
    div_scalar = div
    remainder_scalar = remainder
    powi_scalar = powi
    powf_scalar = powf

    # -- reductions --------------------------------------------------------------------------
    def sum(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """The sum of all elements.  Shapes: x (*s) -> (1,)."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "sum", dim if axis is None else axis)
        return flat(unary(ops.sum, self, all_axes(self)))

    def sum_dim(self, dim: int) -> Self:
        """Sums along an axis, which stays with size 1.  PyTorch: sum(dim, keepdim=True)."""
        return unary(ops.sum, self, (axis(self, dim),))

    def sum_dims(self, dims: Sequence[int]) -> Self:
        """Sums over several axes, which stay with size 1."""
        return unary(ops.sum, self, axes(self, dims))

    def sum_dims_squeeze(self, dims: Sequence[int]) -> Self:
        """Sums over several axes, which go.  PyTorch: sum(dims)."""
        return self.sum_dims(dims).squeeze_dims(dims) if whole_list(dims, "dims") else self

    def mean(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """The mean of all elements.  Shapes: x (*s) -> (1,)."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "mean", dim if axis is None else axis)
        return flat(unary(ops.mean, self, all_axes(self)))

    def mean_dim(self, dim: int) -> Self:
        """Means along an axis, which stays with size 1.  PyTorch: mean(dim, keepdim=True)."""
        return unary(ops.mean, self, (axis(self, dim),))

    def mean_dims(self, dims: Sequence[int]) -> Self:
        """Means over several axes, which stay with size 1."""
        return unary(ops.mean, self, axes(self, dims))

    def prod(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """The product of all elements.  Shapes: x (*s) -> (1,)."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "prod", dim if axis is None else axis)
        return flat(unary(ops.prod, self, all_axes(self)))

    def prod_dim(self, dim: int) -> Self:
        """Products along an axis, which stays with size 1."""
        return unary(ops.prod, self, (axis(self, dim),))

    def prod_dims(self, dims: Sequence[int]) -> Self:
        """Products over several axes, which stay with size 1."""
        return unary(ops.prod, self, axes(self, dims))

    # -- scans ----------------------------------------------------------------------------------
    def cumsum(self, dim: int) -> Self:
        """Running sums along an axis."""
        return unary(ops.cumsum, self, axis(self, dim))

    def cumprod(self, dim: int) -> Self:
        """Running products along an axis."""
        return unary(ops.cumprod, self, axis(self, dim))

    # -- matrices -------------------------------------------------------------------------------
    def matmul(self, other: Self) -> Self:
        """The matrix product over the last two axes; axes before them broadcast."""
        return binary(ops.matmul, self, other)

    def dot(self, other: Self) -> Self:
        """The sum of x * other.  Shapes: x (n,), other (n,) -> (1,)."""
        require_tensor(other, "other")
        if self.spec.ndim != 1 or self.spec.shape != other.spec.shape:
            raise told(
                ShapeError,
                "two vectors of one length are needed",
                given=f"x {self.spec}, other {other.spec}",
                expected="x (n,) and other (n,)",
                mend="x.flatten() makes a vector; (x * other).sum_dim(-1) does many at once",
            )
        return binary(ops.mul, self, other).sum()

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle of the last two axes, zero elsewhere."""
        return unary(ops.triu, self, _within_matrix(self, diagonal))

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle of the last two axes, zero elsewhere."""
        return unary(ops.tril, self, _within_matrix(self, diagonal))

    def cross(self, other: Self, dim: int = -1) -> Self:
        """The cross product along an axis of size 3."""
        return apply_one(ops.cross, (self, other), axis(self, dim))

    # -- bits of integers --------------------------------------------------------------------------
    def bitwise_and(self, other: Self | int) -> Self:
        """x & other, bit by bit."""
        return binary(ops.bitwise_and, self, other)

    def bitwise_or(self, other: Self | int) -> Self:
        """x | other, bit by bit."""
        return binary(ops.bitwise_or, self, other)

    def bitwise_xor(self, other: Self | int) -> Self:
        """x ^ other, bit by bit."""
        return binary(ops.bitwise_xor, self, other)

    def bitwise_not(self) -> Self:
        """Every bit turned over."""
        return unary(ops.bitwise_not, self)

    def bitwise_left_shift(self, other: Self | int) -> Self:
        """x << other."""
        return binary(ops.bitwise_left_shift, self, other)

    def bitwise_right_shift(self, other: Self | int) -> Self:
        """x >> other; the sign stays."""
        return binary(ops.bitwise_right_shift, self, other)

    bitwise_and_scalar = bitwise_and
    bitwise_or_scalar = bitwise_or
    bitwise_xor_scalar = bitwise_xor
    bitwise_left_shift_scalar = bitwise_left_shift
    bitwise_right_shift_scalar = bitwise_right_shift

    # -- truth values -------------------------------------------------------------------------------
    def bool_not(self) -> Self:
        """Not x."""
        return unary(ops.bool_not, self)

    def bool_and(self, rhs: Self) -> Self:
        """x and rhs."""
        return binary(ops.bool_and, self, rhs)

    def bool_or(self, rhs: Self) -> Self:
        """x or rhs."""
        return binary(ops.bool_or, self, rhs)

    def bool_xor(self, rhs: Self) -> Self:
        """Either x or rhs."""
        return binary(ops.bool_xor, self, rhs)

    def any(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """Returns whether any element is true, or not zero.  Shapes: x (*s) -> (1,)."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "any", dim if axis is None else axis)
        return flat(unary(ops.any, self, all_axes(self)))

    def any_dim(self, dim: int) -> Self:
        """Returns whether any element along an axis is true; the axis stays with size 1."""
        return unary(ops.any, self, (axis(self, dim),))

    def all(self, dim: None = None, keepdim: None = None, *, axis: None = None, keepdims: None = None) -> Self:
        """Returns whether all elements are true, or not zero.  Shapes: x (*s) -> (1,)."""
        if not (dim is keepdim is axis is keepdims is None):
            raise axis_given(self, "all", dim if axis is None else axis)
        return flat(unary(ops.all, self, all_axes(self)))

    def all_dim(self, dim: int) -> Self:
        """Returns whether all elements along an axis are true; the axis stays with size 1."""
        return unary(ops.all, self, (axis(self, dim),))

    # -- angles -----------------------------------------------------------------------------------
    def deg2rad(self) -> Self:
        """Degrees as radians."""
        return binary(ops.mul, self, math.pi / 180.0)

    def rad2deg(self) -> Self:
        """Radians as degrees."""
        return binary(ops.mul, self, 180.0 / math.pi)


def _within_matrix(x: Any, diagonal: int) -> int:
    """The number of a diagonal; beyond the matrix all are alike."""
    wanted = integer(diagonal, "diagonal")
    rows, columns = x.spec.shape[-2:] if x.spec.ndim > 1 else (0, 0)  # the rule words what is no matrix
    return wanted if -rows <= wanted <= columns else -rows if wanted < 0 else columns
