"""Rows that rearrange elements and compute none."""

from __future__ import annotations

import math

import numpy as np

from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import PerCall, op, shape_fault
from burn_torch.ops.rules import broadcast_shapes, sum_to
from burn_torch.ops.samples import sample, uniform


@op(
    torch=PerCall(lambda call: lambda x, shape=call.attrs["shape"]: x.reshape(shape)),
    numpy=lambda x, *, shape: np.reshape(x, shape),
    view=True,
    cost="cheap",
    samples=[sample(uniform(-1, 1, (3, 4)), shape=(2, 6)), sample(uniform(-1, 1, (0, 4)), shape=(2, 0))],
)
def reshape(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    """The same elements in row-major order under another shape, which has no -1 here.

    Shapes: x (*s) -> shape, with as many elements.  Dtypes: any.
    """
    if math.prod(shape) != x.numel or any(size < 0 for size in shape):
        raise shape_fault(
            f"{x.numel} elements do not fill {shape}",
            expected=f"sizes whose product is {x.numel}",
            mend="use -1 for one size to have it worked out",
        )
    return x.with_shape(shape)


@reshape.gradient
def _(g, y, x, *, shape):
    return reshape(g, shape=x.shape)


@op(
    torch=PerCall(lambda call: lambda x, axes=call.attrs["axes"]: x.permute(axes)),
    numpy=lambda x, *, axes: np.transpose(x, axes),
    view=True,
    cost="cheap",
    samples=[sample(uniform(-1, 1, (2, 3, 4)), axes=(2, 0, 1)), sample(uniform(-1, 1, ()), axes=())],
)
def permute(x: TensorSpec, *, axes: tuple[int, ...]) -> TensorSpec:
    """Axes in another order: axis i of the result is axis axes[i] of x.

    Shapes: x (s0, s1, ...) -> (s[axes[0]], s[axes[1]], ...).  Dtypes: any.
    """
    if sorted(axes) != list(range(x.ndim)):
        raise shape_fault(
            f"axes {axes} are no order of {x.ndim} axes",
            expected=f"each of 0 to {x.ndim - 1} once",
            mend="name every axis once",
        )
    return x.with_shape(tuple(x.shape[i] for i in axes))


@permute.gradient
def _(g, y, x, *, axes):
    return permute(g, axes=tuple(axes.index(i) for i in range(len(axes))))


@op(
    torch=PerCall(lambda call: lambda x, shape=call.attrs["shape"]: x.expand(shape)),
    numpy=lambda x, *, shape: np.broadcast_to(x, shape),
    view=True,
    cost="cheap",
    samples=[sample(uniform(-1, 1, (3, 1)), shape=(2, 3, 4)), sample(uniform(-1, 1, ()), shape=(2, 0))],
)
def expand(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    """Repeats axes of size 1 without copying.

    Shapes: x (*s) -> shape, to which s broadcasts.  Dtypes: any.
    """
    if broadcast_shapes(x.shape, shape) != shape:
        raise shape_fault(
            f"{x.shape} does not expand to {shape}",
            expected="axes of size 1, or new axes in front",
            mend="insert axes with unsqueeze_dim first",
        )
    return x.with_shape(shape)


@expand.gradient
def _(g, y, x, *, shape):
    return sum_to(g, x)
