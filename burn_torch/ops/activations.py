"""Activation functions."""

from __future__ import annotations

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import op
from burn_torch.ops.rules import alike
from burn_torch.ops.samples import distinct, sample, uniform


@op(
    torch=torch.relu,
    numpy=lambda x: np.maximum(x, np.zeros((), x.dtype)),
    inplace=torch.Tensor.relu_,
    pointwise="maximum({0}, 0.0)",
    cost="cheap",
    samples=distinct((3, 4)),
)
def relu(x: TensorSpec) -> TensorSpec:
    """The positive part, max(x, 0); NaN stays NaN.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.  The gradient at 0 is 0.
    """
    return x.require(FLOAT)


@relu.gradient
def _(g, y, x):
    return relu_backward(g, y)


@op(
    torch=lambda g, y: torch.ops.aten.threshold_backward(g, y, 0),
    numpy=lambda g, y: np.where(y <= 0, np.zeros((), g.dtype), g),
    pointwise="where({1} <= 0.0, 0.0, {0})",
    cost="cheap",
    samples=[sample(uniform(-1, 1), distinct((3, 4)))],
)
def relu_backward(g: TensorSpec, y: TensorSpec) -> TensorSpec:
    """g where y > 0, else 0.

    Shapes: g, y (*s) -> (*s).  Dtypes: float, both the same.
    """
    return alike(g, y)


@relu_backward.gradient
def _(h, z, g, y):
    return relu_backward(h, y), None
