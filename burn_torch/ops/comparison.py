"""Comparisons: truth values, element by element.  None of them carries a gradient."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import torch

from burn_torch.core.dtype import BOOL, FLOAT, NUMERIC, DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.ops.held_numbers import beyond, compares
from burn_torch.ops.laws import Exchange, Uniform, Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import elementwise
from burn_torch.ops.samples import fixed, integers, sample, uniform
from burn_torch.ops.signature import Operand

_PAIR = [
    sample(integers(-2, 3), integers(-2, 3)),
    sample(uniform(-3, 3, (2, 1, 4)), uniform(-3, 3, (3, 1))),
    sample(uniform(-3, 3, (0, 3)), uniform(-3, 3, (3,))),
    sample(fixed([0.0, -0.0, 1.0, np.inf, np.nan]), fixed([-0.0, 0.0, 1.0, np.inf, np.nan])),
    sample(fixed([-1.5, 0.5, 1.5]), 0.5),
    sample(0.5, fixed([-1.5, 0.5, 1.5])),
    sample(integers(-2, 3), 1),
]


def _torch_comparison(function: Callable[..., torch.Tensor], mirrored: Callable[..., torch.Tensor]) -> PerCall:
    # torch compares a tensor with a number, not a number with a tensor
    def build(call: Call) -> Candidate:
        compare = (lambda x, y: mirrored(y, x)) if isinstance(call.specs[0], NumberSpec) else function
        # torch wraps a number around to the type of the tensor: 300 would be 44 beside i8
        return beyond(call, compare, lambda x, truth: torch.full_like(x, truth, dtype=torch.bool))

    return compares(PerCall(build))


def _truths(x: Operand, y: Operand) -> TensorSpec:
    return elementwise(x, y, dtypes=NUMERIC).with_dtype(DType.BOOL)


@op(
    torch=_torch_comparison(torch.eq, torch.eq),
    numpy=np.equal,
    scalar=operator.eq,
    pointwise="({0} == {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange(), Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def equal(x: Operand, y: Operand) -> TensorSpec:
    """True where x = y, element by element.  NaN equals nothing; -0 equals 0.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers or bool, both the same -> bool.
    """
    return elementwise(x, y, dtypes=NUMERIC | BOOL).with_dtype(DType.BOOL)


@op(
    torch=_torch_comparison(torch.ne, torch.ne),
    numpy=np.not_equal,
    scalar=operator.ne,
    pointwise="({0} != {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange(), Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def not_equal(x: Operand, y: Operand) -> TensorSpec:
    """True where x differs from y, element by element.  NaN differs from everything, itself too.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers or bool, both the same -> bool.
    """
    return elementwise(x, y, dtypes=NUMERIC | BOOL).with_dtype(DType.BOOL)


@op(
    torch=_torch_comparison(torch.gt, torch.lt),
    numpy=np.greater,
    scalar=operator.gt,
    pointwise="({0} > {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def greater(x: Operand, y: Operand) -> TensorSpec:
    """True where x > y, element by element; false where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same -> bool.
    """
    return _truths(x, y)


@op(
    torch=_torch_comparison(torch.ge, torch.le),
    numpy=np.greater_equal,
    scalar=operator.ge,
    pointwise="({0} >= {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def greater_equal(x: Operand, y: Operand) -> TensorSpec:
    """True where x >= y, element by element; false where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same -> bool.
    """
    return _truths(x, y)


@op(
    torch=_torch_comparison(torch.lt, torch.gt),
    numpy=np.less,
    scalar=operator.lt,
    pointwise="({0} < {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def lower(x: Operand, y: Operand) -> TensorSpec:
    """True where x < y, element by element; false where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same -> bool.
    """
    return _truths(x, y)


@op(
    torch=_torch_comparison(torch.le, torch.ge),
    numpy=np.less_equal,
    scalar=operator.le,
    pointwise="({0} <= {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Uniform((0, 1)), Unsigned("order")],
    samples=_PAIR,
)
def lower_equal(x: Operand, y: Operand) -> TensorSpec:
    """True where x <= y, element by element; false where either is NaN.

    Shapes: x, y broadcast -> their common shape.  Dtypes: numbers, both the same -> bool.
    """
    return _truths(x, y)


# -- kinds of floats ---------------------------------------------------------------------------------------
_KINDS = [
    fixed([0.0, -1.5, np.inf, -np.inf, np.nan, 3.0]),
    uniform(-3, 3, (2, 3)),
    fixed(np.array(np.nan)),
    uniform(-3, 3, (0, 3)),
]


@op(torch=torch.isnan, numpy=np.isnan, pointwise="({0} != {0})", cost="cheap", nondifferentiable=True, samples=_KINDS)
def is_nan(x: TensorSpec) -> TensorSpec:
    """True where an element is NaN.

    Shapes: x (*s) -> (*s).  Dtypes: float -> bool.
    """
    return x.require(FLOAT).with_dtype(DType.BOOL)


@op(
    torch=torch.isinf,
    numpy=np.isinf,
    pointwise="(abs({0}) == float('inf'))",
    cost="cheap",
    nondifferentiable=True,
    samples=_KINDS,
)
def is_inf(x: TensorSpec) -> TensorSpec:
    """True where an element is infinite, of either sign.

    Shapes: x (*s) -> (*s).  Dtypes: float -> bool.
    """
    return x.require(FLOAT).with_dtype(DType.BOOL)


@op(
    torch=torch.isfinite,
    numpy=np.isfinite,
    pointwise="(abs({0}) < float('inf'))",
    cost="cheap",
    nondifferentiable=True,
    samples=_KINDS,
)
def is_finite(x: TensorSpec) -> TensorSpec:
    """True where an element is neither infinite nor NaN.

    Shapes: x (*s) -> (*s).  Dtypes: float -> bool.
    """
    return x.require(FLOAT).with_dtype(DType.BOOL)
