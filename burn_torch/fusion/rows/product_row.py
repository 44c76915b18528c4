"""The rows of generated kernels around a product or a convolution, and of a library's product by a chosen algorithm."""

from __future__ import annotations

from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rows.row import body_of, computed
from burn_torch.fusion.triton.convolutions import ConvolutionTiles
from burn_torch.fusion.triton.products import ProductTiles
from burn_torch.ops.op import op
from burn_torch.ops.products import linear
from burn_torch.ops.signature import Operand

__all__ = ["convolution", "convolution_tiles_in", "library_product", "product", "tiles_in"]


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def product(*inputs: Operand, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    """Computes `body` of the inputs, in one kernel where the leaf has one, else operation by operation.

    body    a Graph with one product of matrices and element-wise operations around it, as `Graph.to_json` writes it
    strict  rounds after each operation of the body, as unfused execution does
    tiles   the numbers of `ProductTiles`, in their order
    """
    return _specs(body)


@product.decomposes
def _(*inputs: object, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[object, ...]:
    return computed(body_of(body), inputs)


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def convolution(*inputs: Operand, body: str, strict: bool, tiles: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    """As `product`, of a body with one convolution and element-wise operations behind it.

    tiles   the numbers of `ConvolutionTiles`, in their order
    """
    return _specs(body)


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


def _specs(body: str) -> tuple[TensorSpec, ...]:
    graph = body_of(body)
    specs = graph.specs()
    return tuple(specs[i] for i in graph.outputs if i is not None)  # type: ignore[misc]  # kernels make tensors


def tiles_in(attrs: Any) -> ProductTiles:
    """The tiles that a call around a product names."""
    return ProductTiles(*attrs["tiles"])


def convolution_tiles_in(attrs: Any) -> ConvolutionTiles:
    """The tiles that a call around a convolution names."""
    return ConvolutionTiles(*attrs["tiles"])
