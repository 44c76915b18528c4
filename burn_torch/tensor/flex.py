"""Attention of today: functions that change scores and hide keys, windows, documents, sinks.

    slopes = Tensor.from_data([2.0 ** -(i + 1) for i in range(heads)], device)
    y = flex.flex_attention(q, k, v, score=flex.alibi(slopes), mask=flex.causal())
    y = flex.flex_attention(q, k, v, score=lambda s, b, h, q, k: s + (k - q).float() * slopes[h])

A score function gets one score and the numbers of its batch entry, head, query and key, tensors without axes, and gives
the score that counts; a mask function gets the four numbers and tells if the query sees the key.  They are element-wise
operations, and may read tensors at indices.  On a GPU they become part of the kernel of attention, and blocks of keys
that no query of a block sees are not visited: of f32, f16 and bf16, heads of up to 256 columns, and values as wide as
keys.  Elsewhere they are computed on the scores of all pairs.

PyTorch: torch.nn.attention.flex_attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._alignments import is_differentiated
from burn_torch.tensor._arguments import real
from burn_torch.tensor.apply import apply, require_tensor
from burn_torch.tensor.device import Device
from burn_torch.tensor.tensor import Tensor

if TYPE_CHECKING:
    from burn_torch.tensor._score_functions import ScoreFunction

__all__ = [
    "BlockMask",
    "alibi",
    "all_of",
    "any_of",
    "block_mask",
    "causal",
    "document_numbers",
    "documents",
    "flex_attention",
    "packed_attention",
    "prefix",
    "softcap",
    "window",
]

_BLOCK = 128
"""Positions of a block: each tile of a kernel lies in one."""


# -- attention ---------------------------------------------------------------------------------------------
class BlockMask(NamedTuple):
    """A mask function with the blocks that it sees, listed once for many calls: see `block_mask`.

    It is one value to `compile` and the transforms.
    """

    seen: str
    """The function, as a graph."""
    captured: tuple[Tensor, ...]
    """The tensors that it reads."""
    lines: Tensor
    """For each block of queries the blocks of keys that it sees."""
    columns: Tensor
    """For each block of keys the blocks of queries that see it."""
    layout: str
    """Batch entries, heads, queries, keys, and positions of a block."""


def block_mask(
    mask: ScoreFunction, seq_q: int, seq_k: int, device: Device, batch: int = 1, heads: int = 1, block: int = _BLOCK
) -> BlockMask:
    """The blocks that a mask function sees, for calls of `flex_attention` that share it: layers, steps of a training.

    batch, heads  1 where the function does not depend on them
    block         positions of a block, a multiple of 128 for kernels of GPUs
    Raises: ArgumentError for a function that depends on what is 1 here; as `flex_attention`.
    PyTorch: torch.nn.attention.flex_attention.create_block_mask.
    """
    from burn_torch.fusion.rows import attention_row  # only who calls this needs the writers of kernels
    from burn_torch.tensor._score_functions import trace_mask

    like = Tensor.zeros((1,), device)
    traced = trace_mask(mask, like)
    sizes = (batch, heads, seq_q, seq_k)
    lines, columns = apply(attention_row.attention_blocks, (like, *traced.captured), traced.body, sizes, block)
    return BlockMask(traced.body, traced.captured, lines, columns, ",".join(map(str, (*sizes, block))))


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: ScoreFunction | None = None,
    mask: ScoreFunction | BlockMask | None = None,
    *,
    sinks: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Returns what each query reads of the values, by scores that functions change and hide.

        s = score(query @ key^T * scale, b, h, q, k), where mask(b, h, q, k) is true, else -inf
        y = exp(s) / (sum(exp(s)) + exp(sink)) @ value

    score  (s, b, h, q, k) -> s, all without axes: s in f32, f64 of f64 tensors, the others i32
    mask   (b, h, q, k) -> bool, true where a query sees a key; or a `block_mask`, which is worked out once
    sinks  a logit for each head of the query, a key that is always seen and whose value is 0
    scale  1 / sqrt(d_head) unless told

    A query that sees no key reads zeros and gets no gradient.  Query heads may share key heads: h counts those of the
    query.  What functions capture gets gradients too, but then the scores of all pairs are written to memory.

    Shapes: query (batch, heads, seq_q, d_head), key (batch, key_heads, seq_k, d_head), value (batch, key_heads, seq_k,
    d_value), sinks (heads,) -> (batch, heads, seq_q, d_value).  Dtypes: any float, all the same; scores are f32.
    Raises: ShapeError, DTypeError where they do not fit; TraceError for functions that are not element by element.
    PyTorch: torch.nn.attention.flex_attention.flex_attention(score_mod, block_mask, enable_gqa=True).
    """
    from burn_torch.fusion.rows import attention_row  # as above
    from burn_torch.tensor._score_functions import trace_mask, trace_score

    _require_heads(query, key, value)
    score_body, seen_body = "", ""
    captured: tuple[Tensor, ...] = ()
    lines = columns = None
    block, learned = _BLOCK, False
    if score is not None:
        traced = trace_score(score, query)
        score_body, captured = traced.body, traced.captured
        learned = any(x.dtype.is_float and is_differentiated(x) for x in captured)
    count = len(captured)
    if isinstance(mask, BlockMask):
        block = _check_layout(mask, query, key)
        seen_body, lines, columns = mask.seen, mask.lines, mask.columns
        captured = (*captured, *mask.captured)
    elif mask is not None:
        hiding = trace_mask(mask, query)
        seen_body, captured = hiding.body, (*captured, *hiding.captured)
        if query.spec.place.startswith("cuda"):
            batch, heads = query.shape[0] if hiding.by_batch else 1, query.shape[1] if hiding.by_head else 1
            sizes = (batch, heads, query.shape[2], key.shape[2])
            lists = (query, *hiding.captured), hiding.body, sizes, block
            lines, columns = apply(attention_row.attention_blocks, *lists)
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else real(scale, "scale")
    inputs = (query, key, value, sinks, lines, columns, factor, *captured)
    result: Tensor = apply(attention_row.attention, inputs, score_body, seen_body, count, block, learned)[0]
    return result


