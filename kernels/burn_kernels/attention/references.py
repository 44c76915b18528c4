"""Attention without its kernels: the rule of the scores, checks, and the reference in plain torch.

A `Rule` says how scores become weights.  Sequences of one length come as four axes, (batch, heads, seq, d_head); packed
ones as three, (total, heads, d_head), with the starts of each sequence.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from burn_kernels import random
from burn_kernels.dropout import check_probability, mask_numbers
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelLimitError, KernelShapeError
from burn_kernels.launch import describe, wide_type
from burn_kernels.random import Number

MAX_DIM = 256
"""Columns of a head: wider ones do not fit the registers of a program beside their sums."""
PRECISIONS = ("ieee", "tf32", "tf32x3")

MaybeTensor = Tensor | None
Gradients = tuple[Tensor, Tensor, Tensor, MaybeTensor]


# -- the rule ----------------------------------------------------------------------------------------
class AttentionOptions(TypedDict, total=False):
    """The arguments that every launcher and reference takes by name."""

    scale: float | None
    """The factor of the products; None is 1 / sqrt(d_head)."""
    causal: bool
    """True if a query sees only the keys to its diagonal."""
    align: str
    """The diagonal: "top_left", query i and key i, or "bottom_right", the last query and the last key."""
    window: int | None
    """How many keys a query sees to each side of its diagonal, the one on it included; None is all."""
    softcap: float | None
    """The bound of the scores, by tanh; None is no bound."""
    prob: float
    """The share of weights that dropout sets to zero."""
    key: Number
    """The key of the dropout, as of `burn_kernels.dropout`; so `stream`."""
    stream: Number
    precision: str
    """How float32 products are taken: "ieee", "tf32" or "tf32x3"."""


class Rule(NamedTuple):
    """How scores become weights: the `AttentionOptions` of a call, and the columns of its heads."""

    dim: int
    scale: float | None = None
    causal: bool = False
    align: str = "top_left"
    window: int | None = None
    softcap: float | None = None
    prob: float = 0.0
    key: Number = 0
    stream: Number = 0
    precision: str = "ieee"

    @property
    def factor(self) -> float:
        """The factor of the products."""
        return 1.0 / math.sqrt(max(1, self.dim)) if self.scale is None else self.scale

    @property
    def bottom_right(self) -> bool:
        """True if the last query's diagonal ends at the last key; otherwise the first query's begins at the first."""
        return self.align == "bottom_right"

    @property
    def plain(self) -> bool:
        """True if nothing but a diagonal from the first corner changes the scores."""
        return self.window is None and self.softcap is None and self.prob == 0.0


def rule_of(op: str, q: Tensor, **options: Unpack[AttentionOptions]) -> Rule:
    """The rule of a launcher's options.  Raises: KernelArgumentError with all that are outside their range."""
    rule = Rule(q.shape[-1], **options)
    wrong = [] if rule.align in ("top_left", "bottom_right") else [f"align {rule.align!r}"]
    wrong += [f"window {rule.window}"] if rule.window is not None and rule.window < 1 else []
    wrong += [f"softcap {rule.softcap}"] if rule.softcap is not None and not 0.0 < rule.softcap < math.inf else []
    wrong += [f"scale {rule.scale}"] if rule.scale is not None and not math.isfinite(rule.scale) else []
    wrong += [f"precision {rule.precision!r}"] if rule.precision not in PRECISIONS else []
    if wrong:
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=", ".join(wrong),
            expected="align 'top_left' or 'bottom_right'; window from 1; softcap above 0; scale finite; "
            f"precision one of {', '.join(PRECISIONS)}",
            mend="leave out what is not wanted: None is no window, no softcap, and a scale of 1 / sqrt(d_head)",
        )
    check_probability(op, rule.prob)
    return rule


# -- checks ------------------------------------------------------------------------------------------
def check_dense(op: str, q: Tensor, k: Tensor, v: Tensor, mask: MaybeTensor, bias: MaybeTensor, **_: object) -> None:
    """Raises KernelShapeError or KernelDTypeError unless the operands fit together."""
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


