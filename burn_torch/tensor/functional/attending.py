"""Attention, and its reference step by step."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import option, truth
from burn_torch.tensor.apply import apply, require_tensor
from burn_torch.tensor.options import (
    AttentionModuleOptions,
)
from burn_torch.tensor.tensor import Tensor

__all__ = ["attention", "attention_fallback"]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    options: AttentionModuleOptions | None = None,
) -> Tensor:
    """Returns what each query reads of the values: softmax(query @ key^T * scale + bias) @ value.

    `mask` is true where a key is hidden.  `scale` is 1 / sqrt(d_head) unless told.
    Shapes: query (batch, heads, seq_q, d_head), key and value (batch, heads, seq_k, d) -> (batch, heads, seq_q, d).
    PyTorch: torch.nn.functional.scaled_dot_product_attention, whose mask is true where a key is seen.
    """
    inputs, causal = _attention((query, key, value, mask, attn_bias), options)
    result: Tensor = apply(ops.attention, inputs, causal, 0)[0]
    return result


def attention_fallback(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    options: AttentionModuleOptions | None = None,
) -> Tensor:
    """`attention` step by step, as its row's decomposition says it: the reference of every faster way."""
    inputs, causal = _attention((query, key, value, mask, attn_bias), options)
    result: Tensor = ops.attention.decomposition(*inputs, causal=causal, offset=0)[0]
    return result


def _attention(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], options: AttentionModuleOptions | None
) -> tuple[tuple[object, ...], bool]:
    for name, x in zip(("query", "key", "value", "mask", "attn_bias"), inputs, strict=True):
        if x is not None or name in ("query", "key", "value"):
            require_tensor(x, name)
    query, key, value, _, _ = inputs
    if not query.ndim == key.ndim == value.ndim == 4:
        raise told(
            ShapeError,
            "attention takes tensors of four axes",
            given=f"query {query.spec}, key {key.spec}, value {value.spec}",
            expected="(batch, heads, seq, d_head)",
            mend="reshape it, or insert axes with unsqueeze_dim",
        )
    chosen = option(options, AttentionModuleOptions, "options")
    scale = 1.0 / math.sqrt(max(query.shape[-1], 1)) if chosen.scale is None else float(chosen.scale)
    softcap = None if chosen.softcap is None else float(chosen.softcap)
    return (*inputs, scale, softcap), truth(chosen.is_causal, "is_causal")


word_functions(globals(), "functional")
