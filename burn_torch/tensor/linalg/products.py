"""Products of vectors, matrices and tensors, and the diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import axes, axis, integer, whole_list
from burn_torch.tensor.apply import apply_one, binary, require_tensor, unary
from burn_torch.tensor.linalg._matrix import require_axes, require_square
from burn_torch.tensor.linalg.contraction import einsum
from burn_torch.tensor.linalg.systems import inverse
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "block_diag", "diag", "kron", "matrix_power", "matvec", "multi_dot", "outer", "outer_dim", "tensordot", "trace",
    "vander", "vecdot",
]  # fmt: skip


def diag(x: Tensor) -> Tensor:
    """The diagonals of matrices.

    Shapes: x (*batch, m, n) -> (*batch, min(m, n)).  Dtypes: any.
    PyTorch: torch.linalg.diagonal.
    """
    require_axes(x)
    return unary(ops.diagonal, x, 0, (x.ndim - 2, x.ndim - 1))


def trace(x: Tensor) -> Tensor:
    """The sums of the diagonals of matrices, on an axis of size 1, as in Burn.

    Shapes: x (*batch, m, n) -> (*batch, 1).  Dtypes: numbers, the same out.  PyTorch: torch.trace, without that axis.
    """
    return diag(x).sum_dim(-1)


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix times vector.

    Shapes: matrix (*batch, m, n), vector (*batch, n) with one axis less -> (*batch, m); batch axes broadcast.
    Dtypes: numbers, both the same.  PyTorch: torch.mv; torch.linalg.vecdot of rows.
    """
    require_axes(matrix, 2, "matrix")
    require_tensor(vector, "vector")
    if vector.ndim != matrix.ndim - 1 or vector.shape[-1] != matrix.shape[-1]:
        raise told(
            ShapeError,
            "the vector does not fit the matrix",
            given=f"matrix {matrix.spec}, vector {vector.spec}",
            expected=f"vector (*batch, {matrix.shape[-1]}) with {matrix.ndim - 1} axes",
            mend="insert axes with unsqueeze_dim, or use matrix.matmul",
        )
    return matrix.matmul(vector.unsqueeze_dim(-1)).squeeze_dim(-1)


