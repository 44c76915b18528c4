"""Rows that solve systems of linear equations, and what follows from them: determinants, the pseudo-inverse."""

from __future__ import annotations

import numpy as np
import torch

from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.diagonals import diagonal_of
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.matrices import (
    WIDE,
    identity,
    invertible,
    require_matrix,
    require_square,
    times_transposed,
    transposed_times,
    wording,
)
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import alike, broadcast_shapes, same_dtype, sum_to
from burn_torch.ops.samples import Array, distinct, sample, uniform
from burn_torch.ops.shapes import reshape, tril, triu
from burn_torch.ops.signature import Number
from burn_torch.ops.value import Primitive, Value

_PAIR = (uniform(-1, 1, (3, 3)), uniform(-1, 1, (3, 3)))
_SINGULAR = {
    "what": "the matrix is singular",
    "expected": "a matrix of full rank: no row is a combination of the others",
    "mend": "pinv and lstsq take singular matrices; or add a small multiple of the identity",
}


def _system(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    require_square(a, "a")
    require_matrix(b, "b")
    same_dtype(a, b)
    if a.shape[-1] != b.shape[-2]:
        raise shape_fault(
            "the right side does not fit the matrix",
            expected=f"a (*batch, n, n) and b (*batch, n, k) with one n; here {a.shape[-1]} and {b.shape[-2]}",
            mend="a vector is a column: b.unsqueeze_dim(-1)",
        )
    return b.with_shape((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))


# -- general systems ----------------------------------------------------------------------------------------
def _torch_solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # a b of fewer axes would be read as a batch of vectors
    return torch.linalg.solve(a, b.expand(*(1,) * (a.ndim - b.ndim), *b.shape))


def _numpy_solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b.reshape((1,) * (a.ndim - b.ndim) + b.shape))


@op(
    torch=wording(_torch_solve, **_SINGULAR),
    numpy=wording(_numpy_solve, **_SINGULAR),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[
        sample(invertible(4, 4), uniform(-1, 1, (4, 3))),
        sample(invertible(2, 1, 3, 3), uniform(-1, 1, (3, 3, 2))),
        sample(invertible(0, 2, 2), uniform(-1, 1, (2, 2))),
    ],
    source="Giles 2008, section 2.3.1",
)
def solve(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    """The x with a x = b.

    Shapes: a (*batch, n, n), b (*batch, n, k) -> (*batch, n, k); batch axes broadcast.  Dtypes: f64, f32, the same.
    Raises: ArgumentError if a matrix is singular.  PyTorch: torch.linalg.solve.
    """
    return _system(a, b)


@solve.gradient
def _(g, y, a, b):
    db = solve(transposed(a), g)
    return sum_to(-times_transposed(db, y), a), sum_to(db, b)


# -- triangular systems ---------------------------------------------------------------------------------------
def require_pivots(diagonal: Primitive, call: Call) -> None:
    """Raises: ArgumentError if there is a 0 on the diagonal of a triangle."""
    if (diagonal == 0).any():
        described = call.op.signature.describe(call.specs, call.attrs)
        error = ArgumentError(
            f"{call.op.name}: {_SINGULAR['what']}", given=f"{described}, with 0 on the diagonal", **_PARTS
        )
        raise at_user_line(error)


_PARTS = {name: _SINGULAR[name] for name in ("expected", "mend")}


def _torch_triangular(call: Call) -> Candidate:
    upper, unit = call.attrs["upper"], call.attrs["unit"]

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not unit:
            require_pivots(a.diagonal(0, -2, -1), call)
        return torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)

    return run


def _numpy_triangular(call: Call) -> Candidate:
    unit = call.attrs["unit"]

    def run(a: Array, b: Array) -> Array:
        if not unit:
            require_pivots(np.diagonal(a, 0, -2, -1), call)
        size = a.shape[-1]
        y = np.array(np.broadcast_to(b, call.result.shape), np.float64)
        for k in range(size)[:: -1 if call.attrs["upper"] else 1]:
            known = np.s_[k + 1 :] if call.attrs["upper"] else np.s_[:k]
            y[..., k, :] -= (a[..., k, None, known] @ y[..., known, :])[..., 0, :]
            if not unit:
                y[..., k, :] /= a[..., k, k, None]
        return y

    return run


