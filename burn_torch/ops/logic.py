"""Logic on truth values, and on the bits of integers.  None of it carries a gradient."""

from __future__ import annotations

import operator

import numpy as np
import torch

from burn_torch.core.dtype import BOOL, INT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.held_numbers import held
from burn_torch.ops.laws import Exchange, Neutral, SelfInverse, Unsigned
from burn_torch.ops.op import PerCall, op
from burn_torch.ops.rules import elementwise
from burn_torch.ops.samples import booleans, integers, sample
from burn_torch.ops.signature import Operand
from burn_torch.ops.unsigned import right_shift

_TRUTHS = [
    sample(booleans(), booleans()),
    sample(booleans((2, 1, 4)), booleans((3, 1))),
    sample(booleans((0, 3)), booleans((3,))),
    sample(booleans(()), booleans(())),
]

_BITS = [
    sample(integers(-100, 100), integers(-100, 100)),
    sample(integers(-100, 100, (2, 1, 4)), integers(-100, 100, (3, 1))),
    sample(integers(-100, 100, (0, 3)), integers(-100, 100, (3,))),
    sample(integers(-100, 100), 12),
    sample(85, integers(-100, 100)),
]

_SHIFTS = [
    sample(integers(-100, 100), integers(0, 7)),
    sample(integers(-100, 100, (2, 1, 4)), integers(0, 7, (3, 1))),
    sample(integers(-100, 100, (0, 3)), integers(0, 7, (3,))),
    sample(integers(-100, 100), 3),
    sample(85, integers(0, 7)),
    sample(85, integers(-2, 70)),
    sample(integers(-100, 100), integers(-2, 70)),
]


@op(
    torch=torch.logical_not,
    numpy=np.logical_not,
    inplace=torch.Tensor.logical_not_,
    pointwise="({0} == 0)",
    cost="cheap",
    nondifferentiable=True,
    laws=[SelfInverse()],
    samples=[booleans(), booleans(()), booleans((0, 2))],
)
def bool_not(x: TensorSpec) -> TensorSpec:
    """True where x is false.

    Shapes: x (*s) -> (*s).  Dtypes: bool in, bool out.
    """
    return x.require(BOOL)


@op(
    torch=torch.logical_and,
    numpy=np.logical_and,
    inplace=torch.Tensor.logical_and_,
    pointwise="({0} & {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange()],
    samples=_TRUTHS,
)
def bool_and(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """True where both are true.

    Shapes: x, y broadcast -> their common shape.  Dtypes: bool in, bool out.
    """
    return elementwise(x, y, dtypes=BOOL)


@op(
    torch=torch.logical_or,
    numpy=np.logical_or,
    inplace=torch.Tensor.logical_or_,
    pointwise="({0} | {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange()],
    samples=_TRUTHS,
)
def bool_or(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """True where one or both are true.

    Shapes: x, y broadcast -> their common shape.  Dtypes: bool in, bool out.
    """
    return elementwise(x, y, dtypes=BOOL)


@op(
    torch=torch.logical_xor,
    numpy=np.logical_xor,
    inplace=torch.Tensor.logical_xor_,
    pointwise="({0} ^ {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange()],
    samples=_TRUTHS,
)
def bool_xor(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """True where exactly one is true.

    Shapes: x, y broadcast -> their common shape.  Dtypes: bool in, bool out.
    """
    return elementwise(x, y, dtypes=BOOL)


# -- bits ----------------------------------------------------------------------------------------------------
@op(
    torch=held(torch.bitwise_and),
    numpy=held(np.bitwise_and),
    scalar=operator.and_,
    inplace=torch.Tensor.bitwise_and_,
    pointwise="({0} & {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Exchange(), Unsigned("bits")],
    samples=_BITS,
)
def bitwise_and(x: Operand, y: Operand) -> TensorSpec:
    """The bits that are set in both; negative numbers in two's complement.

    Shapes: x, y broadcast -> their common shape.  Dtypes: integers, both the same.
    """
    return elementwise(x, y, dtypes=INT)


@op(
    torch=held(torch.bitwise_or),
    numpy=held(np.bitwise_or),
    scalar=operator.or_,
    inplace=torch.Tensor.bitwise_or_,
    pointwise="({0} | {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Neutral(0, (0, 1)), Exchange(), Unsigned("bits")],
    samples=_BITS,
)
def bitwise_or(x: Operand, y: Operand) -> TensorSpec:
    """The bits that are set in either; negative numbers in two's complement.

    Shapes: x, y broadcast -> their common shape.  Dtypes: integers, both the same.
    """
    return elementwise(x, y, dtypes=INT)


@op(
    torch=held(torch.bitwise_xor),
    numpy=held(np.bitwise_xor),
    scalar=operator.xor,
    inplace=torch.Tensor.bitwise_xor_,
    pointwise="({0} ^ {1})",
    cost="cheap",
    nondifferentiable=True,
    commutative=True,
    laws=[Neutral(0, (0, 1)), Exchange(), Unsigned("bits")],
    samples=_BITS,
)
def bitwise_xor(x: Operand, y: Operand) -> TensorSpec:
    """The bits that are set in exactly one; negative numbers in two's complement.

    Shapes: x, y broadcast -> their common shape.  Dtypes: integers, both the same.
    """
    return elementwise(x, y, dtypes=INT)


@op(
    torch=torch.bitwise_not,
    numpy=np.bitwise_not,
    scalar=operator.invert,
    inplace=torch.Tensor.bitwise_not_,
    pointwise="(~{0})",
    cost="cheap",
    nondifferentiable=True,
    laws=[SelfInverse(), Unsigned("bits")],
    samples=[integers(-100, 100), integers(-100, 100, ()), integers(-100, 100, (0, 2))],
)
def bitwise_not(x: TensorSpec) -> TensorSpec:
    """All bits turned: -x - 1 for signed integers.

    Shapes: x (*s) -> (*s).  Dtypes: integers in, the same out.
    """
    return x.require(INT)


@op(
    torch=held(torch.bitwise_left_shift),
    numpy=held(np.left_shift),
    inplace=torch.Tensor.bitwise_left_shift_,
    pointwise="({0} << {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Neutral(0, (1,)), Unsigned("bits")],
    samples=_SHIFTS,
)
def bitwise_left_shift(x: Operand, y: Operand) -> TensorSpec:
    """x with its bits moved up by y places: x * 2^y, wrapping around.

    Shapes: x, y broadcast -> their common shape.  Dtypes: integers, both the same.
    From the width of the type on, and for a negative y, no bit is left: 0.
    """
    return elementwise(x, y, dtypes=INT)


@op(
    torch=held(torch.bitwise_right_shift),
    numpy=held(np.right_shift),
    inplace=torch.Tensor.bitwise_right_shift_,
    pointwise="({0} >> {1})",
    cost="cheap",
    nondifferentiable=True,
    laws=[Neutral(0, (1,)), Unsigned(PerCall(lambda call: right_shift))],
    samples=_SHIFTS,
)
def bitwise_right_shift(x: Operand, y: Operand) -> TensorSpec:
    """x with its bits moved down by y places: x / 2^y rounded down; the sign stays.

    Shapes: x, y broadcast -> their common shape.  Dtypes: integers, both the same.
    From the width of the type on, and for a negative y, only the sign is left: 0 or -1.
    """
    return elementwise(x, y, dtypes=INT)
