"""Losses of predicted distributions: normal, Poisson, and any by its divergence from another."""

from __future__ import annotations

import math

from burn_torch.core.errors import ArgumentError
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, in_layer, range_on_host
from burn_torch.nn.loss._reduction import Reduction, reduced, same_shape
from burn_torch.tensor import Tensor

__all__ = [
    "GaussianNLLLoss",
    "GaussianNLLLossConfig",
    "KLDivLoss",
    "KLDivLossConfig",
    "PoissonNllLoss",
    "PoissonNllLossConfig",
]

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class GaussianNLLLossConfig(ParameterlessConfig["GaussianNLLLoss"]):
    """The likelihood of normal values.

    eps 1e-6: a variance of 0 would make one item outweigh all others.  full false: a constant moves no parameter.
    """

    eps: float = 1e-6
    full: bool = False

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()


class GaussianNLLLoss(InlineLayer):
    """(log v + (input - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2.

    A variance below eps has no gradient; PyTorch gives it that of eps.
    Shapes: input (the mean), target, var (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, all the same.
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
        spread = var.clamp_min(self.eps)
        losses = (spread.log() + (input - target).square() / spread) * 0.5
        return losses + _HALF_LOG_TWO_PI if self.full else losses


class PoissonNllLossConfig(ParameterlessConfig["PoissonNllLoss"]):
    """The likelihood of counts.

    log_input true: predictions are logarithms of rates, so they may have any sign.  full false: a term of the targets
    alone moves no parameter.  eps 1e-8: less than any rate that matters, it keeps log(0) away.
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()


class PoissonNllLoss(InlineLayer):
    """The negative logarithm of how likely counts t are, without the part that depends on t alone.

        exp(x) - t * x                                  log_input
        x - t * log(x + eps)                            otherwise
        + t log t - t + log(2 pi t) / 2 where t > 1     `full`, Stirling's form of log(t!)

    Shapes: predictions x, targets t (*s) -> (1,), or (*s) without a reduction.  Dtypes: any float, both the same.
    Raises: ArgumentError for a negative count or rate, where the data is on the host.
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
        self._require_not_negative("targets", targets, "counts begin at 0")
        if self.log_input:
            losses = predictions.exp() - targets * predictions
        else:
            self._require_not_negative("predictions", predictions, "log_input=True takes logarithms of rates")
            losses = predictions - targets * (predictions + self.eps).log()
        if not self.full:
            return losses
        few = targets.lower_equal(1.0)
        many = targets.mask_fill(few, 2.0)  # any number whose logarithm is finite: the term is replaced by 0
        stirling = many * many.log() - many + (many * (2.0 * math.pi)).log() * 0.5
        return losses + stirling.mask_fill(few, 0.0)

    def _require_not_negative(self, name: str, x: Tensor, mend: str) -> None:
        bounds = range_on_host(x)
        if bounds is not None and bounds[0] < 0.0:
            raise in_layer(
                ArgumentError(
                    f"PoissonNllLoss: {name} are negative",
                    given=f"{name} {x.spec}, values from {bounds[0]:g} to {bounds[1]:g}",
                    expected="numbers of 0 or more",
                    mend=mend,
                ),
                self,
            )


class KLDivLossConfig(ParameterlessConfig["KLDivLoss"]):
    """The divergence of Kullback and Leibler.  log_target false: targets are probabilities."""

    log_target: bool = False


class KLDivLoss(InlineLayer):
    """t * (log t - predictions): what it costs to take the predicted distribution for the true one, t.

    Predictions are logarithms of probabilities, as log_softmax gives; with log_target so are the targets.
    A target of probability 0 costs nothing, even where its prediction is -inf, and gets no gradient.
    Reduction.Auto is the sum over a batch divided by its size: the mean over all elements is no divergence.

    Shapes: predictions, targets (batch, *s) -> (1,), or (batch, *s) without a reduction.
    Dtypes: any float, both the same.
    PyTorch: torch.nn.KLDivLoss(reduction="batchmean").
    """

    log_target: bool

    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        losses = self.forward_no_reduction(predictions, targets)
        return reduced(losses, Reduction.BatchMean if reduction is Reduction.Auto else reduction)

    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, predictions=predictions, targets=targets)
        if self.log_target:
            shares = targets.exp()
            impossible = shares.equal(0.0)
            logs = targets
        else:
            shares = targets
            impossible = shares.equal(0.0)
            logs = shares.mask_fill(impossible, 1.0).log()
        return shares * (logs - predictions).mask_fill(impossible, 0.0)
