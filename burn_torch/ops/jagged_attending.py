"""Attention of sequences of unlike lengths that lie behind each other.

On a GPU kernels know where each one ends; elsewhere `attention` of padded sequences computes it.
"""

from __future__ import annotations

import itertools

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops import attending
from burn_torch.ops.comparison import greater_equal
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.moments import alive, check_statistics, statistics_of
from burn_torch.ops.op import op
from burn_torch.ops.rules import alike, same_dtype
from burn_torch.ops.samples import Sample, fixed, sample, uniform
from burn_torch.ops.segments import places_from_0, require_offsets, segment_pad, segment_unpad
from burn_torch.ops.shapes import permute, reshape
from burn_torch.ops.signature import Number, Operand
from burn_torch.ops.slicing import narrow
from burn_torch.ops.value import Value


def _require_sequences(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, query_offsets: TensorSpec, key_offsets: TensorSpec
) -> None:
    same_dtype(query.require(FLOAT), key, value)
    fits = query.ndim == key.ndim == value.ndim == 3 and key.shape[:2] == value.shape[:2]
    fits = fits and key.shape[2] == query.shape[2] > 0 and key.shape[1] > 0 and query.shape[1] % key.shape[1] == 0
    if not fits:
        raise shape_fault(
            "query, key and value do not fit together",
            expected="query (total_q, heads, d_head), key and value (total_k, key_heads, d), key_heads a divisor of "
            "heads",
            mend="split d_model with reshape((-1, heads, d_head))",
        )
    if require_offsets(query_offsets) != require_offsets(key_offsets):
        raise shape_fault(
            "queries and keys have different numbers of sequences",
            expected="query_offsets and key_offsets (sequences + 1,)",
            mend="a sequence of queries reads the keys of the sequence with its number; it may have none",
        )


def _samples(*, back: bool = False) -> list[Sample]:
    def case(
        q: Shape,
        k: Shape,
        d_value: int,
        ends: tuple[list[int], list[int]],
        softcap: float | None = None,
        **attrs: object,
    ) -> Sample:
        drawn = [uniform(-1, 1, shape) for shape in (q, k, (*k[:2], d_value))]
        offsets = [fixed(e, "int64") for e in ends]
        y = uniform(-1, 1, (*q[:2], d_value))
        inputs = [y, *drawn, y, uniform(4, 5, (q[1], q[0]))] if back else drawn
        longest = {f"longest_{n}": max(b - a for a, b in itertools.pairwise(e))
                   for n, e in zip(("query", "key"), ends, strict=True)}  # fmt: skip
        return sample(*inputs, *offsets, 0.5, softcap, **longest, **{"causal": False, **attrs})

    return [
        case((6, 2, 3), (6, 2, 3), 3, ([0, 2, 5, 6], [0, 2, 5, 6])),
        case((6, 2, 3), (6, 1, 3), 3, ([0, 2, 2, 6], [0, 2, 2, 6]), causal=True),
        case((5, 4, 3), (7, 2, 3), 4, ([0, 1, 5], [0, 4, 7]), 1.5),
    ]


@op(precision="low", packed="dense", samples=_samples(), source="Dao 2023, https://arxiv.org/abs/2307.08691")
def jagged_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    query_offsets: TensorSpec,
    key_offsets: TensorSpec,
    scale: Number,
    softcap: Operand | None,
    *,
    causal: bool,
    longest_query: int,
    longest_key: int,
) -> tuple[TensorSpec, TensorSpec]:
    """`attention` of each sequence by itself, and lse.

    A query that sees nothing, and one outside of all sequences, reads zeros and has an lse of 0; kernels of a GPU
    take no entries outside of sequences, and stop the program.  No sequence is longer
    than `longest_query`, `longest_key` say.  With `causal` query i of a sequence sees its keys up to i.

    Shapes: query (total_q, heads, d_head), key (total_k, key_heads, d_head), value (total_k, key_heads, d_value),
    query_offsets, key_offsets (sequences + 1,) -> (total_q, heads, d_value), (heads, total_q).
    Dtypes: query, key and value one float type, lse of half types float32; offsets integers.
    PyTorch: torch.nn.attention.varlen.varlen_attn.
    """
    _require_sequences(query, key, value, query_offsets, key_offsets)
    y = query.with_shape((*query.shape[:2], value.shape[2]))
    return y, statistics_of(query, (query.shape[1], query.shape[0]))


