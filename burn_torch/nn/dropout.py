"""Layers that draw random numbers while training: Dropout in its forms, GaussianNoise; and Identity."""

from __future__ import annotations

from typing import ClassVar, Final

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.ambient import first_element
from burn_torch.module import Module, draw
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, drawn_like, noting_layer, require_ndim
from burn_torch.nn.conv import AXES
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one

__all__ = [
    "AlphaDropout",
    "AlphaDropoutConfig",
    "Dropout",
    "Dropout1d",
    "Dropout1dConfig",
    "Dropout2d",
    "Dropout2dConfig",
    "Dropout3d",
    "Dropout3dConfig",
    "DropoutConfig",
    "FeatureAlphaDropout",
    "FeatureAlphaDropoutConfig",
    "GaussianNoise",
    "GaussianNoiseConfig",
    "Identity",
]

_dropout = ops.dropout


class DropoutConfig(ParameterlessConfig["Dropout"]):
    """Dropout with probability `prob`."""

    prob: float

    def __post_init__(self) -> None:
        Rules(self).fraction("prob").stop()


class Dropout(InlineLayer):
    """Sets elements to zero with probability `prob` and divides the others by 1 - prob, while training.

    It trains on a device with gradients, and is the identity elsewhere (`model.valid()`) and for prob 0.  Its mask
    follows from the step scope's key, its path in the model and how often it was called, so a step that runs again
    draws the same one.

    Shapes: x (*s) -> (*s).  Dtypes: any float, the same out.
    Source: Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html.  PyTorch: torch.nn.Dropout.
    """

    prob: float

    def forward(self, x: Tensor) -> Tensor:
        """The input with elements dropped, on a device with gradients."""
        if not x.backend.trains or self.prob == 0.0:
            return x
        return apply_one(_dropout, (x, self.prob, *draw(self)), first_element(x.spec.shape))


# -- whole channels, and for SELU -----------------------------------------------------------------------------
class _Fraction(Config):
    def __post_init__(self) -> None:
        Rules(self).fraction("prob").stop()


class Dropout1dConfig(_Fraction, ParameterlessConfig["Dropout1d"]):
    """Dropout of whole channels with probability `prob`."""

    prob: float


class Dropout2dConfig(_Fraction, ParameterlessConfig["Dropout2d"]):
    """Dropout of whole channels with probability `prob`."""

    prob: float


class Dropout3dConfig(_Fraction, ParameterlessConfig["Dropout3d"]):
    """Dropout of whole channels with probability `prob`."""

    prob: float


class AlphaDropoutConfig(_Fraction, ParameterlessConfig["AlphaDropout"]):
    """Dropout with probability `prob` that keeps mean and variance of what SELU gives."""

    prob: float


class FeatureAlphaDropoutConfig(_Fraction, ParameterlessConfig["FeatureAlphaDropout"]):
    """AlphaDropout of whole channels."""

    prob: float


class _DropoutOf(InlineLayer):
    prob: float

    def _mask(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """1 / (1 - prob) where something is kept, else 0: the draws of Dropout."""
        return apply_one(_dropout, (x.new_full(shape, 1.0), self.prob, *draw(self)), first_element(shape))


class _ChannelDropout(_DropoutOf):
    AXES: ClassVar = 1

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The input with channels dropped, on a device with gradients."""
        require_ndim(x, self, AXES[self.AXES])
        if not x.backend.trains or self.prob == 0.0:
            return x
        return x * self._mask(x, _channels(x))


def _channels(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], *(1,) * (x.ndim - 2))


class Dropout1d(_ChannelDropout):
    """Drops whole channels as Dropout drops elements.  Shapes: x (batch, channels, length).  PyTorch: Dropout1d.

    Source: Tompson et al. 2015, https://arxiv.org/abs/1411.4280.
    """


class Dropout2d(_ChannelDropout):
    """Drops whole channels as Dropout drops elements.  Shapes: x (batch, channels, height, width).  PyTorch: Dropout2d.

    Source: Tompson et al. 2015, https://arxiv.org/abs/1411.4280.
    """

    AXES: ClassVar = 2


class Dropout3d(_ChannelDropout):
    """Drops whole channels as Dropout drops elements.  Shapes: x (batch, channels, depth, height, width).

    Source: Tompson et al. 2015, https://arxiv.org/abs/1411.4280.  PyTorch: torch.nn.Dropout3d.
    """

    AXES: ClassVar = 3


_SATURATION: Final = -1.7580993408473766
"""-scale * alpha of SELU, which it tends to for small inputs."""


class AlphaDropout(_DropoutOf):
    """Sets elements to SELU's negative saturation with probability `prob`, while training.

    Then x is scaled and shifted, so that mean 0 and variance 1 stay so.  Trains, draws and shapes as Dropout.
    Source: Klambauer et al. 2017, https://arxiv.org/abs/1706.02515.  PyTorch: torch.nn.AlphaDropout.
    """

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The input with elements dropped, on a device with gradients."""
        if not x.backend.trains or self.prob == 0.0:
            return x
        if self.prob == 1.0:
            return x * 0.0
        kept = self._mask(x, self._mask_shape(x)) * (1.0 - self.prob)
        scale = ((1.0 - self.prob) * (1.0 + self.prob * _SATURATION**2)) ** -0.5
        y: Tensor = (x * kept + (1.0 - kept) * _SATURATION) * scale - scale * self.prob * _SATURATION
        return y

    def _mask_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)


class FeatureAlphaDropout(AlphaDropout):
    """AlphaDropout of whole channels.  Shapes: x (batch, channels, *s).  PyTorch: torch.nn.FeatureAlphaDropout."""

    def _mask_shape(self, x: Tensor) -> tuple[int, ...]:
        if x.ndim < 2:
            require_ndim(x, self, "(batch, channels)")
        return _channels(x)


# -- noise, and nothing ---------------------------------------------------------------------------------------
class GaussianNoiseConfig(ParameterlessConfig["GaussianNoise"]):
    """Noise of standard deviation `std`."""

    std: float

    def __post_init__(self) -> None:
        if self.std < 0:
            rules = Rules(self)
            rules.fault("std", "negative", "a number of 0 or more", "take its absolute value")
            rules.stop()


class GaussianNoise(InlineLayer):
    """Adds normal noise of standard deviation `std` while training; the identity elsewhere, as Dropout.

    Shapes: x (*s) -> (*s).  Dtypes: any float, the same out.
    """

    std: float

    def forward(self, x: Tensor) -> Tensor:
        """The input with noise, on a device with gradients."""
        if not x.backend.trains or self.std == 0.0:
            return x
        return x + drawn_like(self, ops.normal, (0.0, self.std), x)


class Identity(Module):
    """Gives what it was given.  PyTorch: torch.nn.Identity."""

    @staticmethod
    def new() -> Identity:
        """Burn's constructor."""
        return Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The input itself."""
        return x

    def num_features(self) -> int:
        """It normalises none: what Burn's Normalization says of it."""
        return 0
