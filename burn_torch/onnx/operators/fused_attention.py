"""Attention of com.microsoft: products with the weights inside, packed inputs, caches, grouped heads, rotations."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.attending import repeat_heads, rotary_embedding
from burn_torch.onnx.operators.axes import Ints, constant, full, malformed, misfit, reshaped
from burn_torch.onnx.operators.fused import microsoft
from burn_torch.onnx.operators.products import product
from burn_torch.onnx.operators.registry import Host, Outputs
from burn_torch.tensor import Tensor

__all__ = [
    "gated_relative_position_bias", "group_query_attention", "ms_attention", "ms_rotary_embedding",
    "multi_head_attention", "relative_position_bias",
]  # fmt: skip

FILTER: Final = -10000.0
"""The number that is added to the scores of keys that a mask hides, unless the node says otherwise."""


# -- heads --------------------------------------------------------------------------------------------------------
def _split(x: Tensor, heads: int) -> Tensor:
    """(batch, rows, heads * d) as (batch, heads, rows, d)."""
    batch, rows, width = x.shape
    if not heads or width % heads:
        raise misfit("attention: the width is no multiple of the heads", given=f"{width} and {heads}", expected="one")
    return ops.permute(reshaped(x, (batch, rows, heads, width // heads)), axes=(0, 2, 1, 3))


def _join(x: Tensor) -> Tensor:
    """(batch, heads, rows, d) as (batch, rows, heads * d)."""
    batch, heads, rows, d = x.shape
    return reshaped(ops.permute(x, axes=(0, 2, 1, 3)), (batch, rows, heads * d))


def _scores(q: Tensor, k: Tensor, scale: float | None) -> Tensor:
    products: Tensor = ops.matmul(q, k.transpose())
    return products * (scale or 1.0 / math.sqrt(max(q.shape[-1], 1)))


def _after_past(x: Tensor, past: Tensor | None) -> Tensor:
    return x if past is None else Tensor.cat([past, x], 2)


# -- masks --------------------------------------------------------------------------------------------------------
def _hide_keys(seen: Tensor, like: Tensor, value: float) -> Tensor:
    """0 where a key is seen, else a number that is added to its score."""
    return full(seen.shape, value, like).mask_fill(seen, 0.0)


def _key_mask(mask: Tensor, batch: int, rows: int, columns: int) -> Tensor:
    """The keys that a mask shows, in a shape that broadcasts to (batch, heads, rows, columns).

    A mask has a truth for each key, of all queries or of each, or the lengths of the samples: where their keys end,
    and where they begin.
    """
    shown = mask.greater(0) if mask.dtype is not DType.BOOL else mask
    if mask.shape == (batch, columns) and mask.ndim == 2:
        return reshaped(shown, (batch, 1, 1, columns))
    if mask.ndim == 3:
        return reshaped(shown, (mask.shape[0], 1, *mask.shape[1:]))
    if mask.ndim == 4 and mask.shape[2] >= columns:  # (batch, 1, longest, longest), as GPT-2 has it
        return shown.narrow(2, columns - rows, rows).narrow(3, 0, columns)
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch, 3 * batch + 2):
        place = constant(np.arange(columns), mask.device, DType.I64)
        seen: Tensor = place.lower(reshaped(mask.narrow(0, 0, batch).cast(DType.I64), (batch, 1, 1, 1)))
        if mask.shape[0] == 2 * batch:
            start = reshaped(mask.narrow(0, batch, batch).cast(DType.I64), (batch, 1, 1, 1))
            seen = seen.bool_and(place.greater_equal(start))
        return seen
    raise misfit(
        "attention: the mask has no shape that is known",
        given=f"{mask.shape} for {batch} samples, {rows} queries and {columns} keys",
        expected="(samples, keys), (samples, queries, keys), (samples,) or (2 * samples,)",
    )


def _causal(like: Tensor, rows: int, columns: int) -> Tensor:
    """The lowest number where a key comes after its query; queries are the last ones."""
    later = np.arange(columns) > np.arange(rows)[:, None] + (columns - rows)
    return constant(np.where(later, np.finfo(np.float32).min, 0.0), like.device, DType.F32).cast(like.dtype)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    *,
    scale: float | None,
    filter_value: float,
    causal: int,
) -> tuple[Tensor, Tensor]:
    """The values that heads of queries read, side by side, and the scores before their softmax."""
    rows, columns = q.shape[2], k.shape[2]
    scores = _scores(q, k, scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores + _hide_keys(_key_mask(mask, q.shape[0], rows, columns), q, filter_value)
    if causal and rows > 1:
        scores = scores + _causal(q, rows, columns)
    return _join(ops.matmul(ops.softmax(scores, dim=3), v)), scores


def attention_of(
    products: Tensor,
    mask: Tensor | None,
    past: Tensor | None,
    bias: Tensor | None,
    *,
    heads: int,
    sizes: Ints | None,
    scale: float | None,
    filter_value: float,
    causal: int,
    rotary: int,
    outputs: int,
) -> Outputs:
    """Attention over queries, keys and values that lie side by side; the cache as second output."""
    if rotary:
        raise malformed("Attention: do_rotary is not supported", given=f"do_rotary {rotary}", expected="0")
    width = products.shape[-1]
    widths = sizes or (width // 3,) * 3
    parts = ops.split(products, sizes=tuple(widths), dim=2)
    q, k, v = (_split(part, heads) for part in parts)
    if past is not None:
        before = [reshaped(past.narrow(0, i, 1), past.shape[1:]) for i in (0, 1)]
        k, v = _after_past(k, before[0]), _after_past(v, before[1])
    y, _ = _attend(q, k, v, mask, bias, scale=scale, filter_value=filter_value, causal=causal)
    return y if outputs == 1 else (y, Tensor.stack([k, v], 0))


@microsoft("Attention")
def ms_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Ints | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Attention of a sequence to itself; one product gives queries, keys and values."""
    if past_present_share_buffer or past_sequence_length is not None:
        raise _refuse_shared_cache("Attention")
    products = product(x, weights)
    return attention_of(
        products if bias is None else products + bias,
        mask_index,
        past,
        attention_bias,
        heads=num_heads,
        sizes=qkv_hidden_sizes,
        scale=scale,
        filter_value=mask_filter_value,
        causal=unidirectional,
        rotary=do_rotary,
        outputs=outputs,
    )


