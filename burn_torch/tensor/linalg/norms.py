"""Norms along an axis, which stays with size 1, and angles between vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import axis, fitting, real
from burn_torch.tensor.apply import require_tensor, widen
from burn_torch.tensor.linalg._matrix import require_axes
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "Norm", "cdist", "cosine_similarity", "l0_norm", "l1_norm", "l2_norm", "lp_norm", "max_abs_norm", "min_abs_norm",
    "vector_norm", "vector_normalize",
]  # fmt: skip


@final
@dataclass(frozen=True)
class Norm:
    """The norm of a vector: `Norm.L2`, `Norm.LInf`, `Norm.Lp(3.0)`.

    L0 counts the elements that are not zero, LInf is the largest absolute value, LNegInf the smallest, Lp(p) is
    (sum of |x|^p)^(1/p).  Functions take the exponent too: 2, math.inf.
    """

    p: float

    L0: ClassVar[Norm]
    L1: ClassVar[Norm]
    L2: ClassVar[Norm]
    LInf: ClassVar[Norm]
    LNegInf: ClassVar[Norm]

    @staticmethod
    def Lp(p: float) -> Norm:  # noqa: N802  # Burn's name
        """The norm of exponent p."""
        return Norm(real(p, "p"))

    @staticmethod
    def of(norm: object) -> Norm:
        """The norm itself, that of an exponent, or the one of this name: "L2".  Raises: ArgumentError."""
        if isinstance(norm, Norm):
            return norm
        if isinstance(norm, str):
            named = getattr(Norm, norm, None)
            if isinstance(named, Norm):
                return named
        elif isinstance(norm, int | float | np.number) and not isinstance(norm, bool) and norm == norm:  # no NaN
            return Norm(float(norm))
        raise told(
            ArgumentError,
            "there is no such norm",
            given=f"norm {norm!r:.60}",
            expected="Norm.L0, L1, L2, LInf, LNegInf, Lp(p), one of these names, or an exponent",
            mend="write Norm.L2, for example, or 2",
        )

    def to_exponent(self) -> float:
        """The exponent: 0 of L0, infinity of LInf, minus infinity of LNegInf."""
        return self.p

    def __repr__(self) -> str:
        return _NAMES.get(self.p, f"Norm.Lp({self.p})")


Norm.L0, Norm.L1, Norm.L2, Norm.LInf, Norm.LNegInf = map(Norm, (0.0, 1.0, 2.0, math.inf, -math.inf))
_NAMES: Final = {getattr(Norm, name).p: f"Norm.{name}" for name in ("L0", "L1", "L2", "LInf", "LNegInf")}


def vector_norm(x: Tensor, norm: Norm | float | str, dim: int) -> Tensor:
    """The norm of the vectors along an axis, which stays with size 1.

    Shapes: x (..., n, ...) -> (..., 1, ...).  Dtypes: L0, L1, LInf and LNegInf take any numbers, the others floats; the
    same out.  Half types are summed in float32.
    A gradient that does not exist, that of a vector of zeros, is 0, as in PyTorch.
    PyTorch: torch.linalg.vector_norm(x, ord, dim, keepdim=True).
    """
    return lp_norm(x, Norm.of(norm).p, dim)


def lp_norm(x: Tensor, p: float, dim: int) -> Tensor:
    """(sum of |x|^p)^(1/p) along an axis; p may be 0 or infinite, see `vector_norm`."""
    at, p = axis(x, dim), real(p, "p")
    special = _SPECIAL.get(p)
    if special is not None:
        return special(x, at)
    return length(x, p, at).cast(x.dtype)


def l0_norm(x: Tensor, dim: int) -> Tensor:
    """The number of elements along an axis that are not zero, in the type of x; NaN is not zero."""
    at = axis(x, dim)
    return x.not_equal(fitting(x.dtype, 0)).cast(x.dtype).sum_dim(at)


def l1_norm(x: Tensor, dim: int) -> Tensor:
    """The sum of the absolute values along an axis."""
    return x.abs().sum_dim(axis(x, dim))


def l2_norm(x: Tensor, dim: int) -> Tensor:
    """The Euclidean norm along an axis."""
    return length(x, 2.0, axis(x, dim)).cast(x.dtype)


def max_abs_norm(x: Tensor, dim: int) -> Tensor:
    """The largest absolute value along an axis; equal ones share the gradient."""
    return x.max_abs_dim(axis(x, dim))


def min_abs_norm(x: Tensor, dim: int) -> Tensor:
    """The smallest absolute value along an axis; equal ones share the gradient."""
    return x.abs().min_dim(axis(x, dim))


_SPECIAL: Final = {0.0: l0_norm, 1.0: l1_norm, math.inf: max_abs_norm, -math.inf: min_abs_norm}


def vector_normalize(x: Tensor, norm: Norm | float | str, dim: int, eps: float) -> Tensor:
    """x over its norm along an axis, or over eps where the norm is smaller.

    Shapes: x (*s) -> (*s).  Dtypes: any float; half types are computed in float32 and rounded once.
    PyTorch: torch.nn.functional.normalize, whose eps is 1e-12 by default.
    """
    require_tensor(x)
    wide = widen(x)
    return (wide / vector_norm(wide, norm, dim).clamp_min(real(eps, "eps"))).cast(x.dtype)


def length(x: Tensor, p: float, dim: int) -> Tensor:
    """The p-norm along an axis, which stays with size 1, for a finite p that is not 0.  Zeros get no gradient.

    Half types are summed, and come back, in float32.
    """
    if not x.dtype.is_float:
        raise told(
            DTypeError,
            "this norm takes floats",
            given=f"x {x.spec}",
            expected="f64, f32, f16 or bf16; L0, L1, LInf and LNegInf take integers too",
            mend="x.float() converts",
        )
    return root_of_sums(widen(x), p, lambda powers: powers.sum_dim(dim))


def root_of_sums(x: Tensor, p: float, add: Callable[[Tensor], Tensor]) -> Tensor:
    """add(|x|^p)^(1/p).  A sum of 0 gets no gradient, where the root has an infinite slope."""
    if p == 1.0:
        return add(x.abs())
    # a square of the absolute value would lose the second derivative of elements that are 0
    total = add(x.square() if p == 2.0 else _powers(x.abs(), p))
    none = total.equal(0.0)  # where the slope of the root is infinite
    safe = total.mask_fill(none, 1.0)
    return (safe.sqrt() if p == 2.0 else safe.powf(1.0 / p)).mask_fill(none, 0.0 if p > 0.0 else math.inf)


def _powers(x: Tensor, p: float) -> Tensor:
    if p > 1.0:
        return x.powf(p)
    none = x.equal(0.0)  # where the slope of the power is infinite
    return x.mask_fill(none, 1.0).powf(p).mask_fill(none, 0.0 if p > 0.0 else math.inf)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of each difference between a vector of x1 and one of x2; equal vectors get no gradient.

    Shapes: x1 (*batch, m, d), x2 (*batch, n, d) -> (*batch, m, n); batch axes broadcast.  Dtypes: any float, the same.
    All m n d differences are held, unless a fused kernel adds them up.
    PyTorch: torch.cdist; scipy.spatial.distance.cdist.
    """
    for x, name in ((x1, "x1"), (x2, "x2")):
        require_axes(x, 2, name)
    if x1.shape[-1] != x2.shape[-1]:
        raise told(
            ShapeError,
            "the vectors differ in length",
            given=f"x1 {x1.spec}, x2 {x2.spec}",
            expected="x1 (*batch, m, d) and x2 (*batch, n, d) with one d",
            mend="the vectors lie along the last axis",
        )
    same = x1.dtype is x2.dtype
    left, right = (widen(x1), widen(x2)) if same else (x1, x2)
    return lp_norm(left.unsqueeze_dim(-2) - right.unsqueeze_dim(-3), p, -1).squeeze_dim(-1).cast(x1.dtype)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int, eps: float | None = None) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis, which stays with size 1.

    Each vector is divided by its largest element first, so no square overflows or vanishes; half types sum in f32.
    Shapes: x1, x2 (..., n, ...), broadcast -> (..., 1, ...).  Dtypes: any float, both the same.
    eps: None is the smallest normal number of the element type, as in Burn.
    PyTorch: torch.nn.functional.cosine_similarity, which drops the axis and has eps 1e-8.
    """
    require_tensor(x1, "x1")
    require_tensor(x2, "x2")
    least = _smallest(x1.dtype) if eps is None else real(eps, "eps")
    at = axis(x1 if x1.ndim >= x2.ndim else x2, dim) - max(x1.ndim, x2.ndim)
    pair = [x.unsqueeze(-at) if x.ndim < -at else x for x in (x1, x2)]
    count = max(x.shape[at] for x in pair)
    directions, lengths = [], []
    for x in pair:
        if x.shape[at] == 1 < count:  # one number stands for a vector as long as the other's
            x = x.expand([count if i == x.ndim + at else n for i, n in enumerate(x.shape)])
        wide = widen(x)
        largest = wide.detach().abs().max_dim(at).clamp_min(_TINY)  # a scale: the cosine does not depend on it
        direction = wide / largest
        squares = direction.square().sum_dim(at).clamp_min(1.0)  # 1 or more, but for vectors of zeros
        directions.append(direction)
        lengths.append(squares.sqrt().max_pair(least / largest))
    return ((directions[0] * directions[1]).sum_dim(at) / lengths[0] / lengths[1]).cast(x1.dtype)


_TINY: Final = 1e-30
"""Below the largest element of a vector that is not short of all proportion: eps over it is still a number."""


def _smallest(dtype: DType) -> float:
    return float(np.finfo(np.float32 if dtype is DType.BF16 else dtype.numpy).tiny)  # bf16 has the exponents of f32


check_functions(globals(), "linalg")
