"""A call of attention as its kernels take it: operands of four axes, their strides, the numbers, and what a key says.

Packed sequences are given to the same kernels: their operands stand as one batch entry of all tokens, and the starts
say where each sequence lies in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels import random
from burn_kernels.attention.references import Rule
from burn_kernels.attention.scores import Flags, Sizes, Steps, Strides
from burn_kernels.autotune.key import Facts, alignment, bucket
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.dropout import mask_numbers
from burn_kernels.launch import ceil_div, machine_of, next_power

LOG2E = 1.4426950408889634


@dataclass(frozen=True, eq=False)
class Call:
    """What forward and backward launch with."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    """Of bytes, as views of four axes, strides of 0 where it broadcasts; so the bias."""
    bias: torch.Tensor | None
    q_starts: torch.Tensor | None
    k_starts: torch.Tensor | None
    batch: int
    seq_q: int
    """Of packed sequences the longest; so for keys."""
    seq_k: int
    rule: Rule

    @property
    def heads(self) -> int:
        """Of queries."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys and values."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return not (self.q.numel() and self.k.numel() and self.batch)

    @property
    def extras(self) -> int:
        """What takes registers beside a diagonal: mask, bias, softcap and window count one, dropout two, and two more
        where mask or bias cannot be read several elements at once."""
        rule = self.rule
        said = (self.mask is not None, self.bias is not None, rule.softcap is not None, rule.window is not None)
        return sum(said) + 2 * (rule.prob > 0.0) + 2 * self.scattered

    @property
    def scattered(self) -> bool:
        """Whether the rows of a mask or bias do not begin at multiples of 16 elements, or have gaps."""
        spread = [x for x in (self.mask, self.bias) if x is not None and x.shape[3] > 1]
        return any(x.stride(3) > 1 or x.stride(2) % 16 for x in spread)

    def past(self, cols: int) -> int:
        """Whether blocks of so many keys reach past the last one where a mask or bias is read, as `beside` is told."""
        inside = self.seq_k % cols == 0 or (self.mask is None and self.bias is None)
        return 0 if inside else 1 if self.seq_k % 16 == 0 else 2

    def full(self, rows: int) -> bool:
        """Whether blocks of so many queries end where each sequence does, and each block of keys is seen by one.

        Of keys past the last query a block of queries is computed all the same, which must not be read then.
        """
        rule = self.rule
        diagonal = (rule.causal or rule.window is not None) and not rule.bottom_right
        unseen = diagonal and self.seq_k > self.seq_q
        return self.q_starts is None and self.seq_q % rows == 0 and not unseen

    def steps(self, x: torch.Tensor) -> Steps:
        """The strides of batch entries, heads and positions; packed sequences have one batch entry."""
        return Steps(0 if self.q_starts is not None else x.stride(0), x.stride(1), x.stride(2))

    def statistics(self) -> torch.Tensor:
        """A number a query in float32, (batch, heads, seq_q); of packed sequences (1, heads, total_q)."""
        return torch.empty(self.q.shape[:3], dtype=torch.float32, device=self.q.device)

    def arguments(self) -> tuple[Any, ...]:
        """What every kernel takes first."""
        rule, (_, heads, rows, dim) = self.rule, self.q.shape
        spread = [(0, 0, 0, 0) if x is None else x.stride() for x in (self.mask, self.bias)]
        strides = Strides(*self.steps(self.q), *self.steps(self.k), *self.steps(self.v), *spread[0], *spread[1])
        # queries are numbered over batch and heads, of packed sequences over heads and all tokens
        numbers = 0 if self.q_starts is not None else heads * rows
        sizes = Sizes(heads, self.group, self.seq_q, self.seq_k, dim, numbers, rows)
        unit = 1.0 if self.q.dtype == torch.float32 else LOG2E
        scale = rule.scale * unit if rule.softcap is None else rule.scale / rule.softcap
        draw = (0, 0, 0, 0.0)
        if rule.prob:
            draw = (*random.numbers(rule.key, rule.stream), *mask_numbers(rule.prob, torch.float32))
        tensors = (self.q, self.k, self.v, self.mask, self.bias, self.q_starts, self.k_starts)
        return (*tensors, strides, sizes, scale, rule.scale, rule.softcap, rule.window or 0, *draw)

    def precision(self, *, backward: bool) -> str:
        """How float32 is multiplied, as `products` has it."""
        if self.rule.precision != "ieee" or self.q.dtype != torch.float32:
            return self.rule.precision
        if self.q_starts is None and self.seq_q == 1:
            return "ieee one"
        # what compiles without spills: the backward holds what four products need, CDNA 3 has no room in the forward
        both, machine = self.mask is not None and self.bias is not None, machine_of(self.q)
        if (backward and (both or self.rule.softcap is not None)) or machine.backend == "hip":
            return "ieee whole"
        return "ieee two" if backward and (machine.arch != 90 or self.rule.window is not None) else "ieee"

    def flags(self, *, backward: bool = False) -> Flags:
        """What every kernel is compiled for."""
        rule, dim = self.rule, self.q.shape[3]
        wide = max(16, next_power(dim))
        return Flags(
            CAUSAL=rule.causal,
            BOTTOM=rule.bottom_right,
            WINDOW=rule.window is not None,
            DROP=rule.prob > 0.0,
            QUADS=self.seq_k % 4 == 0,  # packed sequences have as many words a query as the longest has keys
            **random.flags(rule.key, rule.stream),
            PRECISION=self.precision(backward=backward),
            DIM=wide,
            EVEN=dim == wide,
        )

    def facts(self) -> tuple[Any, ...]:
        """What `facts_of` takes."""
        tensors = [x for x in (self.q, self.k, self.v) if x is not None]
        address = 0
        for x in tensors:
            address |= x.data_ptr()
        spans = tuple(n for x in tensors for n in x.stride()[:3])
        packed, rule = all(x.is_contiguous() for x in tensors), self.rule
        words = (
            rule.causal, rule.bottom_right and self.seq_q != self.seq_k, rule.window is not None, self.mask is not None,
            self.bias is not None, rule.softcap is not None, rule.prob > 0.0, self.q_starts is not None, self.scattered,
            rule.precision,
        )  # fmt: skip
        sizes = (self.batch, self.seq_q, self.seq_k, self.heads, self.k.shape[1], self.q.shape[3])
        return (self.q.dtype, *sizes, spans, address & 15, packed, words)