def _require_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        require_tensor(x, name)
    if not query.ndim == key.ndim == value.ndim == 4:
        raise told(
            ShapeError,
            "attention takes tensors of four axes",
            given=f"query {query.spec}, key {key.spec}, value {value.spec}",
            expected="(batch, heads, seq, d_head)",
            mend="reshape it, or insert axes with unsqueeze_dim",
        )


def _check_layout(mask: BlockMask, query: Tensor, key: Tensor) -> int:
    batch, heads, seq_q, seq_k, block = map(int, mask.layout.split(","))
    here = (*query.shape[:3], key.shape[2])
    if (seq_q, seq_k) != here[2:] or batch not in (1, here[0]) or heads not in (1, here[1]):
        raise told(
            ShapeError,
            "the block mask is one of other sizes",
            given=f"a block mask of {(batch, heads, seq_q, seq_k)}, scores {here}",
            expected="batch and heads of 1, or those of the scores; the same queries and keys",
            mend=f"block_mask(mask, {here[2]}, {here[3]}, device)",
        )
    return block


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    key_starts: Tensor | None = None,
    *,
    score: ScoreFunction | None = None,
    is_causal: bool = False,
    window_size: tuple[int | None, int | None] | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of sequences of unlike lengths that stand behind each other in one row of tokens.

    starts       where each sequence begins, and behind the last one where it ends: (sequences + 1,)
    key_starts   those of the keys, if they are others
    is_causal    a query sees the keys up to its own place in its sequence
    window_size  (left, right) of `window`, counted in the sequence
    score        of (s, b, h, q, k) as in `flex_attention`, where q and k count in the whole row and b is 0

    Shapes: query (total_q, heads, d_head), key and value (total_k, key_heads, d) -> (total_q, heads, d_value).
    PyTorch: torch.nn.attention.varlen.varlen_attn.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        require_tensor(x, name)
        if x.ndim != 3:
            raise told(
                ShapeError,
                "packed attention takes tensors of three axes",
                given=f"{name} {x.spec}",
                expected="(total, heads, d_head)",
                mend="put the sequences behind each other, without an axis of batch entries",
            )
    other = starts if key_starts is None else key_starts
    numbers = document_numbers(starts, query.shape[0])
    key_numbers = numbers if key_starts is None else document_numbers(other, key.shape[0])
    rules = [documents(numbers, key_numbers)]
    if is_causal or window_size is not None:
        left, right = window_size or (None, None)
        right = min(right, 0) if is_causal and right is not None else 0 if is_causal else right
        rules.append(_window_at(left, right, starts, other, numbers, key_numbers))
    parts = [x.swap_dims(0, 1).unsqueeze_dim(0) for x in (query, key, value)]
    y = flex_attention(parts[0], parts[1], parts[2], score, all_of(*rules), sinks=sinks, scale=scale)
    return y.squeeze_dim(0).swap_dims(0, 1)


