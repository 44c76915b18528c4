"""Losses with a margin: right is not enough, it must be right by so much."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.nn.loss._reduction import Reduction, as_type, class_weights, reduced, require_weights, same_shape
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import binary

__all__ = [
    "HingeEmbeddingLoss",
    "HingeEmbeddingLossConfig",
    "MarginRankingLoss",
    "MarginRankingLossConfig",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiLabelSoftMarginLossConfig",
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


# -- targets are several classes ---------------------------------------------------------------------------
class MultiLabelMarginLoss(Module):
    """sum over targets j and other classes i of max(0, 1 - input[j] + input[i]) / classes, for each item.

    The targets of an item are the classes before its first negative number: (2, 0, -1, 1) are the classes 2 and 0.  At
    the kink the gradient passes.  It needs memory for batch * classes * classes numbers.

    Shapes: input, target (batch, classes) -> (1,), or (batch,) without a reduction.
    Dtypes: input any float, target any integer.
    Raises: BoundsError for a target above the last class, where the data is on the host.
    PyTorch: torch.nn.MultiLabelMarginLoss.
    """

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input, target), reduction)

    @noting_layer
    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of each item."""
        _require_labels(self, input, target)
        items, classes = input.shape
        ended = target.lower(0).int().cumsum(1).greater(0)
        places = target.mask_fill(ended, 0)
        every = Tensor.arange(classes, input.device.no_grad()).cast(target.dtype).reshape(1, 1, classes)
        named = places.reshape(items, classes, 1).equal(every).bool_and(ended.reshape(items, classes, 1).bool_not())
        ignored = named.any_dim(1).bool_or(ended.reshape(items, classes, 1))
        own = input.gather(1, places).reshape(items, classes, 1)
        hinges = (1.0 - own + input.reshape(items, 1, classes)).clamp_min(0.0)
        return hinges.mask_fill(ignored, 0.0).sum_dims_squeeze((1, 2)) / max(classes, 1)


class MultiLabelSoftMarginLossConfig(Config):
    """A loss of labels, each by itself.  weights none: every class counts the same."""

    weights: list[float] | None = None

    def __post_init__(self) -> None:
        rules = Rules(self)
        require_weights(rules, self.weights)
        rules.stop()

    def init(self, device: Device | None = None) -> MultiLabelSoftMarginLoss:
        """The loss; the device is that of its weights."""
        return MultiLabelSoftMarginLoss(class_weights(self.weights, device))


class MultiLabelSoftMarginLoss(InlineLayer):
    """-(t log p + (1 - t) log(1 - p)) with p = sigmoid(input), times the weights, a mean over the classes of an item.

    Shapes: input, target (batch, classes), weights (classes,) -> (1,), or (batch,) without a reduction.
    Dtypes: input any float; target any number, 0 or 1.
    PyTorch: torch.nn.MultiLabelSoftMarginLoss.
    """

    weights: Tensor | None

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input, target), reduction)

    @noting_layer
    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of each item."""
        _require_labels(self, input, target)
        losses = binary(ops.binary_cross_entropy_with_logits, input, as_type(target, input.dtype))
        if self.weights is not None:
            if self.weights.shape != input.shape[1:]:
                raise ShapeError(
                    "MultiLabelSoftMarginLoss: the weights do not fit the classes",
                    given=f"{self.weights.shape[0]} weights, input {input.spec}",
                    expected=f"{input.shape[1]} weights, one for each class",
                    mend="MultiLabelSoftMarginLossConfig(weights=[...]) takes one for each class",
                )
            losses = losses * as_type(self.weights, input.dtype)
        return losses.mean_dim(1).reshape(input.shape[0])


def _require_labels(loss: Module, input: Tensor, target: Tensor) -> None:
    if input.ndim != 2 or target.shape != input.shape:
        raise ShapeError(
            f"{type(loss).__name__}: input and target do not fit together",
            given=f"input {input.spec}, target {target.spec}",
            expected="input and target (batch, classes)",
            mend="flatten all axes but that of classes into one, for example input.reshape(-1, classes)",
        )
