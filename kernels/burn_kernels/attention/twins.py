"""Problems on which attention is checked, and what a user of PyTorch would write for it: an independent reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from burn_kernels import dropout
from burn_kernels.spec import Draw, Problem


# -- problems ----------------------------------------------------------------------------------------
def problems(draw: Draw) -> Iterator[Problem]:
    """Ragged, strided, empty; each option alone and together; queries that see nothing."""

    def heads(q: tuple[int, ...], k: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        return draw.normal(*q), draw.normal(*k), draw.normal(*k)

    def seen(*shape: int) -> torch.Tensor:
        return draw.integers(0, 3, *shape) > 0

    yield Problem((*heads((1, 1, 33, 16), (1, 1, 33, 16)), None, None), {"causal": True})
    yield Problem((*heads((1, 1, 7, 40), (1, 1, 33, 40)), None, None))
    yield Problem((*heads((1, 2, 17, 16), (1, 1, 20, 16)), None, None), {"causal": True, "align": "bottom_right"})
    yield Problem((*heads((1, 1, 20, 16), (1, 1, 17, 16)), None, None), {"causal": True, "scale": 0.5})
    # more queries than keys, the last of both together: the first queries see nothing
    yield Problem((*heads((1, 1, 33, 5), (1, 1, 17, 5)), None, None), {"causal": True, "align": "bottom_right"})
    yield Problem((*heads((1, 2, 33, 16), (1, 1, 33, 16)), None, None), {"causal": True, "window": 10})
    yield Problem((*heads((1, 1, 18, 8), (1, 1, 33, 8)), None, None), {"window": 9, "align": "bottom_right"})
    blind = seen(2, 1, 1, 19)
    blind[1] = False
    yield Problem((*heads((2, 1, 5, 16), (2, 1, 19, 16)), blind, None), {"softcap": 1.5})
    yield Problem((*heads((2, 2, 18, 16), (2, 1, 20, 16)), seen(18, 20), draw.normal(1, 2, 18, 20)))
    yield Problem((*heads((2, 2, 17, 8), (2, 2, 18, 8)), None, draw.normal(2, 1, 1, 18)))
    rule: dict[str, Any] = {"softcap": 3.0, "prob": 0.4, "key": 5, "stream": 7, "causal": True}
    yield Problem((*heads((1, 2, 17, 8), (1, 2, 18, 8)), None, draw.normal(17, 18)), rule)
    yield Problem((*heads((1, 1, 17, 16), (1, 1, 20, 16)), None, None), {"prob": 0.3, "key": 2**63 - 1, "stream": 3})
    fused = draw.normal(1, 17, 6, 16)
    yield Problem((*(x.transpose(1, 2) for x in fused.split(2, 2)), None, None), {"causal": True, "softcap": 5.0})
    yield Problem((draw.normal(1, 1, 16, 3).transpose(2, 3), *(draw.normal(1, 1, 16, 4).mT for _ in "kv"), None, None))
    yield Problem((*heads((1, 2, 1, 16), (1, 2, 7, 16)), None, None), {"window": 5, "align": "bottom_right"})
    yield Problem((*heads((0, 2, 3, 16), (0, 2, 3, 16)), None, None))
    yield Problem((*heads((1, 2, 3, 16), (1, 2, 0, 16)), None, None))


def packed_problems(draw: Draw) -> Iterator[Problem]:
    """Sequences of unlike lengths, some empty; shared heads, diagonals, dropout; no sequence at all."""

    def packed(q: tuple[int, ...], k: tuple[int, ...], heads: tuple[int, int], dim: int) -> tuple[torch.Tensor, ...]:
        starts = [torch.tensor([0, *lengths]).cumsum(0) for lengths in (q, k)]
        operands = draw.normal(sum(q), heads[0], dim), *(draw.normal(sum(k), heads[1], dim) for _ in "kv")
        return *operands, starts[0].int(), starts[1]

    def longest(q: int, k: int) -> dict[str, Any]:
        return {"longest_q": q, "longest_k": k}

    yield Problem(packed((5, 20, 1), (5, 20, 1), (2, 2), 16), {**longest(20, 20), "causal": True})
    yield Problem(packed((3, 0, 17), (18, 4, 7), (4, 2), 8), {**longest(20, 18), "causal": True, "window": 6,
                  "align": "bottom_right"})  # fmt: skip
    yield Problem(packed((4, 17), (0, 33), (1, 1), 16), {**longest(17, 33), "softcap": 2.0, "prob": 0.3, "key": 3,
                  "stream": 4})  # fmt: skip
    yield Problem(packed((), (), (2, 1), 8), longest(0, 0))


# -- twins -------------------------------------------------------------------------------------------
def twin(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    masked: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """y by torch.nn.functional.scaled_dot_product_attention; with a softcap or dropout by the formula, pair by pair."""
    grouped = q.shape[1] != k.shape[1]
    seen = _seen(q.shape[2], k.shape[2], q.device, **options)
    if mask is not None:
        seen = mask if seen is None else seen & mask
    if options.get("prob"):
        scores = torch.empty(*q.shape[:3], k.shape[2], dtype=q.dtype, device=q.device)
        masked = dropout.mask(options["prob"], options["key"], options["stream"], scores)
    # of nothing at all torch 2.11 gives nothing at all on a GPU: None
    if options.get("softcap") is None and masked is None and q.numel():
        added = seen
        if bias is not None:
            added = bias.to(q.dtype)
            added = added if seen is None else torch.where(seen, added, -math.inf)
        if added is not None:
            # rows that see nothing are computed with what they do not see, and set to zero after
            shape = (*q.shape[:3], k.shape[2])
            blind = (added == (False if added.dtype == torch.bool else -math.inf)).expand(shape).all(-1, keepdim=True)
            added = torch.where(blind, True if added.dtype == torch.bool else 0.0, added)
            y = functional.scaled_dot_product_attention(q, k, v, added, scale=options.get("scale"), enable_gqa=grouped)
            return torch.where(blind, 0.0, y)
        return functional.scaled_dot_product_attention(q, k, v, scale=options.get("scale"), enable_gqa=grouped)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * (options.get("scale") or q.shape[3] ** -0.5)
    softcap = options.get("softcap")
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias.to(scores.dtype)
    hidden = None if seen is None else (~seen).expand(scores.shape)
    if hidden is not None:
        blind = hidden.all(-1, keepdim=True)
        scores = scores.masked_fill(hidden & ~blind, -math.inf)
    weights = torch.softmax(scores, -1)
    if hidden is not None:
        weights = weights.masked_fill(blind, 0.0)
    return torch.einsum("bhqk,bhkd->bhqd", weights if masked is None else weights * masked, v)


def twin_packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **options: Any,
) -> torch.Tensor:
    """y, a sequence after the other by `twin`."""
    prob, masks = options.pop("prob", 0.0), None
    if prob:
        like = torch.empty(q.shape[1], q.shape[0], longest_k, dtype=q.dtype, device=q.device)
        masks = dropout.mask(prob, options["key"], options["stream"], like)
    rows, cols, ys = q_starts.tolist(), k_starts.tolist(), [q[:0] + k[:0].sum() + v[:0].sum()]
    for at in range(len(rows) - 1):
        mine, theirs = slice(rows[at], rows[at + 1]), slice(cols[at], cols[at + 1])
        parts = (x.transpose(0, 1)[None] for x in (q[mine], k[theirs], v[theirs]))
        masked = None if masks is None else masks[None, :, mine, : cols[at + 1] - cols[at]]
        ys.append(twin(*parts, masked=masked, **options)[0].transpose(0, 1))
    return torch.cat(ys)


def _seen(
    seq_q: int,
    seq_k: int,
    device: torch.device,
    *,
    causal: bool = False,
    align: str = "top_left",
    window: int | None = None,
    **_: object,
) -> torch.Tensor | None:
    """The keys that a query sees, pair by pair."""
    if not causal and window is None:
        return None
    ahead = seq_k - seq_q if align == "bottom_right" else 0
    rows = [
        [(j <= i + ahead or not causal) and (window is None or abs(j - i - ahead) < window) for j in range(seq_k)]
        for i in range(seq_q)
    ]
    return torch.tensor(rows, dtype=torch.bool, device=device).reshape(seq_q, seq_k)


# -- drawn calls of the operators ----------------------------------------------------------------------
def _operand(draw: Draw, batch: int, heads: int, seq: int, dim: int) -> torch.Tensor:
    """In one of the layouts that a model may have: heads first, positions first, part of a fused projection."""
    layout = draw.integer(0, 4)
    if layout == 0:
        return draw.normal(batch, seq, heads, dim).transpose(1, 2)
    if layout == 1:
        return draw.normal(batch, seq, heads + 2, dim)[:, :, 1 : heads + 1].transpose(1, 2)
    return draw.normal(batch, heads, dim, seq).transpose(2, 3) if layout == 2 else draw.normal(batch, heads, seq, dim)


def _rule(draw: Draw) -> tuple[Any, ...]:
    """A seed and the numbers of a rule."""
    prob = 0.3 if draw.one_in(4) else 0.0
    return (
        draw.seed() if prob else None,
        0.3 if draw.one_in(3) else None,
        bool(draw.integer(0, 2)),
        ("top_left", "bottom_right")[draw.integer(0, 2)],
        draw.integer(1, 20) if draw.one_in(3) else None,
        2.0 if draw.one_in(3) else None,
        prob,
    )


def _heads(draw: Draw) -> tuple[int, int]:
    shared = draw.integer(1, 3)
    return shared * draw.integer(1, 3), shared


def draw_call(draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator."""
    (heads, kv_heads), batch, dim = _heads(draw), draw.integer(1, 3), draw.integer(5, 25)
    seq_q = draw.integer(1, 40)
    seq_k = seq_q if draw.integer(0, 2) else draw.integer(1, 40)
    q = _operand(draw, batch, heads, seq_q, dim)
    k, v = (_operand(draw, batch, kv_heads, seq_k, dim) for _ in "kv")
    mask = draw.integers(0, 4, batch, 1, 1, seq_k) > 0 if draw.one_in(3) else None
    bias = draw.normal(1, heads, seq_q, seq_k) if draw.one_in(3) else None
    return q, k, v, mask, bias, *_rule(draw), True