def document_numbers(starts: Tensor, total: int) -> Tensor:
    """The number of the sequence that each of `total` tokens is in, by where sequences start and the last one ends.

    Tokens behind the last sequence are in one that no other token is in.  Shapes: starts (sequences + 1,) -> (total,).
    """
    require_tensor(starts, "starts")
    if starts.ndim != 1 or not starts.dtype.is_int:
        raise told(
            DTypeError if starts.ndim == 1 else ShapeError,
            "starts are no list of positions",
            given=f"starts {starts.spec}",
            expected="integers (sequences + 1,), from 0 to the number of tokens, never falling",
            mend="add up the lengths: cat([zeros, lengths.cumsum(0)])",
        )
    places = Tensor.arange(total, starts.device).cast(DType.I64).reshape((total, 1))
    begun = places.greater_equal(starts.cast(DType.I64).reshape((1, starts.shape[0])))
    return begun.int().cast(DType.I32).sum_dim(1).reshape((total,)) - 1


# -- masks ---------------------------------------------------------------------------------------------------
def causal(offset: int = 0) -> ScoreFunction:
    """A query sees the keys up to its own place, or up to `offset` places behind it."""
    return lambda b, h, q, k: k <= q + offset if offset else k <= q


def window(left: int | None, right: int | None = 0, offset: int = 0) -> ScoreFunction:
    """A query at place p sees the keys from p - left to p + right; None is no bound, p is q + offset.

    Raises: ArgumentError for a negative width.
    """
    for name, width in (("left", left), ("right", right)):
        if width is not None and width < 0:
            raise told(
                ArgumentError,
                "a window has a negative width",
                given=f"{name} {width}",
                expected="0 or more keys beside the query's own, or None for all",
                mend="window(left=0) sees the query's own place alone",
            )

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = q + offset if offset else q
        parts = [] if left is None else [k >= place - left]
        if right is not None:
            parts.append(k <= place + right)
        return _join_masks(parts, k)

    return seen


def _window_at(
    left: int | None, right: int | None, starts: Tensor, key_starts: Tensor, numbers: Tensor, key_numbers: Tensor
) -> ScoreFunction:
    # places are counted from where each sequence begins; tokens behind the last sequence begin where it ends
    begins = starts.cast(DType.I32).select(0, numbers)
    key_begins = key_starts.cast(DType.I32).select(0, key_numbers)
    inner = window(left, right)
    return lambda b, h, q, k: inner(b, h, q - begins[q], k - key_begins[k])


def documents(numbers: Tensor, key_numbers: Tensor | None = None) -> ScoreFunction:
    """Queries see the keys of their own document.  Shapes: numbers (seq,) for all batch entries, or (batch, seq)."""
    require_tensor(numbers, "numbers")
    others = numbers if key_numbers is None else key_numbers
    if numbers.ndim == 1:
        return lambda b, h, q, k: numbers[q] == others[k]
    return lambda b, h, q, k: numbers[b, q] == others[b, k]


def prefix(length: int | Tensor) -> ScoreFunction:
    """All queries see the first keys, others only those up to their place.  length: a number, or one a batch entry."""
    if isinstance(length, Tensor):
        lengths = length.cast(DType.I32)
        return lambda b, h, q, k: (k < lengths[b]).bool_or(k <= q)
    return lambda b, h, q, k: (k < length).bool_or(k <= q)


def all_of(*masks: ScoreFunction) -> ScoreFunction:
    """A key is seen where every mask function sees it.  PyTorch: and_masks."""
    return lambda b, h, q, k: _join_masks([mask(b, h, q, k) for mask in masks], k)


def any_of(*masks: ScoreFunction) -> ScoreFunction:
    """A key is seen where some mask function sees it.  PyTorch: or_masks."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return _join_masks([mask(b, h, q, k).bool_not() for mask in masks], k).bool_not()

    return seen


def _join_masks(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    if not parts:
        return like == like
    first, *rest = parts
    for part in rest:
        first = first.bool_and(part)
    return first


# -- scores --------------------------------------------------------------------------------------------------
def softcap(limit: float) -> ScoreFunction:
    """Scores stay within +-limit: limit * tanh(s / limit)."""
    return lambda s, b, h, q, k: (s / limit).tanh() * limit


def alibi(slopes: Tensor) -> ScoreFunction:
    """Scores fall with the distance of a key before its query: s + slope * (k - q).  Shapes: slopes (heads,).

    Source: Press et al. 2022, https://arxiv.org/abs/2108.12409.
    """
    require_tensor(slopes, "slopes")
    return lambda s, b, h, q, k: s + (k - q).cast(s.dtype) * slopes[h].cast(s.dtype)
