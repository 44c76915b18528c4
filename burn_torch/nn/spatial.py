"""Layers that rearrange or resample images: pixel shuffles, unfold and fold, interpolation."""

from __future__ import annotations

from enum import Enum
from typing import Any

from burn_torch import ops
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer, require_ndim
from burn_torch.nn.conv import AXES, as_tuple
from burn_torch.tensor import Tensor, functional
from burn_torch.tensor.apply import apply_one

__all__ = [
    "Fold4d",
    "Fold4dConfig",
    "Interpolate1d",
    "Interpolate1dConfig",
    "Interpolate2d",
    "Interpolate2dConfig",
    "InterpolateMode",
    "PixelShuffle",
    "PixelShuffleConfig",
    "PixelUnshuffle",
    "PixelUnshuffleConfig",
    "Unfold4d",
    "Unfold4dConfig",
]


# -- pixels ---------------------------------------------------------------------------------------------------
class PixelShuffleConfig(ParameterlessConfig["PixelShuffle"]):
    """Larger images from more channels."""

    upscale_factor: int

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "upscale_factor").stop()


class PixelShuffle(InlineLayer):
    """Moves groups of r^2 channels into blocks of r x r pixels.

    Shapes: x (batch, channels r^2, height, width) -> (batch, channels, height r, width r).
    Source: Shi et al. 2016, https://arxiv.org/abs/1609.05158.  PyTorch: torch.nn.PixelShuffle.
    """

    upscale_factor: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The larger image."""
        require_ndim(x, self, AXES[2])
        return functional.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffleConfig(ParameterlessConfig["PixelUnshuffle"]):
    """More channels from larger images."""

    downscale_factor: int

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "downscale_factor").stop()


class PixelUnshuffle(InlineLayer):
    """Moves blocks of r x r pixels into groups of r^2 channels: what undoes PixelShuffle.

    Shapes: x (batch, channels, height r, width r) -> (batch, channels r^2, height, width).
    PyTorch: torch.nn.PixelUnshuffle.
    """

    downscale_factor: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The smaller image with more channels."""
        require_ndim(x, self, AXES[2])
        return functional.pixel_unshuffle(x, self.downscale_factor)


# -- windows --------------------------------------------------------------------------------------------------
class Unfold4dConfig(ParameterlessConfig["Unfold4d"]):
    """Windows of an image as columns.  stride and dilation 1, padding 0: every window of the image itself."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "kernel_size", "stride", "dilation").at_least(0, "padding").stop()


class Unfold4d(InlineLayer):
    """The windows of an image as columns.

    Shapes: x (batch, channels, height, width) -> (batch, channels * kernel elements, windows).
    PyTorch: torch.nn.Unfold.
    """

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The columns."""
        return apply_one(ops.unfold4d, (x,), self.kernel_size, self.stride, self.dilation, self.padding)


class Fold4dConfig(ParameterlessConfig["Fold4d"]):
    """Columns added into an image.  stride and dilation 1, padding 0: as Unfold4dConfig makes them."""

    output_size: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "output_size", "kernel_size", "stride", "dilation")
        rules.at_least(0, "padding").stop()


class Fold4d(InlineLayer):
    """Adds columns into the windows of an image; where windows overlap, elements add up.

    Shapes: x (batch, channels * kernel elements, windows) -> (batch, channels, *output_size).
    PyTorch: torch.nn.Fold.
    """

    output_size: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The image."""
        settings = (self.output_size, self.kernel_size, self.stride, self.dilation, self.padding)
        return apply_one(ops.fold4d, (x,), *settings)


# -- resampling -------------------------------------------------------------------------------------------------
class InterpolateMode(Enum):
    """How new elements are worked out of old ones."""

    Nearest = "Nearest"
    """The element at floor(i n / m)."""
    NearestExact = "NearestExact"
    """The element nearest to the centre of the new one."""
    Linear = "Linear"
    """Between neighbours; bilinear in two axes."""
    Cubic = "Cubic"
    """Between four neighbours an axis; bicubic in two axes."""
    Lanczos = "Lanczos"
    """Between six neighbours an axis, with windowed sincs."""


_ROW_MODES = {
    InterpolateMode.Nearest: "nearest",
    InterpolateMode.NearestExact: "nearest_exact",
    InterpolateMode.Linear: "linear",
    InterpolateMode.Cubic: "cubic",
    InterpolateMode.Lanczos: "lanczos",
}


def _check_sizes(config: Any) -> None:
    rules = Rules(config)
    if config.output_size is not None:
        rules.at_least(1, "output_size")
    factors = config.scale_factor if isinstance(config.scale_factor, tuple) else (config.scale_factor,)
    if config.scale_factor is not None and not all(factor > 0 for factor in factors):
        rules.fault("scale_factor", "not above 0", "numbers above 0", "2.0 doubles a size")
    if (config.output_size is None) == (config.scale_factor is None):
        rules.fault("output_size", "and scale_factor do not settle the size", "one of the two", "give one of them")
    rules.stop()


class _Interpolate(InlineLayer):
    output_size: Any
    scale_factor: Any
    mode: InterpolateMode
    align_corners: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The resampled input."""
        axes = len(as_tuple(self.output_size if self.scale_factor is None else self.scale_factor))
        require_ndim(x, self, AXES[axes])
        if self.output_size is not None:
            size = as_tuple(self.output_size)
        else:
            size = tuple(int(n * factor) for n, factor in zip(x.shape[2:], as_tuple(self.scale_factor), strict=True))
        return apply_one(ops.interpolate, (x,), size, _ROW_MODES[self.mode], self.align_corners)


class Interpolate1dConfig(ParameterlessConfig["Interpolate1d"]):
    """Resampling of one axis, to a size or by a factor.

    mode Nearest makes up no values.  align_corners true: the ends stay where they are (PyTorch: false).
    """

    output_size: int | None = None
    scale_factor: float | None = None
    mode: InterpolateMode = InterpolateMode.Nearest
    align_corners: bool = True

    def __post_init__(self) -> None:
        _check_sizes(self)


class Interpolate2dConfig(ParameterlessConfig["Interpolate2d"]):
    """Resampling of two axes, to a size or by factors; defaults as in Interpolate1dConfig."""

    output_size: tuple[int, int] | None = None
    scale_factor: tuple[float, float] | None = None
    mode: InterpolateMode = InterpolateMode.Nearest
    align_corners: bool = True

    def __post_init__(self) -> None:
        _check_sizes(self)


class Interpolate1d(_Interpolate):
    """Resamples one axis.

    Shapes: x (batch, channels, length) -> (batch, channels, output_size), or floor(length * scale_factor).
    Dtypes: any float, the same out.  PyTorch: torch.nn.Upsample, which has no cubic over one axis.
    """


class Interpolate2d(_Interpolate):
    """Resamples two axes.

    Shapes: x (batch, channels, height, width) -> (batch, channels, *output_size), or floor(size * scale_factor).
    Dtypes: any float, the same out.  PyTorch: torch.nn.Upsample.
    """
