"""Products with weights, and rows of them."""

from __future__ import annotations

import math
from typing import Any

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import integer
from burn_torch.tensor.apply import apply_one, require_tensor
from burn_torch.tensor.quantization import QuantizedTensor, linear_by_codes
from burn_torch.tensor.tensor import Tensor

__all__ = ["bilinear", "embedding", "linear"]


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


def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = x1 @ weight[o] @ x2 + bias[o].

    Shapes: x1 (*batch, d_in1), x2 (*batch, d_in2), weight (d_out, d_in1, d_in2), bias (d_out,) -> (*batch, d_out).
    Dtypes: any float, the same for all.
    PyTorch: torch.nn.functional.bilinear.
    """
    for name, x in (("x1", x1), ("x2", x2), ("weight", weight)):
        require_tensor(x, name)
    if bias is not None:
        require_tensor(bias, "bias")
    batch = x1.shape[:-1]
    if x2.shape[:-1] != batch or weight.ndim != 3 or weight.shape[1:] != (*x1.shape[-1:], *x2.shape[-1:]):
        raise told(
            ShapeError,
            "the inputs do not fit the weight",
            given=f"x1 {x1.spec}, x2 {x2.spec}, weight {weight.spec}",
            expected="x1 (*batch, d_in1), x2 (*batch, d_in2) and weight (d_out, d_in1, d_in2)",
            mend="expand one of the inputs over the axes of the other",
        )
    d_out, d_in1, d_in2 = weight.shape
    rows = x1.reshape((math.prod(batch), d_in1))
    left = rows.matmul(weight.permute((1, 0, 2)).reshape((d_in1, d_out * d_in2))).reshape((*batch, d_out, d_in2))
    y = left.matmul(x2.unsqueeze_dim(-1)).squeeze_dim(-1)
    return y if bias is None else y + bias


def embedding(weights: Tensor, indices: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weights` by their indices; the row padding_idx gets no gradient.

    Shapes: weights (vocab, d), indices (*s) -> (*s, d).
    """
    index = None if padding_idx is None else integer(padding_idx, "padding_idx")
    return hold_padding(apply_one(ops.embedding, (weights, indices)), indices, index)


def hold_padding(rows: Tensor, indices: Tensor, padding_idx: int | None) -> Tensor:
    """The rows, of which those of padding_idx are constants."""
    if padding_idx is None or rows.backend.inner is None:  # a leaf keeps no gradients
        return rows
    return rows.mask_where(indices.equal(padding_idx).unsqueeze_dim(-1), rows.detach())


word_functions(globals(), "functional")
