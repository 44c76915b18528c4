"""How alike vectors are: CosineSimilarity, PairwiseDistance."""

from __future__ import annotations

import math
from typing import Final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.tensor import Tensor

__all__ = ["CosineSimilarity", "CosineSimilarityConfig", "PairwiseDistance", "PairwiseDistanceConfig"]


def cosine(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis, which goes.

    Each vector is divided by its largest element first, so no square overflows or vanishes; half types sum in f32.
    """
    directions, lengths = [], []
    for x in (x1, x2):
        wide = widen(x)
        largest = wide.detach().abs().max_dim(dim).clamp_min(_TINY)  # a scale: the cosine does not depend on it
        direction = wide / largest
        squares = direction.square().sum_dim(dim).clamp_min(1.0)  # 1 or more, but for vectors of zeros
        directions.append(direction)
        lengths.append(squares.sqrt().max_pair(eps / largest))
    cosines = (directions[0] * directions[1]).sum_dim(dim) / lengths[0] / lengths[1]
    return cosines.squeeze_dim(dim).cast(x1.dtype)


_TINY: Final = 1e-30
"""Below the largest element of a vector that is not short of all proportion: eps over it is still a number."""


def widen(x: Tensor) -> Tensor:
    """f32 for half types, whose squares overflow from 256 on; others as they are."""
    return x.cast(DType.F32) if x.dtype in (DType.F16, DType.BF16) else x


def length(x: Tensor, p: float, dim: int) -> Tensor:
    """The p-norm along an axis, which stays with size 1; p may be infinite.  A vector of zeros gets no gradient.

    Half types are summed, and come back, in f32.
    """
    sizes = widen(x).abs()
    if p == 1.0:
        return sizes.sum_dim(dim)
    if math.isinf(p):
        return sizes.max_dim(dim)
    total = (sizes.square() if p == 2.0 else _powers(sizes, p)).sum_dim(dim)
    none = total.equal(0.0)  # where the slope of the root is infinite
    safe = total.mask_fill(none, 1.0)
    return (safe.sqrt() if p == 2.0 else safe.powf(1.0 / p)).mask_fill(none, 0.0)


def _powers(x: Tensor, p: float) -> Tensor:
    if p > 1.0:
        return x.powf(p)
    none = x.equal(0.0)  # where the slope of the power is infinite
    return x.mask_fill(none, 1.0).powf(p).mask_fill(none, 0.0)


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
        return cosine(x1, x2, self.dim, self.eps)


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
        return length(widen(x1) - widen(x2) + self.eps, self.p, -1).squeeze_dim(-1).cast(x1.dtype)


def _alike(layer: Module, x1: Tensor, x2: Tensor) -> None:
    if x1.shape != x2.shape or not x1.ndim:
        raise ShapeError(
            f"{type(layer).__name__}: the inputs do not fit together",
            given=f"x1 {x1.shape}, x2 {x2.shape}",
            expected="one shape of one axis or more",
            mend="expand one of them",
        )