def call_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    rule: Rule,
) -> Call:
    """The call of operands that were checked."""
    q, k, v = (lines(x) for x in (q, k, v))
    scores = (*q.shape[:3], k.shape[2])
    spread = [None if x is None else x.expand(scores) for x in (mask, bias)]
    seen = None if spread[0] is None else spread[0].view(torch.uint8)
    return Call(q, k, v, seen, spread[1], None, None, q.shape[0], q.shape[2], k.shape[2], rule)


def packed_call_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    longest: tuple[int, int],
    rule: Rule,
) -> Call:
    """The call of packed operands that were checked."""
    q, k, v = (lines(x).transpose(0, 1)[None] for x in (q, k, v))
    starts = (q_starts.contiguous(), k_starts.contiguous())
    return Call(q, k, v, None, None, *starts, q_starts.shape[0] - 1, *longest, rule)


def lines(x: torch.Tensor) -> torch.Tensor:
    """x with its last axis next to itself: itself, or a copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def room_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for a result of (batch, heads, seq, d_head): heads or positions first, as in x."""
    batch, heads, seq, dim = x.shape
    if x.stride(1) < x.stride(2):
        return torch.empty(batch, seq, heads, dim, dtype=x.dtype, device=x.device).transpose(1, 2)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


# -- selection ---------------------------------------------------------------------------------------
_WORDS = ("causal", "bottom", "window", "mask", "bias", "softcap", "drop", "packed", "scattered")
PLAIN = {"self", "causal"}
"""Flags of what torch's kernels compute too, beside other numbers of keys and of their heads."""


def facts_of(
    dtype: torch.dtype, batch: int, seq_q: int, seq_k: int, heads: int, kv_heads: int, dim: int,
    spans: tuple[int, ...], address: int, packed: bool, words: tuple[Any, ...],
) -> Facts:  # fmt: skip
    """The facts of a call; how many keys there are, and heads of them, stands in the flags."""
    align = alignment(address, dim * dtype.itemsize, *(span * dtype.itemsize for span in spans))
    flags = ["self" if seq_q == seq_k else f"keys<={bucket(seq_k)}"]
    flags += [] if heads == kv_heads else [f"kv_heads={kv_heads}"]
    flags += [word for word, said in zip(_WORDS, words[:-1], strict=True) if said]
    flags += [] if words[-1] == "ieee" else [words[-1]]
    return Facts((batch, seq_q), (heads, dim), dtype, align, "packed" if packed else "strided", " ".join(flags))


def extras_of(flags: list[str]) -> int:
    """`Call.extras` of the flags of a key."""
    ones, twos = ("mask", "bias", "softcap", "window"), ("drop", "scattered")
    return sum(word in flags for word in ones) + 2 * sum(word in flags for word in twos)


