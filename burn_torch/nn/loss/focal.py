"""The focal loss: cross entropy over yes and no in which easy elements hardly count."""

from __future__ import annotations

from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules
from burn_torch.nn.loss._reduction import Reduction, reduced, same_shape
from burn_torch.tensor import Tensor
from burn_torch.tensor.activation import log_sigmoid

__all__ = ["FocalLoss", "FocalLossConfig"]


class FocalLossConfig(ParameterlessConfig["FocalLoss"]):
    """The focal loss with the paper's defaults.

    gamma 2: an element of probability 0.9 counts a hundredth of its cross entropy; 0 is plain cross entropy.
    alpha 0.25: the share of the elements whose target is 1; none: both kinds count alike.
    """

    gamma: float = 2.0
    alpha: float | None = 0.25

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "gamma").fraction("alpha").stop()


class FocalLoss(InlineLayer):
    """-alpha_t (1 - p_t)^gamma log p_t, where p_t is the probability of the target.

    p_t = sigmoid(x) where the target is 1, else 1 - sigmoid(x); alpha_t is alpha or 1 - alpha likewise.  It is computed
    from logarithms, so it is exact for logits of any size.

    Shapes: logits, targets (*s) -> (1,), or (*s) without a reduction.
    Dtypes: logits any float; targets any number, 1 or 0.
    Source: Lin et al. 2017, https://arxiv.org/abs/1708.02002.  torchvision: ops.sigmoid_focal_loss.
    """

    gamma: float
    alpha: float | None

    def forward(self, logits: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(logits, targets), reduction)

    def forward_no_reduction(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, logits=logits, targets=targets)
        positive = targets.equal(1)
        of_target = (-logits).mask_where(positive, logits)
        losses = -log_sigmoid(of_target)
        if self.gamma:
            losses = losses * (log_sigmoid(-of_target) * self.gamma).exp()
        if self.alpha is None:
            return losses
        return losses * losses.new_full(losses.shape, 1.0 - self.alpha).mask_fill(positive, self.alpha)
