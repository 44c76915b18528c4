"""Tolerance: how far apart two values may lie and still count as near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError

__all__ = ["Tolerance"]

# The smallest positive normal number; numpy has no bfloat16, whose exponents are those of float32.
_TINY: Final = {
    DType.F64: float(np.finfo(np.float64).tiny),
    DType.F32: float(np.finfo(np.float32).tiny),
    DType.F16: float(np.finfo(np.float16).tiny),
    DType.BF16: float(np.finfo(np.float32).tiny),
}


@final
@dataclass(frozen=True)
class Tolerance:
    """Values a and b are near if they are equal, or |a - b| < max(rtol * |a + b|, atol + steps * tiny).

    `tiny` is the smallest positive normal number of the element type.  NaN is near NaN; an infinity only to itself.
    Source: `Tolerance` of Burn, whose relative part is measured by |a + b| too.
    """

    rtol: float = 0.0
    atol: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        if not (0.0 <= self.rtol <= 1.0 and self.atol >= 0.0):
            raise ArgumentError(
                "Tolerance: a part is out of range",
                given=f"relative {self.rtol}, absolute {self.atol}",
                expected="relative from 0 to 1, absolute of 0 or more",
                mend="0.01 is one percent",
            )

    @staticmethod
    def strict() -> Tolerance:
        """Equal but for 64 times the smallest normal number."""
        return Tolerance(steps=64)

    @staticmethod
    def balanced() -> Tolerance:
        """Half a percent, or 1e-5: the default."""
        return Tolerance(0.005, 1e-5)

    @staticmethod
    def permissive() -> Tolerance:
        """One percent, or 0.01."""
        return Tolerance(0.01, 0.01)

    @staticmethod
    def rel_abs(relative: float, absolute: float) -> Tolerance:
        """Near by either measure."""
        return Tolerance(relative, absolute)

    @staticmethod
    def relative(tolerance: float) -> Tolerance:
        """Only the relative measure."""
        return Tolerance(tolerance, 0.0)

    @staticmethod
    def absolute(tolerance: float) -> Tolerance:
        """Only the absolute measure."""
        return Tolerance(0.0, tolerance)

    def near(self, x: NDArray[Any], y: NDArray[Any], dtype: DType) -> NDArray[np.bool_]:
        """Tells if each pair of values is near; `dtype` is the element type they had."""
        with np.errstate(all="ignore"):
            bound = np.maximum(self.rtol * np.abs(x + y), self.atol + self.steps * _TINY.get(dtype, 0.0))
            finite = np.isfinite(x) & np.isfinite(y)
            return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)) | (finite & (np.abs(x - y) < bound)))
