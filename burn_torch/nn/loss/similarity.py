"""Losses of embeddings: what belongs together lies together."""

from __future__ import annotations

from collections.abc import Callable

from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.module import Content, Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, in_layer
from burn_torch.nn.distances import PairwiseDistance
from burn_torch.nn.loss._reduction import Reduction, reduced, same_shape
from burn_torch.tensor import Device, Tensor, linalg
from burn_torch.tensor.apply import widen

__all__ = [
    "CosineEmbeddingLoss",
    "CosineEmbeddingLossConfig",
    "TripletMarginLoss",
    "TripletMarginLossConfig",
    "TripletMarginWithDistanceLoss",
    "TripletMarginWithDistanceLossConfig",
]

_LEAST_LENGTH = 1e-8  # of a vector whose direction is asked for, as in Burn and in PyTorch's cosine_similarity


class CosineEmbeddingLossConfig(ParameterlessConfig["CosineEmbeddingLoss"]):
    """A loss of angles.  margin 0: what does not belong together is at a right angle or more.  reduction: the mean."""

    margin: float = 0.0
    reduction: Reduction = Reduction.Mean

    def __post_init__(self) -> None:
        if not -1 <= self.margin <= 1:
            rules = Rules(self)
            rules.fault("margin", "no cosine", "a number from -1 to 1", "0.0 to 0.5 is usual")
            rules.stop()


class CosineEmbeddingLoss(Module):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1, else 0; cos is that of the angle.

    A vector of length 0 has cos 0 to all others, and no gradient.
    Shapes: input1, input2 (batch, d), target (batch,) -> (1,), or (batch,) without a reduction.
    Dtypes: input1 and input2 any float, both the same; target any number.
    PyTorch: torch.nn.CosineEmbeddingLoss.
    """

    margin: float = 0.0
    reduction: Reduction = Reduction.Mean

    @staticmethod
    def new() -> CosineEmbeddingLoss:
        """Burn's constructor: margin 0, the mean."""
        return CosineEmbeddingLoss()

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(input1, input2, target), self.reduction)

    def forward_no_reduction(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The loss of each pair."""
        same_shape(self, input1=input1, input2=input2)
        _require_vectors(self, input1, "input1 and input2", target)
        cos = linalg.cosine_similarity(input1, input2, 1, _LEAST_LENGTH).squeeze_dim(1)
        apart = (cos - self.margin).relu().mask_fill(target.not_equal(-1), 0.0)
        return apart.mask_where(target.equal(1), 1.0 - cos)

    def custom_content(self, content: Content) -> Content:
        """Settings as Burn shows them."""
        return content.add("margin", self.margin).add("reduction", self.reduction.value)


class TripletMarginLossConfig(ParameterlessConfig["TripletMarginLoss"]):
    """A loss of three.  margin 1, p 2: Euclidean distances, in the unit of the margin.

    JSON has no infinity: TripletMarginLoss(margin, math.inf) is made directly.
    """

    margin: float = 1.0
    p: float = 2.0

    def __post_init__(self) -> None:
        Rules(self).positive("p").at_least(0, "margin").stop()


class TripletMarginLoss(InlineLayer):
    """max(0, |anchor - positive| - |anchor - negative| + margin), with the p-norm; p may be infinite.

    Between equal vectors the distance is 0 and its gradient too.  The gradient passes at the kink.
    Shapes: anchor, positive, negative (batch, d) -> (1,), or (batch,) without a reduction.
    Dtypes: any float, all the same.
    PyTorch: torch.nn.TripletMarginLoss(eps=0); its own eps 1e-6 is added to each difference.
    """

    margin: float
    p: float

    def forward(
        self, anchor: Tensor, positive: Tensor, negative: Tensor, reduction: Reduction = Reduction.Auto
    ) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(anchor, positive, negative), reduction)

    def forward_no_reduction(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of each triplet."""
        same_shape(self, anchor=anchor, positive=positive, negative=negative)
        _require_vectors(self, anchor, "anchor, positive and negative")
        dtype = anchor.dtype
        anchor, positive, negative = widen(anchor), widen(positive), widen(negative)
        near, far = linalg.lp_norm(anchor - positive, self.p, 1), linalg.lp_norm(anchor - negative, self.p, 1)
        return (near - far + self.margin).clamp_min(0.0).reshape(anchor.shape[0]).cast(dtype)


class TripletMarginWithDistanceLossConfig(Config):
    """A loss of three with a distance of one's own.

    margin 1: the unit of the distance.  swap false: the negative is compared with the anchor alone.
    """

    margin: float = 1.0
    swap: bool = False

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "margin").stop()

    def init(
        self, device: Device | None = None, distance: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> TripletMarginWithDistanceLoss:
        """The loss.  `distance` is a function, or a module with one forward; None: the Euclidean PairwiseDistance."""
        chosen = PairwiseDistance(2.0, 1e-6) if distance is None else distance
        return TripletMarginWithDistanceLoss(chosen, self.margin, self.swap)


class TripletMarginWithDistanceLoss(Module):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin), with any distance.

    `swap` takes distance(positive, negative) where that is less than distance(anchor, negative).  The gradient passes
    at the kink.  A distance that is a module is part of the tree: its parameters are trained.

    Shapes: anchor, positive, negative one shape (batch, *s); distances (*d) -> (1,), or (*d) without a reduction.
    Dtypes: any float, all the same.
    Source: Balntas et al. 2016 (swap), http://www.bmva.org/bmvc/2016/papers/paper119/index.html.
    PyTorch: torch.nn.TripletMarginWithDistanceLoss.
    """

    distance: Callable[[Tensor, Tensor], Tensor]
    margin: float
    swap: bool

    def forward(
        self, anchor: Tensor, positive: Tensor, negative: Tensor, reduction: Reduction = Reduction.Auto
    ) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(anchor, positive, negative), reduction)

    def forward_no_reduction(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of each triplet."""
        same_shape(self, anchor=anchor, positive=positive, negative=negative)
        near, far = self.distance(anchor, positive), self.distance(anchor, negative)
        if self.swap:
            far = far.min_pair(self.distance(positive, negative))
        return (near - far + self.margin).clamp_min(0.0)

    def custom_content(self, content: Content) -> Content:
        """Settings; a distance that is a function by its name."""
        if not isinstance(self.distance, Module):
            content.add("distance", getattr(self.distance, "__name__", type(self.distance).__name__))
        return content.add("margin", self.margin).add("swap", self.swap)


def _require_vectors(loss: Module, x: Tensor, names: str, target: Tensor | None = None) -> None:
    if x.ndim == 2 and (target is None or target.shape == x.shape[:1]):
        return
    raise in_layer(
        ShapeError(
            f"{type(loss).__name__}: the inputs are not vectors of a batch",
            given=f"{names} {x.spec}" + ("" if target is None else f", target {target.spec}"),
            expected=f"{names} (batch, d)" + ("" if target is None else ", target (batch,)"),
            mend="flatten all axes before the last into one, for example x.reshape(-1, d)",
        ),
        loss,
    )
