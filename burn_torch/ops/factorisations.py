"""Rows that take a matrix apart: LU, QR, Cholesky, eigenvalues of symmetric matrices, singular values.

Gradients follow Giles 2008, Collected matrix derivative results for forward and reverse mode, and for rectangular
matrices Roberts and Roberts 2020, arXiv:2009.10071, and Wan and Zhang 2019, arXiv:1909.02659.
"""

from __future__ import annotations

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import AutodiffError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.diagonals import diagonal_matrix
from burn_torch.ops.matrices import (
    require_matrix,
    require_square,
    symmetric,
    times_transposed,
    transposed_times,
    wording,
)
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.samples import Array, Drawer, sample, uniform
from burn_torch.ops.shapes import reshape, tril, triu
from burn_torch.ops.slicing import cat, narrow
from burn_torch.ops.solving import over_gaps, require_pivots, solve_triangular
from burn_torch.ops.value import Primitive, Value


def _positive_definite(*shape: int) -> Drawer:
    def draw(generator: np.random.Generator) -> Array:
        x = generator.uniform(-1, 1, shape)
        return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])

    return draw


def _apart(*shape: int) -> Drawer:
    """Symmetric matrices whose eigenvalues are about 1, 2, ..., n."""

    def draw(generator: np.random.Generator) -> Array:
        x = generator.uniform(-0.3, 0.3, shape)
        return x + np.swapaxes(x, -1, -2) + np.diag(np.arange(1.0, shape[-1] + 1))

    return draw


def _columns(x: Value, start: int, end: int) -> Value:
    return narrow(x, x.ndim - 1, start, end)


def _rows(x: Value, start: int, end: int) -> Value:
    return narrow(x, x.ndim - 2, start, end)


# -- LU ---------------------------------------------------------------------------------------------------
def _checking(lu: Candidate, diagonal: Candidate) -> PerCall:
    """A candidate that refuses a pivot of 0 if the Call asks for it."""

    def build(call: Call) -> Candidate:
        if not call.attrs["regular"]:
            return lu

        def run(x: Primitive) -> Primitive:
            packed, order = lu(x)
            require_pivots(diagonal(packed, 0, -2, -1), call)
            return packed, order

        return run

    return PerCall(build)


def _torch_lu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    packed, pivots, _ = torch.linalg.lu_factor_ex(x)
    if not x.shape[-2]:
        return packed, torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)
    with torch.no_grad():
        permutation = torch.lu_unpack(packed, pivots, unpack_data=False)[0]
    return packed, permutation.argmax(-2)


def _numpy_lu(x: Array) -> tuple[Array, Array]:
    rows, columns = x.shape[-2:]
    count = int(np.prod(x.shape[:-2], dtype=np.int64))
    y = x.astype(np.float64).reshape(count, rows, columns)
    order = np.tile(np.arange(rows), (count, 1))
    each = np.arange(count)
    for k in range(min(rows, columns)):
        best = k + np.argmax(np.abs(y[:, k:, k]), axis=1)
        y[each, k], y[each, best] = y[each, best], y[each, k]
        order[each, k], order[each, best] = order[each, best], order[each, k]
        pivots = np.where(y[:, k, k] == 0, 1.0, y[:, k, k])
        y[:, k + 1 :, k] /= pivots[:, None]
        y[:, k + 1 :, k + 1 :] -= y[:, k + 1 :, k, None] * y[:, k, None, k + 1 :]
    return y.reshape(x.shape), order.reshape(x.shape[:-1])


@op(
    torch=_checking(_torch_lu, torch.diagonal),
    numpy=_checking(_numpy_lu, np.diagonal),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[
        sample(uniform(-1, 1, (3, 3)), regular=True),
        sample(uniform(-1, 1, (2, 4, 3)), regular=False),
        sample(uniform(-1, 1, (3, 5)), regular=False),
        sample(uniform(-1, 1, (2, 0, 3)), regular=False),
    ],
    source="Golub and Van Loan 2013, section 3.4",
)
def lu(x: TensorSpec, *, regular: bool) -> tuple[TensorSpec, TensorSpec]:
    """The triangles L and U in one matrix, and the order of rows for which x[order] = L U.

    U lies on and above the diagonal, L below; the ones on the diagonal of L are not kept.  Rows are exchanged so that
    each pivot is the largest of its column (partial pivoting); a pivot of 0 leaves its column as it is, or is refused
    if the matrix has to be `regular`.

    Shapes: x (*batch, m, n) -> (*batch, m, n) and (*batch, m).  Dtypes: f64, f32 -> the same, and i64.
    The gradient asks for min(m, n) leading columns that are independent.
    Raises: ArgumentError if `regular` and a pivot is 0.
    PyTorch: torch.linalg.lu_factor, whose pivots are exchanges, counted from 1.
    """
    _, rows, _ = require_matrix(x)
    return x, x.with_shape((*x.shape[:-2], rows)).with_dtype(DType.I64)


