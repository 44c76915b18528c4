"""Losses with a margin: right is not enough, it must be right by so much."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.nn.loss._reduction import Reduction, as_type, reduced, same_shape
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import binary

__all__ = [
    "HingeEmbeddingLoss",
    "HingeEmbeddingLossConfig",
    "MarginRankingLoss",
    "MarginRankingLossConfig",
    "MultiMarginLoss",
    "MultiMarginLossConfig",
    "SoftMarginLoss",
]


# -- targets of 1 and -1 -----------------------------------------------------------------------------------
class HingeEmbeddingLossConfig(ParameterlessConfig["HingeEmbeddingLoss"]):
    """A loss of distances.  margin 1: the unit of the distance, that of PyTorch."""

    margin: float = 1.0


class HingeEmbeddingLoss(InlineLayer):
    """x where the target is 1, else max(0, margin - x): pairs that belong together have a small distance x.

    The gradient passes at x = margin.
    Shapes: input, target (*s) -> (1,), or (*s) without a reduction.
    Dtypes: input any float; target any number, 1 or -1.
    PyTorch: torch.nn.HingeEmbeddingLoss.
    """

    margin: float

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input, target), reduction)

    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, input=input, target=target)
        return (self.margin - input).clamp_min(0.0).mask_where(target.equal(1), input)


class MarginRankingLossConfig(ParameterlessConfig["MarginRankingLoss"]):
    """A loss of pairs.  margin 0: only the order counts."""

    margin: float = 0.0

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "margin").stop()


class MarginRankingLoss(InlineLayer):
    """max(0, margin - target * (first - second)): a target of 1 ranks the first above the second, -1 below.

    At the kink the gradient is 0.
    Shapes: first, second, target (*s) -> (1,), or (*s) without a reduction.
    Dtypes: first and second any float, both the same; target any number, 1 or -1.
    PyTorch: torch.nn.MarginRankingLoss, whose gradient passes at the kink.
    """

    margin: float

    def forward(self, first: Tensor, second: Tensor, target: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(first, second, target), reduction)

    def forward_no_reduction(self, first: Tensor, second: Tensor, target: Tensor) -> Tensor:
        """The loss of each pair."""
        same_shape(self, first=first, second=second, target=target)
        return (self.margin - as_type(target, first.dtype) * (first - second)).relu()


class SoftMarginLoss(Module):
    """log(1 + exp(-target * logit)), without overflow; targets are 1 and -1.

    Shapes: logits, targets (*s) -> (1,), or (*s) without a reduction.
    Dtypes: logits any float; targets any number, 1 or -1.
    PyTorch: torch.nn.SoftMarginLoss.
    """

    @staticmethod
    def new() -> SoftMarginLoss:
        """Burn's constructor."""
        return SoftMarginLoss()

    def forward(self, logits: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(logits, targets), reduction)

    def forward_no_reduction(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each element."""
        same_shape(self, logits=logits, targets=targets)
        return binary(ops.softplus, -(as_type(targets, logits.dtype) * logits), 1.0)


# -- targets are classes -----------------------------------------------------------------------------------
class MultiMarginLossConfig(ParameterlessConfig["MultiMarginLoss"]):
    """A loss of scores.  margin 1, p 1: the usual hinge; p 2 punishes large mistakes more."""

    margin: float = 1.0
    p: int = 1

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(0, "margin")
        if self.p not in (1, 2):
            rules.fault("p", "no power of a hinge", "1 or 2", "take 1, or 2 for squares")
        rules.stop()


class MultiMarginLoss(InlineLayer):
    """sum over i != target of max(0, margin - input[target] + input[i])^p / classes, for each item.

    Shapes: input (batch, classes), target (batch,) -> (1,), or (batch,) without a reduction.
    Dtypes: input any float, target any integer.
    Raises: BoundsError for a target that is no class, where the data is on the host.
    PyTorch: torch.nn.MultiMarginLoss.
    """

    margin: float
    p: int

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input, target), reduction)

    @noting_layer
    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of each item."""
        if input.ndim != 2 or target.shape != input.shape[:1]:
            raise ShapeError(
                "MultiMarginLoss: input and target do not fit together",
                given=f"input {input.spec}, target {target.spec}",
                expected="input (batch, classes) and target (batch,)",
                mend="flatten all axes but that of classes into one, for example input.reshape(-1, classes)",
            )
        items, classes = input.shape
        column = target.reshape(items, 1)
        hinges = (input - input.gather(1, column) + self.margin).clamp_min(0.0)
        own = Tensor.arange(classes, input.device).cast(target.dtype).equal(column)
        if self.p == 2:
            hinges = hinges.square()
        return hinges.mask_fill(own, 0.0).sum_dim(1).reshape(items) / max(classes, 1)
