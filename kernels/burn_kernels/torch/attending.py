"""Attention as functions: the one of `torch.nn.functional`, and those with what it has no words for."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import describe
from burn_kernels.torch.defining import note_fallback
from burn_kernels.torch.shared import cast_as_products, new_seed

__all__ = ["attention", "attention_packed", "scaled_dot_product_attention"]

_OPS = torch.ops.burn_kernels


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    causal: bool = False,
    align: str = "top_left",
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: torch.Tensor | None = None,
    deterministic: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted values of each query, and lse, the logarithm of the sum of the exponentials of its scores.

    Shapes: query (batch, heads, seq_q, d_head), key, value (batch, kv_heads, seq_k, d_head), kv_heads a divisor of
    heads; mask and bias broadcast to (batch, heads, seq_q, seq_k) -> as query, (batch, heads, seq_q).
    Dtypes: one float type (under autocast its type); mask of bools, true where a key is seen; bias any float, with a
    gradient.  lse is float32 (of float64 float64) and carries none; it is -inf for a query that sees nothing, which
    reads zeros.
    `causal` hides the keys behind a query's diagonal: the diagonals of the first query and the first key fall together
    with `align` "top_left", as torch's is_causal has it, those of the last ones with "bottom_right".  `window` hides
    keys that are so many or more away from the diagonal.  `softcap` bounds the scores by tanh, before the bias.
    `dropout` and `seed` as of `dropout`: the mask is drawn again in the backward.
    Unless `deterministic`, torch's own kernels may compute the backward, which sum with float atomics.
    """
    query, key, value, bias = cast_as_products(query, key, value, bias)
    y, lse = _OPS.attention(
        query, key, value, mask, bias, _draw_seed(dropout, seed), scale, causal, align, window, softcap, dropout,
        deterministic,
    )  # fmt: skip
    return y, lse


def attention_packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_starts: torch.Tensor,
    key_starts: torch.Tensor,
    *,
    longest_query: int,
    longest_key: int,
    causal: bool = False,
    align: str = "top_left",
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `attention`, of sequences of unlike lengths that are packed behind each other.

    Shapes: query (total_q, heads, d_head), key, value (total_k, kv_heads, d_head), starts (sequences + 1,) integers: 0,
    then the running sums of the lengths -> as query, lse (heads, total_q).
    """
    query, key, value = cast_as_products(query, key, value)
    y, lse = _OPS.attention_packed(
        query, key, value, query_starts, key_starts, longest_query, longest_key, _draw_seed(dropout, seed), scale,
        causal, align, window, softcap, dropout,
    )  # fmt: skip
    return y, lse


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    seed: torch.Tensor | None = None,
    deterministic: bool = True,
) -> torch.Tensor:
    """softmax(query key^T * scale + attn_mask) value.  PyTorch: torch.nn.functional.scaled_dot_product_attention.

    As `attention` with torch's parameters: `attn_mask` of bools is a mask, of floats a bias, and may come beside
    `is_causal`, whose diagonal begins at the first query and the first key.  Shapes of two to four axes; a batch of one
    goes with any other.
    Values of another width than keys, and more than four axes, take torch's own.
    """
    shapes = (query.shape[-1], key.shape[-1], value.shape[-1])
    if query.dim() > 4 or shapes[1] != shapes[2]:
        note_fallback("attention", "of more than four axes" if query.dim() > 4 else "of values of another width")
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    missing = (None,) * (4 - query.dim())
    q, k, v = query[missing], key[missing], value[missing]
    if not enable_gqa and q.shape[1] != k.shape[1]:
        raise KernelShapeError(
            "scaled_dot_product_attention: query and key have other numbers of heads",
            given=describe({"query": query, "key": key}),
            expected="one number of heads, as enable_gqa is False",
            mend="pass enable_gqa=True, and neighbouring query heads share a head of keys and values",
        )
    seen = attn_mask is not None and attn_mask.dtype == torch.bool
    mask, bias = (attn_mask, None) if seen else (None, attn_mask)
    batch = next((x.shape[0] for x in (q, k, v) if x.shape[0] != 1), 1)
    q, k, v = (x.expand(batch, -1, -1, -1) if x.shape[0] == 1 else x for x in (q, k, v))
    y, _ = attention(
        q, k, v, mask, bias, causal=is_causal, scale=scale, dropout=dropout_p, seed=seed, deterministic=deterministic
    )
    return y[(0,) * len(missing)]


def _draw_seed(dropout: float, seed: torch.Tensor | None) -> torch.Tensor | None:
    if not 0.0 <= dropout <= 1.0:
        raise KernelArgumentError(
            "attention: the probability is outside its range",
            given=f"dropout {dropout}",
            expected="from 0 to 1",
            mend="pass the share of weights to drop",
        )
    if dropout == 0.0:
        return None
    return new_seed() if seed is None else seed
