"""Transposed convolutions over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer, require_ndim
from burn_torch.nn.conv import AXES, as_tuple
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply_one

__all__ = [
    "ConvTranspose1d",
    "ConvTranspose1dConfig",
    "ConvTranspose2d",
    "ConvTranspose2dConfig",
    "ConvTranspose3d",
    "ConvTranspose3dConfig",
]

_SETTINGS = ("stride", "kernel_size", "dilation", "groups", "padding", "padding_out")


class _ConvTranspose(Module):
    weight: Param
    bias: Param | None
    stride: Any
    kernel_size: Any
    dilation: Any
    groups: int
    padding: Any
    padding_out: Any

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The spread input.  Raises: ShapeError, DTypeError."""
        bias, stride = self.bias, as_tuple(self.stride)
        require_ndim(x, self, AXES[len(stride)])
        inputs = (x, self.weight.val(), None if bias is None else bias.val())
        settings = (stride, as_tuple(self.padding), as_tuple(self.padding_out), as_tuple(self.dilation), self.groups)
        return apply_one(ops.conv_transpose, inputs, *settings)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        shape = self.weight.shape
        content.add("ch_in", shape[0]).add("ch_out", shape[1] * self.groups)
        for name in _SETTINGS:
            content.add(name, getattr(self, name))
        return content


def _check(config: Config) -> None:
    rules = Rules(config).at_least(1, "channels", "kernel_size", "stride", "dilation", "groups")
    rules.at_least(0, "padding", "padding_out").divides("groups", "channels").stop()


C = TypeVar("C", bound=Module)


def _init(config: Any, kind: Callable[..., C], device: Device) -> C:
    kernel, groups, (channels_in, channels_out) = as_tuple(config.kernel_size), config.groups, config.channels
    fan_in, fan_out = channels_out // groups * math.prod(kernel), channels_in * math.prod(kernel)
    weight = config.initializer.init_with((channels_in, channels_out // groups, *kernel), fan_in, fan_out, device)
    bias = config.initializer.init_with((channels_out,), fan_in, fan_out, device) if config.bias else None
    return kind(weight, bias, *(getattr(config, name) for name in _SETTINGS))


class ConvTranspose1dConfig(Config):
    """A transposed convolution over one axis; channels are (in, out).  Burn's defaults.

    stride, dilation, groups 1: no spreading, no gaps, all channels together.  padding, padding_out 0: nothing is cut
    off or added.  bias true: a channel may shift.  initializer: even in +-1 / sqrt(fan), PyTorch's start.
    """

    channels: tuple[int, int]
    kernel_size: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    padding: int = 0
    padding_out: int = 0
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self)

    def init(self, device: Device) -> ConvTranspose1d:
        """The layer with fresh parameters."""
        return _init(self, ConvTranspose1d, device)


class ConvTranspose2dConfig(Config):
    """A transposed convolution over two axes; see ConvTranspose1dConfig."""

    channels: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    padding: tuple[int, int] = (0, 0)
    padding_out: tuple[int, int] = (0, 0)
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self)

    def init(self, device: Device) -> ConvTranspose2d:
        """The layer with fresh parameters."""
        return _init(self, ConvTranspose2d, device)


class ConvTranspose3dConfig(Config):
    """A transposed convolution over three axes; see ConvTranspose1dConfig."""

    channels: tuple[int, int]
    kernel_size: tuple[int, int, int]
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    groups: int = 1
    padding: tuple[int, int, int] = (0, 0, 0)
    padding_out: tuple[int, int, int] = (0, 0, 0)
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self)

    def init(self, device: Device) -> ConvTranspose3d:
        """The layer with fresh parameters."""
        return _init(self, ConvTranspose3d, device)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one axis: each element adds a scaled kernel to the output.

    Shapes: x (batch, channels_in, length), weight (channels_in, channels_out / groups, kernel_size), bias
    (channels_out,) -> (batch, channels_out, (length - 1) stride - 2 padding + dilation (kernel - 1) + padding_out + 1).
    Dtypes: any float, the same for all.  PyTorch: torch.nn.ConvTranspose1d, padding_out is output_padding.
    """


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over two axes; see ConvTranspose1d for the sizes.

    Shapes: x (batch, channels_in, height, width), weight (channels_in, channels_out / groups, *kernel_size), bias
    (channels_out,) -> (batch, channels_out, *sizes).  Dtypes: any float, the same for all.
    PyTorch: torch.nn.ConvTranspose2d, padding_out is output_padding.
    """


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three axes; see ConvTranspose1d for the sizes.

    Shapes: x (batch, channels_in, depth, height, width), weight (channels_in, channels_out / groups, *kernel_size),
    bias (channels_out,) -> (batch, channels_out, *sizes).  Dtypes: any float, the same for all.
    PyTorch: torch.nn.ConvTranspose3d, padding_out is output_padding.
    """