@lu.gradient
def _(g, y, x, *, regular):
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    if not x.spec.numel:
        return g[0]
    square, g_square = (_columns(_rows(z, 0, size), 0, size) for z in (y[0], g[0]))
    upper, strict = triu(square, diagonal=0), tril(square, diagonal=-1)
    g_lower, g_upper = tril(g_square, diagonal=-1), triu(g_square, diagonal=0)
    rest = None
    if rows > size:  # the rows below are L2 = A2 U^-1
        rest = transposed(_solve_upper(upper, transposed(_rows(g[0], size, rows))))
        g_upper = g_upper - triu(transposed_times(_rows(y[0], size, rows), rest), diagonal=0)
    if columns > size:  # the columns behind are U2 = L^-1 A2
        rest = solve_triangular(transposed(strict), _columns(g[0], size, columns), upper=True, unit=True)
        g_lower = g_lower - tril(times_transposed(rest, _columns(y[0], size, columns)), diagonal=-1)
    inner = tril(transposed_times(strict, g_lower) + g_lower, diagonal=-1)
    inner = inner + triu(times_transposed(g_upper, upper), diagonal=0)
    left = solve_triangular(transposed(strict), inner, upper=True, unit=True)
    dx = transposed(_solve_upper(upper, transposed(left)))
    if rest is not None:
        dx = cat(dx, rest, dim=x.ndim - (2 if rows > size else 1))
    order = ops.expand(reshape(y[1], shape=(*y[1].shape, 1)), shape=x.shape)
    return ops.scatter_distinct(order, dx, dim=x.ndim - 2, size=rows)


def _solve_upper(upper: Value, b: Value) -> Value:
    return solve_triangular(upper, b, upper=True, unit=False)


# -- QR ---------------------------------------------------------------------------------------------------
@op(
    torch=lambda x, *, reduced: tuple(torch.linalg.qr(x, "reduced" if reduced else "complete")),
    numpy=lambda x, *, reduced: tuple(np.linalg.qr(x, "reduced" if reduced else "complete")),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[
        sample(uniform(-1, 1, (4, 3)), reduced=True),
        sample(uniform(-1, 1, (2, 3, 3)), reduced=False),
        sample(uniform(-1, 1, (3, 5)), reduced=True),
        sample(uniform(-1, 1, (0, 3)), reduced=True),
    ],
    source="Roberts and Roberts 2020, QR and LQ decomposition matrix backpropagation, arXiv:2009.10071",
)
def qr(x: TensorSpec, *, reduced: bool) -> tuple[TensorSpec, TensorSpec]:
    """Orthonormal columns Q and an upper triangle R with x = Q R, by Householder reflections.

    Shapes: x (*batch, m, n) -> Q (*batch, m, k) and R (*batch, k, n) with k = min(m, n) if reduced, m otherwise.
    Dtypes: f64, f32 in, the same out.
    The gradient asks for min(m, n) leading columns that are independent.  Columns of Q that x does not determine, those
    beyond n where it is not reduced, have none.  PyTorch: torch.linalg.qr.
    """
    batch, rows, columns = require_matrix(x)
    size = min(rows, columns) if reduced else rows
    return x.with_shape((*batch, rows, size)), x.with_shape((*batch, size, columns))