def _beside(x: Value, offsets: Value, longest: int) -> Value:
    """Sequences behind each other as (sequences, heads, longest, d)."""
    return permute(segment_pad(x, offsets, longest=longest), axes=(0, 2, 1, 3))


def _behind(x: Value, offsets: Value, length: int) -> Value:
    """Undoes `_beside`."""
    return segment_unpad(permute(x, axes=(0, 2, 1, 3)), offsets, length=length)


def _mask_ends(offsets: Value, longest: int) -> Value:
    """(sequences, 1, 1, longest): true behind the end of each sequence."""
    count = offsets.shape[0] - 1
    lengths = narrow(offsets, 0, 1, count + 1) - narrow(offsets, 0, 0, count)
    behind = greater_equal(places_from_0(offsets, longest), reshape(lengths, shape=(count, 1)))
    return reshape(behind, shape=(count, 1, 1, longest))


@jagged_attention.decomposes
def _(query, key, value, query_offsets, key_offsets, scale, softcap, *, causal, longest_query, longest_key):
    mask = _mask_ends(key_offsets, longest_key)
    q = _beside(query, query_offsets, longest_query)
    k, v = (_beside(x, key_offsets, longest_key) for x in (key, value))
    y, lse = attending.attention(q, k, v, mask, None, scale, softcap, causal=causal, offset=0)
    total = query.shape[0]
    lines = permute(segment_unpad(permute(lse, axes=(0, 2, 1)), query_offsets, length=total), axes=(1, 0))
    return _behind(y, query_offsets, total), lines


@jagged_attention.gradient
def _(g, y, query, key, value, query_offsets, key_offsets, scale, softcap, **attrs):
    if g[0] is None or g[1] is not None:
        return NotImplemented
    inputs = (g[0], query, key, value, *y, query_offsets, key_offsets, scale, softcap)
    return *jagged_attention_backward(*inputs, **attrs, live=(True,) * 3), None, None, None, None


@op(precision="low", packed="dense", statistics=(5,), samples=_samples(back=True))
def jagged_attention_backward(
    g: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    y: TensorSpec,
    lse: TensorSpec,
    query_offsets: TensorSpec,
    key_offsets: TensorSpec,
    scale: Number,
    softcap: Operand | None,
    *,
    causal: bool,
    longest_query: int,
    longest_key: int,
    live: tuple[bool, ...] = (True, True, True),
) -> tuple[TensorSpec | None, ...]:
    """The gradients of query, key and value from that of y; only those that `live` names are computed.

    Shapes: g, y (total_q, heads, d_value), lse (heads, total_q), the others as in `jagged_attention` -> those of query,
    key and value.
    Dtypes: float, all the same, lse of half types float32; offsets integers.
    """
    _require_sequences(query, key, value, query_offsets, key_offsets)
    same_dtype(query, alike(g, y))
    expected = (*query.shape[:2], value.shape[2])
    if g.shape != expected:
        raise shape_fault("g does not fit query and value", expected=f"g and y {expected}", mend="pass that of y")
    check_statistics(query, (query.shape[1], query.shape[0]), lse)
    return alive(live, query, key, value)


@jagged_attention_backward.decomposes
def _(g, query, key, value, y, lse, query_offsets, key_offsets, scale, softcap, *, causal, longest_query, longest_key,
      live):  # fmt: skip
    mask = _mask_ends(key_offsets, longest_key)
    g, q, y = (_beside(x, query_offsets, longest_query) for x in (g, query, y))
    k, v = (_beside(x, key_offsets, longest_key) for x in (key, value))
    lines = permute(segment_pad(permute(lse, axes=(1, 0)), query_offsets, longest=longest_query), axes=(0, 2, 1))
    grads = attending.attention_backward(
        g, q, k, v, y, lines, mask, None, scale, softcap, causal=causal, offset=0, live=live
    )
    places = ((query_offsets, query.shape[0]), (key_offsets, key.shape[0]), (key_offsets, value.shape[0]))
    return tuple(None if d is None else _behind(d, *at) for d, at in zip(grads, places, strict=True))
