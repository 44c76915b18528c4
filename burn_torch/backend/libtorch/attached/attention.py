"""Kernels of `burn_kernels` for attention, where torch has no fused one.

As the entries of `attached`.  Calls that torch's own kernels compute are left to them.  They know no softcap and no
gradient of a bias, no mask over heads that are shared, and no heads of other than a multiple of 8 columns; for these,
without the entries here, the scores would be written to memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.attending_torch import Added, attention_operands, torch_attention, torch_attention_backward
from burn_torch.ops.op import Call, Candidate

__all__ = ["ATTENTIONS"]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)
_MOST_COLUMNS: Final = 256
"""The largest width of a head."""


def _rule(call: Call, query: TensorSpec, key: TensorSpec, value: TensorSpec) -> dict[str, Any] | None:
    """Returns the options of `burn_kernels` that hide keys; None where its kernels do not take the operands."""
    d_head, causal, offset = query.shape[3], call.attrs["causal"], call.attrs["offset"]
    if query.dtype not in _FLOATS or d_head != value.shape[3] or d_head > _MOST_COLUMNS:
        return None
    if not (query.numel and key.numel):
        return None
    if not causal or offset == 0:
        return {"causal": causal}
    return {"causal": True, "align": "bottom_right"} if offset == key.shape[2] - query.shape[2] else None


def _numbers(scale: float, softcap: float | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {"scale": float(scale)}
    return numbers if softcap is None else numbers | {"softcap": float(softcap)}


def _attention(call: Call) -> Candidate | None:
    rule = _rule(call, *attention_operands(call, 0))
    if rule is None or torch_attention(call) is not None:
        return None
    from burn_kernels import attention

    blind = call.specs[3] is not None or call.specs[4] is not None or rule.get("align") == "bottom_right"

    def run(
        query: Tensor, key: Tensor, value: Tensor, mask: Added, bias: Added, scale: float, softcap: float | None
    ) -> tuple[Tensor, Tensor]:
        y, lse = attention.forward(
            query, key, value, None if mask is None else ~mask, bias, **rule, **_numbers(scale, softcap)
        )
        # the row says 0 of a query that sees nothing, where the kernels say what the logarithm is
        return y, torch.where(lse == -math.inf, 0.0, lse) if blind else lse

    return run


def _attention_backward(call: Call) -> Candidate | None:
    rule, live = _rule(call, *attention_operands(call, 1)), call.attrs["live"]
    if rule is None or not any(live) or torch_attention_backward(call) is not None:
        return None
    from burn_kernels import attention

    def run(
        g: Tensor, query: Tensor, key: Tensor, value: Tensor, y: Tensor, lse: Tensor, mask: Added, bias: Added,
        scale: float, softcap: float | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        # whatever lse is of a query that sees nothing: its weights are exp(-inf)
        options = {"bias_gradient": True in live[3:], **rule, **_numbers(scale, softcap)}
        grads = attention.backward(g, query, key, value, None if mask is None else ~mask, bias, y, lse, **options)
        return tuple(grad if used else None for grad, used in zip(grads, live, strict=False))  # without a bias three

    return run


ATTENTIONS: Final[Mapping[str, Callable[[Call], Candidate | None]]] = {
    "attention": _attention,
    "attention_backward": _attention_backward,
}
"""By the row's name."""