@qr.gradient
def _(g, y, x, *, reduced):
    rows, columns = x.shape[-2:]
    (q, r), (dq, dr) = y, g
    if not reduced and rows > columns:
        _refuse_extra(dq, "qr", f"Q has {rows - columns} columns that x does not determine", "reduced=True")
        q, r, dr = _columns(q, 0, columns), _rows(r, 0, columns), None if dr is None else _rows(dr, 0, columns)
    if not x.spec.numel:
        return x.new_full(x.shape, 0.0)
    rest = None
    if columns > rows:  # the columns behind are Q^T times those of x
        rest = x.new_full((*x.shape[:-1], columns - rows), 0.0)
        if dr is not None:
            behind, dr = _columns(dr, rows, columns), _columns(dr, 0, rows)
            dq = _sum(dq, times_transposed(_columns(x, rows, columns), behind))
            rest = matmul(q, behind)
        r = _columns(r, 0, rows)
    inner = _sum(
        None if dr is None else times_transposed(dr, r),
        None if dq is None else -transposed_times(q, dq),
    )
    dx = _sum(matmul(q, triu(inner, diagonal=0) + transposed(triu(inner, diagonal=1))), dq)
    dx = transposed(_solve_upper(r, transposed(dx)))
    return dx if rest is None else cat(dx, rest, dim=x.ndim - 1)


def _sum(x: Value | None, y: Value | None) -> Value:
    if x is None or y is None:
        return y if x is None else x  # type: ignore[return-value]  # one of the two is there
    return x + y


def _refuse_extra(g: Value | None, name: str, given: str, instead: str) -> None:
    if g is not None:
        raise at_user_line(
            AutodiffError(
                f"{name}: vectors that the matrix does not determine have no gradient",
                given=given,
                expected="a loss of the vectors that belong to the matrix alone",
                mend=f"call {name} with {instead}",
            )
        )


# -- Cholesky ---------------------------------------------------------------------------------------------
_DEFINITE = {
    "what": "the matrix is not positive definite",
    "expected": "a symmetric matrix whose eigenvalues are all above 0, and finite",
    "mend": "add a small multiple of the identity: x + Tensor.eye(n, x.device) * 1e-6",
}


def _numpy_cholesky(x: Array) -> Array:
    y = np.linalg.cholesky(x)
    if np.isnan(y).any():
        raise np.linalg.LinAlgError("the matrix holds NaN or infinity")
    return y


@op(
    torch=wording(torch.linalg.cholesky, **_DEFINITE),
    numpy=wording(_numpy_cholesky, **_DEFINITE),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[sample(_positive_definite(4, 4)), sample(_positive_definite(2, 3, 3)), sample(uniform(-1, 1, (0, 2, 2)))],
    source="Murray 2016, Differentiation of the Cholesky decomposition, arXiv:1602.07527",
)
def cholesky(x: TensorSpec) -> TensorSpec:
    """The lower triangle L with x = L L^T; reads the lower triangle of x alone.

    Shapes: x (*batch, n, n) -> the same.  Dtypes: f64, f32 in, the same out.
    The gradient is that along symmetric changes: a symmetric matrix, as torch has it.
    Raises: ArgumentError if x is not positive definite.  PyTorch: torch.linalg.cholesky.
    """
    return require_square(x)


@cholesky.gradient
def _(g, y, x):
    inner = transposed_times(y, g)
    inner = (tril(inner, diagonal=0) + tril(inner, diagonal=-1)) * 0.5
    across = _solve_upper(transposed(y), inner)
    return symmetric(transposed(_solve_upper(transposed(y), transposed(across))))


# -- eigenvalues --------------------------------------------------------------------------------------------
_CONVERGING = {
    "what": "the iteration did not converge",
    "expected": "a matrix of finite numbers",
    "mend": "x.is_finite().all() tells if there are NaN or infinities in it",
}