def vecdot(x: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """The sums of x * y along an axis, which goes.

    Shapes: x, y (..., n, ...), broadcast -> (...).  PyTorch: torch.linalg.vecdot; numpy.vecdot.
    """
    products = binary(ops.mul, x, y)
    return products.sum_dims_squeeze([axis(products, dim)])


def multi_dot(matrices: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that multiplies the least numbers.

    Shapes: (m, k1), (k1, k2), ..., (kn, p) -> (m, p); the first may be a vector (k1,) and the last (kn,), whose axis of
    size 1 goes.  PyTorch: torch.linalg.multi_dot; numpy.linalg.multi_dot.
    """
    items = list(matrices) if isinstance(matrices, list | tuple) else []
    for i, x in enumerate(items):
        require_tensor(x, f"matrix {i}")
    ranks = [x.ndim for x in items]
    if len(items) < 2 or any(n not in ((1, 2) if i in (0, len(items) - 1) else (2,)) for i, n in enumerate(ranks)):
        raise told(
            ShapeError,
            "this is no chain of matrices",
            given=", ".join(str(x.spec) for x in items) or f"{matrices!r:.60}",
            expected="a list of two matrices or more; the first and the last may be vectors",
            mend="x.matmul(y) multiplies batches of matrices",
        )
    if len(items) >= len(ascii_letters):
        return multi_dot([multi_dot(items[:25]), *items[25:]])
    letters = ascii_letters[: len(items) + 1]
    terms = [letters[i] + letters[i + 1] for i in range(len(items))]
    terms[0], terms[-1] = terms[0][-ranks[0] :], terms[-1][: ranks[-1]]
    result = (letters[0] if ranks[0] == 2 else "") + (letters[-1] if ranks[-1] == 2 else "")
    return einsum(f"{','.join(terms)}->{result}", *items)


def block_diag(matrices: Sequence[Tensor]) -> Tensor:
    """Matrices along the diagonal of one, zeros elsewhere.

    Shapes: (m1, n1), (m2, n2), ... -> (m1 + m2 + ..., n1 + n2 + ...); a vector is a row, a tensor without axes a matrix
    of one element.  PyTorch: torch.block_diag; scipy.linalg.block_diag.
    """
    items = list(matrices) if isinstance(matrices, list | tuple) else []
    for i, x in enumerate(items):
        require_tensor(x, f"matrix {i}")
    if not items or any(x.ndim > 2 for x in items):
        raise told(
            ShapeError,
            "these are no matrices",
            given=", ".join(str(x.spec) for x in items) or f"{matrices!r:.60}",
            expected="a list of one tensor or more, of at most two axes",
            mend="[x, y] is a list of two; list(x) are the matrices of a batch",
        )
    blocks = [x if x.ndim == 2 else x.unsqueeze(2) for x in items]
    width, before, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(x.pad([(0, 0), (before, width - before - x.shape[1])]))
        before += x.shape[1]
    return Tensor.cat(rows, 0)


def vander(x: Tensor, count: int | None = None) -> Tensor:
    """The powers 0, 1, 2, ... of each element, along a new last axis: `count` of them, or one for each element.

    Shapes: x (..., n) -> (..., n, count).  PyTorch: torch.linalg.vander; numpy.vander(increasing=True).
    """
    require_axes(x, 1)
    wanted = x.shape[-1] if count is None else integer(count, "count")
    if wanted < 1:
        raise told(
            ShapeError,
            "there are no powers",
            given=f"x {x.spec}, count {count}",
            expected="a count of 1 or more",
            mend="leave count out: it is the number of elements",
        )
    ones = x.detach().ones_like().unsqueeze_dim(-1)
    if wanted == 1:
        return ones
    powers = x.unsqueeze_dim(-1).expand((*x.shape, wanted - 1)).cumprod(-1)
    return Tensor.cat([ones, powers], -1)


def outer(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The outer product over the last axis: y[..., i, j] = lhs[..., i] * rhs[..., j].

    Shapes: lhs (*batch, m), rhs (*batch, n) -> (*batch, m, n); batch axes broadcast.  Dtypes: numbers, both the same.
    PyTorch: torch.outer, of two vectors.
    """
    return outer_dim(lhs, rhs, -1)


def outer_dim(lhs: Tensor, rhs: Tensor, dim: int) -> Tensor:
    """The outer product over an axis, which becomes two: y[.., i, j, ..] = lhs[.., i, ..] * rhs[.., j, ..].

    Shapes: lhs (*pre, m, *post), rhs (*pre, n, *post) -> (*pre, m, n, *post); the other axes broadcast.
    """
    require_axes(lhs, 1, "lhs")
    require_axes(rhs, 1, "rhs")
    if lhs.ndim != rhs.ndim:
        raise told(
            ShapeError,
            "the numbers of axes differ",
            given=f"lhs {lhs.spec}, rhs {rhs.spec}",
            expected="as many axes on both sides",
            mend="insert axes, for example rhs.unsqueeze_dim(0)",
        )
    at = axis(lhs, dim)
    return lhs.unsqueeze_dim(at + 1) * rhs.unsqueeze_dim(at)


def kron(x: Tensor, y: Tensor) -> Tensor:
    """The Kronecker product: each element of x times all of y, as blocks.

    Shapes: x (m, n), y (p, q) -> (m p, n q), and so on over any axes; missing axes are 1.  Dtypes: numbers, the same.
    PyTorch: torch.kron; numpy.kron.
    """
    require_tensor(x)
    require_tensor(y, "y")
    count = max(x.ndim, y.ndim)
    left, right = ((1,) * (count - t.ndim) + tuple(t.shape) for t in (x, y))
    blocks = unary(ops.reshape, x, tuple([n for size in left for n in (size, 1)]))
    blocks = blocks * unary(ops.reshape, y, tuple([n for size in right for n in (1, size)]))
    return unary(ops.reshape, blocks, tuple([m * n for m, n in zip(left, right, strict=True)]))


def tensordot(x: Tensor, y: Tensor, dims: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products summed over axes of both: the last `dims` of x with the first of y, or the axes of two lists in pairs.

    Shapes: x (*s, *k), y (*k, *t) -> (*s, *t).  Dtypes: numbers, both the same.
    PyTorch: torch.tensordot; numpy.tensordot.
    """
    require_tensor(x)
    require_tensor(y, "y")
    left, right = _paired_axes(x, y, dims)
    if [x.shape[i] for i in left] != [y.shape[i] for i in right]:
        raise told(
            ShapeError,
            "the axes to sum over differ in size",
            given=f"x {x.spec} along {left}, y {y.spec} along {right}",
            expected="pairs of axes of one size",
            mend="name the axes of both: dims=([1], [0])",
        )
    rows = [i for i in range(x.ndim) if i not in left]
    columns = [i for i in range(y.ndim) if i not in right]
    inner = math.prod(x.shape[i] for i in left)
    shapes = [x.shape[i] for i in rows], [y.shape[i] for i in columns]
    a = unary(ops.reshape, unary(ops.permute, x, (*rows, *left)), (math.prod(shapes[0]), inner))
    b = unary(ops.reshape, unary(ops.permute, y, (*right, *columns)), (inner, math.prod(shapes[1])))
    return unary(ops.reshape, apply_one(ops.matmul, (a, b)), (*shapes[0], *shapes[1]))


def _paired_axes(
    x: Tensor, y: Tensor, dims: int | tuple[Sequence[int], Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(dims, list | tuple):
        lists = [list(part) if isinstance(part, list | tuple | range) else [part] for part in dims]
        if len(lists) == 2:
            left, right = axes(x, whole_list(lists[0], "dims[0]")), axes(y, whole_list(lists[1], "dims[1]"))
            if len(left) == len(right):
                return left, right
    else:
        count = integer(dims, "dims")
        if 0 <= count <= min(x.ndim, y.ndim):
            return tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
    raise told(
        ShapeError,
        "the axes of both sides do not pair",
        given=f"x {x.spec}, y {y.spec}, dims {dims}",
        expected=f"a number from 0 to {min(x.ndim, y.ndim)}, or two lists of as many axes",
        mend="write dims=1 for a product of matrices, or dims=([1], [0])",
    )


def matrix_power(x: Tensor, n: int) -> Tensor:
    """x times itself n times, by squaring; the identity for 0, powers of the inverse for negative n.

    Shapes: x (*batch, m, m) -> the same.  Dtypes: numbers in, the same out; floats alone for negative n.
    Raises: ArgumentError for a singular matrix and a negative n.  PyTorch: torch.linalg.matrix_power.
    """
    size = require_square(x)
    power = integer(n, "n")
    if not power:
        return Tensor.eye(size, (x.device.no_grad(), x.dtype)).expand(x.shape)
    base, result = inverse(x) if power < 0 else x, None
    power = abs(power)
    while True:
        if power & 1:
            result = base if result is None else result.matmul(base)
        power >>= 1
        if not power and result is not None:
            return result
        base = base.matmul(base)


check_functions(globals(), "linalg")
