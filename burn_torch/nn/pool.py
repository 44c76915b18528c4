"""Pooling over windows of one, two or three spatial axes."""

from __future__ import annotations

from typing import Any

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.nn._layer import InlineLayer, Rules, noting_layer, require_ndim
from burn_torch.nn.conv import AXES, as_tuple, extent
from burn_torch.nn.padding import PaddingConfig1d, PaddingConfig2d, PaddingConfig3d
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply

__all__ = [
    "AvgPool1d",
    "AvgPool1dConfig",
    "AvgPool2d",
    "AvgPool2dConfig",
    "AvgPool3d",
    "AvgPool3dConfig",
    "MaxPool1d",
    "MaxPool1dConfig",
    "MaxPool2d",
    "MaxPool2dConfig",
    "MaxPool3d",
    "MaxPool3dConfig",
]


def _pad(x: Tensor, pairs: tuple[tuple[int, int], ...], value: float) -> Tensor:
    padded: Tensor = ops.pad(x, value, padding=((0, 0), (0, 0), *pairs), mode="constant")
    return padded


# Padding that differs on the two sides of an axis is made first; then windows move over the result.
def _max_pool(layer: MaxPool1d | MaxPool2d | MaxPool3d, x: Tensor, stride: object) -> Tensor:
    kernel, stride, dilation = as_tuple(layer.kernel_size), as_tuple(stride), as_tuple(layer.dilation)
    require_ndim(x, layer, AXES[len(kernel)])
    pairs = layer.padding.pairs(x.shape[2:], extent(kernel, dilation), stride)
    padding = tuple([before for before, _ in pairs])
    if any(before != after for before, after in pairs):
        x, padding = _pad(x, pairs, -float("inf")), (0,) * len(kernel)
    values: Tensor = apply(ops.max_pool_with_indices, (x,), kernel, stride, padding, dilation, layer.ceil_mode)[0]
    return values


def _avg_pool(layer: AvgPool1d | AvgPool2d | AvgPool3d, x: Tensor, stride: object) -> Tensor:
    kernel, stride = as_tuple(layer.kernel_size), as_tuple(stride)
    require_ndim(x, layer, AXES[len(kernel)])
    pairs = layer.padding.pairs(x.shape[2:], kernel, stride)
    padding, count, ceil = tuple([before for before, _ in pairs]), layer.count_include_pad, layer.ceil_mode
    if all(before == after for before, after in pairs):
        y: Tensor = apply(ops.avg_pool, (x,), kernel, stride, padding, count, ceil)
        return y
    settings = (kernel, stride, (0,) * len(kernel), True, ceil)
    y = apply(ops.avg_pool, (_pad(x, pairs, 0.0),), *settings)
    if count:
        return y
    inside = _pad(x.new_full((1, 1, *x.shape[2:]), 1.0), pairs, 0.0)  # the share of a window that is no padding
    share: Tensor = apply(ops.avg_pool, (inside,), *settings)
    return y / share


class MaxPool1dConfig(Config):
    """The largest of each window.

    stride as long as the window: windows touch.  padding Valid: nothing is made up.  dilation 1: no gaps.
    ceil_mode false: a window that would reach past the end is left out.
    """

    kernel_size: int
    stride: int | None = None
    padding: PaddingConfig1d = PaddingConfig1d.Valid
    dilation: int = 1
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "stride", "dilation")

    def init(self, device: Device | None = None) -> MaxPool1d:
        """The layer; it has no parameters, so the device does not matter."""
        stride = self.kernel_size if self.stride is None else self.stride
        return MaxPool1d(stride, self.kernel_size, self.padding, self.dilation, self.ceil_mode)


class MaxPool2dConfig(Config):
    """The largest of each window; defaults as in MaxPool1dConfig."""

    kernel_size: tuple[int, int]
    strides: tuple[int, int] | None = None
    padding: PaddingConfig2d = PaddingConfig2d.Valid
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "strides", "dilation")

    def init(self, device: Device | None = None) -> MaxPool2d:
        """The layer; it has no parameters, so the device does not matter."""
        strides = self.kernel_size if self.strides is None else self.strides
        return MaxPool2d(strides, self.kernel_size, self.padding, self.dilation, self.ceil_mode)


class MaxPool3dConfig(Config):
    """The largest of each window; defaults as in MaxPool1dConfig."""

    kernel_size: tuple[int, int, int]
    strides: tuple[int, int, int] | None = None
    padding: PaddingConfig3d = PaddingConfig3d.Valid
    dilation: tuple[int, int, int] = (1, 1, 1)
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "strides", "dilation")

    def init(self, device: Device | None = None) -> MaxPool3d:
        """The layer; it has no parameters, so the device does not matter."""
        strides = self.kernel_size if self.strides is None else self.strides
        return MaxPool3d(strides, self.kernel_size, self.padding, self.dilation, self.ceil_mode)


