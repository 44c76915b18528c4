"""Element-wise arithmetic on two operands, each a tensor or a number."""

from __future__ import annotations

import operator

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, NUMERIC
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Operand, op
from burn_torch.ops.rules import elementwise, sum_to
from burn_torch.ops.samples import sample, uniform

_PAIR = [
    sample(uniform(-3, 3), uniform(-3, 3)),
    sample(uniform(-3, 3, (2, 1, 4)), uniform(-3, 3, (3, 1))),
    sample(uniform(-3, 3, (0, 3)), uniform(-3, 3, (3,))),
    sample(uniform(-3, 3, ()), uniform(-3, 3, ())),
    sample(uniform(-3, 3), 1.5),
    sample(2.5, uniform(-3, 3)),
]


@op(
    torch=operator.add,
    numpy=operator.add,
    scalar=operator.add,
    inplace=torch.Tensor.add_,
    pointwise="({0} + {1})",
    cost="cheap",
    commutative=True,
    samples=_PAIR,
)
def add(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise sum.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    """
    return elementwise(x, y)


@add.gradient
def _(g, z, x, y):
    return sum_to(g, x), sum_to(g, y)


@op(
    torch=operator.sub,
    numpy=operator.sub,
    scalar=operator.sub,
    inplace=torch.Tensor.sub_,
    pointwise="({0} - {1})",
    cost="cheap",
    samples=_PAIR,
)
def sub(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise difference x - y.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    """
    return elementwise(x, y)


@sub.gradient
def _(g, z, x, y):
    return sum_to(g, x), sum_to(-g, y)


@op(
    torch=operator.mul,
    numpy=operator.mul,
    scalar=operator.mul,
    inplace=torch.Tensor.mul_,
    pointwise="({0} * {1})",
    cost="cheap",
    commutative=True,
    samples=_PAIR,
)
def mul(x: Operand, y: Operand) -> TensorSpec:
    """Element-wise product.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same.
    """
    return elementwise(x, y)


@mul.gradient
def _(g, z, x, y):
    return sum_to(g * y, x), sum_to(g * x, y)


@op(
    torch=torch.neg,
    numpy=np.negative,
    scalar=operator.neg,
    inplace=torch.Tensor.neg_,
    pointwise="(-{0})",
    cost="cheap",
    samples=uniform(-3, 3),
)
def neg(x: TensorSpec) -> TensorSpec:
    """Element-wise negation.

    Shapes: x (*s) -> (*s).  Dtypes: numbers in, the same out.
    """
    return x.require(NUMERIC)


@neg.gradient
def _(g, y, x):
    return -g


@op(
    torch=torch.exp,
    numpy=np.exp,
    inplace=torch.Tensor.exp_,
    pointwise="exp({0})",
    cost="cheap",
    samples=uniform(-3, 3),
)
def exp(x: TensorSpec) -> TensorSpec:
    """Element-wise exponential.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    """
    return x.require(FLOAT)


@exp.gradient
def _(g, y, x):
    return g * y
