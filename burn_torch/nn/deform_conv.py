"""Convolution whose windows read each pixel at a place of its own."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer, require_ndim
from burn_torch.nn.conv import AXES, extent
from burn_torch.nn.padding import PaddingConfig2d
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply_one

__all__ = ["DeformConv2d", "DeformConv2dConfig"]


class DeformConv2dConfig(Config):
    """A deformable convolution over two axes; channels are (in, out).

    weight_groups 1: all channels together.  offset_groups 1: all channels share their offsets.  Other defaults as in
    Conv2dConfig.
    """

    channels: tuple[int, int]
    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    weight_groups: int = 1
    offset_groups: int = 1
    padding: PaddingConfig2d = PaddingConfig2d.Valid
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "channels", "kernel_size", "stride", "dilation")
        rules.at_least(1, "weight_groups", "offset_groups").divides("weight_groups", "channels")
        if self.offset_groups > 0 and self.channels[0] % self.offset_groups:
            expected = f"a divisor of {self.channels[0]}"
            rules.fault("offset_groups", "no divisor of the input channels", expected, "change either of them")
        rules.stop()

    def init(self, device: Device) -> DeformConv2d:
        """The layer with fresh parameters."""
        (channels_in, channels_out), kernel = self.channels, self.kernel_size
        fan_in, fan_out = channels_in // self.weight_groups * math.prod(kernel), channels_out * math.prod(kernel)
        shape = (channels_out, channels_in // self.weight_groups, *kernel)
        weight = self.initializer.init_with(shape, fan_in, fan_out, device)
        bias = self.initializer.init_with((channels_out,), fan_in, fan_out, device) if self.bias else None
        settings = (self.stride, kernel, self.dilation, self.weight_groups, self.offset_groups, self.padding)
        return DeformConv2d(weight, bias, *settings)


class DeformConv2d(Module):
    """Convolution over two axes that reads its input at places moved by offsets, which another layer computes.

    x is 0 outside; between pixels it is interpolated.  The mask, if there is one, multiplies what is read.
    Shapes: x (batch, channels_in, height, width), offset (batch, offset_groups * taps * 2, *windows), (y, x) of each
    tap beside each other, mask (batch, offset_groups * taps, *windows), weight (channels_out, channels_in /
    weight_groups, *kernel_size), bias (channels_out,) -> (batch, channels_out, *windows); taps is the number of
    elements of the kernel.
    Dtypes: any float, the same for all; half types compute in f32.
    Source: Dai et al. 2017, https://arxiv.org/abs/1703.06211.  PyTorch: torchvision.ops.DeformConv2d.
    """

    weight: Param
    bias: Param | None
    stride: tuple[int, int]
    kernel_size: tuple[int, int]
    dilation: tuple[int, int]
    weight_groups: int
    offset_groups: int
    padding: PaddingConfig2d

    @noting_layer
    def forward(self, x: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        """The convolved input.  Raises: ShapeError, DTypeError."""
        require_ndim(x, self, AXES[2])
        padding = self.padding.pairs(x.shape[2:], extent(self.kernel_size, self.dilation), self.stride)
        inputs = (x, offset, self.weight.val(), mask, None if self.bias is None else self.bias.val())
        settings = (self.stride, padding, self.dilation, self.weight_groups, self.offset_groups)
        return apply_one(ops.deform_conv, inputs, *settings)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        shape = self.weight.shape
        content.add("ch_in", shape[1] * self.weight_groups).add("ch_out", shape[0])
        for name in ("stride", "kernel_size", "dilation", "weight_groups", "offset_groups"):
            content.add(name, getattr(self, name))
        return content.add("padding", str(self.padding))
