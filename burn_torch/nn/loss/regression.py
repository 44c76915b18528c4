"""Losses of regression: how far predictions are from targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, inline
from burn_torch.nn.loss._reduction import Reduction, over_dims, reduced, same_shape
from burn_torch.tensor import Device, Tensor

__all__ = [
    "GaussianNLLLoss",
    "GaussianNLLLossConfig",
    "HuberLoss",
    "HuberLossConfig",
    "LpLoss",
    "LpLossConfig",
    "MseLoss",
    "PoissonNllLoss",
    "PoissonNllLossConfig",
    "SmoothL1Loss",
    "SmoothL1LossConfig",
]


class _Loss(Module):
    def custom_content(self, content: Content) -> Content:
        """All numbers on one line."""
        return inline(self, content)


class MseLoss(Module):
    """(logits - targets)^2.

    Shapes: logits, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.MSELoss, whose reduction is "mean" unless told.
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
        losses: Tensor = ops.square(logits - targets)
        return losses


class HuberLossConfig(Config):
    """The residual `delta` at which squares become straight lines."""

    delta: float

    def __post_init__(self) -> None:
        Rules(self).positive("delta").stop()

    def init(self, device: Device | None = None) -> HuberLoss:
        """The loss."""
        return HuberLoss(self.delta)


class HuberLoss(_Loss):
    """r^2 / 2 for |r| <= delta, else delta (|r| - delta / 2), of r = predictions - targets.

    Shapes: predictions, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    Source: Huber 1964.  PyTorch: torch.nn.HuberLoss.
    """

    delta: float

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        return self.forward_residuals(targets - predictions)

    def forward_residuals(self, residuals: Tensor) -> Tensor:
        """The loss of each residual."""
        inside: Tensor = ops.clamp(residuals, -self.delta, self.delta)
        return inside * (residuals - inside * 0.5)  # outside, delta sign(r) (r - delta sign(r) / 2)


class SmoothL1LossConfig(Config):
    """The residual `beta` at which squares become straight lines; 1 as in PyTorch."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        Rules(self).positive("beta").stop()

    def init(self, device: Device | None = None) -> SmoothL1Loss:
        """The loss."""
        return SmoothL1Loss(self.beta)


class SmoothL1Loss(_Loss):
    """r^2 / (2 beta) for |r| <= beta, else |r| - beta / 2: HuberLoss of delta beta, divided by beta.

    Shapes: predictions, targets (*s) -> (*s), or (1,) with a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.SmoothL1Loss.
    """

    beta: float

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        return HuberLoss(self.beta).forward_residuals(predictions - targets) / self.beta

    def forward_with_reduction(
        self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto
    ) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward(predictions, targets), reduction)

    def forward_reduce_dims(self, predictions: Tensor, targets: Tensor, dims: Sequence[int]) -> Tensor:
        """The mean over some axes, which stay with size 1."""
        return over_dims(self.forward(predictions, targets), dims)


class LpLossConfig(Config):
    """The power `p` of the distance; `l1()` and `l2()` are the usual ones."""

    p: float

    def __post_init__(self) -> None:
        Rules(self).positive("p").stop()

    @classmethod
    def l1(cls) -> LpLossConfig:
        """The distance itself.  PyTorch: torch.nn.L1Loss."""
        return cls(1.0)

    @classmethod
    def l2(cls) -> LpLossConfig:
        """The squared distance.  PyTorch: torch.nn.MSELoss."""
        return cls(2.0)

    def init(self, device: Device | None = None) -> LpLoss:
        """The loss."""
        return LpLoss(self.p)


class LpLoss(_Loss):
    """|predictions - targets|^p.

    Shapes: predictions, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    """

    p: float

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        residuals = predictions - targets
        if self.p == 2.0:
            return ops.square(residuals)  # type: ignore[no-any-return]
        distance = abs(residuals)
        return distance if self.p == 1.0 else distance**self.p

    def forward_reduce_dims(self, predictions: Tensor, targets: Tensor, dims: Sequence[int]) -> Tensor:
        """The mean over some axes, which stay with size 1."""
        return over_dims(self.forward_no_reduction(predictions, targets), dims)


class PoissonNllLossConfig(Config):
    """Of counts.

    log_input true: predictions are logarithms, which may have any sign.  full false: without the part that does not
    depend on predictions.  eps 1e-8 keeps the logarithm finite where predictions are no logarithms.
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()

    def init(self, device: Device | None = None) -> PoissonNllLoss:
        """The loss."""
        return PoissonNllLoss(self.log_input, self.full, self.eps)


class PoissonNllLoss(_Loss):
    """exp(x) - t x with log_input, else x - t log(x + eps); `full` adds t log t - t + log(2 pi t) / 2 where t > 1.

    Shapes: predictions, targets (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    PyTorch: torch.nn.PoissonNLLLoss.
    """

    log_input: bool
    full: bool
    eps: float

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        if self.log_input:
            losses: Tensor = ops.exp(predictions) - targets * predictions
        else:
            losses = predictions - targets * ops.log(predictions + self.eps)
        if not self.full:
            return losses
        small = ops.lower_equal(targets, 1.0)
        safe = ops.mask_where(targets, small, 2.0)  # a logarithm of 0 would make NaN of a gradient that is 0
        stirling = safe * ops.log(safe) - safe + ops.log(safe * (2.0 * math.pi)) * 0.5
        return losses + ops.mask_where(stirling, small, 0.0)  # type: ignore[no-any-return]


class GaussianNLLLossConfig(Config):
    """Of predictions with a variance.

    eps 1e-6 keeps variances away from 0.  full false: without the constant log(2 pi) / 2.
    """

    eps: float = 1e-6
    full: bool = False

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()

    def init(self, device: Device | None = None) -> GaussianNLLLoss:
        """The loss."""
        return GaussianNLLLoss(self.eps, self.full)


class GaussianNLLLoss(_Loss):
    """(log v + (input - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2.

    Below eps the variance has no gradient; PyTorch gives it that of eps.
    Shapes: input, target, var (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, all the same.
    PyTorch: torch.nn.GaussianNLLLoss.
    """

    eps: float
    full: bool

    def forward(self, input: Tensor, target: Tensor, var: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input, target, var), reduction)

    def forward_no_reduction(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, input=input, target=target, var=var)
        spread: Tensor = ops.clamp_min(var, self.eps)
        losses: Tensor = (ops.log(spread) + ops.square(input - target) / spread) * 0.5
        return losses + 0.5 * math.log(2.0 * math.pi) if self.full else losses
