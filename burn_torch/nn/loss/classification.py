"""Losses of classifiers: cross entropy over classes, and over yes and no."""

from __future__ import annotations

from typing import Any

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, ShapeError, explain
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, in_layer
from burn_torch.nn.loss._reduction import mean, same_shape, total
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply

__all__ = ["BinaryCrossEntropyLoss", "BinaryCrossEntropyLossConfig", "CrossEntropyLoss", "CrossEntropyLossConfig"]

_LEAST = {DType.F16: 7.8e-3, DType.BF16: 1.1e-19, DType.F32: 1.1e-19, DType.F64: 1.5e-154}
"""Root of the smallest normal number: probabilities are kept above it, so that their logarithm is finite."""


def _check(config: Any) -> None:
    rules = Rules(config).fraction("smoothing")
    if config.weights is not None and not all(weight > 0 for weight in config.weights):
        rules.fault("weights", "not above 0", "numbers above 0", "leave a class out with a pad token instead")
    rules.stop()


def _weights(weights: list[float] | None, device: Device) -> Tensor | None:
    return None if weights is None else Tensor.from_data(list(weights), device, DType.F32)


def _as(x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype is dtype else ops.cast(x, dtype=dtype)


class CrossEntropyLossConfig(Config):
    """Cross entropy over classes.

    pad_tokens none: every item counts.  weights none: every class counts the same.  smoothing none: the target alone
    is right.  logits true: the input is no probability yet, which is exact for any size of it.
    """

    pad_tokens: list[int] | None = None
    weights: list[float] | None = None
    smoothing: float | None = None
    logits: bool = True

    def __post_init__(self) -> None:
        _check(self)

    def init(self, device: Device) -> CrossEntropyLoss:
        """The loss."""
        pads = None if self.pad_tokens is None else tuple(self.pad_tokens)
        return CrossEntropyLoss(pads, _weights(self.weights, device), self.smoothing, self.logits)


class CrossEntropyLoss(Module):
    """-log of the probability of the target, a mean over the items that are no padding.

        loss = sum(weights[target] * -log softmax(logits)[target]) / sum(weights[target])

    Targets that are one of `pad_tokens` count neither above nor below.  With `smoothing` a, the target has share 1 - a
    and all classes together a.  With logits=False the input is probabilities.
    A batch of padding alone gives NaN: there is nothing to take a mean of.

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

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        pads, dtype = self.pad_tokens or (), logits.dtype
        weights = None if self.weights is None else _as(self.weights, dtype)
        scores, row = logits, ops.cross_entropy
        try:
            if not self.logits:
                scores = ops.log(ops.clamp_min(logits, _LEAST.get(dtype, 0.0)))
                row = ops.negative_log_likelihood
            losses: Tensor = apply(row, (scores, targets, weights, self.smoothing), pads)
            if weights is None and not pads:
                return mean(losses)
            return total(losses) / total(_shares(targets, weights, pads, losses))
        except BurnTorchError as err:
            in_layer(err, self)
            raise

    def custom_content(self, content: Content) -> Content:
        """Settings as Burn shows them."""
        pads = None if self.pad_tokens is None else f"Vec<0..{len(self.pad_tokens)}>"
        content.add("pad_tokens", pads).add("weights", self.weights)
        return content.add("smoothing", self.smoothing).add("logits", self.logits)


def _shares(targets: Tensor, weights: Tensor | None, pads: tuple[int, ...], losses: Tensor) -> Tensor:
    """How much each item counts."""
    padded = None
    for pad in pads:
        found = ops.equal(targets, pad)
        padded = found if padded is None else ops.bool_or(padded, found)
    if weights is None:
        shares = losses.new_full(losses.shape, 1.0)
    else:  # a pad token need not be a class
        classes = targets if padded is None else ops.mask_where(targets, padded, 0)
        shares = ops.gather(weights, classes, dim=0)
    return shares if padded is None else ops.mask_where(shares, padded, 0.0)


class BinaryCrossEntropyLossConfig(Config):
    """Cross entropy over yes and no.

    weights none: every class counts the same.  smoothing none: the target alone is right.  logits false: the input is
    probabilities, as in PyTorch's BCELoss; true is exact for any size of them.
    """

    weights: list[float] | None = None
    smoothing: float | None = None
    logits: bool = False

    def __post_init__(self) -> None:
        _check(self)

    def init(self, device: Device) -> BinaryCrossEntropyLoss:
        """The loss."""
        return BinaryCrossEntropyLoss(_weights(self.weights, device), self.smoothing, self.logits)


class BinaryCrossEntropyLoss(Module):
    """-(t log p + (1 - t) log(1 - p)), a mean over all elements; p = sigmoid(x) with logits=True.

    Weights are one a class: of the last axis where there are several axes, else the first for target 0, the second
    for target 1.  They multiply, and the mean divides by the number of elements.  With `smoothing` a, targets become
    t (1 - a) + a / classes.  Logarithms of probabilities are kept above -100, as in PyTorch.

    Shapes: logits, targets (*s) -> (1,).  Dtypes: logits any float; targets any number, integers in Burn.
    PyTorch: torch.nn.BCELoss, and BCEWithLogitsLoss with logits=True.
    """

    weights: Tensor | None
    smoothing: float | None
    logits: bool

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        same_shape(self, logits=logits, targets=targets)
        try:
            return mean(self._losses(logits, targets))
        except BurnTorchError as err:
            in_layer(err, self)
            raise

    def _losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        share = _as(targets, logits.dtype)
        if self.smoothing is not None:
            classes = logits.shape[-1] if logits.ndim > 1 else 2
            share = share * (1.0 - self.smoothing) + self.smoothing / classes
        if self.logits:
            losses: Tensor = ops.binary_cross_entropy_with_logits(logits, share)
        else:
            yes, no = ops.clamp_min(ops.log(logits), -100.0), ops.clamp_min(ops.log1p(-logits), -100.0)
            losses = (share - 1.0) * no - share * yes
        if self.weights is None:
            return losses
        weights = _as(self.weights, logits.dtype)
        if logits.ndim > 1:
            if weights.shape[0] != logits.shape[-1]:
                raise ShapeError(
                    explain(
                        "BinaryCrossEntropyLoss: the weights do not fit the classes",
                        given=f"{weights.shape[0]} weights, logits {logits.spec}",
                        expected=f"{logits.shape[-1]} weights, one for each class of the last axis",
                        mend="give a weight for each class",
                    )
                )
            return losses * weights
        index = targets if targets.dtype.is_int else ops.cast(targets, dtype=DType.I64)
        return losses * ops.gather(weights, index, dim=0)  # type: ignore[no-any-return]

    def custom_content(self, content: Content) -> Content:
        """Settings as Burn shows them."""
        content.add("weights", self.weights)
        return content.add("smoothing", self.smoothing).add("logits", self.logits)
