"""Gradient clipping, for each tensor alone, as Burn does."""

from __future__ import annotations

from typing import ClassVar, Final, cast

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Tensor

__all__ = ["ClipNorm", "ClipValue", "GradientClipping", "GradientClippingConfig"]


_SMALL: Final = 1e-30
"""No threshold is as small as its root, and the root has a slope here: so has a step at gradients of 0."""


class GradientClippingConfig(Config, enum=True):
    """How gradients are bounded: `GradientClippingConfig.Value(0.5)` or `.Norm(1.0)`.

    PyTorch: clip_grad_value_ and clip_grad_norm_; the latter takes one norm over all tensors, this one each alone.
    """

    Value: ClassVar[type[ClipValue]]
    Norm: ClassVar[type[ClipNorm]]

    def init(self) -> GradientClipping:
        """The clipping of this configuration."""
        return GradientClipping(self)


class ClipValue(GradientClippingConfig, tag="Value", form="tuple"):
    """Bounds each element to [-threshold, threshold]."""

    threshold: float

    def __post_init__(self) -> None:
        _require_positive("Value", self.threshold)


class ClipNorm(GradientClippingConfig, tag="Norm", form="tuple"):
    """Scales a tensor down to the Euclidean norm `threshold` where it has a greater one."""

    threshold: float

    def __post_init__(self) -> None:
        _require_positive("Norm", self.threshold)


GradientClippingConfig.Value = ClipValue
GradientClippingConfig.Norm = ClipNorm


@checked(error=ConfigError)
class GradientClipping:
    """Applies a clipping to gradients, without reading them on the host."""

    def __init__(self, config: GradientClippingConfig) -> None:
        self.config = config

    def clip_gradient(self, gradient: Tensor) -> Tensor:
        """The bounded gradient; a NaN stays one."""
        config = self.config
        if isinstance(config, ClipValue):
            clipped: Tensor = ops.clamp(gradient, -config.threshold, config.threshold)
            return clipped
        assert isinstance(config, ClipNorm)
        every = tuple(range(gradient.ndim))
        # in float16 the square of 256 is infinite, and the clipped gradient would be zero
        wide = gradient.cast(DType.F32) if gradient.dtype.itemsize < DType.F32.itemsize else gradient
        square = ops.maximum(ops.sum(wide * wide, dims=every), _SMALL)
        norm = ops.sqrt(square)
        # threshold / max(norm, threshold) is 1 for a small gradient, and never divides by zero
        clipped = wide * (config.threshold / cast(Tensor, ops.maximum(norm, config.threshold)))
        return clipped.cast(gradient.dtype)


def _require_positive(name: str, threshold: float) -> None:
    if not threshold > 0:
        raise ConfigError(
            f"GradientClippingConfig.{name}: the threshold must be above 0",
            given=f"{threshold}",
            expected="a number above 0",
            mend="leave grad_clipping out to switch clipping off",
        )
