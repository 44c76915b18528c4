"""Losses that hold the layers before them: LinearCrossEntropyLoss, AdaptiveLogSoftmaxWithLoss."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from burn_torch import ops
from burn_torch.backend.base import computes_at_once
from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.nn.loss._reduction import as_type
from burn_torch.nn.loss.classification import CrossEntropyLoss, CrossEntropyLossConfig
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.activation import log_softmax
from burn_torch.tensor.apply import apply

__all__ = [
    "AdaptiveLogSoftmaxOutput",
    "AdaptiveLogSoftmaxWithLoss",
    "AdaptiveLogSoftmaxWithLossConfig",
    "LinearCrossEntropyLoss",
    "LinearCrossEntropyLossConfig",
]


# -- a linear layer and its loss ---------------------------------------------------------------------------
class LinearCrossEntropyLossConfig(Config):
    """A linear layer and the cross entropy of its outputs.

    bias false: the head of most language models has none.  The other fields are those of CrossEntropyLossConfig.
    """

    d_input: int
    n_classes: int
    bias: bool = False
    pad_tokens: list[int] | None = None
    weights: list[float] | None = None
    smoothing: float | None = None

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_input", "n_classes").stop()
        self._loss()

    def _loss(self) -> CrossEntropyLossConfig:
        return CrossEntropyLossConfig(pad_tokens=self.pad_tokens, weights=self.weights, smoothing=self.smoothing)

    def init(self, device: Device) -> LinearCrossEntropyLoss:
        """The loss with fresh parameters of its layer."""
        linear = LinearConfig(self.d_input, self.n_classes, bias=self.bias).init(device)
        return LinearCrossEntropyLoss(linear, self._loss().init(device))


class LinearCrossEntropyLoss(Module):
    """CrossEntropyLoss of the outputs of a linear layer; a compiled step never holds all of its logits.

    Shapes: x (*batch, d_input), targets (*batch) -> (1,).
    Dtypes: x any float, targets any integer -> that of x.
    Raises: BoundsError for a target that is neither a class nor a pad token, where the data is on the host.
    PyTorch: torch.nn.LinearCrossEntropyLoss; ignore_index is one pad token.
    """

    linear: Linear
    loss: CrossEntropyLoss

    @noting_layer
    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        if targets.shape != x.shape[:-1]:
            raise _misfit(self, x, targets, "x (*batch, d_input) and targets (*batch)")
        items = x.reshape((targets.spec.numel, x.shape[-1]))
        return self.loss.forward(self.linear.forward(items), targets.reshape((targets.spec.numel,)))


# -- rare classes in clusters of their own --------------------------------------------------------------------
class AdaptiveLogSoftmaxWithLossConfig(Config):
    """A softmax over classes in the order of their frequency, the rare ones in clusters.

    cutoffs: the first class of each cluster, in rising order.  div_value 4: cluster i has d_input / 4^(i + 1) features.
    head_bias false: as in the paper.
    """

    d_input: int
    n_classes: int
    cutoffs: list[int]
    div_value: float = 4.0
    head_bias: bool = False

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_input", "n_classes").positive("div_value")
        bounds = [0, *self.cutoffs, self.n_classes]
        if not self.cutoffs or any(low >= high for low, high in itertools.pairwise(bounds)):
            rules.fault("cutoffs", "no bounds of clusters", "rising numbers from 1 to n_classes - 1", "sort them")
        rules.stop()

    def init(self, device: Device) -> AdaptiveLogSoftmaxWithLoss:
        """The layers with fresh parameters."""

        def layer(d_input: int, d_output: int, bias: bool = False) -> Linear:
            return LinearConfig(d_input, d_output, bias=bias).init(device)

        bounds = (*self.cutoffs, self.n_classes)
        clusters = len(bounds) - 1
        tail = []
        for i in range(clusters):
            width = max(int(self.d_input // self.div_value ** (i + 1)), 1)
            tail.append([layer(self.d_input, width), layer(width, bounds[i + 1] - bounds[i])])
        head = layer(self.d_input, bounds[0] + clusters, self.head_bias)
        return AdaptiveLogSoftmaxWithLoss(head, tail, bounds)


class AdaptiveLogSoftmaxOutput(NamedTuple):
    """Holds the logarithm of the probability of each target, (batch,), and their negative mean, (1,)."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax of many classes: the head knows frequent classes and clusters, each cluster knows its rare classes.

        log p(class) = log_softmax(head(x))[class]                                      of a frequent class
        log p(class) = log_softmax(head(x))[cluster] + log_softmax(tail(x))[class]      of a class in a cluster

    Where values can be read at once, a cluster is computed of its own items only; compiled, of all items.

    Shapes: x (batch, d_input), targets (batch,) -> output (batch,), loss (1,).
    Dtypes: x any float, targets any integer -> those of x.
    Raises: BoundsError for a target that is no class, where the data is on the host.
    Source: Grave et al. 2017, https://arxiv.org/abs/1609.04309.  PyTorch: torch.nn.AdaptiveLogSoftmaxWithLoss.
    """

    head: Linear
    tail: list[list[Linear]]
    bounds: tuple[int, ...]

    @noting_layer
    def forward(self, x: Tensor, targets: Tensor) -> AdaptiveLogSoftmaxOutput:
        """The logarithm of the probability of each target, and the mean loss."""
        if x.ndim != 2 or targets.shape != x.shape[:1]:
            raise _misfit(self, x, targets, "x (batch, d_input) and targets (batch,)")
        frequent = self.bounds[0]
        inside = [targets.greater_equal(low).bool_and(targets.lower(high)) for low, high in self._clusters()]
        places = targets
        for i, members in enumerate(inside):
            places = places.mask_fill(members, frequent + i)
        losses = _losses(self.head.forward(x), places)
        for (low, _), layers, members in zip(self._clusters(), self.tail, inside, strict=True):
            losses = _add_cluster(losses, layers, x, targets - low, members)
        return AdaptiveLogSoftmaxOutput(as_type(-losses, x.dtype), as_type(losses.mean(), x.dtype))

    @noting_layer
    def log_prob(self, x: Tensor) -> Tensor:
        """The logarithms of all probabilities.  Shapes: x (batch, d_input) -> (batch, n_classes)."""
        head = log_softmax(self.head.forward(x), 1)
        frequent = self.bounds[0]
        parts = [head.narrow(1, 0, frequent)]
        for i, layers in enumerate(self.tail):
            parts.append(log_softmax(_through(layers, x), 1) + head.narrow(1, frequent + i, 1))
        return Tensor.cat(parts, 1)

    def predict(self, x: Tensor) -> Tensor:
        """The most likely class of each item.  Shapes: x (batch, d_input) -> (batch,)."""
        return self.log_prob(x).argmax(1).squeeze_dim(1)

    def _clusters(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(self.bounds))

    def custom_content(self, content: Content) -> Content:
        """Sizes, and the first class of each cluster."""
        content.add("d_input", self.head.weight.shape[0]).add("n_classes", self.bounds[-1])
        return content.add("cutoffs", list(self.bounds[:-1]))


def _through(layers: list[Linear], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer.forward(x)
    return x


def _losses(logits: Tensor, targets: Tensor, pads: tuple[int, ...] = ()) -> Tensor:
    losses: Tensor = apply(ops.cross_entropy, (logits, targets, None, None), pads)
    return losses


def _add_cluster(losses: Tensor, layers: list[Linear], x: Tensor, places: Tensor, members: Tensor) -> Tensor:
    """The losses, and those that a cluster adds to its members."""
    if not computes_at_once(x.backend):
        return losses + _losses(_through(layers, x), places.mask_fill(members.bool_not(), -1), (-1,))
    rows = members.argwhere().squeeze_dim(1)
    if not rows.shape[0]:
        return losses
    own = _losses(_through(layers, x.select(0, rows)), places.select(0, rows))
    return losses.select_assign(0, rows, own, "add")


def _misfit(loss: Module, x: Tensor, targets: Tensor, expected: str) -> ShapeError:
    return ShapeError(
        f"{type(loss).__name__}: input and targets do not fit together",
        given=f"x {x.spec}, targets {targets.spec}",
        expected=expected,
        mend="flatten all axes but the last of x, and all axes of the targets, into one",
    )
