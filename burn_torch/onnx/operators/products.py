"""Products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.onnx.operators.axes import malformed, reshaped
from burn_torch.onnx.operators.registry import operator
from burn_torch.tensor import Tensor, linalg

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
    try:
        return linalg.einsum(equation, *xs)
    except ShapeError:
        raise malformed(
            "Einsum: the equation does not fit the tensors",
            given=equation,
            expected="one term a tensor, one letter an axis, letters of the result that occur on the left",
        ) from None


@operator("Det", 11)
def det(x: Tensor) -> Tensor:
    """The determinant of each matrix."""
    return linalg.det(x)