@op(
    torch=PerCall(_torch_triangular),
    numpy=PerCall(_numpy_triangular),
    precision="high",
    packed="any",  # LAPACK writes columns
    samples=[
        sample(invertible(4, 4), uniform(-1, 1, (4, 3)), upper=True, unit=False),
        sample(invertible(2, 1, 3, 3), uniform(-1, 1, (3, 3, 2)), upper=False, unit=False),
        sample(invertible(3, 3), uniform(-1, 1, (2, 3, 2)), upper=True, unit=True),
        sample(invertible(0, 2, 2), uniform(-1, 1, (2, 2)), upper=False, unit=True),
    ],
    source="Giles 2008, section 2.3.1",
)
def solve_triangular(a: TensorSpec, b: TensorSpec, *, upper: bool, unit: bool) -> TensorSpec:
    """The x with a x = b, where a is a triangle: the other elements of a are not read, nor with `unit` its diagonal,
    which is then 1.

    Shapes: a (*batch, n, n), b (*batch, n, k) -> (*batch, n, k); batch axes broadcast.  Dtypes: f64, f32, the same.
    Raises: ArgumentError if there is a 0 on the diagonal.  PyTorch: torch.linalg.solve_triangular.
    """
    return _system(a, b)


@solve_triangular.gradient
def _(g, y, a, b, *, upper, unit):
    db = solve_triangular(transposed(a), g, upper=not upper, unit=unit)
    da = -times_transposed(db, y)
    triangle = triu(da, diagonal=int(unit)) if upper else tril(da, diagonal=-int(unit))
    return sum_to(triangle, a), sum_to(db, b)


# -- determinants -----------------------------------------------------------------------------------------------
@op(
    torch=torch.linalg.det,
    numpy=np.linalg.det,
    precision="high",
    samples=[
        sample(uniform(-1, 1, (3, 3))),
        sample(invertible(2, 4, 4)),
        sample(uniform(-1, 1, (1, 1))),
        sample(uniform(-1, 1, (2, 0, 0))),
    ],
    source="Giles 2008, section 2.2.4",
)
def det(x: TensorSpec) -> TensorSpec:
    """The determinant.

    Shapes: x (*batch, n, n) -> (*batch); 1 of a matrix without elements.  Dtypes: f64, f32 in, the same out.
    The gradient, the matrix of cofactors, exists for singular matrices too.  PyTorch: torch.linalg.det.
    """
    return require_square(x).with_shape(x.shape[:-2])


@det.gradient
def _(g, y, x):
    return reshape(g, shape=(*g.shape, 1, 1)) * cofactors(x)


def _torch_cofactors(x: torch.Tensor) -> torch.Tensor:
    broken = ~x.isfinite().all(-1).all(-1)[..., None, None]
    u, s, vt = torch.linalg.svd(x.masked_fill(broken, 0.0).double())  # products of rounded factors err more than an LU
    ones = torch.ones_like(s[..., :1])
    before = torch.cat((ones, s[..., :-1]), -1).cumprod(-1)
    after = torch.cat((s[..., 1:], ones), -1).flip(-1).cumprod(-1).flip(-1)
    sign = (torch.linalg.det(u) * torch.linalg.det(vt)).sign()[..., None, None]
    return (u * (before * after)[..., None, :] @ vt * sign).masked_fill(broken, torch.nan).to(x.dtype)


def _numpy_cofactors(x: Array) -> Array:
    broken = ~np.isfinite(x).all((-2, -1), keepdims=True)
    u, s, vt = np.linalg.svd(np.where(broken, 0.0, x).astype(np.float64))
    ones = np.ones_like(s[..., :1])
    before = np.concatenate((ones, s[..., :-1]), -1).cumprod(-1)
    after = np.concatenate((s[..., 1:], ones), -1)[..., ::-1].cumprod(-1)[..., ::-1]
    sign = np.sign(np.linalg.det(u) * np.linalg.det(vt))[..., None, None]
    return np.where(broken, np.nan, u * (before * after)[..., None, :] @ vt * sign)


