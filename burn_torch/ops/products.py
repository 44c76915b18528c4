"""Matrix products."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch.core.dtype import NUMERIC
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.laws import Multiplies, Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import broadcast_shapes, front_axis, same_dtype, sum_to
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.shapes import permute, reshape
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value


def transposed(x: Value) -> Value:
    """The last two axes swapped."""
    return permute(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _torch_matmul(call: Call) -> Candidate:
    x, y = call.tensor(0), call.tensor(1)
    if x.dtype.is_int and x.place != "cpu":
        return partial(_sum_of_products, dtype=TO_TORCH[x.dtype])
    return torch.mm if x.ndim == y.ndim == 2 and x.dtype.is_float else torch.matmul


def _sum_of_products(x: Primitive, y: Primitive, *, dtype: Primitive) -> Primitive:
    # GPU libraries multiply no integer matrices; this holds all m k n products at once
    return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2, dtype=dtype)


@op(
    torch=PerCall(_torch_matmul),
    numpy=np.matmul,
    precision="low",
    laws=[Multiplies(), Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (4, 5))),
        sample(uniform(-1, 1, (2, 1, 3, 4)), uniform(-1, 1, (3, 4, 2))),
        sample(uniform(-1, 1, (3, 0)), uniform(-1, 1, (0, 2))),
    ],
)
def matmul(lhs: TensorSpec, rhs: TensorSpec) -> TensorSpec:
    """Matrix product over the last two axes, batched over the others.

    Shapes: lhs (*batch, m, k), rhs (*batch, k, n) -> (*batch, m, n); batch axes broadcast.  Dtypes: numbers, the same.
    """
    lhs.require(NUMERIC)
    rhs.require(NUMERIC)
    same_dtype(lhs, rhs)
    if lhs.ndim < 2 or rhs.ndim < 2 or lhs.shape[-1] != rhs.shape[-2]:
        inner = f"; here k is {lhs.shape[-1]} and {rhs.shape[-2]}" if min(lhs.ndim, rhs.ndim) >= 2 else ""
        raise shape_fault(
            "the inner sizes differ" if inner else "an input has fewer than two axes",
            expected=f"lhs (..., m, k) and rhs (..., k, n) with one k{inner}",
            mend="transpose one side, for example lhs.transpose().matmul(rhs)"
            if inner
            else "insert an axis, for example x.unsqueeze_dim(0)",
        )
    batch = broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    return lhs.with_shape((*batch, lhs.shape[-2], rhs.shape[-1]))


@matmul.gradient
def _(g, y, lhs, rhs):
    return sum_to(matmul(g, transposed(rhs)), lhs), sum_to(matmul(transposed(lhs), g), rhs)


def _torch_linear(call: Call) -> Primitive:
    x, weight, bias = call.tensor(0), call.tensor(1), call.specs[2]
    if x.dtype.is_int:
        product = _torch_matmul(matmul.bind((x, weight), {})) if x.ndim > 1 else torch.matmul
        return lambda x, w, b: product(x, w) if b is None else product(x, w) + b
    if x.ndim == 2:
        if bias is None:
            return TorchCode("mm({0}, {1})", inputs=3, mm=torch.mm)
        return TorchCode("addmm({2}, {0}, {1})", addmm=torch.addmm)
    if bias is None:
        return TorchCode("matmul({0}, {1})", inputs=3, matmul=torch.matmul)
    shape = (*x.shape[:-1], weight.shape[1])
    rows, cols = x.numel // max(x.shape[-1], 1), x.shape[-1]
    flat = "addmm({2}, {0}.reshape({rows}, {cols}), {1}).reshape({*shape})"
    return TorchCode(flat, addmm=torch.addmm, rows=rows, cols=cols, shape=shape)


def _numpy_linear(x: Array, weight: Array, bias: Array | None) -> Array:
    y = np.matmul(x, weight)
    return y if bias is None else y + bias


@op(
    torch=PerCall(_torch_linear),
    numpy=_numpy_linear,
    precision="low",
    laws=[Multiplies(), Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (4, 5)), uniform(-1, 1, (5,))),
        sample(uniform(-1, 1, (2, 3, 4)), uniform(-1, 1, (4, 5)), None),
        sample(uniform(-1, 1, (2, 3, 4)), uniform(-1, 1, (4, 5)), uniform(-1, 1, (5,))),
        sample(uniform(-1, 1, (0, 4)), uniform(-1, 1, (4, 5)), uniform(-1, 1, (5,))),
    ],
)
def linear(x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None) -> TensorSpec:
    """x @ weight + bias.

    Shapes: x (*batch, d_in), weight (d_in, d_out), bias (d_out,) -> (*batch, d_out).  Dtypes: numbers, all the same.
    PyTorch: torch.nn.functional.linear, whose weight is (d_out, d_in).
    """
    same_dtype(x.require(NUMERIC), weight, bias)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[0]:
        raise shape_fault(
            "the input does not fit the weight",
            expected="x (..., d_in) and weight (d_in, d_out) with one d_in",
            mend="burn_torch keeps weights as (d_in, d_out); transpose a torch weight",
        )
    if bias is not None and bias.shape != weight.shape[1:]:
        raise shape_fault(
            "the bias does not fit the weight",
            expected=f"bias {weight.shape[1:]}",
            mend="give one number for each output feature",
        )
    return x.with_shape((*x.shape[:-1], weight.shape[1]))


@linear.gradient
def _(g, y, x, weight, bias):
    rows = (x.spec.numel // x.shape[-1] if x.shape[-1] else 0, x.shape[-1])
    flat_g = g if g.ndim == 2 else reshape(g, shape=(g.spec.numel // g.shape[-1] if g.shape[-1] else 0, g.shape[-1]))
    flat_x = x if x.ndim == 2 else reshape(x, shape=rows)
    dx = matmul(flat_g, transposed(weight))
    return (
        dx if x.ndim == 2 else reshape(dx, shape=x.shape),
        matmul(transposed(flat_x), flat_g),
        None if bias is None else sum_to(flat_g, bias),
    )


def _numpy_cross(x: Array, y: Array, *, dim: int) -> Array:
    x, y = np.broadcast_arrays(x, y)
    return np.roll(x, -1, dim) * np.roll(y, -2, dim) - np.roll(x, -2, dim) * np.roll(y, -1, dim)


@op(
    torch=PerCall(lambda call: partial(torch.linalg.cross, dim=call.attrs["dim"])),
    numpy=_numpy_cross,
    laws=[Unsigned("bits")],
    samples=[
        sample(uniform(-1, 1, (3,)), uniform(-1, 1, (3,)), dim=0),
        sample(uniform(-1, 1, (2, 3, 4)), uniform(-1, 1, (2, 3, 4)), dim=1),
        sample(uniform(-1, 1, (2, 1, 3)), uniform(-1, 1, (1, 4, 3)), dim=2),
        sample(uniform(-1, 1, (0, 3)), uniform(-1, 1, (1, 3)), dim=1),
    ],
)
def cross(lhs: TensorSpec, rhs: TensorSpec, *, dim: int) -> TensorSpec:
    """Cross product of vectors in space, which lie along an axis of size 3.

        y[0] = lhs[1] rhs[2] - lhs[2] rhs[1], and so on in a circle

    Shapes: lhs, rhs with as many axes, 3 on `dim`, the others broadcast -> their common shape.
    Dtypes: numbers, both the same.  PyTorch: torch.linalg.cross.
    """
    same_dtype(lhs.require(NUMERIC), rhs)
    if lhs.ndim != rhs.ndim:
        raise shape_fault(
            "the numbers of axes differ",
            expected="as many axes on both sides",
            mend="insert axes, for example x.unsqueeze_dim(0)",
        )
    front_axis(dim, lhs.ndim)
    if not lhs.shape[dim] == rhs.shape[dim] == 3:
        raise shape_fault(
            f"axis {dim} does not hold vectors of three elements",
            expected=f"size 3 on axis {dim} of both sides; here {lhs.shape[dim]} and {rhs.shape[dim]}",
            mend="name the axis of the vectors with dim",
        )
    return lhs.with_shape(broadcast_shapes(lhs.shape, rhs.shape))


@cross.gradient
def _(g, y, lhs, rhs, *, dim):
    return sum_to(cross(rhs, g, dim=dim), lhs), sum_to(cross(g, lhs, dim=dim), rhs)
