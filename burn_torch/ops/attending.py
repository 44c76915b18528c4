"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import TypeAlias

from burn_torch.core.dtype import BOOL, FLOAT
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.attending_torch import torch_attention, torch_attention_backward
from burn_torch.ops.comparison import equal, greater
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.functions import exp
from burn_torch.ops.moments import alive, check_statistics, like, statistics_of, widened
from burn_torch.ops.op import Candidate, PerCall, op
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.reductions import logsumexp, sum
from burn_torch.ops.rules import alike, same_dtype, sum_to
from burn_torch.ops.samples import Sample, booleans, sample, uniform
from burn_torch.ops.selection import clamp_max, mask_where
from burn_torch.ops.shapes import expand, reshape, triu
from burn_torch.ops.signature import Number, Operand
from burn_torch.ops.trigonometry import tanh
from burn_torch.ops.value import Primitive, Value


# -- what the rows share ------------------------------------------------------------------------------------
def _fits(shape: Shape, scores: Shape) -> bool:
    # whether it broadcasts to the scores
    return len(shape) <= 4 and all(a in (1, b) for a, b in zip(shape[::-1], scores[::-1], strict=False))


def check_operands(query: TensorSpec, key: TensorSpec, value: TensorSpec, **added: TensorSpec | None) -> None:
    """Raises faults unless the operands fit together, and what is added to the scores fits these."""
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
    for name, spec in added.items():
        if spec is not None and not _fits(spec.shape, scores):
            raise shape_fault(
                f"{name} does not fit the scores",
                expected=f"{name} that broadcasts to (batch, heads, seq_q, seq_k), here {scores}",
                mend="insert axes of size 1 with unsqueeze_dim",
            )


def without_pairs(query: Value, key: Value, value: Value) -> bool:
    """Tells if there is nothing to compute."""
    return query.spec.numel == 0 or key.spec.numel == 0 or value.spec.numel == 0


