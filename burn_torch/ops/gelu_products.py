"""A linear layer with GELU behind it, and the backward of both up to the layer: what a library's product can end with.

Programs put these rows in place of a product and what follows it (`fusion/rewrites/endings.py`).
"""

from __future__ import annotations

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.op import op
from burn_torch.ops.products import linear, matmul
from burn_torch.ops.reductions import sum_to_shape
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import sample, uniform
from burn_torch.ops.smooth_activations import gelu_approximate, gelu_approximate_backward


@op(
    cost="expensive",
    precision="low",
    samples=[
        sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (4, 5)), uniform(-1, 1, (5,))),
        sample(uniform(-1, 1, (2, 3, 4)), uniform(-1, 1, (4, 5)), None),
    ],
)
def linear_gelu(
    x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, *, rank: int = 0
) -> tuple[TensorSpec, TensorSpec]:
    """z = x @ weight + bias, and GELU of it in the form of tanh; z, which the backward needs, comes first.

    rank: which of a library's algorithms should compute it, counted from 0.

    Shapes: x (*batch, d_in), weight (d_in, d_out), bias (d_out,) -> (*batch, d_out) twice.
    Dtypes: floats, all the same.
    """
    x.require(FLOAT)
    z = linear.bind((x, weight, bias), {}).result
    assert isinstance(z, TensorSpec)
    return z, z


@linear_gelu.decomposes
def _(x, weight, bias, *, rank):
    z = linear(x, weight, bias)
    return z, gelu_approximate(z)


@op(
    cost="expensive",
    precision="low",
    samples=[sample(uniform(-1, 1, (6, 4)), uniform(-1, 1, (4, 5)), uniform(-2, 2, (6, 5)))],
)
def matmul_gelu_backward(
    g: TensorSpec, weight: TensorSpec, z: TensorSpec, *, rank: int = 0
) -> tuple[TensorSpec, TensorSpec]:
    """dz = (g @ weight) * gelu'(z) in the form of tanh, and the sum of its rows: the gradient of a bias in z.

    rank: which of a library's algorithms should compute it, counted from 0.

    Shapes: g (rows, d_out), weight (d_out, d_in), z (rows, d_in) -> (rows, d_in), (d_in,).
    Dtypes: floats, all the same.
    """
    same_dtype(g.require(FLOAT), weight, z)
    fit = g.ndim == weight.ndim == z.ndim == 2 and g.shape[1] == weight.shape[0]
    if not fit or z.shape != (g.shape[0], weight.shape[1]):
        raise shape_fault(
            "the gradient, the weight and GELU's input do not fit together",
            expected="g (rows, d_out), weight (d_out, d_in) and z (rows, d_in)",
            mend="flatten all axes but the last into one, and turn the layer's weight",
        )
    return z, z.with_shape(z.shape[1:])


@matmul_gelu_backward.decomposes
def _(g, weight, z, *, rank):
    dz = gelu_approximate_backward(matmul(g, weight), z)
    return dz, sum_to_shape(dz, shape=dz.shape[1:])
