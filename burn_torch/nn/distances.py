"""How alike vectors are: CosineSimilarity, PairwiseDistance."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.errors import ShapeError, explain
from burn_torch.module import Content, Module
from burn_torch.nn._layer import Rules, in_layer, inline
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import unary

__all__ = ["CosineSimilarity", "CosineSimilarityConfig", "PairwiseDistance", "PairwiseDistanceConfig"]


def cosine(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis, which goes."""

    def squares(x: Tensor) -> Tensor:
        return (x * x).sum_dim(dim).clamp_min(eps * eps)

    return ((x1 * x2).sum_dim(dim) / (squares(x1) * squares(x2)).sqrt()).squeeze_dim(dim)


def distance(x1: Tensor, x2: Tensor, p: float, eps: float) -> Tensor:
    """(sum of |x1 - x2 + eps|^p)^(1/p) along the last axis, which goes."""
    apart = x1 - x2 + eps
    if p == 2.0:
        return (apart * apart).sum_dim(-1).sqrt().squeeze_dim(-1)
    sizes = unary(ops.abs, apart)
    return sizes.sum_dim(-1).squeeze_dim(-1) if p == 1.0 else ((sizes**p).sum_dim(-1) ** (1.0 / p)).squeeze_dim(-1)


class CosineSimilarityConfig(Config):
    """The cosine along an axis.

    dim 1 is the axis of features after the batch.  eps 1e-8 is the least norm: a zero vector is like none.
    """

    dim: int = 1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Rules(self).positive("eps").stop()

    def init(self, device: Device | None = None) -> CosineSimilarity:
        """The layer; it has no parameters, so the device does not matter."""
        return CosineSimilarity(self.dim, self.eps)


class CosineSimilarity(Module):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along axis `dim`.

    Shapes: x1, x2 (*s) -> (*s) without the axis.  Dtypes: any float, both the same.
    PyTorch: torch.nn.CosineSimilarity.
    """

    dim: int
    eps: float

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines."""
        _alike(self, x1, x2)
        return cosine(x1, x2, self.dim, self.eps)

    def custom_content(self, content: Content) -> Content:
        """All numbers."""
        return inline(self, content)


class PairwiseDistanceConfig(Config):
    """The p-norm of a difference.

    p 2 is the Euclidean distance.  eps 1e-6 keeps the slope of the root finite where both are equal.
    """

    p: float = 2.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        Rules(self).positive("p").stop()

    def init(self, device: Device | None = None) -> PairwiseDistance:
        """The layer; it has no parameters, so the device does not matter."""
        return PairwiseDistance(self.p, self.eps)


class PairwiseDistance(Module):
    """(sum of |x1 - x2 + eps|^p)^(1/p) over the last axis.

    Shapes: x1, x2 (*batch, d) -> (*batch,).  Dtypes: any float, both the same.
    PyTorch: torch.nn.PairwiseDistance.
    """

    p: float
    eps: float

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances."""
        _alike(self, x1, x2)
        return distance(x1, x2, self.p, self.eps)

    def custom_content(self, content: Content) -> Content:
        """All numbers."""
        return inline(self, content)


def _alike(layer: Module, x1: Tensor, x2: Tensor) -> None:
    if x1.shape != x2.shape or not x1.ndim:
        err = ShapeError(
            explain(
                f"{type(layer).__name__}: the inputs do not fit together",
                given=f"x1 {x1.shape}, x2 {x2.shape}",
                expected="one shape of one axis or more",
                mend="expand one of them",
            )
        )
        raise in_layer(err, layer)