def _grouped_shape(query: Value, key: Value) -> tuple[int, int, int]:
    # neighbouring query heads that share a key head stand as one longer sequence: keys and values are not repeated
    batch, heads, seq_q, _ = query.shape
    return (batch, key.shape[1], heads // key.shape[1] * seq_q)


def _scores(
    query: Value,
    key: Value,
    mask: Value | None,
    bias: Value | None,
    scale: Value,
    softcap: Value | None,
    *,
    causal: bool,
    offset: int,
) -> tuple[Primitive, ...]:
    # the scores, and what the softcap's tanh gave
    batch, heads, seq_q, d_head = query.shape
    seq_k = key.shape[2]
    scores = matmul(reshape(query, shape=(*_grouped_shape(query, key), d_head)), transposed(key)) * scale
    scores = reshape(scores, shape=(batch, heads, seq_q, seq_k))
    turned = None
    if softcap is not None:
        turned = tanh(scores / softcap)
        scores = turned * softcap
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = mask_where(scores, expand(mask, shape=scores.shape), -math.inf)
    if causal:
        future = greater(triu(query.new_full((seq_q, seq_k), 1.0), diagonal=offset + 1), 0.0)
        scores = mask_where(scores, expand(future, shape=scores.shape), -math.inf)
    return scores, turned


def _weights(scores: Value, lse: Value) -> Value:
    # what exp(scores) is to its sum: 0 in the rows of a query that sees nothing, whose lse is 0
    return exp(_beside(scores, lse))


def _beside(scores: Value, lse: Value) -> Value:
    return widened(scores) - expand(reshape(lse, shape=(*lse.shape, 1)), shape=scores.shape)


_Draw: TypeAlias = Candidate | None
"""How an operand of a sample is drawn; None where the sample has none."""

_ON_GPUS = ((1, 2, 9, 8),) * 3
"""Shapes that the kernels of GPUs take."""


# -- attention ----------------------------------------------------------------------------------------------
def _samples() -> list[Sample]:
    def case(
        q: Shape, k: Shape, v: Shape, mask: _Draw = None, bias: _Draw = None, softcap: float | None = None, **attrs: int
    ) -> Sample:
        drawn = [uniform(-1, 1, shape) for shape in (q, k, v)]
        return sample(*drawn, mask, bias, 0.5, softcap, **{"causal": False, **attrs})

    q, k, v = (2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 7)
    return [
        case(q, k, v),
        case(q, k, v, booleans((2, 4, 3, 6)), uniform(-1, 1, (2, 4, 3, 6)), 1.5),
        case(q, k, v, booleans((1, 1, 1, 6)), uniform(-1, 1, (4, 3, 6))),
        case(q, (2, 2, 6, 5), (2, 2, 6, 7), softcap=2.0, causal=True, offset=3),
        case(q, (2, 1, 6, 5), (2, 1, 6, 7), causal=True),
        case(*_ON_GPUS, causal=True),
        case(*_ON_GPUS, booleans((1, 1, 9, 9))),
        case((1, 2, 4, 3), (1, 2, 2, 3), (1, 2, 2, 3), causal=True, offset=-2),
        case((0, 2, 3, 5), (0, 2, 4, 5), (0, 2, 4, 5)),
        case((1, 2, 3, 5), (1, 2, 0, 5), (1, 2, 0, 4)),
    ]


@op(
    torch=PerCall(torch_attention),
    packed="dense",
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
) -> tuple[TensorSpec, TensorSpec]:
    """The values that each query reads, softmax(scores) @ value, and lse, the logarithm of sum(exp(scores)).

        scores = query @ key^T * scale
        scores = softcap * tanh(scores / softcap)     if there is a softcap
        scores = scores + bias                        if there is a bias
        scores = -inf                                 where mask is true, or causal and column > row + offset

    Fewer heads of key and value than of query are shared: query head h reads head h // (heads / key_heads).
    A query that sees nothing (masked everywhere, or no keys at all) reads zeros, has an lse of 0 and gets no gradient.
    torch's kernels never write the scores to memory: the backward computes them again, and lse is all that it needs.

    Shapes: query (batch, heads, seq_q, d_head), key (batch, key_heads, seq_k, d_head), value (batch, key_heads,
    seq_k, d_value); mask and bias broadcast to (batch, heads, seq_q, seq_k) -> (batch, heads, seq_q, d_value), lse
    (batch, heads, seq_q).
    Dtypes: float, all the same, lse of half types float32; mask is bool, true where a key is hidden.  softcap is a
    number above 0, or None.
    PyTorch: torch.nn.functional.scaled_dot_product_attention, whose mask is true where a key is seen.
    """
    same_dtype(query.require(FLOAT), key, value, bias)
    if mask is not None:
        mask.require(BOOL)
    if softcap is not None and not isinstance(softcap, NumberSpec):
        raise dtype_fault("softcap is a tensor", expected="softcap: a number or None", mend="pass a Python number")
    check_operands(query, key, value, mask=mask, bias=bias)
    return query.with_shape((*query.shape[:3], value.shape[3])), statistics_of(query, query.shape[:3])


@attention.gradient
def _(g, y, query, key, value, mask, bias, scale, softcap, *, causal, offset):
    if g[0] is None or g[1] is not None:
        return NotImplemented
    if without_pairs(query, key, value):
        return (None,) * 7
    live = (True,) * (3 if bias is None else 4)
    inputs = (g[0], query, key, value, *y, mask, bias, scale, softcap)
    gradients = attention_backward(*inputs, causal=causal, offset=offset, live=live)
    return *gradients[:3], None, None if bias is None else gradients[3], None, None


@attention.decomposes
def _(query, key, value, mask, bias, scale, softcap, *, causal, offset):
    batch, heads, seq_q, _ = query.shape
    seq_k, d_value = key.shape[2:3] + value.shape[3:]
    if without_pairs(query, key, value):
        y, lse = (query.new_full(shape, 0.0) for shape in ((batch, heads, seq_q, d_value), (batch, heads, seq_q)))
        return y, widened(lse)
    scores, _ = _scores(query, key, mask, bias, scale, softcap, causal=causal, offset=offset)
    lse = logsumexp(widened(scores), dims=(3,))
    if not (bias is None and mask is None and not (causal and offset < 0)):  # a query may see nothing
        lse = mask_where(lse, equal(lse, -math.inf), 0.0)
    lse = reshape(lse, shape=(batch, heads, seq_q))
    weights = like(value, _weights(scores, lse))
    context = matmul(reshape(weights, shape=(*_grouped_shape(query, key), seq_k)), value)
    return reshape(context, shape=(batch, heads, seq_q, d_value)), lse


# -- its backward -------------------------------------------------------------------------------------------
def _backward_samples() -> list[Sample]:
    def case(
        q: Shape, k: Shape, v: Shape, mask: _Draw = None, bias: _Draw = None, softcap: float | None = None, **attrs: int
    ) -> Sample:
        y = (*q[:3], v[3])
        drawn = [uniform(-1, 1, shape) for shape in (y, q, k, v, y)]
        settings = {"causal": False, **attrs} | ({"live": (True,) * 4} if bias is not None else {})
        return sample(*drawn, uniform(4, 5, q[:3]), mask, bias, 0.5, softcap, **settings)

    q, k, v = (2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 7)
    return [
        case(q, k, v),
        case(q, k, k),
        case(q, k, k, booleans((2, 4, 3, 6))),
        case(q, k, v, booleans((1, 1, 1, 6)), causal=True, offset=3),
        case(q, (2, 2, 6, 5), (2, 2, 6, 5), causal=True),
        case(q, k, v, booleans((2, 4, 3, 6)), uniform(-1, 1, (4, 3, 6)), 1.5),
        case(q, k, k, None, uniform(-1, 1, (2, 1, 3, 6))),
        case(q, (2, 1, 6, 5), (2, 1, 6, 5), softcap=2.0, causal=True, offset=3),
        case(*_ON_GPUS, causal=True),
        case(*_ON_GPUS, booleans((1, 1, 9, 9))),
        case((1, 2, 4, 3), (1, 2, 2, 3), (1, 2, 2, 3), causal=True, offset=-2),
        case((0, 2, 3, 5), (0, 2, 4, 5), (0, 2, 4, 5)),
        case((1, 2, 3, 5), (1, 2, 0, 5), (1, 2, 0, 4)),
        case((1, 2, 3, 5), (1, 2, 0, 5), (1, 2, 0, 4), None, uniform(-1, 1, (2, 3, 1))),
    ]


@op(
    torch=PerCall(torch_attention_backward),
    packed="dense",
    precision="low",
    statistics=(5,),
    samples=_backward_samples(),
    source="Dao et al. 2022, algorithm 4, https://arxiv.org/abs/2205.14135",
)
def attention_backward(
    g: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    y: TensorSpec,
    lse: TensorSpec,
    mask: TensorSpec | None,
    bias: TensorSpec | None,
    scale: Number,
    softcap: Operand | None,
    *,
    causal: bool,
    offset: int = 0,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of query, key, value, and of a bias, from that of y; only those that `live` names are computed.

        p = exp(scores - lse)                        ds = p * (g @ value^T - sum(g * y))
        dbias = ds      dt = ds * (1 - tanh(t)^2) * scale, without a softcap ds * scale       dvalue = p^T @ g
        dquery = dt @ key      dkey = dt^T @ query

    Shapes: g, y (batch, heads, seq_q, d_value), lse (batch, heads, seq_q), the others as in `attention` -> those of
    query, key, value and, where there is one, bias.
    Dtypes: float, all the same, lse of half types float32; mask is bool; softcap is a number or None.
    """
    same_dtype(query.require(FLOAT), key, value, alike(g, y), bias)
    if mask is not None:
        mask.require(BOOL)
    check_operands(query, key, value, mask=mask, bias=bias)
    expected = (*query.shape[:3], value.shape[3])
    if g.shape != expected:
        raise shape_fault("g does not fit query and value", expected=f"g and y {expected}", mend="pass that of y")
    check_statistics(query, query.shape[:3], lse)
    return alive(live, query, key, value, *(() if bias is None else (bias,)))


@attention_backward.decomposes
def _(g, query, key, value, y, lse, mask, bias, scale, softcap, *, causal, offset, live):
    if without_pairs(query, key, value):
        inputs = (query, key, value, *(() if bias is None else (bias,)))
        return tuple(x.new_full(x.shape, 0.0) if used else None for x, used in zip(inputs, live, strict=True))
    scores, turned = _scores(query, key, mask, bias, scale, softcap, causal=causal, offset=offset)
    shared, seq_k = _grouped_shape(query, key), key.shape[2]
    # 0 at most, but scores of 1e19 that are computed again may lie hundreds above those of lse: exp would be infinite
    weights = exp(clamp_max(_beside(scores, lse), 1.0))
    upstream = reshape(g, shape=(*shared, value.shape[3]))
    dquery = dkey = dvalue = dbias = None
    bias_too = bias is not None and live[3]
    if live[0] or live[1] or bias_too:
        rise = reshape(widened(matmul(upstream, transposed(value))), shape=scores.shape)
        slopes = weights * (rise - sum(widened(g) * widened(y), dims=(3,)))
        if bias_too:
            dbias = like(bias, sum_to(slopes, bias))
        if turned is not None:
            turned = widened(turned)
            slopes = slopes * (1.0 - turned * turned)
        slopes = reshape(like(query, slopes * scale), shape=(*shared, seq_k))
        if live[0]:
            dquery = reshape(matmul(slopes, key), shape=query.shape)
        if live[1]:
            dkey = matmul(transposed(slopes), reshape(query, shape=(*shared, query.shape[3])))
    if live[2]:
        dvalue = matmul(transposed(reshape(like(value, weights), shape=(*shared, seq_k))), upstream)
    return dquery, dkey, dvalue, *(() if bias is None else (dbias,))