def _refuse_shared_cache(op: str) -> OnnxError:
    return malformed(
        f"{op}: a cache that is written in place is not supported",
        given="past_present_share_buffer, or past_sequence_length",
        expected="a cache that grows",
    )


@microsoft("MultiHeadAttention")
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    mask_filter_value: float = FILTER,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Attention over queries, keys and values, whose products are outside; keys and values may come in heads."""
    if past_sequence_length is not None or cache_indirection is not None:
        raise _refuse_shared_cache("MultiHeadAttention")
    q, k, v = _unpack_heads(query, key, value, num_heads)
    if bias is not None:
        widths = [part.shape[1] * part.shape[3] for part in (q, v)]
        biases = ops.split(bias, sizes=(widths[0], widths[0], widths[1]), dim=0)
        apart = [reshaped(b, (1, num_heads, 1, b.shape[0] // num_heads)) for b in biases]
        own = key is None or key.ndim != 4 or query.ndim == 5
        q = q + apart[0]
        k, v = (k + apart[1], v + apart[2]) if own else (k, v)
    k, v = _after_past(k, past_key), _after_past(v, past_value)
    y, scores = _attend(
        q, k, v, key_padding_mask, attention_bias,
        scale=scale, filter_value=mask_filter_value, causal=unidirectional,
    )  # fmt: skip
    return y if outputs == 1 else (y, k, v, scores)[:outputs]


def _unpack_heads(query: Tensor, key: Tensor | None, value: Tensor | None, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as heads, from the forms in which they may be packed."""

    def inside(x: Tensor, i: int) -> Tensor:  # (batch, rows, heads, parts, d)
        batch, rows, own, _, d = x.shape
        return ops.permute(reshaped(x.narrow(3, i, 1), (batch, rows, own, d)), axes=(0, 2, 1, 3))

    if query.ndim == 5:
        return inside(query, 0), inside(query, 1), inside(query, 2)
    q = _split(query, heads)
    if key is not None and key.ndim == 5:
        return q, inside(key, 0), inside(key, 1)
    if key is None or value is None:
        raise malformed("MultiHeadAttention: keys or values are missing", given="neither", expected="both")
    return q, key if key.ndim == 4 else _split(key, heads), value if value.ndim == 4 else _split(value, heads)