def check_packed(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **_: object,
) -> None:
    """As `check_dense`, for packed sequences."""
    tensors = {"q": q, "k": k, "v": v, "q_starts": q_starts, "k_starts": k_starts}
    fits = q.dim() == k.dim() == v.dim() == 3 and k.shape == v.shape
    fits = fits and q.shape[2] == k.shape[2] and _shares(q.shape[1], k.shape[1])
    fits = fits and q_starts.dim() == 1 and q_starts.shape == k_starts.shape and q_starts.shape[0] > 0
    if not fits or min(longest_q, longest_k) < 0:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=f"{describe(tensors)}, longest_q {longest_q}, longest_k {longest_k}",
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
    if q.device.type == "cpu":
        starts = (q_starts.tolist(), k_starts.tolist())
        ends = (q.shape[0], k.shape[0])
        rising = all(a <= b for s in starts for a, b in itertools.pairwise(s))
        inside = all(s[0] == 0 and s[-1] == end for s, end in zip(starts, ends, strict=True))
        most = [max((b - a for a, b in itertools.pairwise(s)), default=0) for s in starts]
        if not (rising and inside and most[0] <= longest_q and most[1] <= longest_k):
            raise KernelArgumentError(
                f"{op}: the starts are not those of the sequences",
                given=f"q_starts {starts[0]}, k_starts {starts[1]}, longest_q {longest_q}, longest_k {longest_k}",
                expected=f"from 0 rising to {ends[0]} and {ends[1]}, no length above the longest",
                mend="make them of the lengths: 0, then their running sums",
            )


def check_dim(op: str, q: Tensor) -> None:
    """Raises KernelLimitError for heads that no kernel takes."""
    if not 0 < q.shape[-1] <= MAX_DIM:
        raise KernelLimitError(
            f"{op}: the kernel does not compute heads of this size",
            given=f"d_head {q.shape[-1]}",
            expected=f"d_head from 1 to {MAX_DIM}",
            mend="call the reference, which takes any",
        )


def in_torch(q: Tensor, k: Tensor, mask: MaybeTensor, bias: MaybeTensor, rule: Rule) -> bool:
    """Tells if torch's flash attention of the CPU computes the call: only a diagonal, of a square, hides keys."""
    square = not rule.causal or q.shape[2] == k.shape[2]
    plain = rule.plain and mask is None and bias is None and square
    return plain and q.device.type == "cpu" and q.numel() > 0 and k.numel() > 0


def _shares(heads: int, kv_heads: int) -> bool:
    return heads == kv_heads or (kv_heads > 0 and heads % kv_heads == 0)


def _broadcasts(shape: torch.Size, scores: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and all(a in (1, b) for a, b in zip(shape[::-1], scores[::-1], strict=False))


# -- reference ---------------------------------------------------------------------------------------
def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: MaybeTensor = None,
    bias: MaybeTensor = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Tensor, Tensor]:
    """y and lse in plain torch, all scores in memory.  It can be differentiated any number of times."""
    rule = rule_of("attention", q, **options)
    weights = _weigh(q, k, mask, bias, rule)
    return weights.read(v).to(q.dtype), weights.lse


def reference_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: MaybeTensor,
    bias: MaybeTensor,
    y: Tensor,
    lse: Tensor,
    **options: Unpack[AttentionOptions],
) -> Gradients:
    """The gradients of q, k, v and bias in plain torch, all scores in memory."""
    rule = rule_of("attention backward", q, **options)
    return _differentiate(dy, q, k, v, bias, _weigh(q, k, mask, bias, rule), rule)


def reference_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **options: Unpack[AttentionOptions],
) -> tuple[Tensor, Tensor]:
    """y (total_q, heads, d_head) and lse (heads, total_q) in plain torch, a sequence after the other."""
    rule = rule_of("attention_packed", q, **options)
    ys, lses = [], []
    for rows, cols, kept in _sequences(q, q_starts, k_starts, longest_k, rule):
        weights = _weigh(_dense(q[rows]), _dense(k[cols]), None, None, rule, kept)
        ys.append(weights.read(_dense(v[cols]))[0].transpose(0, 1))
        lses.append(weights.lse[0])
    if not ys:
        return torch.zeros_like(q), torch.zeros(q.shape[1], 0, dtype=wide_type(q.dtype), device=q.device)
    return torch.cat(ys).to(q.dtype), torch.cat(lses, 1)


