"""Attention whose scores a function of the user's changes or hides: the function becomes part of attention's kernel.

The functions are attributes, as Graphs of scalars (`body/scalars.py`).  Kernels that hold them visit only the
blocks of keys that some query sees, which `attention_blocks` lists.  Without such a kernel these rows are computed on
the scores of all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.fusion.body.scalars import walk
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.rows.scores import Dense, indices_of
from burn_torch.ops import attending
from burn_torch.ops.arithmetic import mul
from burn_torch.ops.comparison import equal, lower
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.functions import exp
from burn_torch.ops.logic import bool_not
from burn_torch.ops.moments import alive, check_statistics, like, statistics_of, widened
from burn_torch.ops.op import op
from burn_torch.ops.order import sort_with_indices
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.reductions import logsumexp, sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.selection import cast as cast_to
from burn_torch.ops.selection import clamp_max, mask_where
from burn_torch.ops.shapes import expand, permute, reshape
from burn_torch.ops.signature import Number
from burn_torch.ops.slicing import cat, pad
from burn_torch.ops.value import Primitive, Value

__all__ = ["attention", "attention_backward", "attention_blocks", "blocks_of", "listed"]


# -- blocks ------------------------------------------------------------------------------------------------
def listed(blocks: int) -> int:
    """Numbers of a line of a list: how many blocks are seen whole, how many in part, and all in this order."""
    return blocks + 2


def blocks_of(length: int, block: int) -> int:
    """Blocks that cover a sequence."""
    return -(-length // block)


@op(namespace="fusion", cost="expensive", nondifferentiable=True, samples=())
def attention_blocks(
    first: TensorSpec, *captured: TensorSpec, seen: str, sizes: Shape, block: int
) -> tuple[TensorSpec, TensorSpec]:
    """The blocks of keys that some query of a block sees, and the blocks of queries that see some key of a block.

    A line of either list begins with the number of blocks of which all pairs are seen, and the number of those of which
    some are; then come the first, then the second, then the others.  Positions past the end of a sequence are not seen
    as keys, and do not count as queries.

    first     any tensor: it says where the lists lie
    captured  what the function reads
    seen      the function, see `body/scalars.py`
    sizes     batch entries and heads, 1 where the function does not depend on them, queries and keys
    Shapes: -> (batch, heads, query blocks, key blocks + 2), (batch, heads, key blocks, query blocks + 2).
    Dtypes: i32.
    """
    batch, heads, seq_q, seq_k = sizes
    lines, columns = blocks_of(seq_q, block), blocks_of(seq_k, block)
    shapes = (batch, heads, lines, listed(columns)), (batch, heads, columns, listed(lines))
    return cast(tuple[TensorSpec, TensorSpec], tuple(TensorSpec.of(shape, DType.I32, first.place) for shape in shapes))


@attention_blocks.decomposes
def _(first: Value, *captured: Value, seen: str, sizes: Shape, block: int) -> tuple[Value, Value]:
    truth = expand(_truth(first, captured, seen, sizes), shape=sizes)
    batch, heads, seq_q, seq_k = sizes
    lines, columns = blocks_of(seq_q, block), blocks_of(seq_k, block)
    missing = ((0, 0), (0, 0), (0, lines * block - seq_q), (0, columns * block - seq_k))
    number = cast_to(truth, dtype=DType.I32)
    count = pad(number, 0, padding=missing, mode="constant")
    count = sum(reshape(count, shape=(batch, heads, lines, block, columns, block)), dims=(3, 5))
    count = reshape(count, shape=(batch, heads, lines, columns))
    # rows past the end want nothing, so a block is whole if those that are there see each of its keys
    there = reshape(indices_of(first, (1, 1, lines, 1))[2], shape=(1, 1, lines, 1))
    rows = clamp_max(there * -block + seq_q, block)
    kind = mask_where(cast_to(equal(count, 0), dtype=DType.I32) * 2, lower(count, rows * block), 1)
    kind = mask_where(kind, equal(count, 0), 2)
    return _list(kind), _list(permute(kind, axes=(0, 1, 3, 2)))


def _list(kind: Value) -> Value:
    """Lines of a list, of 0 for blocks seen whole, 1 for those seen in part, 2 for others."""
    counts = [sum(cast_to(equal(kind, n), dtype=DType.I32), dims=(3,)) for n in (0, 1)]
    order = cast_to(sort_with_indices(kind, dim=3, descending=False)[1], dtype=DType.I32)
    return cast(Value, cat(*counts, order, dim=3))


def _truth(first: Value, captured: Sequence[Value], seen: str, sizes: Shape) -> Value:
    (truth,) = walk(body_of(seen), indices_of(first, sizes), Dense(first, captured))
    assert truth is not None
    return truth


# -- attention ---------------------------------------------------------------------------------------------
def _check(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, sinks: TensorSpec | None, count: int, captured: int
) -> None:
    attending.check_operands(query, key, value)
    if sinks is not None and sinks.shape != (query.shape[1],):
        raise shape_fault(
            "sinks do not fit the query",
            expected=f"sinks ({query.shape[1]},), a number for each head of the query",
            mend="make one logit for each head",
        )
    assert 0 <= count <= captured, "the score function captures the first of all captured tensors"


@op(namespace="fusion", cost="expensive", packed="dense", samples=())
def attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    sinks: TensorSpec | None,
    lines: TensorSpec | None,
    columns: TensorSpec | None,
    scale: Number,
    *captured: TensorSpec,
    score: str,
    seen: str,
    count: int,
    block: int,
    learned: bool,
) -> tuple[TensorSpec, TensorSpec]:
    """As `attention` of the table, with scores that functions change and hide.

        scores = score(query @ key^T * scale, b, h, q, k)          in float32, or float64 of float64
        scores = -inf                                              where seen(b, h, q, k) is false
        lse = log(sum(exp(scores)) + exp(sink))                    y = exp(scores - lse) @ value

    sinks           logits of keys whose values are 0, one a head of the query
    lines, columns  what `attention_blocks` lists for `seen`, or None: nothing but speed depends on them
    captured        what the functions read: the first `count` the score function, the others the other one
    score, seen     the functions, see `body/scalars.py`; "" for none
    block           positions of a block of the lists
    learned         whether what the score function captures has a gradient

    A query that sees nothing reads zeros; its lse is that of its sink, 0 without one, and it gets no gradient.
    """
    same_dtype(query, key, value)
    _check(query, key, value, sinks, count, len(captured))
    return query.with_shape((*query.shape[:3], value.shape[3])), statistics_of(query, query.shape[:3])


@attention.gradient
def _(
    g: Sequence[Value | None], y: Sequence[Value], query: Value, key: Value, value: Value, sinks: Value | None,
    lines: Value | None, columns: Value | None, scale: Value, *captured: Value, **attrs: Primitive,
) -> object:  # fmt: skip
    if g[0] is None or g[1] is not None or attrs["learned"]:
        return NotImplemented
    inputs = (g[0], query, key, value, *y, lines, columns, scale, *captured)
    body = {name: attrs[name] for name in ("score", "seen", "count", "block")}
    gradients = attention_backward(*inputs, **body, live=(True, True, True))
    dsinks = None
    if sinks is not None:  # the weight of a sink, whose value is 0: its slope is weight * (0 - sum(g * y))
        lse = y[1]
        weight = exp(expand(reshape(widened(sinks), shape=(1, lse.shape[1], 1)), shape=lse.shape) - lse)
        risen = reshape(sum(widened(g[0]) * widened(y[0]), dims=(3,)), shape=lse.shape)
        dsinks = like(sinks, reshape(sum(weight * risen, dims=(0, 2)), shape=sinks.shape) * -1.0)
    return (*gradients, dsinks, None, None, None, *[None for _ in captured])


class _Scores(NamedTuple):
    """The scores of all pairs, what is seen of them, and how each changes with the product; None for 1, or all."""

    scores: Value
    seen: Value | None
    slope: Value | None


def _scores_of(
    query: Value, key: Value, scale: Value, captured: Sequence[Value], score: str, seen: str, count: int
) -> _Scores:
    batch, heads, seq_q, d_head = query.shape
    key_heads, seq_k = key.shape[1:3]
    sizes = (batch, heads, seq_q, seq_k)
    shared = reshape(widened(query), shape=(batch, key_heads, heads // key_heads * seq_q, d_head))
    scores: Value = reshape(matmul(shared, transposed(widened(key))) * scale, shape=sizes)
    slope: Value | None = None
    if score:
        scalars = [scores, *indices_of(query, sizes)]
        changed, slope = walk(body_of(score), scalars, Dense(query, captured[:count]))
        assert changed is not None
        scores = expand(changed, shape=sizes)
    truth = expand(_truth(query, captured[count:], seen, sizes), shape=sizes) if seen else None
    return _Scores(scores, truth, slope)


@attention.decomposes
def _(
    query: Value, key: Value, value: Value, sinks: Value | None, lines: Value | None, columns: Value | None,
    scale: Value, *captured: Value, score: str, seen: str, count: int, block: int, learned: bool,
) -> tuple[Value, Value]:  # fmt: skip
    batch, heads, seq_q, _ = query.shape
    seq_k, d_value = key.shape[2], value.shape[3]
    if attending.without_pairs(query, key, value):
        y = query.new_full((batch, heads, seq_q, d_value), 0.0)
        lse = widened(query.new_full((batch, heads, seq_q), 0.0))
        return y, lse if sinks is None else lse + _beside(sinks, lse)
    if not score and sinks is None:  # torch has a kernel for a mask
        hidden = bool_not(_truth(query, captured, seen, (batch, heads, seq_q, seq_k))) if seen else None
        y, lse = attending.attention(query, key, value, hidden, None, scale, None, causal=False)
        return y, lse
    scores, truth, _ = _scores_of(query, key, scale, captured, score, seen, count)
    if truth is not None:
        scores = mask_where(scores, bool_not(truth), -math.inf)
    lse = reshape(logsumexp(scores, dims=(3,)), shape=(batch, heads, seq_q))
    if sinks is not None:
        both = [reshape(x, shape=(*lse.shape, 1)) for x in (lse, _beside(sinks, lse))]
        lse = reshape(logsumexp(cat(*both, dim=3), dims=(3,)), shape=lse.shape)
    lse = mask_where(lse, equal(lse, -math.inf), 0.0)
    weights = exp(scores - expand(reshape(lse, shape=(*lse.shape, 1)), shape=scores.shape))
    key_heads = key.shape[1]
    shared = reshape(weights, shape=(batch, key_heads, heads // key_heads * seq_q, seq_k))
    context = reshape(matmul(shared, widened(value)), shape=(batch, heads, seq_q, d_value))
    return like(query, context), lse


def _beside(sinks: Value, lse: Value) -> Value:
    return cast(Value, expand(reshape(widened(sinks), shape=(1, lse.shape[1], 1)), shape=lse.shape))


# -- its backward --------------------------------------------------------------------------------------------
@op(namespace="fusion", cost="expensive", packed="dense", samples=())
def attention_backward(
    g: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    y: TensorSpec,
    lse: TensorSpec,
    lines: TensorSpec | None,
    columns: TensorSpec | None,
    scale: Number,
    *captured: TensorSpec,
    score: str,
    seen: str,
    count: int,
    block: int,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of query, key and value; what a sink changes is in y and lse.  See `attention_backward` of the
    table, and `attention` here.
    """
    same_dtype(query, key, value, g, y)
    _check(query, key, value, None, count, len(captured))
    check_statistics(query, query.shape[:3], lse)
    return alive(live, query, key, value)


