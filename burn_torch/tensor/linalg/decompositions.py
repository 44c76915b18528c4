"""Matrices taken apart: LU, QR, Cholesky, eigenvalues, singular values."""

from __future__ import annotations

from typing import TypeAlias

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import truth
from burn_torch.tensor.linalg._matrix import compute, require_axes, require_square
from burn_torch.tensor.tensor import Tensor

__all__ = ["cholesky", "eigh", "eigvalsh", "lu", "lu_decomposition", "qr", "svd", "svdvals"]

Pair: TypeAlias = tuple[Tensor, Tensor]
Triple: TypeAlias = tuple[Tensor, Tensor, Tensor]


def lu(x: Tensor) -> Triple:
    """P, L and U with x = P L U, by elimination with partial pivoting.

    P is a permutation, L has ones on its diagonal and zeros above it, U has zeros below its diagonal.
    Shapes: x (*batch, m, n) -> P (*batch, m, m), L (*batch, m, k), U (*batch, k, n), k = min(m, n).
    Dtypes: any float; half types are computed in float32.  A singular matrix has zeros on the diagonal of U.
    The gradient asks for min(m, n) leading columns that are independent.  PyTorch: torch.linalg.lu.
    """
    require_axes(x)
    packed, order = compute(ops.lu, x, attrs=(False,))
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    ones = Tensor.eye(rows, (x.device.no_grad(), x.dtype))
    lower = packed.narrow(-1, 0, size).tril(-1) + ones.narrow(-1, 0, size)
    upper = packed.narrow(-2, 0, size).triu()
    return order.one_hot(rows).cast(x.dtype).transpose(), lower, upper


def lu_decomposition(x: Tensor) -> Pair:
    """L and U in one matrix, and the order of rows for which x[order] = L U.

    U lies on and above the diagonal, L below; the ones on the diagonal of L are not kept.
    Shapes: x (n, n) -> (n, n) and (n,).  Dtypes: any float -> the same, and i64.
    Raises: ArgumentError for a singular matrix, as in Burn.
    PyTorch: torch.linalg.lu_factor, whose pivots are exchanges counted from 1.
    """
    if require_square(x) and x.ndim > 2:
        raise told(
            ShapeError,
            "x is a batch of matrices",
            given=f"x {x.spec}",
            expected="x (n, n)",
            mend="lu takes batches",
        )
    packed, order = compute(ops.lu, x, attrs=(True,))
    return packed, order


def qr(x: Tensor, reduced: bool = True) -> Pair:
    """Q with orthonormal columns and an upper triangle R with x = Q R, by Householder reflections.

    Shapes: x (*batch, m, n) -> Q (*batch, m, k), R (*batch, k, n), k = min(m, n) if reduced, m otherwise.
    Dtypes: any float; half types are computed in float32.
    The gradient asks for min(m, n) leading columns that are independent; columns of Q beyond n have none.
    PyTorch: torch.linalg.qr, mode "reduced" or "complete".
    """
    require_axes(x)
    q, r = compute(ops.qr, x, attrs=(truth(reduced, "reduced"),))
    return q, r


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The lower triangle L with x = L L^T of a positive definite matrix, or with `upper` its transpose.

    Reads the lower triangle of x alone.  Shapes: x (*batch, n, n) -> the same.  Dtypes: any float.
    Raises: ArgumentError if x is not positive definite.  PyTorch: torch.linalg.cholesky.
    """
    require_square(x)
    (lower,) = compute(ops.cholesky, x)
    return lower.transpose() if truth(upper, "upper") else lower


def eigh(x: Tensor) -> Pair:
    """Eigenvalues w, ascending, and eigenvectors V of a symmetric matrix: x = V diag(w) V^T; reads its lower triangle.

    The sign of each vector is the library's, and may differ from device to device.
    Shapes: x (*batch, n, n) -> (*batch, n) and (*batch, n, n), vectors as columns.  Dtypes: any float.
    Raises: ArgumentError, in the backward, for a loss of the vectors of equal eigenvalues: which they are is not
    determined, so they have no derivative.  Eigenvalues always have one.  PyTorch: torch.linalg.eigh.
    """
    require_square(x)
    values, vectors = compute(ops.eigh, x)
    return values, vectors


def eigvalsh(x: Tensor) -> Tensor:
    """The eigenvalues of a symmetric matrix, ascending; reads its lower triangle.

    Shapes: x (*batch, n, n) -> (*batch, n).  PyTorch: torch.linalg.eigvalsh.
    """
    return eigh(x)[0]


def svd(x: Tensor, full_matrices: bool = True) -> Triple:
    """Singular values s, descending, and orthonormal U and V^T with x = U diag(s) V^T.

    The signs of the vectors are the library's, and may differ from device to device.
    Shapes: x (*batch, m, n) -> U (*batch, m, m), s (*batch, k), V^T (*batch, n, n), k = min(m, n); without
    `full_matrices` U (*batch, m, k) and V^T (*batch, k, n).  Dtypes: any float.
    Raises: ArgumentError, in the backward, for a loss of the vectors of equal singular values, or of those of 0 in a
    matrix that is not square; AutodiffError for one of the vectors beyond k.  PyTorch: torch.linalg.svd.
    """
    require_axes(x)
    u, s, vt = compute(ops.svd, x, attrs=(truth(full_matrices, "full_matrices"),))
    return u, s, vt


def svdvals(x: Tensor) -> Tensor:
    """The singular values, descending.  Shapes: x (*batch, m, n) -> (*batch, min(m, n)).

    PyTorch: torch.linalg.svdvals.
    """
    return svd(x, full_matrices=False)[1]


check_functions(globals(), "linalg")
