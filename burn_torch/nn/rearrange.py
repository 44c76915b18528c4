"""Layers that give an input another shape or order, and the softmaxes as layers: for chains of modules."""

from __future__ import annotations

import math

from burn_torch.core.errors import ShapeError
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, in_layer, noting_layer, require_ndim
from burn_torch.nn.conv import AXES
from burn_torch.tensor import Tensor, functional
from burn_torch.tensor.activation import log_softmax, softmax, softmin

__all__ = [
    "ChannelShuffle",
    "ChannelShuffleConfig",
    "Flatten",
    "FlattenConfig",
    "LogSoftmax",
    "LogSoftmaxConfig",
    "Softmax",
    "Softmax2d",
    "SoftmaxConfig",
    "Softmin",
    "SoftminConfig",
    "Unflatten",
    "UnflattenConfig",
]


# -- shapes -------------------------------------------------------------------------------------------------
class FlattenConfig(ParameterlessConfig["Flatten"]):
    """Axes made one.  start_dim 1: the batch stays; end_dim -1: to the last axis."""

    start_dim: int = 1
    end_dim: int = -1


class Flatten(InlineLayer):
    """The axes from `start_dim` to `end_dim`, both included, made one.  PyTorch: torch.nn.Flatten."""

    start_dim: int = 1
    end_dim: int = -1

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The same elements with fewer axes."""
        return x.flatten(self.start_dim, self.end_dim)


class UnflattenConfig(ParameterlessConfig["Unflatten"]):
    """One axis made several, of the sizes `unflattened_size`; one of them may be -1, which is what is left."""

    dim: int
    unflattened_size: tuple[int, ...]

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(-1, "unflattened_size")
        if self.unflattened_size.count(-1) > 1:
            rules.fault("unflattened_size", "with several -1", "one -1 at most", "name the other sizes")
        rules.stop()


class Unflatten(InlineLayer):
    """Makes an axis several, and so undoes Flatten.

    Shapes: x (..., n, ...) -> (..., *unflattened_size, ...), whose product is n.  PyTorch: torch.nn.Unflatten.
    """

    dim: int
    unflattened_size: tuple[int, ...]

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The same elements with more axes."""
        dim = self.dim + x.ndim if self.dim < 0 else self.dim
        known = math.prod(size for size in self.unflattened_size if size >= 0)
        size = x.shape[dim] if 0 <= dim < x.ndim else -1
        sizes = tuple([part if part >= 0 else size // max(known, 1) for part in self.unflattened_size])
        if math.prod(sizes) != size:
            raise in_layer(
                ShapeError(
                    "Unflatten: the sizes do not make the axis",
                    given=f"dim {self.dim} of x {x.spec}, as {self.unflattened_size}",
                    expected="an axis of x, and sizes whose product is its own",
                    mend="count the axes with the batch; one size may be -1",
                ),
                self,
            )
        return x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


class ChannelShuffleConfig(ParameterlessConfig["ChannelShuffle"]):
    """Channels of `groups` groups, each in turn."""

    groups: int

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "groups").stop()


class ChannelShuffle(InlineLayer):
    """Takes the first channel of each group, then the second of each, and so on.

    Shapes: x (batch, channels, height, width), the channels a multiple of `groups` -> the same.
    Source: Zhang et al. 2017, https://arxiv.org/abs/1707.01083.  PyTorch: torch.nn.ChannelShuffle.
    """

    groups: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The channels in another order."""
        require_ndim(x, self, AXES[2])
        return functional.channel_shuffle(x, self.groups)


# -- softmaxes ----------------------------------------------------------------------------------------------
class SoftmaxConfig(ParameterlessConfig["Softmax"]):
    """Softmax along `dim`."""

    dim: int


class Softmax(InlineLayer):
    """exp(x) over its sum along an axis.  Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Softmax."""

    dim: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The shares."""
        return softmax(x, self.dim)


class LogSoftmaxConfig(ParameterlessConfig["LogSoftmax"]):
    """The logarithm of softmax along `dim`."""

    dim: int


class LogSoftmax(InlineLayer):
    """The logarithm of softmax along an axis.  Shapes: x (*s) -> (*s).  PyTorch: torch.nn.LogSoftmax."""

    dim: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The logarithms of the shares."""
        return log_softmax(x, self.dim)


class SoftminConfig(ParameterlessConfig["Softmin"]):
    """softmax(-x) along `dim`."""

    dim: int


class Softmin(InlineLayer):
    """softmax(-x) along an axis.  Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Softmin."""

    dim: int

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The shares."""
        return softmin(x, self.dim)


class Softmax2d(InlineLayer):
    """Softmax over the channels of images, at each place.

    Shapes: x (batch, channels, height, width) -> the same.  PyTorch: torch.nn.Softmax2d.
    """

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The shares."""
        require_ndim(x, self, AXES[2])
        return softmax(x, 1)
