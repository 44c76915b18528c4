"""What forward and backward of attention share beside their kernels: the rule of the scores, checks, the reference.

A `Rule` says how scores become weights; `Sizes` how the operands lie.  Sequences of one length come as four axes,
(batch, heads, seq, d_head); packed ones as three, (total, heads, d_head), with the starts of each sequence.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch

from burn_kernels import random
from burn_kernels.dropout import check_probability, mask_numbers
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelLimitError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.random import Number

MAX_DIM = 256
"""Columns of a head: wider ones do not fit the registers of a program beside their sums."""
PRECISIONS = ("ieee", "tf32", "tf32x3")

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


# -- the rule ----------------------------------------------------------------------------------------
class Options(TypedDict, total=False):
    """What every launcher and reference takes by name."""

    scale: float | None
    """What the products are multiplied by; None is 1 / sqrt(d_head)."""
    causal: bool
    """Whether a query sees only the keys to its diagonal."""
    align: str
    """Which diagonal: "top_left", query i and key i, or "bottom_right", the last query and the last key."""
    window: int | None
    """How many keys a query sees to each side of its diagonal, the one on it included; None is all."""
    softcap: float | None
    """What the scores stay below, by tanh; None is no bound."""
    prob: float
    """The share of weights that dropout sets to zero."""
    key: Number
    """Of dropout, as of `burn_kernels.dropout`; so `stream`."""
    stream: Number
    precision: str
    """How float32 products are taken: "ieee", "tf32" or "tf32x3"."""


@dataclass(frozen=True)
class Rule:
    """How scores become weights."""

    scale: float
    causal: bool
    bottom_right: bool
    """Whether the last query's diagonal ends at the last key; otherwise the first query's begins at the first."""
    window: int | None
    """How many keys a query sees to each side of its diagonal, the one on it included."""
    softcap: float | None
    prob: float
    key: Number
    stream: Number
    precision: str

    @property
    def plain(self) -> bool:
        """Whether nothing but a diagonal from the first corner changes the scores."""
        return self.window is None and self.softcap is None and self.prob == 0.0


def rule_of(
    op: str,
    q: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    align: str = "top_left",
    window: int | None = None,
    softcap: float | None = None,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    precision: str = "ieee",
) -> Rule:
    """The rule of a launcher's options.  Raises: KernelArgumentError with all that are outside their range."""
    wrong = [] if align in ("top_left", "bottom_right") else [f"align {align!r}"]
    wrong += [f"window {window}"] if window is not None and window < 1 else []
    wrong += [f"softcap {softcap}"] if softcap is not None and not 0.0 < softcap < math.inf else []
    wrong += [f"scale {scale}"] if scale is not None and not math.isfinite(scale) else []
    wrong += [f"precision {precision!r}"] if precision not in PRECISIONS else []
    if wrong:
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=", ".join(wrong),
            expected="align 'top_left' or 'bottom_right'; window from 1; softcap above 0; scale finite; "
            f"precision one of {', '.join(PRECISIONS)}",
            mend="leave out what is not wanted: None is no window, no softcap, and a scale of 1 / sqrt(d_head)",
        )
    check_probability(op, prob)
    scale = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale
    return Rule(scale, causal, align == "bottom_right", window, softcap, prob, key, stream, precision)


# -- checks ------------------------------------------------------------------------------------------
def check_dense(
    op: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    """Raises KernelShapeError, KernelDTypeError or KernelDeviceError unless the operands fit together."""
    tensors = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias}
    fits = q.dim() == k.dim() == v.dim() == 4 and k.shape == v.shape
    fits = fits and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3]) and _shares(q.shape[1], k.shape[1])
    if fits:
        scores = (*q.shape[:3], k.shape[2])
        fits = all(x is None or _broadcasts(x.shape, scores) for x in (mask, bias))
    if not fits:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=describe(tensors),
            expected="q (batch, heads, seq_q, d_head), k and v (batch, kv_heads, seq_k, d_head), kv_heads a "
            "divisor of heads; mask and bias of up to four axes that broadcast to (batch, heads, seq_q, seq_k)",
            mend="pass views: q.transpose(1, 2) of (batch, seq, heads, d_head), mask[:, None, None] of (batch, seq_k)",
        )
    if (mask is not None and mask.dtype != torch.bool) or (bias is not None and not bias.is_floating_point()):
        raise KernelDTypeError(
            f"{op}: mask or bias is of another type",
            given=describe({"mask": mask, "bias": bias}),
            expected="mask of bools, true where a key is seen; bias of floats, which are added to the scores",
            mend="pass a float mask as bias=, a mask of zeros and ones as mask.bool()",
        )
    check(op, tensors, {}, alike=["q", "k", "v"])


