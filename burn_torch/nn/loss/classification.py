"""Losses of classifiers: cross entropy over classes, and over yes and no."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.nn._layer import InlineLayer, Rules, noting_layer, range_on_host
from burn_torch.nn.loss._reduction import as_type, class_weights, require_weights, same_shape
from burn_torch.ops.op import Op
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply

__all__ = [
    "BinaryCrossEntropyLoss",
    "BinaryCrossEntropyLossConfig",
    "CrossEntropyLoss",
    "CrossEntropyLossConfig",
    "NLLLoss",
    "NLLLossConfig",
]

_cross_entropy, _negative_log_likelihood = ops.cross_entropy, ops.negative_log_likelihood

_LEAST = {DType.F16: 2.0**-7, DType.BF16: 2.0**-63, DType.F32: 2.0**-63, DType.F64: 2.0**-511}
"""Root of the smallest normal number: probabilities are kept above it, so that their logarithm is finite."""


# -- over classes -----------------------------------------------------------------------------------------
class CrossEntropyLossConfig(Config):
    """Cross entropy over classes.

    pad_tokens none: every item counts.  weights none: every class counts the same.  smoothing none: the target alone
    is right.  logits true: the input is not a probability yet, which is exact for any size of it.
    """

    pad_tokens: list[int] | None = None
    weights: list[float] | None = None
    smoothing: float | None = None
    logits: bool = True

    def __post_init__(self) -> None:
        _check(self, self.weights)

    def init(self, device: Device) -> CrossEntropyLoss:
        """The loss."""
        pads = None if self.pad_tokens is None else tuple(self.pad_tokens)
        return CrossEntropyLoss(pads, class_weights(self.weights, device), self.smoothing, self.logits)


class CrossEntropyLoss(InlineLayer):
    """-log of the probability of the target, a mean over the items that are no padding.

        loss = sum(weights[target] * -log softmax(logits)[target]) / sum(weights[target])

    Items whose target is one of `pad_tokens` count neither above nor below the line; a pad token need not be a class.
    With `smoothing` a, the target has share 1 - a and all classes together share a.
    With logits=False the input is probabilities, kept above the root of the smallest number of their type.
    A batch of nothing but padding gives NaN: there is nothing to take a mean of.

    Shapes: logits (batch, classes), targets (batch,) -> (1,).
    Dtypes: logits any float, targets any integer -> that of the logits.
    Raises: BoundsError for a target that is neither a class nor a pad token, where the data is on the host.
    PyTorch: torch.nn.CrossEntropyLoss; ignore_index is one pad token.
    """

    pad_tokens: tuple[int, ...] | None
    weights: Tensor | None
    smoothing: float | None
    logits: bool

    @staticmethod
    def new(pad_index: int | None, device: Device) -> CrossEntropyLoss:
        """Burn's short constructor: with one pad token, or none."""
        return CrossEntropyLossConfig(pad_tokens=None if pad_index is None else [pad_index]).init(device)

    @noting_layer
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        if self.logits:
            return _mean_over_items(_cross_entropy, logits, targets, self.weights, self.smoothing, self.pad_tokens)
        scores = logits.clamp_min(_LEAST.get(logits.dtype, 0.0)).log()
        return _mean_over_items(
            _negative_log_likelihood, scores, targets, self.weights, self.smoothing, self.pad_tokens
        )


class NLLLossConfig(Config):
    """The negative logarithm of the probability of a class.

    pad_tokens none: every item counts.  weights none: every class counts the same.
    """

    pad_tokens: list[int] | None = None
    weights: list[float] | None = None

    def __post_init__(self) -> None:
        rules = Rules(self)
        require_weights(rules, self.weights)
        rules.stop()

    def init(self, device: Device) -> NLLLoss:
        """The loss."""
        return NLLLoss(None if self.pad_tokens is None else tuple(self.pad_tokens), class_weights(self.weights, device))


