"""Reductions.  Axes named by `dims` are kept with size 1; the Tensor methods squeeze."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch.core.dtype import NUMERIC
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, PerCall, op
from burn_torch.ops.rules import axes
from burn_torch.ops.samples import sample, uniform
from burn_torch.ops.shapes import expand
from burn_torch.ops.torch_types import TO_TORCH


def reduced(x: TensorSpec, dims: tuple[int, ...]) -> Shape:
    """The shape of x with `dims` reduced to size 1."""
    gone = axes(dims, x.ndim)
    return tuple(1 if i in gone else size for i, size in enumerate(x.shape))


def _torch_sum(call: Call):
    spec, dims = call.specs[0], call.attrs["dims"]
    if not dims:  # torch reads an empty list as "all axes"
        return lambda x: x
    assert isinstance(spec, TensorSpec)
    if spec.dtype.is_float:
        return partial(torch.sum, dim=dims, keepdim=True)
    return partial(torch.sum, dim=dims, keepdim=True, dtype=TO_TORCH[spec.dtype])  # torch widens integers to int64


@op(
    torch=PerCall(_torch_sum),
    numpy=lambda x, *, dims: np.sum(x, axis=dims, keepdims=True, dtype=x.dtype),
    view=True,  # with no axes to sum the result is x itself
    samples=[
        sample(uniform(-1, 1, (3, 4)), dims=(0,)),
        sample(uniform(-1, 1, (2, 3, 4)), dims=(0, 2)),
        sample(uniform(-1, 1, (2, 0)), dims=(1,)),
        sample(uniform(-1, 1, (2, 3)), dims=()),
    ],
)
def sum(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Sum over axes; integers keep their type and wrap around.

    Shapes: x (*s) -> (*s with dims of size 1).  Dtypes: numbers in, the same out.
    """
    return x.require(NUMERIC).with_shape(reduced(x, dims))


@sum.gradient
def _(g, y, x, *, dims):
    return expand(g, shape=x.shape)
