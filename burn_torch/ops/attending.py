"""Scaled dot-product attention."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from burn_torch.core.dtype import BOOL, FLOAT
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.comparison import equal, greater
from burn_torch.ops.functions import tanh
from burn_torch.ops.op import Call, Number, Operand, PerCall, dtype_fault, op, shape_fault
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.reductions import amax
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Sample, booleans, sample, uniform
from burn_torch.ops.selection import mask_where
from burn_torch.ops.shapes import expand, reshape, triu
from burn_torch.ops.softmaxes import softmax

# -- torch ------------------------------------------------------------------------------------------------


def _torch_attention(call: Call):
    query, key = call.specs[0], call.specs[1]
    assert isinstance(query, TensorSpec)
    assert isinstance(key, TensorSpec)
    result = call.results[0]
    if result.numel == 0 or key.numel == 0:
        return lambda query, *others: query.new_zeros(result.shape)
    seq_q, seq_k, heads, key_heads = query.shape[2], key.shape[2], query.shape[1], key.shape[1]
    causal, offset = call.attrs["causal"], call.attrs["offset"]
    masked, biased, capped = (spec is not None for spec in (call.specs[3], call.specs[4], call.specs[6]))
    grouped = heads != key_heads
    if not (masked or biased or capped) and (not causal or offset == 0):
        # with the diagonal visible to every row no row is fully masked, so torch's kernels mean the same
        return lambda query, key, value, mask, bias, scale, softcap: functional.scaled_dot_product_attention(
            query, key, value, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    minus_infinity = -math.inf

    def hidden(query, mask):
        # what no row may see, as one mask that broadcasts to the scores
        if not causal:
            return mask
        future = torch.ones(seq_q, seq_k, dtype=torch.bool, device=query.device).triu_(offset + 1)
        return future if mask is None else mask | future

    def run(query, key, value, mask, bias, scale, softcap):
        mask, bias = (None if x is None else torch.atleast_2d(x) for x in (mask, bias))
        added = None
        shut = hidden(query, mask)
        if bias is not None:
            added = bias if shut is None else torch.where(shut, minus_infinity, bias)
        dead = None if shut is None and added is None else (shut if added is None else added == minus_infinity)
        dead = None if dead is None else dead.all(-1, keepdim=True)
        if softcap is None:
            y = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=added if added is not None else ~shut,
                scale=scale,
                enable_gqa=grouped,
            )
        else:
            if grouped:
                key, value = (x.repeat_interleave(heads // key_heads, 1) for x in (key, value))
            scores = torch.tanh(torch.matmul(query, key.transpose(2, 3)) * (scale / softcap)) * softcap
            if added is not None:
                scores = scores + added
            elif shut is not None:
                scores = scores.masked_fill_(shut, minus_infinity)
            y = torch.matmul(torch.softmax(scores, -1), value)
        return y if dead is None else torch.where(dead, 0.0, y)

    return run


def _fits(shape: Shape, scores: Shape) -> bool:
    # whether it broadcasts to the scores
    return len(shape) <= 4 and all(a in (1, b) for a, b in zip(shape[::-1], scores[::-1], strict=False))


# -- the row ------------------------------------------------------------------------------------------------
def _samples() -> list[Sample]:
    def case(q, k, v, mask=None, bias=None, softcap=None, **attrs) -> Sample:
        drawn = [uniform(-1, 1, shape) for shape in (q, k, v)]
        return sample(*drawn, mask, bias, 0.5, softcap, **{"causal": False, **attrs})

    q, k, v = (2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 7)
    return [
        case(q, k, v),
        case(q, k, v, booleans((2, 4, 3, 6)), uniform(-1, 1, (2, 4, 3, 6)), 1.5),
        case(q, k, v, booleans((1, 1, 1, 6)), uniform(-1, 1, (4, 3, 6))),
        case(q, (2, 2, 6, 5), (2, 2, 6, 7), softcap=2.0, causal=True, offset=3),
        case(q, (2, 1, 6, 5), (2, 1, 6, 7), causal=True),
        case((1, 2, 4, 3), (1, 2, 2, 3), (1, 2, 2, 3), causal=True, offset=-2),
        case((0, 2, 3, 5), (0, 2, 4, 5), (0, 2, 4, 5)),
        case((1, 2, 3, 5), (1, 2, 0, 5), (1, 2, 0, 4)),
    ]


@op(
    torch=PerCall(_torch_attention),
    precision="low",
    samples=_samples(),
    source="Vaswani et al. 2017, equation 1, https://arxiv.org/abs/1706.03762",
)
def attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    mask: TensorSpec | None,
    bias: TensorSpec | None,
    scale: Number,
    softcap: Operand | None,
    *,
    causal: bool,
    offset: int = 0,
) -> TensorSpec:
    """What each query reads of the values: softmax(scores) @ value.

        scores = query @ key^T * scale
        scores = softcap * tanh(scores / softcap)     if there is a softcap
        scores = scores + bias                        if there is a bias
        scores = -inf                                 where mask is true, or causal and column > row + offset

    Fewer heads of key and value than of query are shared: query head h reads head h // (heads / key_heads).
    A query that sees nothing (masked everywhere, or no keys at all) reads zeros, and gets no gradient.

    Shapes: query (batch, heads, seq_q, d_head), key (batch, key_heads, seq_k, d_head), value (batch, key_heads,
    seq_k, d_value); mask and bias broadcast to (batch, heads, seq_q, seq_k) -> (batch, heads, seq_q, d_value).
    Dtypes: float, all the same; mask is bool, true where a key is hidden.  softcap is a number above 0, or None.
    PyTorch: torch.nn.functional.scaled_dot_product_attention, whose mask is true where a key is seen.
    """
    same_dtype(query.require(FLOAT), key, value, bias)
    if mask is not None:
        mask.require(BOOL)
    if softcap is not None and not isinstance(softcap, NumberSpec):
        raise dtype_fault("softcap is a tensor", expected="softcap: a number or None", mend="pass a Python number")
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise shape_fault(
            "query, key and value need four axes",
            expected="(batch, heads, seq, d_head)",
            mend="insert axes with unsqueeze_dim, or split d_model with reshape and swap_dims",
        )
    batch, heads, seq_q, d_head = query.shape
    key_batch, key_heads, seq_k, d_key = key.shape
    if key.shape[:3] != value.shape[:3] or key_batch != batch or d_key != d_head or d_head == 0:
        raise shape_fault(
            "query, key and value do not fit together",
            expected="one batch; one d_head, above 0, of query and key; one number of heads and of positions of key "
            "and value",
            mend="check the projections that made them",
        )
    if key_heads == 0 or heads % key_heads:
        raise shape_fault(
            f"{heads} query heads cannot share {key_heads} key heads",
            expected="a number of key heads that divides the number of query heads",
            mend="choose n_heads_kv among the divisors of n_heads",
        )
    scores = (batch, heads, seq_q, seq_k)
    for name, spec in (("mask", mask), ("bias", bias)):
        if spec is not None and not _fits(spec.shape, scores):
            raise shape_fault(
                f"{name} does not fit the scores",
                expected=f"{name} that broadcasts to (batch, heads, seq_q, seq_k), here {scores}",
                mend="insert axes of size 1 with unsqueeze_dim",
            )
    return query.with_shape((batch, heads, seq_q, value.shape[3]))


@attention.decomposes
def _(query, key, value, mask, bias, scale, softcap, *, causal, offset):
    batch, heads, seq_q, d_head = query.shape
    key_heads, seq_k, d_value = key.shape[1], key.shape[2], value.shape[3]
    if query.spec.numel == 0 or key.spec.numel == 0 or d_value == 0:
        return query.new_full((batch, heads, seq_q, d_value), 0.0)
    # neighbouring query heads that share a key head stand as one longer sequence: keys and values are not repeated
    shared = (batch, key_heads, heads // key_heads * seq_q)
    scores = matmul(reshape(query, shape=(*shared, d_head)), transposed(key)) * scale
    scores = reshape(scores, shape=(batch, heads, seq_q, seq_k))
    if softcap is not None:
        scores = tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = mask_where(scores, expand(mask, shape=scores.shape), -math.inf)
    if causal:
        future = greater(triu(query.new_full((seq_q, seq_k), 1.0), diagonal=offset + 1), 0.0)
        scores = mask_where(scores, expand(future, shape=scores.shape), -math.inf)
    if bias is None and mask is None and not (causal and offset < 0):
        weights = softmax(scores, dim=3)
    else:  # a row without a visible key would be 0 / 0
        blind = expand(equal(amax(scores, dims=(3,)), -math.inf), shape=scores.shape)
        weights = mask_where(softmax(mask_where(scores, blind, 0.0), dim=3), blind, 0.0)
    context = matmul(reshape(weights, shape=(*shared, seq_k)), value)
    return reshape(context, shape=(batch, heads, seq_q, d_value))
