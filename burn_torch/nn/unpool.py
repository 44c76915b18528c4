"""LpPool, MaxUnpool, FractionalMaxPool: norms of windows, maxima put back, and maxima at drawn places."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.nn._layer import InlineLayer, Rules, drawn_like, noting_layer, require_ndim
from burn_torch.nn.conv import AXES
from burn_torch.tensor import Device, Tensor, functional

__all__ = [
    "FractionalMaxPool2d",
    "FractionalMaxPool2dConfig",
    "FractionalMaxPool3d",
    "FractionalMaxPool3dConfig",
    "LpPool1d",
    "LpPool1dConfig",
    "LpPool2d",
    "LpPool2dConfig",
    "LpPool3d",
    "LpPool3dConfig",
    "MaxUnpool1d",
    "MaxUnpool1dConfig",
    "MaxUnpool2d",
    "MaxUnpool2dConfig",
    "MaxUnpool3d",
    "MaxUnpool3dConfig",
]


def _rules(config: Config, stride: str) -> Rules:
    rules = Rules(config).at_least(1, "kernel_size")
    return rules if getattr(config, stride) is None else rules.at_least(1, stride)


# -- norms of windows ---------------------------------------------------------------------------------------
class LpPool1dConfig(Config):
    """The p-norm of each window.

    stride as long as the window: windows touch.  ceil_mode false: a window that would reach past the end is left out.
    """

    p: float
    kernel_size: int
    stride: int | None = None
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _rules(self, "stride").positive("p").stop()

    def init(self, device: Device | None = None) -> LpPool1d:
        """The layer; it has no parameters, so the device does not matter."""
        return LpPool1d(
            self.p, self.kernel_size if self.stride is None else self.stride, self.kernel_size, self.ceil_mode
        )


class LpPool2dConfig(Config):
    """The p-norm of each window; defaults as in LpPool1dConfig."""

    p: float
    kernel_size: tuple[int, int]
    strides: tuple[int, int] | None = None
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _rules(self, "strides").positive("p").stop()

    def init(self, device: Device | None = None) -> LpPool2d:
        """The layer; it has no parameters, so the device does not matter."""
        return LpPool2d(self.p, self.strides or self.kernel_size, self.kernel_size, self.ceil_mode)


class LpPool3dConfig(Config):
    """The p-norm of each window; defaults as in LpPool1dConfig."""

    p: float
    kernel_size: tuple[int, int, int]
    strides: tuple[int, int, int] | None = None
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        _rules(self, "strides").positive("p").stop()

    def init(self, device: Device | None = None) -> LpPool3d:
        """The layer; it has no parameters, so the device does not matter."""
        return LpPool3d(self.p, self.strides or self.kernel_size, self.kernel_size, self.ceil_mode)


class LpPool1d(InlineLayer):
    """(sum of |x|^p)^(1/p) of each window; a window of zeros has no gradient.

    Shapes: x (batch, channels, length) -> (batch, channels, windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.LPPool1d, which takes no absolute value: an odd p gives NaN for negative sums there.
    """

    p: float
    stride: int
    kernel_size: int
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The norms."""
        require_ndim(x, self, AXES[1])
        return functional.lp_pool1d(x, self.p, self.kernel_size, self.stride, self.ceil_mode)


class LpPool2d(InlineLayer):
    """(sum of |x|^p)^(1/p) of each window; a window of zeros has no gradient.

    Shapes: x (batch, channels, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.LPPool2d, which takes no absolute value: an odd p gives NaN for negative sums there.
    """

    p: float
    strides: tuple[int, int]
    kernel_size: tuple[int, int]
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The norms."""
        require_ndim(x, self, AXES[2])
        return functional.lp_pool2d(x, self.p, self.kernel_size, self.strides, self.ceil_mode)


class LpPool3d(InlineLayer):
    """(sum of |x|^p)^(1/p) of each window; a window of zeros has no gradient.

    Shapes: x (batch, channels, depth, height, width) -> (batch, channels, *windows).  Dtypes: any float, the same out.
    PyTorch: torch.nn.LPPool3d, which takes no absolute value: an odd p gives NaN for negative sums there.
    """

    p: float
    strides: tuple[int, int, int]
    kernel_size: tuple[int, int, int]
    ceil_mode: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The norms."""
        require_ndim(x, self, AXES[3])
        return functional.lp_pool3d(x, self.p, self.kernel_size, self.strides, self.ceil_mode)


# -- maxima put back ----------------------------------------------------------------------------------------
class MaxUnpool1dConfig(Config):
    """Maxima put back where they were.  stride as long as the window, padding 0: those of the pooling before."""

    kernel_size: int
    stride: int | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        _rules(self, "stride").at_least(0, "padding").stop()

    def init(self, device: Device | None = None) -> MaxUnpool1d:
        """The layer; it has no parameters, so the device does not matter."""
        return MaxUnpool1d(self.kernel_size if self.stride is None else self.stride, self.kernel_size, self.padding)


class MaxUnpool2dConfig(Config):
    """Maxima put back where they were; defaults as in MaxUnpool1dConfig."""

    kernel_size: tuple[int, int]
    strides: tuple[int, int] | None = None
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        _rules(self, "strides").at_least(0, "padding").stop()

    def init(self, device: Device | None = None) -> MaxUnpool2d:
        """The layer; it has no parameters, so the device does not matter."""
        return MaxUnpool2d(self.strides or self.kernel_size, self.kernel_size, self.padding)


class MaxUnpool3dConfig(Config):
    """Maxima put back where they were; defaults as in MaxUnpool1dConfig."""

    kernel_size: tuple[int, int, int]
    strides: tuple[int, int, int] | None = None
    padding: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        _rules(self, "strides").at_least(0, "padding").stop()

    def init(self, device: Device | None = None) -> MaxUnpool3d:
        """The layer; it has no parameters, so the device does not matter."""
        return MaxUnpool3d(self.strides or self.kernel_size, self.kernel_size, self.padding)


class MaxUnpool1d(InlineLayer):
    """Zeros with each element where its index says; `functional.max_pool1d_with_indices` gives the indices.

    Shapes: x, indices (batch, channels, windows) -> (batch, channels, length).  Dtypes: x any float, the same out.
    Raises: BoundsError for an index outside of the result, where the data is on the host.
    PyTorch: torch.nn.MaxUnpool1d.
    """

    stride: int
    kernel_size: int
    padding: int

    @noting_layer
    def forward(self, x: Tensor, indices: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        """The larger signal, of the length that was pooled: `output_size`, where several give as many windows."""
        return functional.max_unpool1d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(InlineLayer):
    """Zeros with each element where its index says; `functional.max_pool2d_with_indices` gives the indices.

    Shapes: x, indices (batch, channels, *windows) -> (batch, channels, height, width).
    Dtypes: x any float, the same out.
    Raises: BoundsError for an index outside of the result, where the data is on the host.
    PyTorch: torch.nn.MaxUnpool2d.
    """

    strides: tuple[int, int]
    kernel_size: tuple[int, int]
    padding: tuple[int, int]

    @noting_layer
    def forward(self, x: Tensor, indices: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        """The larger image, of the sizes that were pooled: `output_size`, where several give as many windows."""
        return functional.max_unpool2d(x, indices, self.kernel_size, self.strides, self.padding, output_size)


class MaxUnpool3d(InlineLayer):
    """Zeros with each element where its index says; `functional.max_pool3d_with_indices` gives the indices.

    Shapes: x, indices (batch, channels, *windows) -> (batch, channels, depth, height, width).
    Dtypes: x any float, the same out.
    Raises: BoundsError for an index outside of the result, where the data is on the host.
    PyTorch: torch.nn.MaxUnpool3d.
    """

    strides: tuple[int, int, int]
    kernel_size: tuple[int, int, int]
    padding: tuple[int, int, int]

    @noting_layer
    def forward(self, x: Tensor, indices: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        """The larger volume, of the sizes that were pooled: `output_size`, where several give as many windows."""
        return functional.max_unpool3d(x, indices, self.kernel_size, self.strides, self.padding, output_size)


# -- maxima at drawn places -----------------------------------------------------------------------------------
def _check_output(config: FractionalMaxPool2dConfig | FractionalMaxPool3dConfig) -> None:
    rules = Rules(config).at_least(1, "kernel_size")
    if config.output_size is not None:
        rules.at_least(1, "output_size")
    if config.output_ratio is not None and not all(0.0 < ratio < 1.0 for ratio in config.output_ratio):
        rules.fault("output_ratio", "no part of a size", "numbers between 0 and 1", "0.5 halves a size")
    if (config.output_size is None) == (config.output_ratio is None):
        rules.fault("output_size", "and output_ratio do not settle the size", "one of the two", "give one of them")
    rules.stop()


class FractionalMaxPool2dConfig(Config):
    """Maxima of windows at drawn places, to a size or by ratios: `output_size`, or `output_ratio` times the input."""

    kernel_size: tuple[int, int]
    output_size: tuple[int, int] | None = None
    output_ratio: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_output(self)

    def init(self, device: Device | None = None) -> FractionalMaxPool2d:
        """The layer; it has no parameters, so the device does not matter."""
        return FractionalMaxPool2d(self.kernel_size, self.output_size, self.output_ratio)


class FractionalMaxPool3dConfig(Config):
    """Maxima of windows at drawn places; fields as in FractionalMaxPool2dConfig."""

    kernel_size: tuple[int, int, int]
    output_size: tuple[int, int, int] | None = None
    output_ratio: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        _check_output(self)

    def init(self, device: Device | None = None) -> FractionalMaxPool3d:
        """The layer; it has no parameters, so the device does not matter."""
        return FractionalMaxPool3d(self.kernel_size, self.output_size, self.output_ratio)


class _FractionalMaxPool(InlineLayer):
    kernel_size: tuple[int, ...]
    output_size: tuple[int, ...] | None
    output_ratio: tuple[float, ...] | None

    @noting_layer
    def forward(self, x: Tensor, samples: Tensor | None = None) -> Tensor:
        """The largest elements.  `samples` (batch, channels, axes) from [0, 1) say where windows lie; None draws."""
        n, size = len(self.kernel_size), self.output_size
        require_ndim(x, self, AXES[n])
        if self.output_ratio is not None:
            size = tuple([int(length * ratio) for length, ratio in zip(x.shape[2:], self.output_ratio, strict=True)])
        assert size is not None, "the configuration has one of both"
        if samples is None:
            samples = x.detach().new_full((*x.shape[:2], n), 0.5)
            if x.backend.trains:
                samples = drawn_like(self, ops.uniform, (0.0, 1.0), samples)
        pool = functional.fractional_max_pool2d if n == 2 else functional.fractional_max_pool3d
        return pool(x, self.kernel_size, size, samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest element of windows whose steps differ, drawn while training; elsewhere each sample is 1/2.

    Shapes: x (batch, channels, height, width) -> (batch, channels, *output_size), or floor(size * output_ratio).
    Dtypes: any float, the same out.
    Source: Graham 2014, https://arxiv.org/abs/1412.6071.
    PyTorch: torch.nn.FractionalMaxPool2d, which draws in evaluation too.
    """

    kernel_size: tuple[int, int]
    output_size: tuple[int, int] | None
    output_ratio: tuple[float, float] | None


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of windows whose steps differ, drawn while training; elsewhere each sample is 1/2.

    Shapes: x (batch, channels, depth, height, width) -> (batch, channels, *output_size), or floor(size * output_ratio).
    Dtypes: any float, the same out.
    Source: Graham 2014, https://arxiv.org/abs/1412.6071.
    PyTorch: torch.nn.FractionalMaxPool3d, which draws in evaluation too.
    """

    kernel_size: tuple[int, int, int]
    output_size: tuple[int, int, int] | None
    output_ratio: tuple[float, float, float] | None
