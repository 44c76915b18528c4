"""What `check` knows of operators over sequences: added to the tables of `_problems` when this is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from burn_kernels.attention import twins as plain
from burn_kernels.spec import Draw
from burn_kernels.torch._problems import ADAPTERS, DRAWN, Adapter, Call, Far

__all__: list[str] = []

_RULE = ("scale", "causal", "align", "window", "softcap", "prob")


def _integer(draw: Draw, low: int, high: int) -> int:
    return int(draw.integers(low, high, 1))


def _options(seed: Any, rule: Sequence[object]) -> dict[str, Any]:
    options = dict(zip(_RULE, rule, strict=True))
    if seed is not None:
        options["key"], options["stream"] = seed.tolist()
    return options


# -- twins, floors, rows far apart ---------------------------------------------------------------------
def _attention(q: Any, k: Any, v: Any, mask: Any, bias: Any, seed: Any, *rule: Any) -> torch.Tensor:
    return plain.twin(q, k, v, mask, bias, **_options(seed, rule[:-1]))


def _packed(q: Any, k: Any, v: Any, q_starts: Any, k_starts: Any, longest_q: int, longest_k: int, *rest: object) -> Any:
    seed, *rule = rest
    lengths: dict[str, Any] = {"longest_q": longest_q, "longest_k": longest_k}
    return plain.twin_packed(q, k, v, q_starts, k_starts, **lengths, **_options(seed, rule))


def _floor(args: Sequence[Any], dy: torch.Tensor) -> float:
    """What gradients of scores are differences of, products of dy and values, and of these with q and k."""
    sizes = [float(x.abs().max()) if x.numel() else 0.0 for x in (dy, *args[:3])]
    return sizes[0] * sizes[3] * max(1.0, sizes[1], sizes[2])


def _far(args: Sequence[object], room: Any) -> Far:
    q, k, v, dy = (room.rows()[None, None] for _ in range(4))
    return Far((q, k, v, None, None, None, *args[6:]), dy)


# -- drawn calls ---------------------------------------------------------------------------------------
def _operand(draw: Draw, batch: int, heads: int, seq: int, dim: int) -> torch.Tensor:
    """In one of the layouts that a model may have: heads first, positions first, part of a fused projection."""
    layout = _integer(draw, 0, 4)
    if layout == 0:
        return draw.normal(batch, seq, heads, dim).transpose(1, 2)
    if layout == 1:
        return draw.normal(batch, seq, heads + 2, dim)[:, :, 1 : heads + 1].transpose(1, 2)
    if layout == 2:
        return draw.normal(batch, heads, dim, seq).transpose(2, 3)
    return draw.normal(batch, heads, seq, dim)


def _rule(draw: Draw) -> tuple[torch.Tensor | None, tuple[object, ...]]:
    """A seed and the numbers of a rule."""
    prob = 0.3 if _integer(draw, 0, 4) == 0 else 0.0
    seed = draw.integers(-(2**62), 2**62, 2) if prob else None
    rule = (
        0.3 if _integer(draw, 0, 3) == 0 else None,
        bool(_integer(draw, 0, 2)),
        ("top_left", "bottom_right")[_integer(draw, 0, 2)],
        _integer(draw, 1, 20) if _integer(draw, 0, 3) == 0 else None,
        2.0 if _integer(draw, 0, 3) == 0 else None,
        prob,
    )
    return seed, rule


def _heads(draw: Draw) -> tuple[int, int]:
    shared = _integer(draw, 1, 3)
    return shared * _integer(draw, 1, 3), shared


def _draw_attention(draw: Draw) -> Call:
    (heads, kv_heads), batch, dim = _heads(draw), _integer(draw, 1, 3), _integer(draw, 5, 25)
    seq_q = _integer(draw, 1, 40)
    seq_k = seq_q if _integer(draw, 0, 2) else _integer(draw, 1, 40)
    q = _operand(draw, batch, heads, seq_q, dim)
    k, v = (_operand(draw, batch, kv_heads, seq_k, dim) for _ in "kv")
    mask = draw.integers(0, 4, batch, 1, 1, seq_k) > 0 if _integer(draw, 0, 3) == 0 else None
    bias = draw.normal(1, heads, seq_q, seq_k) if _integer(draw, 0, 3) == 0 else None
    seed, rule = _rule(draw)
    return Call("attention", (q, k, v, mask, bias, seed, *rule, True))


def _draw_packed(draw: Draw) -> Call:
    (heads, kv_heads), count, dim = _heads(draw), _integer(draw, 1, 4), _integer(draw, 5, 25)
    lengths = draw.integers(1, 20, 2, count)
    starts = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))
    (total_q, total_k), longest = starts[:, -1].tolist(), lengths.max(1).values.tolist()
    q = draw.normal(total_q, heads + 1, dim)[:, :heads]
    k, v = (draw.normal(total_k, kv_heads, dim) for _ in "kv")
    seed, rule = _rule(draw)
    return Call("attention_packed", (q, k, v, starts[0].int(), starts[1].int(), *longest, seed, *rule))


# -- the tables ----------------------------------------------------------------------------------------
ADAPTERS |= {
    "attention": Adapter(
        names=("q", "k", "v", "mask", "bias", "seed", *_RULE, "deterministic"),
        graded=(0, 1, 2, 4),
        twin=_attention,
        label=lambda args: "attention",
        floor=_floor,
        far=_far,
    ),
    "attention_packed": Adapter(
        names=("q", "k", "v", "q_starts", "k_starts", "longest_q", "longest_k", "seed", *_RULE),
        graded=(0, 1, 2),
        twin=_packed,
        label=lambda args: "attention_packed",
        floor=_floor,
    ),
}
DRAWN |= {"attention": _draw_attention, "attention_packed": _draw_packed}
