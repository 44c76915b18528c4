"""The rows of generated kernels around a product or a convolution, and of a library's product by a chosen algorithm."""

from __future__ import annotations

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rows.row import body_of, computed, results_of
from burn_torch.ops.op import op
from burn_torch.ops.products import linear
from burn_torch.ops.signature import Operand

__all__ = ["convolution", "library_product", "product"]


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def product(*inputs: Operand, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    """Computes `body` of the inputs, in one kernel where the leaf has one, else operation by operation.

    body    a Graph with one product of matrices and element-wise operations around it, as `Graph.to_json` writes it
    strict  rounds after each operation of the body, as unfused execution does
    tiles   the numbers of `ProductTiles`, in their order
    """
    return results_of(body_of(body))


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def convolution(*inputs: Operand, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    """As `product`, of a body with one convolution and element-wise operations behind it.

    tiles   the numbers of `ConvolutionTiles`, in their order
    """
    return results_of(body_of(body))


@product.decomposes
@convolution.decomposes
def _(*inputs: object, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[object, ...]:
    return computed(body_of(body), inputs)


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def library_product(x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, *, rank: int) -> TensorSpec:
    """As `linear`, by the algorithm of the device's library that was the fastest; see `endings.py`.

    rank  which of its algorithms, counted from 0
    """
    result = linear.bind((x, weight, bias), {}).result
    assert isinstance(result, TensorSpec)
    return result


@library_product.decomposes
def _(x: object, weight: object, bias: object, *, rank: int) -> object:
    return linear(x, weight, bias)
