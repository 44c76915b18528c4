"""Functions of complex numbers, written with those of their real parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from burn_torch.tensor.apply import ComputesWithTensors
from burn_torch.tensor.tensor import Tensor

__all__ = ["ComplexFunctions"]


@dataclass(frozen=True, eq=False, repr=False)
class ComplexFunctions(ComputesWithTensors):
    """Functions of a pair (real, imag), which `ComplexTensor` has."""

    real: Tensor
    imag: Tensor

    def conj(self) -> Self:
        """re - i im."""
        return self.__class__(self.real, -self.imag)

    def abs(self) -> Tensor:
        """sqrt(re^2 + im^2), with no overflow between; the gradient at 0 is 0, as in PyTorch."""
        zero, real = self._away_from_zero()
        return real.hypot(self.imag).mask_fill(zero, 0.0)

    def abs_square(self) -> Tensor:
        """re^2 + im^2."""
        return self.real.square() + self.imag.square()

    def angle(self) -> Tensor:
        """atan2(im, re), from -pi to pi; at 0 it is 0, and so is its gradient."""
        zero, real = self._away_from_zero()
        return self.imag.atan2(real).mask_fill(zero, 0.0)

    def _away_from_zero(self) -> tuple[Tensor, Tensor]:
        """A mask of zeros, and the real part with 1 at those, so that no gradient is NaN."""
        zero = (self.real == 0.0).bool_and(self.imag == 0.0)
        return zero, self.real.mask_fill(zero, 1.0)

    def exp(self) -> Self:
        """e^re * (cos im + i sin im)."""
        length = self.real.exp()
        return self.__class__(length * self.imag.cos(), length * self.imag.sin())

    def log(self) -> Self:
        """log |z| + i angle."""
        return self.__class__(self.real.hypot(self.imag).log(), self.imag.atan2(self.real))

    def sqrt(self) -> Self:
        """The root whose real part is not negative; no gradient is finite at 0."""
        left = self.real < 0.0
        long = ((self.real.hypot(self.imag) + self.real.mask_where(left, -self.real)) * 0.5).sqrt()
        short = (self.imag / (long * 2.0)).mask_fill(long == 0.0, 0.0)
        below = self.imag < 0.0  # no abs of a part: where it is 0 its slope would be lost
        return self.__class__(
            long.mask_where(left, short.mask_where(below, -short)),
            short.mask_where(left, long.mask_where(below, -long)),
        )

    def sin(self) -> Self:
        """sin re cosh im + i cos re sinh im."""
        return self.__class__(self.real.sin() * self.imag.cosh(), self.real.cos() * self.imag.sinh())

    def cos(self) -> Self:
        """cos re cosh im - i sin re sinh im."""
        return self.__class__(self.real.cos() * self.imag.cosh(), -(self.real.sin() * self.imag.sinh()))

    def sinh(self) -> Self:
        """sinh re cos im + i cosh re sin im."""
        return self.__class__(self.real.sinh() * self.imag.cos(), self.real.cosh() * self.imag.sin())

    def cosh(self) -> Self:
        """cosh re cos im + i sinh re sin im."""
        return self.__class__(self.real.cosh() * self.imag.cos(), self.real.sinh() * self.imag.sin())

    def tanh(self) -> Self:
        """(sinh 2 re + i sin 2 im) / (cosh 2 re + cos 2 im), with no overflow between."""
        real, turn = self.real.tanh(), self.imag.tan()
        real_square, turn_square = real.square(), turn.square()
        below = real_square * turn_square + 1.0
        return self.__class__(real * (turn_square + 1.0) / below, turn * (1.0 - real_square) / below)