def check_packed(
    op: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    longest: tuple[int, int],
) -> None:
    """As `check_dense`, for packed sequences."""
    tensors = {"q": q, "k": k, "v": v, "q_starts": q_starts, "k_starts": k_starts}
    fits = q.dim() == k.dim() == v.dim() == 3 and k.shape == v.shape
    fits = fits and q.shape[2] == k.shape[2] and _shares(q.shape[1], k.shape[1])
    fits = fits and q_starts.dim() == 1 and q_starts.shape == k_starts.shape and q_starts.shape[0] > 0
    if not fits or min(longest) < 0:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=f"{describe(tensors)}, longest_q {longest[0]}, longest_k {longest[1]}",
            expected="q (total_q, heads, d_head), k and v (total_k, kv_heads, d_head), kv_heads a divisor of "
            "heads; q_starts and k_starts (sequences + 1,); the longest lengths from 0",
            mend="starts are 0 and the running sums of the lengths; the last one is the total",
        )
    if any(x.dtype not in (torch.int32, torch.int64) for x in (q_starts, k_starts)):
        raise KernelDTypeError(
            f"{op}: starts are whole numbers",
            given=describe({"q_starts": q_starts, "k_starts": k_starts}),
            expected="int32 or int64",
            mend="torch.cumsum of the lengths with dtype=torch.int32, behind a 0",
        )
    check(op, tensors, {}, alike=["q", "k", "v"])
    if q.device.type == "cpu":
        starts = (q_starts.tolist(), k_starts.tolist())
        ends = (q.shape[0], k.shape[0])
        rising = all(a <= b for s in starts for a, b in itertools.pairwise(s))
        inside = all(s[0] == 0 and s[-1] == end for s, end in zip(starts, ends, strict=True))
        most = [max((b - a for a, b in itertools.pairwise(s)), default=0) for s in starts]
        if not (rising and inside and most[0] <= longest[0] and most[1] <= longest[1]):
            raise KernelArgumentError(
                f"{op}: the starts are not those of the sequences",
                given=f"q_starts {starts[0]}, k_starts {starts[1]}, longest_q {longest[0]}, longest_k {longest[1]}",
                expected=f"from 0 rising to {ends[0]} and {ends[1]}, no length above the longest",
                mend="make them of the lengths: 0, then their running sums",
            )


def check_dim(op: str, q: torch.Tensor) -> None:
    """Raises KernelLimitError for heads that no kernel takes."""
    if not 0 < q.shape[-1] <= MAX_DIM:
        raise KernelLimitError(
            f"{op}: the kernel does not compute heads of this size",
            given=f"d_head {q.shape[-1]}",
            expected=f"d_head from 1 to {MAX_DIM}",
            mend="call the reference, which takes any",
        )


def in_torch(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None, rule: Rule
) -> bool:
    """Whether torch's flash attention of the CPU computes the call: nothing but a diagonal, of a square, hides keys."""
    square = not rule.causal or q.shape[2] == k.shape[2]
    plain = rule.plain and mask is None and bias is None and square
    return plain and q.device.type == "cpu" and q.numel() > 0 and k.numel() > 0


def _shares(heads: int, kv_heads: int) -> bool:
    return heads == kv_heads or (kv_heads > 0 and heads % kv_heads == 0)


def _broadcasts(shape: torch.Size, scores: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and all(a in (1, b) for a, b in zip(shape[::-1], scores[::-1], strict=False))


# -- reference ---------------------------------------------------------------------------------------
def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> tuple[torch.Tensor, torch.Tensor]:
    """y and lse in plain torch, all scores in memory.  It can be differentiated any number of times."""
    rule = rule_of("attention", q, **options)
    weights, lse, _ = _weigh(q, k, mask, bias, rule)
    return _read(weights, _dense_kept(weights, rule), v).to(q.dtype), lse


def reference_backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    lse: torch.Tensor,
    **options: Unpack[Options],
) -> Gradients:
    """The gradients of q, k, v and bias in plain torch, all scores in memory."""
    rule = rule_of("attention backward", q, **options)
    weights, _, slope = _weigh(q, k, mask, bias, rule)
    return _differentiate(dy, q, k, v, bias, weights, _dense_kept(weights, rule), slope, rule)


def reference_packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **options: Unpack[Options],
) -> tuple[torch.Tensor, torch.Tensor]:
    """y (total_q, heads, d_head) and lse (heads, total_q) in plain torch, a sequence after the other."""
    rule = rule_of("attention_packed", q, **options)
    kept = _packed_kept(q, longest_k, rule)
    ys, lses = [], []
    for rows, cols in _sequences(q_starts, k_starts):
        part, lse, _ = _weigh(_dense(q[rows]), _dense(k[cols]), None, None, rule)
        drop = None if kept is None else kept[None, :, rows, : part.shape[3]]
        ys.append(_read(part, drop, _dense(v[cols]))[0].transpose(0, 1))
        lses.append(lse[0])
    if not ys:
        return torch.zeros_like(q), torch.zeros(q.shape[1], 0, dtype=wide_type(q.dtype), device=q.device)
    return torch.cat(ys).to(q.dtype), torch.cat(lses, 1)


