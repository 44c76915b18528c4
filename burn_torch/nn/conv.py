"""Convolutions over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer, require_ndim
from burn_torch.nn.padding import PaddingConfig1d, PaddingConfig2d, PaddingConfig3d
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply_one

__all__ = ["Conv1d", "Conv1dConfig", "Conv2d", "Conv2dConfig", "Conv3d", "Conv3dConfig"]

_conv = ops.conv


def as_tuple(setting: object) -> tuple[int, ...]:
    """A setting of one spatial axis, or of several, as a tuple."""
    return setting if isinstance(setting, tuple) else (setting,)


def extent(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """How far windows reach, the gaps of the dilation included."""
    return tuple([step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True)])


AXES = {
    1: "(batch, channels, length)",
    2: "(batch, channels, height, width)",
    3: "(batch, channels, depth, height, width)",
}


class _Conv(Module):
    weight: Param
    bias: Param | None
    stride: Any
    kernel_size: Any
    dilation: Any
    groups: int
    padding: Any

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The convolved input.  Raises: ShapeError, DTypeError."""
        bias = self.bias
        stride, dilation = as_tuple(self.stride), as_tuple(self.dilation)
        require_ndim(x, self, AXES[len(stride)])
        padding = self.padding.pairs(x.shape[2:], extent(as_tuple(self.kernel_size), dilation), stride)
        return apply_one(
            _conv, (x, self.weight.val(), None if bias is None else bias.val()), stride, padding, dilation, self.groups
        )

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        shape = self.weight.shape
        content.add("ch_in", shape[1] * self.groups).add("ch_out", shape[0])
        for name in ("stride", "kernel_size", "dilation", "groups"):
            content.add(name, getattr(self, name))
        return content.add("padding", str(self.padding))


def _check(config: Any, *channels: str) -> None:
    rules = Rules(config).at_least(1, *channels, "kernel_size", "stride", "dilation", "groups")
    for name in channels:
        rules.divides("groups", name)
    rules.stop()


C = TypeVar("C", bound=Module)


def _init(config: Any, channels_in: int, channels_out: int, kind: Callable[..., C], device: Device) -> C:
    kernel, groups = as_tuple(config.kernel_size), config.groups
    fan_in, fan_out = channels_in // groups * math.prod(kernel), channels_out * math.prod(kernel)
    weight = config.initializer.init_with((channels_out, channels_in // groups, *kernel), fan_in, fan_out, device)
    bias = config.initializer.init_with((channels_out,), fan_in, fan_out, device) if config.bias else None
    return kind(weight, bias, config.stride, config.kernel_size, config.dilation, groups, config.padding)


class Conv1dConfig(Config):
    """A convolution over one axis; Burn's defaults.

    stride, dilation, groups 1: every position, no gaps, all channels together.  padding Valid: nothing is made up.
    bias true: a channel may shift.  initializer: even in +-1 / sqrt(fan_in), which keeps the variance.
    """

    channels_in: int
    channels_out: int
    kernel_size: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    padding: PaddingConfig1d = PaddingConfig1d.Valid
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self, "channels_in", "channels_out")

    def init(self, device: Device) -> Conv1d:
        """The layer with fresh parameters."""
        return _init(self, self.channels_in, self.channels_out, Conv1d, device)


class Conv2dConfig(Config):
    """A convolution over two axes; channels are (in, out).  Defaults as in Conv1dConfig."""

    channels: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    padding: PaddingConfig2d = PaddingConfig2d.Valid
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self, "channels")

    def init(self, device: Device) -> Conv2d:
        """The layer with fresh parameters."""
        return _init(self, *self.channels, Conv2d, device)


class Conv3dConfig(Config):
    """A convolution over three axes; channels are (in, out).  Defaults as in Conv1dConfig."""

    channels: tuple[int, int]
    kernel_size: tuple[int, int, int]
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    groups: int = 1
    padding: PaddingConfig3d = PaddingConfig3d.Valid
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        _check(self, "channels")

    def init(self, device: Device) -> Conv3d:
        """The layer with fresh parameters."""
        return _init(self, *self.channels, Conv3d, device)


class Conv1d(_Conv):
    """Convolution over one axis; the kernel is not flipped.

    Shapes: x (batch, channels_in, length), weight (channels_out, channels_in / groups, kernel_size), bias
    (channels_out,) -> (batch, channels_out, windows).  Dtypes: any float, the same for all.
    PyTorch: torch.nn.Conv1d, whose "same" padding needs stride 1.
    """


class Conv2d(_Conv):
    """Convolution over two axes; the kernel is not flipped.

    Shapes: x (batch, channels_in, height, width), weight (channels_out, channels_in / groups, *kernel_size), bias
    (channels_out,) -> (batch, channels_out, *windows).  Dtypes: any float, the same for all.
    PyTorch: torch.nn.Conv2d, whose "same" padding needs stride 1.
    """


class Conv3d(_Conv):
    """Convolution over three axes; the kernel is not flipped.

    Shapes: x (batch, channels_in, depth, height, width), weight (channels_out, channels_in / groups, *kernel_size),
    bias (channels_out,) -> (batch, channels_out, *windows).  Dtypes: any float, the same for all.
    PyTorch: torch.nn.Conv3d, whose "same" padding needs stride 1.
    """