def of_library(facts: Facts) -> bool:
    """Whether torch's kernels compute the problem: nothing but a diagonal, of a square, hides keys."""
    flags = {flag for flag in facts.flags.split() if not flag.startswith(("keys<=", "kv_heads="))}
    square = "self" in flags or "causal" not in flags
    return flags <= PLAIN and square and facts.exact[1] % 8 == 0 and facts.align >= 16


def drawn(facts: Facts, inputs: Inputs) -> tuple[tuple[torch.Tensor, ...], dict[str, object]]:
    """q, k, v, mask and bias of a problem like this one, and its options."""
    (batch, seq_q), (heads, dim), flags = facts.free, facts.exact, facts.flags.split()
    numbers = dict(flag.replace("<=", "=").split("=") for flag in flags if "=" in flag)
    seq_k, kv_heads = int(numbers.get("keys", seq_q)), int(numbers.get("kv_heads", heads))

    def operand(count: int, seq: int) -> torch.Tensor:
        if facts.layout == "packed":
            return inputs.rows(facts, batch * count * seq, dim).view(batch, count, seq, dim)
        flat = inputs.rows(facts, batch * seq, count * dim)  # as a projection leaves them: positions first
        return flat.as_strided((batch, count, seq, dim), (seq * flat.stride(0), dim, flat.stride(0), 1))

    q, k, v = operand(heads, seq_q), operand(kv_heads, seq_k), operand(kv_heads, seq_k)
    mask = inputs.integers(0, 4, batch, 1, 1, seq_k) > 0 if "mask" in flags else None
    # rows that begin at multiples of 16 elements, or all but one of them not
    width = seq_k + 1 if "scattered" in flags else (seq_k + 15) // 16 * 16
    bias = inputs.normal(1, heads, seq_q, width, dtype=facts.dtype)[..., :seq_k] if "bias" in flags else None
    options: dict[str, Any] = {"causal": "causal" in flags}
    options |= {"align": "bottom_right"} if "bottom" in flags else {}
    options |= {"window": max(3, seq_k // 4)} if "window" in flags else {}
    options |= {"softcap": 20.0} if "softcap" in flags else {}
    options |= {"prob": 0.1, "key": 7, "stream": 11} if "drop" in flags else {}
    return (q, k, v, mask, bias), options  # type: ignore[return-value]  # the last two may be None


def packed_drawn(facts: Facts, inputs: Inputs) -> tuple[tuple[torch.Tensor, ...], dict[str, object]]:
    """As `drawn`, for packed sequences of unlike lengths: q, k, v and the starts."""
    (q, k, v, _, _), options = drawn(facts, inputs)
    (batch, seq_q), seq_k = facts.free, k.shape[2]
    found: list[torch.Tensor] = []
    totals: list[int] = []
    for seq in (seq_q, seq_k):
        lengths = torch.tensor([max(1, seq * (1 + at % 3) // 3) for at in range(batch)])
        lengths[-1] = seq
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        totals.append(int(starts[-1]))
        found.append(starts.to(inputs.device, torch.int32))
    flat = [x.transpose(1, 2).flatten(0, 1)[: totals[at > 0]].contiguous() for at, x in enumerate((q, k, v))]
    return (*flat, *found), options | {"longest_q": seq_q, "longest_k": seq_k}


def trial_parts(facts: Facts) -> Callable[[Facts, Inputs], tuple[tuple[torch.Tensor, ...], dict[str, Any]]]:
    """What draws a problem like this one."""
    return packed_drawn if "packed" in facts.flags.split() else drawn


def problems_of(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """Self-attention over `rows` positions with `cols` columns in heads of 64 where that divides them."""
    dim = next(d for d in (64, 49, cols) if cols % d == 0 and d <= 256) if cols % 64 == 0 or cols <= 256 else 40
    heads = max(1, min(64, cols // dim))
    align = alignment(dim * dtype.itemsize)
    shared = f" kv_heads={heads // 4}" if heads % 4 == 0 else ""
    flags = ("self", "self causal", f"self{shared} causal", "self mask bias", "self causal window softcap", "self drop")
    found = [Facts((1, rows), (heads, dim), dtype, align, flags=flag) for flag in dict.fromkeys(flags)]
    return [*found, Facts((2, rows), (heads, dim), dtype, align, flags="self causal packed")]


@functools.lru_cache(maxsize=256)
def tiles(rows: int, cols: int, seq_q: int, seq_k: int, causal: bool) -> int:
    """Tiles of scores that are computed for a head: about half of them under a diagonal."""
    whole = ceil_div(seq_q, rows) * ceil_div(seq_k, cols)
    return max(1, (whole + ceil_div(max(seq_q, seq_k), max(rows, cols))) // 2) if causal else whole
