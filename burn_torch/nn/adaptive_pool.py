"""Pooling to an output of a given size: windows cover each axis and differ by at most one element."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer, require_ndim
from burn_torch.nn.conv import AXES, as_tuple
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one
from burn_torch.tensor.functional import adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool1dConfig",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool2dConfig",
    "AdaptiveAvgPool3d",
    "AdaptiveAvgPool3dConfig",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool1dConfig",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool2dConfig",
    "AdaptiveMaxPool3d",
    "AdaptiveMaxPool3dConfig",
]


# -- means ------------------------------------------------------------------------------------------------
class _AdaptiveAvgPool(InlineLayer):
    output_size: int | tuple[int, ...]

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The means of `output_size` windows an axis, which cover it and differ by at most one element."""
        size = as_tuple(self.output_size)
        require_ndim(x, self, AXES[len(size)])
        return apply_one(ops.adaptive_avg_pool, (x,), size)


class AdaptiveAvgPool1dConfig(ParameterlessConfig["AdaptiveAvgPool1d"]):
    """Means that make an output of a given size, whatever the input's."""

    output_size: int

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveAvgPool2dConfig(ParameterlessConfig["AdaptiveAvgPool2d"]):
    """Means that make an output of a given size, whatever the input's."""

    output_size: tuple[int, int]

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveAvgPool3dConfig(ParameterlessConfig["AdaptiveAvgPool3d"]):
    """Means that make an output of a given size, whatever the input's."""

    output_size: tuple[int, int, int]

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Shapes: x (batch, channels, length) -> (batch, channels, output_size).  PyTorch: torch.nn.AdaptiveAvgPool1d."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Shapes: x (batch, channels, height, width) -> (batch, channels, *output_size).  PyTorch: AdaptiveAvgPool2d."""


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Shapes: x (batch, channels, *three sizes) -> (batch, channels, *output_size).  PyTorch: AdaptiveAvgPool3d."""


# -- maxima -----------------------------------------------------------------------------------------------
_MAXIMA = {1: adaptive_max_pool1d, 2: adaptive_max_pool2d, 3: adaptive_max_pool3d}


class _AdaptiveMaxPool(InlineLayer):
    output_size: int | tuple[int, ...]

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The largest elements of `output_size` windows an axis, which cover it and differ by at most one element."""
        size = as_tuple(self.output_size)
        require_ndim(x, self, AXES[len(size)])
        return _MAXIMA[len(size)](x, size)


class AdaptiveMaxPool1dConfig(ParameterlessConfig["AdaptiveMaxPool1d"]):
    """Maxima that make an output of a given size, whatever the input's."""

    output_size: int

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveMaxPool2dConfig(ParameterlessConfig["AdaptiveMaxPool2d"]):
    """Maxima that make an output of a given size, whatever the input's."""

    output_size: tuple[int, int]

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveMaxPool3dConfig(ParameterlessConfig["AdaptiveMaxPool3d"]):
    """Maxima that make an output of a given size, whatever the input's."""

    output_size: tuple[int, int, int]

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "output_size").stop()


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Shapes: x (batch, channels, length) -> (batch, channels, output_size).  PyTorch: torch.nn.AdaptiveMaxPool1d."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Shapes: x (batch, channels, height, width) -> (batch, channels, *output_size).  PyTorch: AdaptiveMaxPool2d."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Shapes: x (batch, channels, *three sizes) -> (batch, channels, *output_size).  PyTorch: AdaptiveMaxPool3d."""