class AvgPool1dConfig(Config):
    """The mean of each window.

    stride as long as the window: windows touch.  padding Valid: nothing is made up.  count_include_pad true: all
    windows divide by their size.  ceil_mode false: a window that would reach past the end is left out.
    """

    kernel_size: int
    stride: int | None = None
    padding: PaddingConfig1d = PaddingConfig1d.Valid
    count_include_pad: bool = True
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "stride")

    def init(self, device: Device | None = None) -> AvgPool1d:
        """The layer; it has no parameters, so the device does not matter."""
        stride = self.kernel_size if self.stride is None else self.stride
        return AvgPool1d(stride, self.kernel_size, self.padding, self.count_include_pad, self.ceil_mode)


class AvgPool2dConfig(Config):
    """The mean of each window; defaults as in AvgPool1dConfig."""

    kernel_size: tuple[int, int]
    strides: tuple[int, int] | None = None
    padding: PaddingConfig2d = PaddingConfig2d.Valid
    count_include_pad: bool = True
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "strides")

    def init(self, device: Device | None = None) -> AvgPool2d:
        """The layer; it has no parameters, so the device does not matter."""
        strides = self.kernel_size if self.strides is None else self.strides
        return AvgPool2d(strides, self.kernel_size, self.padding, self.count_include_pad, self.ceil_mode)


class AvgPool3dConfig(Config):
    """The mean of each window; defaults as in AvgPool1dConfig."""

    kernel_size: tuple[int, int, int]
    strides: tuple[int, int, int] | None = None
    padding: PaddingConfig3d = PaddingConfig3d.Valid
    count_include_pad: bool = True
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _check_windows(self, "strides")

    def init(self, device: Device | None = None) -> AvgPool3d:
        """The layer; it has no parameters, so the device does not matter."""
        strides = self.kernel_size if self.strides is None else self.strides
        return AvgPool3d(strides, self.kernel_size, self.padding, self.count_include_pad, self.ceil_mode)


def _check_windows(config: Any, stride: str, *others: str) -> None:
    rules = Rules(config).at_least(1, "kernel_size", *others)
    if getattr(config, stride) is not None:
        rules.at_least(1, stride)
    rules.stop()


class MaxPool1d(InlineLayer):
    """The largest element of each window; padding never wins.

    Shapes: x (batch, channels, length) -> (batch, channels, windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.MaxPool1d.
    """

    stride: int
    kernel_size: int
    padding: PaddingConfig1d
    dilation: int
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The largest elements."""
        return _max_pool(self, x, self.stride)


class MaxPool2d(InlineLayer):
    """The largest element of each window; padding never wins.

    Shapes: x (batch, channels, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.MaxPool2d.
    """

    strides: tuple[int, int]
    kernel_size: tuple[int, int]
    padding: PaddingConfig2d
    dilation: tuple[int, int]
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The largest elements."""
        return _max_pool(self, x, self.strides)


class MaxPool3d(InlineLayer):
    """The largest element of each window; padding never wins.

    Shapes: x (batch, channels, depth, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.MaxPool3d.
    """

    strides: tuple[int, int, int]
    kernel_size: tuple[int, int, int]
    padding: PaddingConfig3d
    dilation: tuple[int, int, int]
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The largest elements."""
        return _max_pool(self, x, self.strides)


class AvgPool1d(InlineLayer):
    """The mean of each window.

    Shapes: x (batch, channels, length) -> (batch, channels, windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.AvgPool1d.
    """

    stride: int
    kernel_size: int
    padding: PaddingConfig1d
    count_include_pad: bool
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        return _avg_pool(self, x, self.stride)


class AvgPool2d(InlineLayer):
    """The mean of each window.

    Shapes: x (batch, channels, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.AvgPool2d.
    """

    strides: tuple[int, int]
    kernel_size: tuple[int, int]
    padding: PaddingConfig2d
    count_include_pad: bool
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        return _avg_pool(self, x, self.strides)


class AvgPool3d(InlineLayer):
    """The mean of each window.

    Shapes: x (batch, channels, depth, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.AvgPool3d.
    """

    strides: tuple[int, int, int]
    kernel_size: tuple[int, int, int]
    padding: PaddingConfig3d
    count_include_pad: bool
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        return _avg_pool(self, x, self.strides)