@op(
    torch=wording(lambda x: tuple(torch.linalg.eigh(x)), **_CONVERGING),
    numpy=wording(lambda x: tuple(np.linalg.eigh(x)), **_CONVERGING),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[sample(_apart(3, 3)), sample(_apart(2, 4, 4)), sample(uniform(-1, 1, (0, 2, 2)))],
    source="Giles 2008, section 3.1",
)
def eigh(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Eigenvalues w, ascending, and eigenvectors V of a symmetric matrix: x = V diag(w) V^T; reads its lower triangle.

    The sign of each vector is the library's, and may differ from device to device.

    Shapes: x (*batch, n, n) -> (*batch, n) and (*batch, n, n), vectors as columns.  Dtypes: f64, f32 in, the same out.
    The gradient is that along symmetric changes.  The eigenvectors of equal eigenvalues have none: a loss that depends
    on which of them were chosen is refused by an ArgumentError, at the time of the backward.
    PyTorch: torch.linalg.eigh.
    """
    return require_square(x).with_shape(x.shape[:-1]), x


@eigh.gradient
def _(g, y, x):
    values, vectors = y
    inner = None if g[0] is None else diagonal_matrix(g[0])
    if g[1] is not None:
        product = transposed_times(vectors, g[1]) * 0.5
        turned = over_gaps(product, transposed(product), values, values, squared=False, off_diagonal=True)
        inner = _sum(inner, turned)
    return times_transposed(matmul(vectors, inner), vectors)


# -- singular values --------------------------------------------------------------------------------------------
@op(
    torch=wording(lambda x, *, full: tuple(torch.linalg.svd(x, full_matrices=full)), **_CONVERGING),
    numpy=wording(lambda x, *, full: tuple(np.linalg.svd(x, full_matrices=full)), **_CONVERGING),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[
        sample(_apart(3, 3), full=False),
        sample(uniform(-1, 1, (2, 4, 2)), full=False),
        sample(uniform(-1, 1, (2, 4)), full=False),
        sample(uniform(-1, 1, (0, 2)), full=False),
    ],
    source="Wan and Zhang 2019, Automatic differentiation for complex valued SVD, arXiv:1909.02659",
)
def svd(x: TensorSpec, *, full: bool) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Singular values s, descending, and orthonormal U and V^T with x = U diag(s) V^T.

    The signs of the vectors are the library's, and may differ from device to device.

    Shapes: x (*batch, m, n) -> U (*batch, m, k), s (*batch, min(m, n)), V^T (*batch, k', n), where k = k' = min(m, n),
    or k = m and k' = n if full.  Dtypes: f64, f32 in, the same out.
    Singular values always have a gradient.  Vectors of equal ones have none, nor have those of 0 in a matrix that is
    not square: a loss that depends on which were chosen is refused by an ArgumentError, at the time of the backward.
    PyTorch: torch.linalg.svd.
    """
    batch, rows, columns = require_matrix(x)
    size = min(rows, columns)
    left, right = (rows, columns) if full else (size, size)
    return x.with_shape((*batch, rows, left)), x.with_shape((*batch, size)), x.with_shape((*batch, right, columns))


@svd.gradient
def _(g, y, x, *, full):
    rows, columns = x.shape[-2:]
    (u, s, vt), (du, ds, dvt) = y, g
    size = s.shape[-1]
    if full and rows != columns:
        extra, name = (du, "U") if rows > columns else (dvt, "V")
        _refuse_extra(
            extra, "svd", f"{name} has {abs(rows - columns)} vectors beyond the singular values", "full=False"
        )
        u, vt = _columns(u, 0, size), _rows(vt, 0, size)
    if not x.spec.numel:
        return x.new_full(x.shape, 0.0)
    v = transposed(vt)
    inner = None if ds is None else diagonal_matrix(ds)
    dx = None
    if du is not None:
        product = transposed_times(u, du)
        inner = _sum(inner, _over_squares(product, s) * reshape(s, shape=(*s.shape[:-1], 1, size)))
        if rows > columns:
            dx = matmul(_beyond(du, u, product, s), vt)
    if dvt is not None:
        dv = transposed(dvt)
        product = transposed_times(v, dv)
        inner = _sum(inner, _over_squares(product, s) * reshape(s, shape=(*s.shape, 1)))
        if columns > rows:
            dx = _sum(dx, times_transposed(u, _beyond(dv, v, product, s)))
    return _sum(matmul(matmul(u, inner), vt), dx)


def _over_squares(product: Value, s: Value) -> Value:
    """(product - product^T) / (s_j^2 - s_i^2), zero on the diagonal."""
    return over_gaps(product, transposed(product), s, s, squared=True, off_diagonal=True)


def _beyond(g: Value, vectors: Value, product: Value, s: Value) -> Value:
    """The part of an upstream gradient that the vectors do not span, over the singular values."""
    zeros = g.new_full(g.shape[:-1], 0.0)
    return over_gaps(g, matmul(vectors, product), zeros, s, squared=False, off_diagonal=False)
