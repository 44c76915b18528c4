"""Shared parts of the rows of linear algebra: rules of shape and type, products, faults that the data brings."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import DType, DTypeClass
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.op import Call, Candidate, PerCall
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.samples import Array, Drawer
from burn_torch.ops.value import Primitive, Value

__all__ = [
    "WIDE", "identity", "invertible", "require_matrix", "require_square", "symmetric", "times_transposed",
    "transposed_times", "wording",
]  # fmt: skip

WIDE: Final = DTypeClass("float of 32 or 64 bits", DType.F64, DType.F32)
"""The types that LAPACK computes; `tensor/linalg` casts halves to float32 and rounds the results once."""

_REFUSALS: Final = (vars(torch.linalg)["LinAlgError"], np.linalg.LinAlgError)  # its stubs hide it


# -- rules ----------------------------------------------------------------------------------------------
def require_matrix(x: TensorSpec, name: str = "x") -> tuple[Shape, int, int]:
    """Batch, rows and columns of a matrix of wide floats.  Raises faults."""
    x.require(WIDE)
    if x.ndim < 2:
        raise shape_fault(
            f"{name} is no matrix",
            expected=f"{name} (*batch, rows, cols): two axes or more",
            mend="insert an axis, for example x.unsqueeze_dim(0)",
        )
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def require_square(x: TensorSpec, name: str = "x") -> TensorSpec:
    """A square matrix of wide floats.  Raises faults."""
    _, rows, columns = require_matrix(x, name)
    if rows != columns:
        raise shape_fault(
            f"{name} is not square",
            expected=f"{name} (*batch, n, n); here it has {rows} rows and {columns} columns",
            mend="pinv and lstsq take matrices of any shape",
        )
    return x


def wording(candidate: Candidate, what: str, *, expected: str, mend: str) -> PerCall:
    """A candidate that words what LAPACK refuses for the sake of the data: a singular matrix, NaN, ..."""

    def build(call: Call) -> Candidate:
        def run(*inputs: Primitive) -> Primitive:
            try:
                return candidate(*inputs, **call.attrs)
            except _REFUSALS as err:
                described = call.op.signature.describe(call.specs, call.attrs)
                raise at_user_line(
                    ArgumentError(f"{call.op.name}: {what}", given=f"{described} ({err})", expected=expected, mend=mend)
                ) from None

        return run

    return PerCall(build)


# -- gradient rules ---------------------------------------------------------------------------------------
def transposed_times(x: Value, y: Value) -> Value:
    """x^T y."""
    return matmul(transposed(x), y)


def times_transposed(x: Value, y: Value) -> Value:
    """x y^T."""
    return matmul(x, transposed(y))


def symmetric(x: Value) -> Value:
    """(x + x^T) / 2."""
    return (x + transposed(x)) * 0.5


def identity(like: Value) -> Value:
    """The identity matrix of the size of a square matrix."""
    spec = like.spec
    attrs = {"size": spec.shape[-1], "dtype": spec.dtype, "place": spec.place}
    return ops.eye.run(like.backend, type(like), (), attrs)


# -- samples ------------------------------------------------------------------------------------------------
def invertible(*shape: int) -> Drawer:
    """Square matrices far from singular: random ones with 2 or -2 added on the diagonal."""

    def draw(generator: np.random.Generator) -> Array:
        x = generator.uniform(-1, 1, shape)
        return x + np.eye(shape[-1]) * generator.choice([-2.0, 2.0], shape[-1])

    return draw