def reference_packed_backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **options: Unpack[Options],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v in plain torch."""
    rule = rule_of("attention_packed backward", q, **options)
    kept = _packed_kept(q, longest_k, rule)
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for rows, cols in _sequences(q_starts, k_starts):
        parts = _dense(q[rows]), _dense(k[cols])
        weights, _, slope = _weigh(*parts, None, None, rule)
        drop = None if kept is None else kept[None, :, rows, : weights.shape[3]]
        found = _differentiate(_dense(dy[rows]), *parts, _dense(v[cols]), None, weights, drop, slope, rule)
        for whole, part, place in zip((dq, dk, dv), found[:3], (rows, cols, cols), strict=True):
            assert part is not None
            whole[place] = part[0].transpose(0, 1)
    return dq, dk, dv


def seen_by(rule: Rule, seq_q: int, seq_k: int, device: torch.device) -> torch.Tensor | None:
    """Which keys each query sees, (seq_q, seq_k); None where it sees all."""
    if not rule.causal and rule.window is None:
        return None
    diagonal = torch.arange(seq_q, device=device)[:, None] + (seq_k - seq_q if rule.bottom_right else 0)
    ahead = torch.arange(seq_k, device=device)[None, :] - diagonal
    seen = ahead <= 0 if rule.causal else ahead < (rule.window or 0)
    return seen if rule.window is None else seen & (ahead > -rule.window)


def _weigh(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None, rule: Rule
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    # the weights, 0 in the rows of queries that see nothing; lse; what the softcap multiplies gradients by
    wide = wide_type(q.dtype)
    scores = q.to(wide) @ _repeated(k, q).to(wide).transpose(2, 3) * rule.scale
    slope = None
    if rule.softcap is not None:
        turned = torch.tanh(scores / rule.softcap)
        scores, slope = turned * rule.softcap, 1.0 - turned * turned
    if bias is not None:
        scores = scores + bias
    seen = seen_by(rule, scores.shape[2], scores.shape[3], scores.device)
    for part in (mask, seen):
        if part is not None:
            scores = torch.where(part, scores, -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    safe = torch.where(blind, 0.0, scores)
    lse = torch.where(blind[..., 0], -math.inf, torch.logsumexp(safe, -1))
    return torch.where(blind, 0.0, torch.softmax(safe, -1)), lse, slope


def _read(weights: torch.Tensor, kept: torch.Tensor | None, v: torch.Tensor) -> torch.Tensor:
    dropped = weights if kept is None else weights * kept
    return dropped @ _repeated(v, weights).to(weights.dtype)


def _differentiate(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    weights: torch.Tensor,
    kept: torch.Tensor | None,
    slope: torch.Tensor | None,
    rule: Rule,
) -> Gradients:
    wide = weights.dtype
    g = dy.to(wide)
    rise = g @ _repeated(v, q).to(wide).transpose(2, 3)
    dropped = weights
    if kept is not None:
        rise, dropped = rise * kept, weights * kept
    # what sum(dy * y) is, from what was not rounded to the type of y
    slopes = weights * (rise - (weights * rise).sum(-1, keepdim=True))
    dbias = None if bias is None else slopes.sum_to_size(bias.shape).to(bias.dtype)
    slopes = (slopes if slope is None else slopes * slope) * rule.scale
    dq = slopes @ _repeated(k, q).to(wide)
    dk = _gathered(slopes.transpose(2, 3) @ q.to(wide), k)
    dv = _gathered(dropped.transpose(2, 3) @ g, v)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dbias


def _repeated(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _gathered(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    heads = like.shape[1]
    return x if x.shape[1] == heads else x.unflatten(1, (heads, x.shape[1] // heads)).sum(2)


def _dense(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)[None]


def _sequences(q_starts: torch.Tensor, k_starts: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    rows, cols = q_starts.tolist(), k_starts.tolist()
    for at in range(len(rows) - 1):
        yield slice(rows[at], rows[at + 1]), slice(cols[at], cols[at + 1])


# -- dropout -----------------------------------------------------------------------------------------
def kept_of(rule: Rule, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """What a dropout multiplies weights of this shape by, numbered in order; None without one."""
    if rule.prob == 0.0:
        return None
    last, scale = mask_numbers(rule.prob, dtype)
    drawn = random.words(rule.key, rule.stream, math.prod(shape), device).reshape(shape)
    return (drawn <= last).to(dtype) * scale


def _dense_kept(weights: torch.Tensor, rule: Rule) -> torch.Tensor | None:
    return kept_of(rule, tuple(weights.shape), weights.dtype, weights.device)


def _packed_kept(q: torch.Tensor, longest_k: int, rule: Rule) -> torch.Tensor | None:
    total, heads, _ = q.shape
    return kept_of(rule, (heads, total, longest_k), wide_type(q.dtype), q.device)
