"""Methods of floats: functions of one element, statistics, closeness."""

from __future__ import annotations

from typing import Self

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import axis, dtype_of, integer, option, real
from burn_torch.tensor._order_methods import OrderMethods
from burn_torch.tensor.apply import apply, apply_one, binary, require_tensor, unary
from burn_torch.tensor.broadcasting import warn_of_shapes
from burn_torch.tensor.options import GridSampleOptions, GridSamplePaddingMode, InterpolateMode

__all__ = ["FloatMethods"]


class FloatMethods(OrderMethods):
    """Functions of one element, statistics, closeness."""

    __slots__ = ()

    # -- exponentials and roots -----------------------------------------------------------------
    def exp(self) -> Self:
        """e to the x."""
        return unary(ops.exp, self)

    def expm1(self) -> Self:
        """e to the x, less 1, exact near 0."""
        return unary(ops.expm1, self)

    def log(self) -> Self:
        """The natural logarithm."""
        return unary(ops.log, self)

    def log1p(self) -> Self:
        """The natural logarithm of 1 + x, exact near 0."""
        return unary(ops.log1p, self)

    def sqrt(self) -> Self:
        """The square root."""
        return unary(ops.sqrt, self)

    def rsqrt(self) -> Self:
        """1 over the square root."""
        return unary(ops.rsqrt, self)

    def recip(self) -> Self:
        """1 / x.  PyTorch: reciprocal."""
        return unary(ops.recip, self)

    def erf(self) -> Self:
        """The error function."""
        return unary(ops.erf, self)

    def erfinv(self) -> Self:
        """The inverse of the error function, on (-1, 1); sqrt(2) (2 u - 1).erfinv() is normal for uniform u."""
        return unary(ops.erfinv, self)

    def relu(self) -> Self:
        """max(x, 0).  The other activations are functions: `activation.gelu(x)`."""
        return unary(ops.relu, self)

    # -- trigonometry -----------------------------------------------------------------------------
    def sin(self) -> Self:
        """Sine."""
        return unary(ops.sin, self)

    def cos(self) -> Self:
        """Cosine."""
        return unary(ops.cos, self)

    def tan(self) -> Self:
        """Tangent."""
        return unary(ops.tan, self)

    def sinh(self) -> Self:
        """Hyperbolic sine."""
        return unary(ops.sinh, self)

    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return unary(ops.cosh, self)

    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        return unary(ops.tanh, self)

    def asin(self) -> Self:
        """Inverse sine."""
        return unary(ops.asin, self)

    def acos(self) -> Self:
        """Inverse cosine."""
        return unary(ops.acos, self)

    def atan(self) -> Self:
        """Inverse tangent."""
        return unary(ops.atan, self)

    def asinh(self) -> Self:
        """Inverse hyperbolic sine."""
        return unary(ops.asinh, self)

    def acosh(self) -> Self:
        """Inverse hyperbolic cosine."""
        return unary(ops.acosh, self)

    def atanh(self) -> Self:
        """Inverse hyperbolic tangent."""
        return unary(ops.atanh, self)

    def atan2(self, other: Self) -> Self:
        """The angle of the point (other, x), in all four quadrants."""
        return binary(ops.atan2, self, other)

    def hypot(self, other: Self) -> Self:
        """The square root of x * x + other * other, without overflow between."""
        return binary(ops.hypot, self, other)

    def logaddexp(self, other: Self) -> Self:
        """log(exp(self) + exp(other)), without overflow between; over an axis it is `logsumexp_dim`."""
        return binary(ops.logaddexp, self, other)

    # -- whole numbers ----------------------------------------------------------------------------
    def round(self) -> Self:
        """The nearest whole number; halves go to the even one.  The gradient is zero."""
        return unary(ops.round, self)

    def floor(self) -> Self:
        """The next whole number below.  The gradient is zero."""
        return unary(ops.floor, self)

    def ceil(self) -> Self:
        """The next whole number above.  The gradient is zero."""
        return unary(ops.ceil, self)

    def trunc(self) -> Self:
        """The whole part, toward zero.  The gradient is zero."""
        return unary(ops.trunc, self)

    def fmod(self, other: Self | float) -> Self:
        """Returns what remains of x / other cut toward zero, with the sign of x."""
        return binary(ops.fmod, self, other)

    fmod_scalar = fmod

    # -- statistics --------------------------------------------------------------------------------
    def var(self, dim: int) -> Self:
        """The variance along an axis, over n - 1; the axis stays with size 1."""
        return unary(ops.var, self, (axis(self, dim),), 1)

    def var_bias(self, dim: int) -> Self:
        """The variance along an axis, over n; the axis stays with size 1.  PyTorch: var(dim, correction=0)."""
        return unary(ops.var, self, (axis(self, dim),), 0)

    def var_mean(self, dim: int) -> tuple[Self, Self]:
        """The variance along an axis, over n - 1, and the mean; the axis stays with size 1."""
        values: tuple[Self, Self] = apply(ops.var_mean, (self,), (axis(self, dim),), 1)
        return values

    def var_mean_bias(self, dim: int) -> tuple[Self, Self]:
        """The variance along an axis, over n, and the mean; the axis stays with size 1."""
        values: tuple[Self, Self] = apply(ops.var_mean, (self,), (axis(self, dim),), 0)
        return values

    def median(self, dim: int) -> Self:
        """The median along an axis, the lower one of two; the axis stays with size 1."""
        return self.median_with_indices(dim)[0]

    def median_with_indices(self, dim: int) -> tuple[Self, Self]:
        """The median along an axis and where it is; the axis stays with size 1."""
        values: tuple[Self, Self] = apply(ops.median_with_indices, (self,), axis(self, dim))
        return values

    def cov(self, dim: int, correction_factor: int) -> Self:
        """The covariances of the columns, with observations along axis `dim`.

            cov(i, j) = sum((x_i - mean(x_i)) * (x_j - mean(x_j))) / (n - correction_factor)

        Half types sum in f32: their products overflow long before a covariance does.
        Shapes: x (n, f), dim 0 -> (f, f).  PyTorch: torch.cov, with variables in rows.
        """
        if self.spec.ndim != 2:
            raise told(
                ShapeError,
                "a matrix of observations is needed",
                given=str(self.spec),
                expected="two axes: observations and variables",
                mend="flatten the other axes first",
            )
        at = axis(self, dim)
        wide = self.cast(DType.F32) if self.spec.dtype in (DType.F16, DType.BF16) else self
        centred = wide.sub(wide.mean_dim(at))
        rows = centred if at == 0 else centred.transpose()
        products = rows.transpose().matmul(rows)
        count = self.spec.shape[at] - integer(correction_factor, "correction_factor")
        return products.div(float(count)).cast(self.spec.dtype)

    def logsumexp_dim(self, dim: int) -> Self:
        """log(sum(exp(x))) along an axis, without overflow; the axis stays with size 1."""
        return unary(ops.logsumexp, self, (axis(self, dim),))

    # -- tests of values ------------------------------------------------------------------------------
    def is_nan(self) -> Self:
        """Returns whether each element is NaN."""
        return unary(ops.is_nan, self)

    def contains_nan(self) -> Self:
        """Returns whether any element is NaN.  Shapes: x (*s) -> (1,)."""
        return self.is_nan().any()

    def is_inf(self) -> Self:
        """Returns whether each element is plus or minus infinity."""
        return unary(ops.is_inf, self)

    def is_finite(self) -> Self:
        """Returns whether each element is a number that is neither infinite nor NaN."""
        return unary(ops.is_finite, self)

    def is_close(self, other: Self, rtol: float | None = None, atol: float | None = None) -> Self:
        """|x - other| <= atol + rtol * |other|, or equal infinities.  Defaults: rtol 1e-5, atol 1e-8."""
        require_tensor(other, "other")
        rtol, atol = (None if value is None else real(value, "a tolerance") for value in (rtol, atol))
        if (rtol is not None and rtol < 0) or (atol is not None and atol < 0):
            raise told(
                ArgumentError,
                "a tolerance is negative",
                given=f"rtol {rtol}, atol {atol}",
                expected="numbers of 0 or more",
                mend="write rtol=1e-5, atol=1e-8",
            )
        bound = other.abs().mul(1e-5 if rtol is None else rtol).add(1e-8 if atol is None else atol)
        near = binary(ops.sub, self, other).abs().lower_equal(bound).bool_and(other.is_finite())
        return near.bool_or(self.equal(other))

    def all_close(self, other: Self, rtol: float | None = None, atol: float | None = None) -> bool:
        """Returns whether all elements are close, see `is_close`.  Waits for the device.

        Other shapes are broadcast, with a BroadcastWarning.
        """
        require_tensor(other, "other")
        warn_of_shapes("all_close", self.spec, other.spec)
        close = self.is_close(other, rtol, atol).all()
        return bool(close)

    # -- images -------------------------------------------------------------------------------------
    def grid_sample_2d(self, grid: Self, options: GridSampleOptions | None = None) -> Self:
        """Pixels at the places of a grid, (x, y) in [-1, 1].  PyTorch: torch.nn.functional.grid_sample.

        Shapes: x (batch, channels, height, width), grid (batch, h, w, 2) -> (batch, channels, h, w).
        """
        chosen = option(options, GridSampleOptions, "options")
        return apply_one(
            ops.grid_sample_2d,
            (self, grid),
            InterpolateMode.of(chosen.mode).value,
            GridSamplePaddingMode.of(chosen.padding_mode).value,
            chosen.align_corners,
        )

    # -- element types ---------------------------------------------------------------------------------
    def cast(self, dtype: DType | str) -> Self:
        """The same values in another element type: to integers toward zero, to bool "is not zero".  PyTorch: to."""
        wanted = dtype_of(dtype)
        return self if wanted is self.spec.dtype else unary(ops.cast, self, wanted)
