"""Products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import math
from functools import reduce
from string import ascii_letters

from burn_torch import ops
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import malformed, reshaped
from burn_torch.onnx.operators.registry import operator
from burn_torch.tensor import Tensor

__all__ = ["det", "einsum", "gemm", "gemm_1", "matmul"]


@operator("MatMul")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product over the last two axes, as numpy's matmul."""
    return product(x, y)


def product(x: Tensor, y: Tensor) -> Tensor:
    """numpy's matmul: a vector on the left is a row, on the right a column."""
    a = reshaped(x, (1, *x.shape)) if x.ndim == 1 else x
    b = reshaped(y, (*y.shape, 1)) if y.ndim == 1 else y
    z: Tensor = ops.matmul(a, b)
    shape = [
        size
        for i, size in enumerate(z.shape)
        if not ((x.ndim == 1 and i == z.ndim - 2) or (y.ndim == 1 and i == z.ndim - 1))
    ]
    return reshaped(z, tuple(shape)) if len(shape) < z.ndim else z


@operator("Gemm", 1, 6)
def gemm_1(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * a @ b + beta * c."""
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("Gemm", 7)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * a @ b + beta * c, with a and b transposed where it says so."""
    left = a.transpose() if transA else a
    right = b.transpose() if transB else b
    if alpha == beta == 1.0 and c is not None and c.shape == (right.shape[-1],) and c.dtype.is_float:
        return ops.linear(left, right, c)
    y = product(left, right)
    if alpha != 1.0:
        y = y * alpha
    if c is None:
        return y
    return y + (c if beta == 1.0 else c * beta)


@operator("Einsum", 12)
def einsum(*xs: Tensor, equation: str) -> Tensor:
    """Einstein's sum: products summed over the letters that the right side leaves out."""
    return _einsum(equation.replace(" ", ""), list(xs))


def _einsum(equation: str, xs: list[Tensor]) -> Tensor:
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise _equation_error(equation)
    spare = [letter for letter in ascii_letters if letter not in equation]
    widths = [x.ndim - len(term.replace("...", "")) for term, x in zip(terms, xs, strict=True)]
    most = max((width for term, width in zip(terms, widths, strict=True) if "..." in term), default=0)
    dots = "".join(spare[:most])
    terms = [
        term.replace("...", dots[most - width :] if width else "") for term, width in zip(terms, widths, strict=True)
    ]
    if not arrow:
        letters = "".join(terms)
        right = dots + "".join(sorted(x for x in set(letters) - set(dots) if letters.count(x) == 1))
    right = right.replace("...", dots)
    if any(len(term) != x.ndim for term, x in zip(terms, xs, strict=True)) or set(right) - set("".join(terms)):
        raise _equation_error(equation)
    named = [_diagonal(term, x) for term, x in zip(terms, xs, strict=True)]
    while len(named) > 1:
        (a, x), (b, y) = named[0], named[1]
        needed = set(right).union(*(term for term, _ in named[2:])) if len(named) > 2 else set(right)
        named[:2] = [_contract(a, x, b, y, needed)]
    term, x = named[0]
    gone = tuple(i for i, letter in enumerate(term) if letter not in right)
    if gone:
        x = reshaped(ops.sum(x, dims=gone), tuple(size for i, size in enumerate(x.shape) if i not in gone))
        term = "".join(letter for letter in term if letter in right)
    return ops.permute(x, axes=tuple(term.index(letter) for letter in right))


def _equation_error(equation: str) -> Exception:
    return malformed(
        "Einsum: the equation does not fit the tensors",
        given=equation,
        expected="one term a tensor, one letter an axis, letters of the result that occur on the left",
    )


def _diagonal(term: str, x: Tensor) -> tuple[str, Tensor]:
    """The diagonal over axes that share a letter."""
    for letter in sorted(set(term)):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            others = [i for i in range(x.ndim) if i not in (first, second)]
            n = x.shape[first]
            moved = ops.permute(x, axes=(*others, first, second))
            flat = reshaped(moved, (*moved.shape[:-2], n * n))
            x = ops.slice(flat, ranges=(*((0, size, 1) for size in flat.shape[:-1]), (0, n * n, n + 1)))
            term = "".join(term[i] for i in others) + letter
    return term, x


def _contract(a: str, x: Tensor, b: str, y: Tensor, needed: set[str]) -> tuple[str, Tensor]:
    """Two tensors made one by a batched matrix product over the letters that nothing else needs."""
    both = [letter for letter in a if letter in b]
    batch = [letter for letter in both if letter in needed]
    inner = [letter for letter in both if letter not in needed]
    rows = [letter for letter in a if letter not in b]
    columns = [letter for letter in b if letter not in a]
    sizes = {letter: size for term, t in ((a, x), (b, y)) for letter, size in zip(term, t.shape, strict=True)}
    for term, t in ((a, x), (b, y)):  # a size of 1 broadcasts
        sizes.update({letter: size for letter, size in zip(term, t.shape, strict=True) if size != 1})

    def laid(term: str, t: Tensor, *groups: list[str]) -> Tensor:
        order = [letter for group in groups for letter in group]
        moved = ops.permute(t, axes=tuple(term.index(letter) for letter in order))
        moved = ops.expand(moved, shape=tuple(sizes[letter] for letter in order))
        return reshaped(moved, tuple(math.prod(sizes[letter] for letter in group) for group in groups))

    z = ops.matmul(laid(a, x, batch, rows, inner), laid(b, y, batch, inner, columns))
    letters = [*batch, *rows, *columns]
    return "".join(letters), reshaped(z, tuple(sizes[letter] for letter in letters))


@operator("Det", 11)
def det(x: Tensor) -> Tensor:
    """The determinant of each matrix, by expansion along the first row."""
    n = x.shape[-1]
    if n > 6:
        raise OnnxError(
            "Det: the matrices are too large for this importer",
            given=f"{n} x {n}",
            expected="up to 6 x 6",
            mend="leave the determinant out of the model",
        )
    return _det([[_entry(x, i, j) for j in range(n)] for i in range(n)])


def _entry(x: Tensor, i: int, j: int) -> Tensor:
    return reshaped(x.narrow(x.ndim - 2, i, 1).narrow(x.ndim - 1, j, 1), x.shape[:-2])


def _det(m: list[list[Tensor]]) -> Tensor:
    if len(m) == 1:
        return m[0][0]
    parts = [
        m[0][j] * _det([row[:j] + row[j + 1 :] for row in m[1:]]) * (1.0 if j % 2 == 0 else -1.0) for j in range(len(m))
    ]
    return reduce(lambda a, b: a + b, parts)