@op(
    torch=_torch_cofactors,
    numpy=_numpy_cofactors,
    precision="high",
    samples=[sample(invertible(2, 2)), sample(uniform(-1, 1, (0, 2, 2)))],  # those of det show larger ones
    source="Stewart 1998, On the adjugate matrix, Linear Algebra and its Applications 283",
)
def cofactors(x: TensorSpec) -> TensorSpec:
    """The cofactor of each element: the gradient of the determinant, det(x) x^-T where x has an inverse.

    Shapes: x (*batch, n, n) -> the same.  Dtypes: f64, f32 in, the same out.
    From singular values, so that singular matrices are no exception; the gradient asks for an inverse.
    """
    return require_square(x)


@cofactors.gradient
def _(g, y, x):
    along = sum(diagonal_of(solve(x, g)), dims=(x.ndim - 2,))
    turned = transposed(solve(x, times_transposed(g, y)))
    return y * reshape(along, shape=(*along.shape, 1)) - turned


@op(
    torch=lambda x: tuple(torch.linalg.slogdet(x)),
    numpy=lambda x: tuple(np.linalg.slogdet(x)),
    precision="high",
    samples=[sample(invertible(3, 3)), sample(invertible(2, 4, 4)), sample(uniform(-1, 1, (2, 0, 0)))],
    source="Giles 2008, section 2.2.4",
)
def slogdet(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The sign of the determinant and the logarithm of its absolute value: 0 and -inf of a singular matrix.

    Shapes: x (*batch, n, n) -> twice (*batch).  Dtypes: f64, f32 in, the same out.
    The gradient asks for an inverse.  PyTorch: torch.linalg.slogdet.
    """
    y = require_square(x).with_shape(x.shape[:-2])
    return y, y


@slogdet.gradient
def _(g, y, x):
    if g[1] is None:  # the sign is constant nearly everywhere
        return None
    return reshape(g[1], shape=(*g[1].shape, 1, 1)) * solve(transposed(x), identity(x))


# -- pseudo-inverse -----------------------------------------------------------------------------------------------
_FINITE = {
    "what": "the singular values did not converge",
    "expected": "a matrix of finite numbers",
    "mend": "x.is_finite().all() tells if there are NaN or infinities in it",
}


@op(
    torch=wording(lambda x, cut: torch.linalg.pinv(x, rtol=cut), **_FINITE),
    numpy=wording(lambda x, cut: np.linalg.pinv(x, rcond=cut), **_FINITE),
    precision="high",
    samples=[
        sample(uniform(-1, 1, (4, 3)), 1e-6),
        sample(invertible(2, 3, 3), 1e-6),
        sample(uniform(-1, 1, (2, 4)), 1e-6),
        sample(uniform(-1, 1, (2, 0, 3)), 1e-6),
    ],
    source="Golub and Pereyra 1973, SIAM Journal on Numerical Analysis 10, equation 4.12",
)
def pinv(x: TensorSpec, cut: Number) -> TensorSpec:
    """The inverse of Moore and Penrose; singular values up to `cut` times the largest one count as 0.

    Shapes: x (*batch, m, n) -> (*batch, n, m).  Dtypes: f64, f32 in, the same out.
    The gradient is that along changes that keep the rank.  PyTorch: torch.linalg.pinv.
    """
    batch, rows, columns = require_matrix(x)
    return x.with_shape((*batch, columns, rows))


@pinv.gradient
def _(g, y, x, cut):
    across = transposed(g)
    outside = across - matmul(x, matmul(y, across))
    dx = matmul(outside, times_transposed(y, y)) - transposed_times(y, times_transposed(g, y))
    inside = across - matmul(matmul(across, y), x)
    return dx + matmul(transposed_times(y, y), inside), None


# -- gaps -------------------------------------------------------------------------------------------------------------
def _over_gaps(call: Call, where: Candidate, diagonal: Candidate) -> Candidate:
    """The function of both leaves, with their `where` and their writable view of a diagonal."""
    squared, off_diagonal = call.attrs["squared"], call.attrs["off_diagonal"]
    eps = float(np.finfo(call.tensor(0).dtype.numpy).eps)

    def run(x: Primitive, y: Primitive, rows: Primitive, columns: Primitive) -> Primitive:
        left, right = rows[..., :, None], columns[..., None, :]
        gaps, rise = right - left, x - y
        closed = abs(gaps) <= eps * (abs(rows).sum(-1) + abs(columns).sum(-1))[..., None, None]
        lost = closed & (abs(rise) > 8 * eps * (abs(x) + abs(y)).sum((-2, -1))[..., None, None])
        if off_diagonal:
            diagonal(closed)[...], diagonal(lost)[...] = True, False
        if lost.any():
            raise _coinciding(call, rows, lost)
        gaps = gaps * (right + left) if squared else gaps
        return where(closed, 0.0, rise / where(closed, 1.0, gaps))

    return run


def _coinciding(call: Call, rows: Primitive, lost: Primitive) -> ArgumentError:
    value = float(np.asarray(rows.tolist())[np.asarray(lost.tolist()).any(-1)][0])
    size = call.tensor(0).shape[-2:]
    return at_user_line(
        ArgumentError(
            "the vectors of equal eigenvalues or singular values have no derivative",
            given=f"a matrix of which two values are equal up to rounding, about {value:.6g}, or one is 0"
            f" (vectors {size}, {call.tensor(0).dtype})",
            expected="values that differ, or a loss that all choices of their vectors agree in",
            mend="use the values alone, or add a small random symmetric matrix so that they differ",
        )
    )


@op(
    torch=PerCall(lambda call: _over_gaps(call, torch.where, lambda x: x.diagonal(0, -2, -1))),
    numpy=PerCall(lambda call: _over_gaps(call, np.where, lambda x: np.einsum("...ii->...i", x))),
    precision="high",
    samples=[
        sample(*_PAIR, distinct((3,), 0.5), distinct((3,), 0.4), squared=False, off_diagonal=True),
        sample(*_PAIR, uniform(0.1, 0.4, (3,)), uniform(0.6, 0.9, (3,)), squared=True, off_diagonal=False),
        sample(*[uniform(-1, 1, (2, 0, 2))] * 2, uniform(1, 2, (2, 0)), uniform(1, 2, (2, 2)), squared=False,
               off_diagonal=False),
    ],
    source="Giles 2008, section 3.1",
)  # fmt: skip
def over_gaps(
    x: TensorSpec, y: TensorSpec, rows: TensorSpec, columns: TensorSpec, *, squared: bool, off_diagonal: bool
) -> TensorSpec:
    """(x - y) over the gaps between values of the columns and of the rows; gradients of eigh and svd consist of it.

        z[i, j] = (x[i, j] - y[i, j]) / (columns[j] - rows[i])            over columns[j]^2 - rows[i]^2 if squared

    It is 0 on the diagonal if `off_diagonal`, and where x - y and the gap are both 0 up to rounding.
    Shapes: x, y (*batch, m, n), rows (*batch, m), columns (*batch, n) -> (*batch, m, n).  Dtypes: f64, f32, the same.
    Raises: ArgumentError where the gap alone is 0 up to rounding.
    """
    same_dtype(alike(x, y, dtypes=WIDE), rows, columns)
    if rows.shape != x.shape[:-1] or columns.shape != (*x.shape[:-2], x.shape[-1]):
        raise shape_fault(
            "the values do not fit the matrix",
            expected=f"rows {x.shape[:-1]}, columns {(*x.shape[:-2], x.shape[-1])}",
            mend="give each row and each column of x one value",
        )
    return x


@over_gaps.gradient
def _(g, z, x, y, rows, columns, *, squared, off_diagonal):
    def over(values: Value) -> Value:
        return over_gaps(values, zeros, rows, columns, squared=squared, off_diagonal=off_diagonal)

    zeros = g.new_full(g.shape, 0.0)
    dx, by_gap = over(g), over(g * z)
    along = [reshape(sum(by_gap, dims=(g.ndim - i,)), shape=v.shape) for i, v in ((1, rows), (2, columns))]
    if squared:
        along = [total * values * 2.0 for total, values in zip(along, (rows, columns), strict=True)]
    return dx, -dx, along[0], -along[1]
