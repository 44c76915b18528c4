"""Convolutions and their transposes; windows as columns."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import integer, option
from burn_torch.tensor.apply import apply_one, require_tensor
from burn_torch.tensor.functional._settings import Sizes, each_axis, require_spatial
from burn_torch.tensor.options import (
    ConvOptions,
    ConvTransposeOptions,
    DeformConvOptions,
    UnfoldOptions,
)
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv2d_weight_backward",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "deform_conv2d",
    "fold4d",
    "unfold4d",
]


def conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over one axis.

    Shapes: x (batch, channels_in, length), weight (channels_out, channels_in / groups, kernel) -> (batch,
    channels_out, counts).
    """
    return _conv(x, weight, bias, options, 1)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over two axes.

    Shapes: x (batch, channels_in, height, width), weight (channels_out, channels_in / groups, *kernel) -> (batch,
    channels_out, *counts).
    """
    return _conv(x, weight, bias, options, 2)


def conv3d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over three axes."""
    return _conv(x, weight, bias, options, 3)


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None, options: ConvOptions | None, n: int) -> Tensor:
    require_spatial(x, n)
    return apply_one(ops.conv, (x, weight, bias), *_conv_attrs(option(options, ConvOptions, "options"), n))


def _conv_attrs(options: ConvOptions, n: int) -> tuple[object, ...]:
    padding = options.padding
    if isinstance(padding, list | tuple) and padding and isinstance(padding[0], list | tuple):
        pairs = tuple([each_axis("padding", pair, 2) for pair in padding])
    else:
        pairs = tuple([(size, size) for size in each_axis("padding", padding, n)])  # type: ignore[arg-type]  # a number for each side
    groups = integer(options.groups, "groups")
    return each_axis("stride", options.stride, n), pairs, each_axis("dilation", options.dilation, n), groups


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    options: DeformConvOptions | None = None,
) -> Tensor:
    """Convolution over two axes that reads x at places moved by `offset`, between pixels, times `mask`; 0 outside.

    Shapes: x (batch, channels_in, height, width), offset (batch, offset_groups * taps * 2, *counts), (y, x) of each tap
    beside each other, mask (batch, offset_groups * taps, *counts), weight (channels_out, channels_in / weight_groups,
    *kernel) -> (batch, channels_out, *counts); taps is the number of elements of the kernel.
    PyTorch: torchvision.ops.deform_conv2d, whose weight stands before the mask by name.
    """
    require_spatial(x, 2)
    chosen = option(options, DeformConvOptions, "options")
    plain = ConvOptions(chosen.stride, chosen.padding, chosen.dilation, chosen.weight_groups)
    groups = integer(chosen.offset_groups, "offset_groups")
    return apply_one(ops.deform_conv, (x, offset, weight, mask, bias), *_conv_attrs(plain, 2), groups)


def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over one axis.  Shapes: weight (channels_in, channels_out / groups, kernel)."""
    return _conv_transpose(x, weight, bias, options, 1)


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over two axes.  Shapes: weight (channels_in, channels_out / groups, *kernel)."""
    return _conv_transpose(x, weight, bias, options, 2)


def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over three axes.  Shapes: weight (channels_in, channels_out / groups, *kernel)."""
    return _conv_transpose(x, weight, bias, options, 3)


def _conv_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None, options: ConvTransposeOptions | None, n: int
) -> Tensor:
    require_spatial(x, n)
    chosen = option(options, ConvTransposeOptions, "options")
    attrs = [each_axis(name, getattr(chosen, name), n) for name in ("stride", "padding", "padding_out", "dilation")]
    return apply_one(ops.conv_transpose, (x, weight, bias), *attrs, integer(chosen.groups, "groups"))


def conv2d_weight_backward(
    x: Tensor, weight: Tensor, output_grad: Tensor, options: ConvOptions | None = None
) -> Tensor:
    """The gradient of conv2d with respect to its weight.  PyTorch: torch.nn.grad.conv2d_weight."""
    require_tensor(weight, "weight")
    attrs = _conv_attrs(option(options, ConvOptions, "options"), 2)
    return apply_one(ops.conv_weight_gradient, (x, output_grad), weight.shape[2:], *attrs)


def unfold4d(x: Tensor, kernel_size: Sizes, options: UnfoldOptions | None = None) -> Tensor:
    """The windows of an image as columns.  PyTorch: torch.nn.functional.unfold.

    Shapes: x (batch, channels, height, width) -> (batch, channels * kernel height * kernel width, windows).
    """
    return apply_one(ops.unfold4d, (x,), *_unfold_attrs(kernel_size, options))


def fold4d(x: Tensor, output_size: Sizes, kernel_size: Sizes, options: UnfoldOptions | None = None) -> Tensor:
    """Columns added into the windows of an image.  PyTorch: torch.nn.functional.fold."""
    size = each_axis("output_size", output_size, 2)
    return apply_one(ops.fold4d, (x,), size, *_unfold_attrs(kernel_size, options))


def _unfold_attrs(kernel_size: Sizes, options: UnfoldOptions | None) -> tuple[object, ...]:
    chosen = option(options, UnfoldOptions, "options")
    kernel = each_axis("kernel_size", kernel_size, 2)
    return kernel, *[each_axis(name, getattr(chosen, name), 2) for name in ("stride", "dilation", "padding")]


word_functions(globals(), "functional")