def reference_packed_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    y: Tensor,
    lse: Tensor,
    *,
    longest_q: int,
    longest_k: int,
    **options: Unpack[AttentionOptions],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v in plain torch."""
    rule = rule_of("attention_packed backward", q, **options)
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for rows, cols, kept in _sequences(q, q_starts, k_starts, longest_k, rule):
        parts = _dense(q[rows]), _dense(k[cols]), _dense(v[cols])
        weights = _weigh(*parts[:2], None, None, rule, kept)
        grads = _differentiate(_dense(dy[rows]), *parts, None, weights, rule)
        for whole, part, place in zip((dq, dk, dv), grads[:3], (rows, cols, cols), strict=True):
            assert part is not None
            whole[place] = part[0].transpose(0, 1)
    return dq, dk, dv


def seen_by(rule: Rule, seq_q: int, seq_k: int, device: torch.device) -> MaybeTensor:
    """The keys that each query sees, (seq_q, seq_k); None where it sees all."""
    if not rule.causal and rule.window is None:
        return None
    diagonal = torch.arange(seq_q, device=device)[:, None] + (seq_k - seq_q if rule.bottom_right else 0)
    ahead = torch.arange(seq_k, device=device)[None, :] - diagonal
    seen = ahead <= 0 if rule.causal else ahead < (rule.window or 0)
    return seen if rule.window is None else seen & (ahead > -rule.window)


class _Weights(NamedTuple):
    """The weights of a call, 0 in the rows of queries that see nothing."""

    whole: Tensor
    lse: Tensor
    slope: MaybeTensor
    """The factors of a softcap, for gradients."""
    kept: MaybeTensor
    """The factors of a dropout."""

    def dropped(self) -> Tensor:
        """The weights after the dropout."""
        return self.whole if self.kept is None else self.whole * self.kept

    def read(self, v: Tensor) -> Tensor:
        """The values that they read."""
        return self.dropped() @ _repeat_heads(v, self.whole).to(self.whole.dtype)


def _weigh(
    q: Tensor, k: Tensor, mask: MaybeTensor, bias: MaybeTensor, rule: Rule, kept: MaybeTensor = None
) -> _Weights:
    wide = wide_type(q.dtype)
    scores = q.to(wide) @ _repeat_heads(k, q).to(wide).transpose(2, 3) * rule.factor
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
    if kept is None:  # numbers count these weights alone
        kept = kept_of(rule, scores.shape, scores.dtype, scores.device)
    return _Weights(torch.where(blind, 0.0, torch.softmax(safe, -1)), lse, slope, kept)


def _differentiate(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: MaybeTensor, weights: _Weights, rule: Rule
) -> Gradients:
    whole, _, slope, kept = weights
    wide = whole.dtype
    g = dy.to(wide)
    rise = g @ _repeat_heads(v, q).to(wide).transpose(2, 3)
    rise = rise if kept is None else rise * kept
    # sum(dy * y), from numbers that were not rounded to the type of y
    slopes = whole * (rise - (whole * rise).sum(-1, keepdim=True))
    dbias = None if bias is None else slopes.sum_to_size(bias.shape).to(bias.dtype)
    slopes = (slopes if slope is None else slopes * slope) * rule.factor
    dq = slopes @ _repeat_heads(k, q).to(wide)
    dk = _sum_heads(slopes.transpose(2, 3) @ q.to(wide), k)
    dv = _sum_heads(weights.dropped().transpose(2, 3) @ g, v)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dbias


def _repeat_heads(x: Tensor, q: Tensor) -> Tensor:
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _sum_heads(x: Tensor, like: Tensor) -> Tensor:
    heads = like.shape[1]
    return x if x.shape[1] == heads else x.unflatten(1, (heads, x.shape[1] // heads)).sum(2)


def _dense(x: Tensor) -> Tensor:
    return x.transpose(0, 1)[None]


def _sequences(
    q: Tensor, q_starts: Tensor, k_starts: Tensor, longest_k: int, rule: Rule
) -> Iterator[tuple[slice, slice, MaybeTensor]]:
    """The queries and the keys of each sequence, and what its dropout keeps."""
    kept = kept_of(rule, (q.shape[1], q.shape[0], longest_k), wide_type(q.dtype), q.device)
    for rows, cols in zip(*(itertools.pairwise(starts.tolist()) for starts in (q_starts, k_starts)), strict=True):
        part = None if kept is None else kept[None, :, slice(*rows), : cols[1] - cols[0]]
        yield slice(*rows), slice(*cols), part


# -- dropout -----------------------------------------------------------------------------------------
def kept_of(rule: Rule, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> MaybeTensor:
    """The factors by which a dropout multiplies weights of this shape, numbered in order; None without one."""
    if rule.prob == 0.0:
        return None
    last, scale = mask_numbers(rule.prob, dtype)
    drawn = random.words(rule.key, rule.stream, math.prod(shape), device).reshape(shape)
    return (drawn <= last).to(dtype) * scale