class NLLLoss(InlineLayer):
    """-log_probs[target], a mean over the items that are no padding: CrossEntropyLoss after `log_softmax`.

        loss = sum(weights[target] * -log_probs[target]) / sum(weights[target])

    Shapes: log_probs (batch, classes), targets (batch,) -> (1,).
    Dtypes: log_probs any float, targets any integer -> that of log_probs.
    Raises: BoundsError for a target that is neither a class nor a pad token, where the data is on the host.
    PyTorch: torch.nn.NLLLoss; ignore_index is one pad token.
    """

    pad_tokens: tuple[int, ...] | None
    weights: Tensor | None

    @noting_layer
    def forward(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        return _mean_over_items(_negative_log_likelihood, log_probs, targets, self.weights, None, self.pad_tokens)


def _mean_over_items(
    row: Op,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    smoothing: float | None,
    pad_tokens: tuple[int, ...] | None,
) -> Tensor:
    """The losses that a row gives of items, as their weighted mean over those that are no padding."""
    pads = pad_tokens or ()
    weights = None if weights is None else as_type(weights, scores.dtype)
    losses: Tensor = apply(row, (scores, targets, weights, smoothing), pads)
    if weights is None and not pads:
        return as_type(losses.mean(), scores.dtype)
    weights = None if weights is None else as_type(weights, losses.dtype)
    return as_type(losses.sum() / _shares(targets, weights, pads, losses).sum(), scores.dtype)


def _shares(targets: Tensor, weights: Tensor | None, pads: tuple[int, ...], losses: Tensor) -> Tensor:
    """How much each item counts."""
    if not pads:
        assert weights is not None
        return weights.select(0, targets)
    padded = targets.equal(pads[0])
    for pad in pads[1:]:
        padded = padded.bool_or(targets.equal(pad))
    if weights is None:
        return padded.bool_not().cast(losses.dtype)
    return weights.select(0, targets.mask_fill(padded, 0)).mask_fill(padded, 0.0)


# -- over yes and no ---------------------------------------------------------------------------------------
class BinaryCrossEntropyLossConfig(Config):
    """Cross entropy over yes and no.

    weights none: every class counts the same.  smoothing none: the target alone is right.  logits false: the input is
    probabilities, as in PyTorch's BCELoss; true is exact for any size of the input.
    """

    weights: list[float] | None = None
    smoothing: float | None = None
    logits: bool = False

    def __post_init__(self) -> None:
        _check(self, self.weights)

    def init(self, device: Device) -> BinaryCrossEntropyLoss:
        """The loss."""
        return BinaryCrossEntropyLoss(class_weights(self.weights, device), self.smoothing, self.logits)


class BinaryCrossEntropyLoss(InlineLayer):
    """-(t log p + (1 - t) log(1 - p)), a mean over all elements; p = sigmoid(x) with logits=True.

    Weights are one a class: a class of the last axis where there are several axes; with one axis the first is for
    target 0, the second for target 1.  They multiply, and the mean divides by the number of elements.
    With `smoothing` a, targets become t (1 - a) + a / classes, with two classes where there is one axis.
    Logarithms of probabilities are kept at -100 or above.

    Shapes: logits, targets (*s) -> (1,).
    Dtypes: logits any float; targets integers as in Burn, or any number -> that of the logits.
    Raises: ArgumentError for probabilities outside [0, 1], where the data is on the host; elsewhere they give NaN.
    PyTorch: torch.nn.BCELoss, and BCEWithLogitsLoss with logits=True.
    """

    weights: Tensor | None
    smoothing: float | None
    logits: bool

    @noting_layer
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        same_shape(self, logits=logits, targets=targets)
        if not self.logits:
            _require_probabilities(logits)
        weights = None if self.weights is None else self._weights_of(logits, targets, self.weights)
        shares = as_type(targets, logits.dtype)
        if self.smoothing is not None:
            classes = logits.shape[-1] if logits.ndim > 1 else 2
            shares = shares * (1.0 - self.smoothing) + self.smoothing / classes
        row = ops.binary_cross_entropy_with_logits if self.logits else ops.binary_cross_entropy
        losses: Tensor = apply(row, (logits, shares))
        return (losses if weights is None else losses * weights).mean()

    def _weights_of(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        classes = logits.shape[-1] if logits.ndim > 1 else 2
        if weights.shape[0] != classes:
            raise ShapeError(
                "BinaryCrossEntropyLoss: the weights do not fit the classes",
                given=f"{weights.shape[0]} weights, logits {logits.spec}",
                expected=f"{classes} weights, one "
                + ("for each class of the last axis" if logits.ndim > 1 else "for target 0 and one for target 1"),
                mend="BinaryCrossEntropyLossConfig(weights=[...]) takes one for each class",
            )
        weights = as_type(weights, logits.dtype)
        if logits.ndim > 1:
            return weights
        if not targets.dtype.is_int:
            raise DTypeError(
                "BinaryCrossEntropyLoss: the target chooses the weights, but it holds no classes here",
                given=f"targets {targets.spec}",
                expected="integers, 0 or 1",
                mend="cast them with targets.int(), or leave the weights out where targets are shares",
            )
        return weights.select(0, targets)


# -- checks -------------------------------------------------------------------------------------------------
def _check(config: Config, weights: list[float] | None) -> None:
    rules = Rules(config).fraction("smoothing")
    require_weights(rules, weights)
    rules.stop()


def _require_probabilities(x: Tensor) -> None:
    bounds = range_on_host(x)
    if bounds is not None and (bounds[0] < 0.0 or bounds[1] > 1.0):
        raise ArgumentError(
            "BinaryCrossEntropyLoss: the input is not a probability",
            given=f"values from {bounds[0]:g} to {bounds[1]:g}",
            expected="0 to 1",
            mend="BinaryCrossEntropyLossConfig(logits=True) takes what a linear layer gives",
        )
