"""How alike vectors are: CosineSimilarity, PairwiseDistance."""

from __future__ import annotations

from burn_torch.core.errors import ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.tensor import Tensor, functional

__all__ = ["CosineSimilarity", "CosineSimilarityConfig", "PairwiseDistance", "PairwiseDistanceConfig"]


class CosineSimilarityConfig(ParameterlessConfig["CosineSimilarity"]):
    """The cosine along an axis.

    dim 1 is the axis of features after the batch.  eps 1e-8 is the least norm: a zero vector is like none.
    """

    dim: int = 1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()


class CosineSimilarity(InlineLayer):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along axis `dim`.

    Shapes: x1, x2 (*s) -> (*s) without the axis.  Dtypes: any float, both the same; half types are summed in f32.
    PyTorch: torch.nn.CosineSimilarity.
    """

    dim: int
    eps: float

    @noting_layer
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines."""
        _alike(self, x1, x2)
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistanceConfig(ParameterlessConfig["PairwiseDistance"]):
    """The p-norm of a difference.

    p 2 is the Euclidean distance; JSON has no infinity, so PairwiseDistance(math.inf, eps) is made directly.
    eps 1e-6 keeps the slope of the root finite where both are equal.
    """

    p: float = 2.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        Rules(self).positive("p").at_least(0, "eps").stop()


class PairwiseDistance(InlineLayer):
    """(sum of |x1 - x2 + eps|^p)^(1/p) over the last axis; with an infinite p the largest |x1 - x2 + eps|.

    Shapes: x1, x2 (*batch, d) -> (*batch,).  Dtypes: any float, both the same; half types are summed in f32.
    If x1 - x2 + eps is 0 everywhere, the gradient is 0.
    PyTorch: torch.nn.PairwiseDistance.
    """

    p: float
    eps: float

    @noting_layer
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances."""
        _alike(self, x1, x2)
        return functional.pairwise_distance(x1, x2, self.p, self.eps)


def _alike(layer: Module, x1: Tensor, x2: Tensor) -> None:
    if x1.shape != x2.shape or not x1.ndim:
        raise ShapeError(
            f"{type(layer).__name__}: the inputs do not fit together",
            given=f"x1 {x1.shape}, x2 {x2.shape}",
            expected="one shape of one axis or more",
            mend="expand one of them",
        )
