"""Systems of linear equations, inverses, determinants, ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import real, truth
from burn_torch.tensor.apply import HALVES
from burn_torch.tensor.linalg._matrix import compute, require_axes, require_square
from burn_torch.tensor.linalg.decompositions import svdvals
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "LeastSquares", "det", "inverse", "logdet", "lstsq", "matrix_rank", "pinv", "slogdet", "solve", "solve_triangular",
]  # fmt: skip


def det(x: Tensor) -> Tensor:
    """The determinant; its gradient exists for singular matrices too.

    Shapes: x (*batch, n, n) -> (*batch); 1 of a matrix without elements.  Dtypes: any float.
    PyTorch: torch.linalg.det.
    """
    require_square(x)
    return compute(ops.det, x)[0]


def slogdet(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its absolute value: 0 and -inf of a singular matrix.

    Shapes: x (*batch, n, n) -> twice (*batch).  Dtypes: any float.
    Raises: ArgumentError, in the backward, for a singular matrix.  PyTorch: torch.linalg.slogdet.
    """
    require_square(x)
    sign, size = compute(ops.slogdet, x)
    return sign, size


def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is below 0.  PyTorch: torch.logdet."""
    sign, size = slogdet(x)
    return size.mask_fill(sign.lower(0.0), float("nan"))


def solve(a: Tensor, b: Tensor) -> Tensor:
    """The x with a x = b.

    Shapes: a (*batch, n, n); b (*batch, n, k) -> the same, batch axes broadcast; or vectors b (n,), or (*batch, n) with
    the batch of a.  Dtypes: any float, both the same.
    Raises: ArgumentError if a matrix is singular.  PyTorch: torch.linalg.solve.
    """
    require_square(a, "a")
    require_axes(b, 1, "b")
    if _are_vectors(a, b):
        return solve(a, b.unsqueeze_dim(-1)).squeeze_dim(-1)
    return compute(ops.solve, a, b)[0]


def _are_vectors(a: Tensor, b: Tensor) -> bool:
    return b.ndim == 1 or b.shape == a.shape[:-1]


def solve_triangular(a: Tensor, b: Tensor, upper: bool, unit_diagonal: bool = False) -> Tensor:
    """The x with a x = b, where a is an upper or a lower triangle: what lies beyond it is not read.

    Shapes and dtypes as `solve`.  unit_diagonal: the diagonal of a is not read, but taken to be 1.
    Raises: ArgumentError if there is a 0 on the diagonal.  PyTorch: torch.linalg.solve_triangular.
    """
    require_square(a, "a")
    require_axes(b, 1, "b")
    if _are_vectors(a, b):
        return solve_triangular(a, b.unsqueeze_dim(-1), upper, unit_diagonal).squeeze_dim(-1)
    attrs = (truth(upper, "upper"), truth(unit_diagonal, "unit_diagonal"))
    return compute(ops.solve_triangular, a, b, attrs=attrs)[0]


def inverse(x: Tensor) -> Tensor:
    """The matrix y with x y = y x = 1.

    Shapes: x (*batch, n, n) -> the same.  Dtypes: any float.
    Raises: ArgumentError if a matrix is singular.  PyTorch: torch.linalg.inv; numpy.linalg.inv.
    """
    size = require_square(x)
    # the row takes no vectors: as many matrices as they have rows are no reason to read 1 as a batch of those
    return compute(ops.solve, x, Tensor.eye(size, (x.device.no_grad(), x.dtype)))[0]


def pinv(x: Tensor, rtol: float | None = None) -> Tensor:
    """The inverse of Moore and Penrose, of a matrix of any shape and rank.

    Singular values up to rtol times the largest one count as 0; rtol is max(m, n) times the rounding of the type unless
    given.  The gradient is that along changes that keep the rank.
    Shapes: x (*batch, m, n) -> (*batch, n, m).  Dtypes: any float.  PyTorch: torch.linalg.pinv; numpy.linalg.pinv.
    """
    require_axes(x)
    return compute(ops.pinv, x, _cut(x, rtol))[0]


def _cut(x: Tensor, rtol: float | None) -> float:
    if rtol is None:
        computed = DType.F32 if x.dtype in HALVES else x.dtype
        return max(x.shape[-2:], default=0) * (float(np.finfo(computed.numpy).eps) if computed.is_float else 0.0)
    value = real(rtol, "rtol")
    if isinstance(value, float) and value < 0.0:
        raise told(
            ArgumentError,
            "rtol is below 0",
            given=f"rtol {rtol}",
            expected="a part of the largest singular value: 0 or more",
            mend="write rtol=1e-6",
        )
    return value


def matrix_rank(x: Tensor, rtol: float | None = None) -> Tensor:
    """The number of singular values above rtol times the largest one, as i64.

    Shapes: x (*batch, m, n) -> (*batch).  PyTorch: torch.linalg.matrix_rank.
    """
    require_axes(x)
    return _count_above(svdvals(x.detach()), _cut(x, rtol))


def _count_above(values: Tensor, cut: float) -> Tensor:
    if not values.shape[-1]:
        return values.cast(DType.I64).sum_dim(-1).squeeze_dim(-1)
    return values.greater(values.max_dim(-1) * cut).cast(DType.I64).sum_dim(-1).squeeze_dim(-1)


class LeastSquares(NamedTuple):
    """The result of `lstsq`."""

    solution: Tensor
    residuals: Tensor
    """The sums of squares of a x - b, for each right side."""
    rank: Tensor
    singular_values: Tensor


def lstsq(a: Tensor, b: Tensor, rtol: float | None = None) -> LeastSquares:
    """The x of least norm among those for which the norm of a x - b is least, for a matrix of any shape and rank.

    Shapes: a (*batch, m, n); b (*batch, m, k) -> (*batch, n, k), or vectors b (m,), or (*batch, m) with the batch of a.
    Dtypes: any float, both the same.  The gradient of the solution is that along changes that keep the rank.
    rtol: see `pinv`.  PyTorch: torch.linalg.lstsq; numpy.linalg.lstsq.
    """
    require_axes(a, 2, "a")
    require_axes(b, 1, "b")
    vectors = _are_vectors(a, b)
    right = b.unsqueeze_dim(-1) if vectors else b
    if right.shape[-2] != a.shape[-2]:
        raise told(
            ShapeError,
            "the right side does not fit the matrix",
            given=f"a {a.spec}, b {b.spec}",
            expected=f"b with {a.shape[-2]} rows, as a has",
            mend="a vector is a column: b.unsqueeze_dim(-1)",
        )
    solution = pinv(a, rtol).matmul(right)
    residuals = (a.matmul(solution) - right).square().sum_dim(-2).squeeze_dim(-2)
    if vectors:
        solution, residuals = solution.squeeze_dim(-1), residuals.squeeze_dim(-1)
    values = svdvals(a)
    return LeastSquares(solution, residuals, _count_above(values.detach(), _cut(a, rtol)), values)


check_functions(globals(), "linalg")
