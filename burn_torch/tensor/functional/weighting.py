"""Products with weights, and rows of them."""

from __future__ import annotations

from typing import Any

from burn_torch import ops
from burn_torch.core.misfits import word_functions
from burn_torch.tensor.apply import apply_one
from burn_torch.tensor.quantization import QuantizedTensor, linear_by_codes
from burn_torch.tensor.tensor import Tensor

__all__ = ["embedding", "linear"]


def linear(x: Tensor, weight: Tensor | QuantizedTensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight + bias.

    Shapes: x (*batch, d_in), weight (d_in, d_out), bias (d_out,) -> (*batch, d_out).
    A quantised weight is dequantised on its way into the product.
    PyTorch: torch.nn.functional.linear, whose weight is (d_out, d_in).
    """
    row = ops.linear
    backend: Any = getattr(x, "backend", None)  # a torch tensor has none, and the general way words the error
    if weight.__class__ is not Tensor or weight.backend is not backend or x.__class__ is not Tensor:
        if isinstance(weight, QuantizedTensor):
            return linear_by_codes(x, weight, bias)
        return row(x, weight, bias)  # type: ignore[no-any-return]  # the general way lifts constants
    if bias is None:
        key = (x.spec, weight.spec, None)
        primitives = (x.primitive, weight.primitive, None)
    elif bias.__class__ is Tensor and bias.backend is backend:
        key = (x.spec, weight.spec, bias.spec)  # type: ignore[assignment]  # the three specs, no None
        primitives = (x.primitive, weight.primitive, bias.primitive)
    else:
        return row(x, weight, bias)  # type: ignore[no-any-return]  # rows are typed loosely
    call = row.calls.get(key) or row.remember(key, row.bind(key, {}))
    y = object.__new__(Tensor)  # as in apply.unary: this one is hot
    y.backend = backend
    y.primitive = backend.execute(call, primitives)[0]
    y.spec = call.result
    return y


def embedding(weights: Tensor, indices: Tensor) -> Tensor:
    """Rows of `weights` by their indices.  Shapes: weights (vocab, d), indices (*s) -> (*s, d)."""
    return apply_one(ops.embedding, (weights, indices))


word_functions(globals(), "functional")