def draw_packed_call(draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator of packed sequences."""
    (heads, kv_heads), count, dim = _heads(draw), draw.integer(1, 4), draw.integer(5, 25)
    lengths = draw.integers(1, 20, 2, count)
    starts = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))
    (total_q, total_k), longest = starts[:, -1].tolist(), lengths.max(1).values.tolist()
    q = draw.normal(total_q, heads + 1, dim)[:, :heads]
    k, v = (draw.normal(total_k, kv_heads, dim) for _ in "kv")
    return q, k, v, starts[0].int(), starts[1].int(), *longest, *_rule(draw)


# -- problems large enough that errors average ---------------------------------------------------------
def large(draw: Draw) -> Iterator[Problem]:
    """Attention by every rule, of every width of heads, in layouts that models have."""
    q, k, v = (draw.normal(2, heads, seq, 64) for heads, seq in ((4, 300), (2, 200), (2, 200)))
    rules: list[dict[str, Any]] = [{"causal": True}, {"causal": True, "align": "bottom_right", "window": 70}]
    rules += [{"softcap": 20.0}, {"prob": 0.1, "key": 5, "stream": 6}]
    yield from (Problem((q, k, v, None, None), rule) for rule in rules)
    yield Problem((q, k, v, draw.integers(0, 4, 2, 1, 1, 200) > 0, draw.normal(1, 4, 300, 200)))
    for dim in (40, 96, 128, 256):
        same = (draw.normal(1, 2, 200, dim) for _ in "qkv")
        yield Problem((*same, None, None), {"causal": True})
    # as a joint projection leaves them, and of an odd length; one query; heads whose columns lie apart
    joint = draw.normal(2, 131, 3, 4, 64).unbind(2)
    yield Problem((*(x.transpose(1, 2) for x in joint), None, None), {"causal": True})
    yield Problem((draw.normal(2, 4, 1, 64), k, v, None, None), {"causal": True, "align": "bottom_right"})
    apart = (draw.normal(1, 2, 77, 128)[..., ::2] for _ in "qkv")
    yield Problem((*apart, None, None))


def large_packed(draw: Draw) -> Iterator[Problem]:
    """Packed sequences of unlike lengths."""
    starts = torch.tensor([0, 100, 133, 133, 300], dtype=torch.int32)
    operands = draw.normal(300, 4, 64), draw.normal(300, 2, 64), draw.normal(300, 2, 64)
    yield Problem((*operands, starts, starts), {"longest_q": 167, "longest_k": 167, "causal": True})
