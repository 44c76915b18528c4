"""Losses of regression: how far predictions are from targets."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch import ops
from burn_torch.module import Content, Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules
from burn_torch.nn.loss._reduction import Reduction, reduced, same_shape
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import unary

__all__ = ["HuberLoss", "HuberLossConfig", "LpLoss", "LpLossConfig", "MseLoss", "SmoothL1Loss", "SmoothL1LossConfig"]

_square = ops.square


# -- powers of the distance -----------------------------------------------------------------------------------
class MseLoss(Module):
    """(logits - targets)^2.

    Shapes: logits, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.MSELoss.
    """

    @staticmethod
    def new() -> MseLoss:
        """Burn's constructor."""
        return MseLoss()

    def forward(self, logits: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(logits, targets), reduction)

    def forward_no_reduction(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, logits=logits, targets=targets)
        return unary(_square, logits - targets)


class LpLossConfig(ParameterlessConfig["LpLoss"]):
    """A power of the distance; p has no natural default: 1 forgives outliers, 2 is smooth."""

    p: float

    def __post_init__(self) -> None:
        Rules(self).positive("p").stop()

    @staticmethod
    def l1() -> LpLoss:
        """The loss of the distance itself.  PyTorch: torch.nn.L1Loss."""
        return LpLoss(1.0)

    @staticmethod
    def l2() -> LpLoss:
        """The loss of the squared distance.  PyTorch: torch.nn.MSELoss."""
        return LpLoss(2.0)


class LpLoss(InlineLayer):
    """|predictions - targets|^p; where they are equal the gradient is 0, for p < 1 too.

    Shapes: predictions, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.L1Loss and MSELoss.
    """

    p: float

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        residuals, p = predictions - targets, self.p
        if p == 2.0:
            return unary(_square, residuals)
        distances = residuals.abs()
        if p == 1.0:
            return distances
        if p > 1.0:
            return distances.powf(p)
        none = distances.equal(0.0)  # the slope of |r|^p is infinite there
        return distances.mask_fill(none, 1.0).powf(p).mask_fill(none, 0.0)

    def forward_reduce_dims(self, predictions: Tensor, targets: Tensor, dims: Sequence[int]) -> Tensor:
        """The mean over some axes, which stay with size 1."""
        return self.forward_no_reduction(predictions, targets).mean_dims(dims)


# -- squares that become straight lines ----------------------------------------------------------------------
class HuberLossConfig(ParameterlessConfig["HuberLoss"]):
    """The Huber loss; delta has no natural default: it is the residual from which on an item is an outlier."""

    delta: float

    def __post_init__(self) -> None:
        Rules(self).positive("delta").stop()


class HuberLoss(Module):
    """r^2 / 2 where |r| <= delta, else delta * |r| - delta^2 / 2, of r = targets - predictions.

    Shapes: predictions, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.HuberLoss.  Source: Huber 1964, https://doi.org/10.1214/aoms/1177703732.
    """

    delta: float

    @property
    def lin_bias(self) -> float:
        """Returns what the straight lines lie below |delta * r|: delta^2 / 2."""
        return self.delta * self.delta * 0.5

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        return _huber(targets - predictions, self.delta)

    def forward_residuals(self, residuals: Tensor) -> Tensor:
        """The loss of each residual."""
        return _huber(residuals, self.delta)

    def custom_content(self, content: Content) -> Content:
        """Both numbers, as Burn shows them."""
        return content.add("delta", self.delta).add("lin_bias", self.lin_bias)


class SmoothL1LossConfig(ParameterlessConfig["SmoothL1Loss"]):
    """A smooth distance.  beta 1: the slope beyond is 1, as that of the residual itself."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        Rules(self).positive("beta").stop()


class SmoothL1Loss(InlineLayer):
    """r^2 / (2 beta) where |r| < beta, else |r| - beta / 2: the Huber loss of delta beta, divided by beta.

    Shapes: predictions, targets (*s) -> (*s), or (1,) with a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.SmoothL1Loss.  Source: Girshick 2015, equation 3, https://arxiv.org/abs/1504.08083.
    """

    beta: float

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        return _huber(predictions - targets, self.beta) / self.beta

    def forward_with_reduction(
        self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto
    ) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward(predictions, targets), reduction)

    def forward_reduce_dims(self, predictions: Tensor, targets: Tensor, dims: Sequence[int]) -> Tensor:
        """The mean over some axes, which stay with size 1."""
        return self.forward(predictions, targets).mean_dims(dims)


def _huber(residuals: Tensor, delta: float) -> Tensor:
    # one formula for both parts: c = r inside gives r^2 / 2, c = delta * sign(r) outside delta * |r| - delta^2 / 2
    capped = residuals.clamp(-delta, delta)
    return capped * (residuals - capped * 0.5)
