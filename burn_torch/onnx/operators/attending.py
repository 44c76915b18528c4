"""Attention, RotaryEmbedding and the losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import constant, dtype_of, full, malformed, reshaped
from burn_torch.onnx.operators.registry import Outputs, operator
from burn_torch.tensor import Tensor

__all__ = ["attention", "negative_log_likelihood_loss", "rotary_embedding", "softmax_cross_entropy_loss"]


def _heads(x: Tensor, heads: int | None) -> Tensor:
    """(batch, seq, heads * d) as (batch, heads, seq, d)."""
    if x.ndim == 4:
        return x
    if not heads:
        raise malformed(
            "Attention: inputs of three axes need the number of heads",
            given=f"{x.shape} without q_num_heads or kv_num_heads",
            expected="both attributes",
        )
    return ops.permute(reshaped(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), axes=(0, 2, 1, 3))


def _bias(mask: Tensor, dtype: DType) -> Tensor:
    """A mask as what is added to the scores: 0 or -inf where it is of truth values."""
    if mask.dtype is not DType.BOOL:
        return mask.cast(dtype)
    return full(mask.shape, -math.inf, mask, dtype).mask_fill(mask, 0.0)


@operator("Attention", 23)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    outputs: int = 1,
) -> Outputs:
    """softmax(q @ k^T * scale + mask) @ v, with a cache of keys and values; a query that sees nothing reads zeros."""
    flat = q.ndim == 3
    query, key, value = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key, value = Tensor.cat([past_key, key], 2), Tensor.cat([past_value, value], 2)
    batch, heads, rows, d_head = query.shape
    columns = key.shape[2]
    bias: Tensor | None = None
    if attn_mask is not None:
        missing = columns - attn_mask.shape[-1]
        if missing > 0:
            hidden: Any = False if attn_mask.dtype is DType.BOOL else -math.inf
            ends = (*((0, 0),) * (attn_mask.ndim - 1), (0, missing))
            attn_mask = ops.pad(attn_mask, hidden, padding=ends, mode="constant")
        bias = _bias(attn_mask, q.dtype)
    if is_causal or left_window_size >= 0 or right_window_size >= 0:
        distance = constant(np.arange(rows)[:, None] - np.arange(columns), q.device, DType.I64)
        if past_key is None and nonpad_kv_seqlen is not None:
            distance = distance + reshaped(nonpad_kv_seqlen.cast(DType.I64) - rows, (batch, 1, 1, 1))
        else:
            distance = distance + past
        right = 0 if is_causal else right_window_size
        if is_causal and right_window_size >= 0:
            right = min(0, right_window_size)
        seen = full(distance.shape, True, distance, DType.BOOL)
        if right >= 0:
            seen = seen.bool_and(distance.greater_equal(-right))
        if left_window_size >= 0:
            seen = seen.bool_and(distance.lower_equal(left_window_size))
        bias = _bias(seen, q.dtype) if bias is None else bias + _bias(seen, q.dtype)
    if nonpad_kv_seqlen is not None:
        place = constant(np.arange(columns), q.device, DType.I64)
        real = place.lower(reshaped(nonpad_kv_seqlen.cast(DType.I64), (batch, 1, 1, 1)))
        bias = _bias(real, q.dtype) if bias is None else bias + _bias(real, q.dtype)
    if heads != key.shape[1]:
        key, value = repeat_heads(key, heads), repeat_heads(value, heads)
    root = math.sqrt(1.0 / math.sqrt(d_head) if scale is None else scale)
    scores = ops.matmul(query * root, (key * root).transpose())
    products = scores
    if softcap > 0:
        scores = (scores / softcap).tanh() * softcap
    capped = scores
    if bias is not None:
        scores = scores + bias
    wide = scores if softmax_precision is None else scores.cast(dtype_of(softmax_precision))
    weights = ops.softmax(wide, dim=wide.ndim - 1).cast(q.dtype)
    if bias is not None:
        blind = ops.amax(bias, dims=(bias.ndim - 1,)).equal(-math.inf)
        weights = weights.mask_fill(ops.expand(blind, shape=weights.shape), 0.0)
    y = ops.matmul(weights, value)
    if flat:
        y = reshaped(ops.permute(y, axes=(0, 2, 1, 3)), (batch, rows, heads * value.shape[3]))
    shown = {0: products, 1: capped, 2: scores, 3: weights}[qk_matmul_output_mode]
    results = (y, _append_to_cache(k, past_key, kv_num_heads), _append_to_cache(v, past_value, kv_num_heads), shown)
    return y if outputs == 1 else results[:outputs]


def _append_to_cache(x: Tensor, past: Tensor | None, heads: int | None) -> Tensor:
    """Keys or values with those of the cache in front."""
    new = _heads(x, heads)
    return new if past is None else Tensor.cat([past, new], 2)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Each head of keys or values for several heads of queries."""
    batch, own, rows, d = x.shape
    if heads % own:
        raise malformed(
            "Attention: the heads of queries are no multiple of those of keys",
            given=f"{heads} and {own}",
            expected="a multiple",
        )
    wide = ops.expand(reshaped(x, (batch, own, 1, rows, d)), shape=(batch, own, heads // own, rows, d))
    return reshaped(wide, (batch, heads, rows, d))


@operator("RotaryEmbedding", 23)
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Pairs of features turned by angles that depend on the position."""
    y = (
        ops.permute(x, axes=(0, 2, 1, 3))
        if x.ndim == 4
        else reshaped(x, (*x.shape[:2], num_heads, x.shape[2] // max(num_heads, 1)))
    )
    batch, rows, heads, d = y.shape
    width = rotary_embedding_dim or d
    half = width // 2

    def angles(cache: Tensor) -> Tensor:
        if position_ids is None:
            return reshaped(cache, (batch, rows, 1, half))
        taken = ops.select(cache, reshaped(position_ids, (batch * rows,)), dim=0)
        return reshaped(taken, (batch, rows, 1, half))

    cos, sin = angles(cos_cache), angles(sin_cache)
    turned, rest = y.narrow(3, 0, width), y.narrow(3, width, d - width)
    if interleaved:
        pairs = reshaped(turned, (batch, rows, heads, half, 2))
        first, second = (reshaped(pairs.narrow(4, i, 1), (batch, rows, heads, half)) for i in (0, 1))
    else:
        first, second = turned.narrow(3, 0, half), turned.narrow(3, half, half)
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        both = [reshaped(part, (batch, rows, heads, half, 1)) for part in (real, imaginary)]
        turned = reshaped(Tensor.cat(both, 4), (batch, rows, heads, width))
    else:
        turned = Tensor.cat([real, imaginary], 3)
    y = Tensor.cat([turned, rest], 3) if width < d else turned
    return ops.permute(y, axes=(0, 2, 1, 3)) if x.ndim == 4 else reshaped(y, x.shape)


# -- losses -------------------------------------------------------------------------------------------------
def _loss(log_p: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str) -> Tensor:
    classes = log_p.shape[1]
    rest = math.prod(log_p.shape[2:])
    flat = reshaped(log_p, (log_p.shape[0], classes, rest))
    wanted = reshaped(target.cast(DType.I64), (log_p.shape[0], 1, rest))
    ignored = None if ignore_index is None else wanted.equal(ignore_index)
    safe = wanted if ignored is None else wanted.mask_fill(ignored, 0)
    safe = safe.mask_where(safe.lower(0), safe + classes)
    loss = -ops.gather(flat, safe, dim=1)
    share = full(loss.shape, 1.0, loss)
    if weight is not None:
        share = reshaped(ops.select(weight, reshaped(safe, (safe.num_elements(),)), dim=0), loss.shape)
    if ignored is not None:
        share = share.mask_fill(ignored, 0.0)
    loss = loss * share
    if reduction == "none":
        return reshaped(loss, target.shape)
    total: Tensor = reshaped(ops.sum(loss, dims=(0, 1, 2)), ())
    if reduction == "sum":
        return total
    if reduction != "mean":
        raise malformed("no such reduction", given=repr(reduction), expected="none, sum, mean")
    return total / reshaped(ops.sum(share, dims=(0, 1, 2)), ())


@operator("NegativeLogLikelihoodLoss", 12)
def negative_log_likelihood_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Tensor:
    """Minus the log probability of each target, weighted by class."""
    return _loss(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", 12)
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Outputs:
    """The cross entropy of scores and labels; the log probabilities as second output."""
    log_p = ops.log_softmax(scores, dim=1)
    loss = _loss(log_p, labels, weights, ignore_index, reduction)
    return loss if outputs == 1 else (loss, log_p)
