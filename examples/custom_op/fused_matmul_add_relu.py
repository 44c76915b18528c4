"""An operation of one's own, with its own gradient: relu(lhs @ rhs + bias) as one row of the table.

The Burn book's example.  A row is all that is needed: it computes on every leaf, differentiates (twice, too), traces
and prints; nothing else in the framework knows of it.

    python examples/custom_op/fused_matmul_add_relu.py
"""

from __future__ import annotations

import numpy as np
import torch

from burn_torch import Device, Tensor, op, ops
from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.rules import same_dtype, sum_to
from burn_torch.ops.samples import sample, uniform


@op(
    namespace="examples",
    torch=lambda lhs, rhs, bias: torch.addmm(bias, lhs, rhs).relu_(),  # writes to its own result only
    numpy=lambda lhs, rhs, bias: np.maximum(lhs @ rhs + bias, 0),
    samples=sample(uniform(-1, 1, (3, 4)), uniform(-1, 1, (4, 5)), uniform(-1, 1, (5,))),
)
def fused_matmul_add_relu(lhs: TensorSpec, rhs: TensorSpec, bias: TensorSpec) -> TensorSpec:
    """relu(lhs @ rhs + bias).

    Shapes: lhs (m, k), rhs (k, n), bias (n,) -> (m, n).  Dtypes: float, all the same.
    """
    same_dtype(lhs.require(FLOAT), rhs, bias)
    return ops.linear.rule(lhs, rhs, bias)  # type: ignore[no-any-return]  # the same shapes as a linear layer


@fused_matmul_add_relu.gradient
def _(g, y, lhs, rhs, bias):  # type: ignore[no-untyped-def]
    g = ops.relu_backward(g, y)  # of the inputs only what is named here is kept for the backward
    return (
        ops.matmul(g, ops.permute(rhs, axes=(1, 0))),
        ops.matmul(ops.permute(lhs, axes=(1, 0)), g),
        sum_to(g, bias),
    )


def main() -> None:
    """Compares values and gradients with the unfused form."""
    device = Device.cpu().autodiff()
    generator = np.random.default_rng(0)
    lhs, rhs, bias = (
        Tensor.from_data(generator.standard_normal(shape), device).require_grad() for shape in [(3, 4), (4, 5), (5,)]
    )
    for name, y in {
        "fused": fused_matmul_add_relu(lhs, rhs, bias),
        "unfused": (lhs.matmul(rhs) + bias).relu(),
    }.items():
        gradients = y.backward()
        sums = [float(np.sum(x.grad(gradients).into_data().values)) for x in (lhs, rhs, bias)]  # type: ignore[union-attr]
        print(f"{name:8s} y = {np.sum(y.into_data().values):.6f}  gradients = {', '.join(f'{s:.6f}' for s in sums)}")


if __name__ == "__main__":
    main()
