"""Layers that draw random numbers while training: Dropout, GaussianNoise; and Identity, which does nothing."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.ambient import first_element
from burn_torch.module import Module, draw
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, drawn_like
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one

__all__ = ["Dropout", "DropoutConfig", "GaussianNoise", "GaussianNoiseConfig", "Identity"]

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