@attention_backward.decomposes
def _(
    g: Value, query: Value, key: Value, value: Value, y: Value, lse: Value, lines: Value | None, columns: Value | None,
    scale: Value, *captured: Value, score: str, seen: str, count: int, block: int, live: tuple[bool, ...],
) -> tuple[Value | None, ...]:  # fmt: skip
    operands = (query, key, value)
    if attending.without_pairs(*operands):
        return tuple(x.new_full(x.shape, 0.0) if used else None for x, used in zip(operands, live, strict=True))
    batch, heads, seq_q, d_head = query.shape
    key_heads, seq_k, d_value = key.shape[1], key.shape[2], value.shape[3]
    scores, truth, slope = _scores_of(query, key, scale, captured, score, seen, count)
    weights = exp(clamp_max(scores - expand(reshape(lse, shape=(*lse.shape, 1)), shape=scores.shape), 1.0))
    if truth is not None:
        weights = mask_where(weights, bool_not(truth), 0.0)
    shared = (batch, key_heads, heads // key_heads * seq_q)
    upstream = reshape(widened(g), shape=(*shared, d_value))
    dquery = dkey = dvalue = None
    if live[0] or live[1]:
        rise = reshape(matmul(upstream, transposed(widened(value))), shape=scores.shape)
        slopes = weights * (rise - sum(widened(g) * widened(y), dims=(3,)))
        if slope is not None:
            slopes = mul(slopes, slope)
            if truth is not None:  # what is hidden may have any slope
                slopes = mask_where(slopes, bool_not(truth), 0.0)
        slopes = reshape(slopes * scale, shape=(*shared, seq_k))
        if live[0]:
            dquery = like(query, reshape(matmul(slopes, widened(key)), shape=query.shape))
        if live[1]:
            dkey = like(key, matmul(transposed(slopes), reshape(widened(query), shape=(*shared, d_head))))
    if live[2]:
        dvalue = like(value, matmul(transposed(reshape(weights, shape=(*shared, seq_k))), upstream))
    return dquery, dkey, dvalue