# -- grouped heads ------------------------------------------------------------------------------------------------
@microsoft("RotaryEmbedding")
def ms_rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Pairs of features turned by angles that depend on the position, of each element or of the first one."""
    if scale != 1.0 or is_packed_batching:
        raise malformed(
            "RotaryEmbedding: this form is not supported",
            given=f"scale {scale}, is_packed_batching {is_packed_batching}",
            expected="scale 1.0, is_packed_batching 0",
        )
    batch, rows = (x.shape[0], x.shape[2]) if x.ndim == 4 else x.shape[:2]
    places = position_ids
    if position_ids.num_elements() == 1 and position_ids.ndim == 1:
        steps = constant(np.arange(rows)[None], x.device, DType.I64)
        places = ops.expand(reshaped(position_ids, (1, 1)) + steps, shape=(batch, rows))
    width = rotary_embedding_dim or 2 * cos_cache.shape[1]
    heads = num_heads or (x.shape[2] // width if x.ndim == 3 else 0)
    y: Tensor = rotary_embedding.function(
        x, cos_cache, sin_cache, places,
        interleaved=interleaved, num_heads=heads, rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip
    return y


@microsoft("GroupQueryAttention")
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Host,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    outputs: int = 1,
) -> Outputs:
    """Causal attention whose heads of queries share heads of keys and values, with a cache of each sample's length.

    `seqlens_k` is how many keys each sample has in all, less 1; a sample's own come behind those of its cache.
    """
    q, k, v = _split_groups(query, key, value, num_heads, kv_num_heads)
    batch, _, rows, _ = q.shape
    total = int(total_sequence_length.reshape(-1)[0])
    known = reshaped(seqlens_k.cast(DType.I64), (batch, 1)) + 1
    before = known - rows if total != rows else full((batch, 1), 0, known)
    steps = constant(np.arange(rows)[None], q.device, DType.I64)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise malformed("GroupQueryAttention: do_rotary needs angles", given="no cache", expected="cos, sin")
        places = before + steps if position_ids is None else position_ids
        how = {"interleaved": rotary_interleaved, "rotary_embedding_dim": 2 * cos_cache.shape[1]}
        q, k = (rotary_embedding.function(x, cos_cache, sin_cache, places, **how) for x in (q, k))
    k, v = _in_cache(k, past_key, before, total), _in_cache(v, past_value, before, total)
    keys, values = (repeat_heads(x.narrow(2, 0, min(total, x.shape[2])), num_heads) for x in (k, v))
    scores = _scores(q, keys, scale)
    if softcap > 0:
        scores = (scores / softcap).tanh() * softcap
    if attention_bias is not None:
        scores = scores + attention_bias.narrow(3, 0, keys.shape[2])
    place = constant(np.arange(keys.shape[2]), q.device, DType.I64)
    query_place = reshaped(before + steps, (batch, 1, rows, 1))
    seen = place.lower_equal(query_place)
    if local_window_size > 0:
        seen = seen.bool_and(place.greater(query_place - local_window_size))
    scores = scores + _hide_keys(seen, q, -math.inf)
    weights = _softmax(scores, head_sink, bool(smooth_softmax))
    y = _join(ops.matmul(weights, values))
    return y if outputs == 1 else (y, k, v)[:outputs]


def _softmax(scores: Tensor, sink: Tensor | None, smooth: bool) -> Tensor:
    """Softmax over the keys, with a score in the sum that no key has: of each head, or 0."""
    if sink is None and not smooth:
        return ops.softmax(scores, dim=3)
    batch, heads, rows, columns = scores.shape
    one = full((1, heads, 1, 1), 0.0, scores) if sink is None else reshaped(sink, (1, heads, 1, 1))
    both = Tensor.cat([scores, ops.expand(one, shape=(batch, heads, rows, 1))], 3)
    return ops.softmax(both, dim=3).narrow(3, 0, columns)


def _split_groups(
    query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, own: int
) -> tuple[Tensor, Tensor, Tensor]:
    if key is not None and value is not None:
        return _split(query, heads), _split(key, own), _split(value, own)
    d = query.shape[2] // (heads + 2 * own)
    q, k, v = ops.split(query, sizes=(heads * d, own * d, own * d), dim=2)
    return _split(q, heads), _split(k, own), _split(v, own)


def _in_cache(x: Tensor, past: Tensor | None, before: Tensor, total: int) -> Tensor:
    """Keys or values of each sample behind those of its cache, which may be longer than what it holds."""
    batch, heads, rows, d = x.shape
    held = 0 if past is None else past.shape[2]
    both = x if past is None else Tensor.cat([past, x], 2)
    length = max(held, total)
    place = constant(np.arange(length)[None], x.device, DType.I64)
    taken = ops.mask_where(place - before + held, place.lower(before), place + full(before.shape, 0, before))
    at = ops.clamp(taken, 0, held + rows - 1)
    index = ops.expand(reshaped(at, (batch, 1, length, 1)), shape=(batch, heads, length, d))
    empty = reshaped(place.greater_equal(before + rows), (batch, 1, length, 1))
    return ops.gather(both, index, dim=2).mask_fill(ops.expand(empty, shape=index.shape), 0.0)


# -- biases of the distance -----------------------------------------------------------------------------------------
@microsoft("RelativePositionBias")
def relative_position_bias(
    table: Tensor, query_length: Host, key_length: Host, *, is_bidirectional: int = 0, max_distance: int
) -> Tensor:
    """The bias of each head for the distance of a key from its query, from a table of (buckets, heads).

    Near distances have a bucket each, far ones share them by the logarithm of the distance.
    Source: Raffel et al. 2019, https://arxiv.org/abs/1910.10683, section 2.1.
    """
    buckets, heads = table.shape
    rows, columns = (int(n.reshape(-1)[0]) for n in (query_length, key_length))
    ahead = np.arange(columns)[None] - np.arange(rows)[:, None]
    offset = np.zeros_like(ahead)
    if is_bidirectional:
        buckets //= 2
        offset = np.where(ahead > 0, buckets, 0)
        distance = np.abs(ahead)
    else:
        distance = np.maximum(-ahead, 0)
    near = buckets // 2
    far = np.log(np.maximum(distance, 1) / max(near, 1)) / math.log(max_distance / max(near, 1)) * (buckets - near)
    bucket = offset + np.where(distance < near, distance, np.minimum(near + far.astype(np.int64), buckets - 1))
    taken = ops.select(table, constant(bucket.reshape(-1), table.device, DType.I64), dim=0)
    return ops.permute(reshaped(taken, (1, rows, columns, heads)), axes=(0, 3, 1, 2))


@microsoft("GatedRelativePositionBias")
def gated_relative_position_bias(
    query_layer: Tensor,
    query_bias: Tensor,
    rel_pos: Tensor,
    weight: Tensor,
    bias: Tensor,
    eco_a: Tensor,
    token_offset: Tensor | None = None,
    *,
    num_heads: int,
) -> Tensor:
    """A bias of positions times a gate of each query."""
    if token_offset is not None:
        raise malformed(
            "GatedRelativePositionBias: packed tokens are not supported",
            given="token_offset",
            expected="(batch, rows, width) without it",
        )
    q = _split(query_layer + query_bias, num_heads)
    batch, heads, rows, _ = q.shape
    d = weight.shape[-1]
    sums = ops.sum(reshaped(product(q, weight) + bias, (batch, heads, rows, 2, d // 2)), dims=(4,))
    gates = ops.sigmoid(reshaped(sums, (batch, heads, rows, 2)))
    first, second = gates.narrow(3, 0, 1), gates.narrow(3, 1, 1)
    return (first * (second * eco_a - 1.0) + 2.0) * rel_pos
