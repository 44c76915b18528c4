"""A call of attention as its kernels take it: operands of four axes, their strides, the numbers, and its key.

Packed sequences are given to the same kernels: their operands stand as one batch entry of all tokens, and the starts
say where each sequence lies in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from burn_kernels import random
from burn_kernels.attention import library
from burn_kernels.attention.configs import BackwardConfig, Config
from burn_kernels.attention.references import Rule
from burn_kernels.attention.scores import Flags, Sizes, Steps, Strides
from burn_kernels.dropout import mask_numbers
from burn_kernels.launch import machine_of, next_power


class Body(NamedTuple):
    """Functions of users that change and hide scores, as `triton.jit` functions over tiles.

    score     (s, batch, head, row, col, captured) -> s, scores in base e, float32
    slope     its derivative by s, of the same arguments; None with `score` None
    seen      (batch, head, row, col, captured) -> int1
    captured  tensors and numbers that they read, in the order in which their texts name them
    lines     blocks of keys that each block of queries sees, as `attention.modified` says; columns the other way
    block     positions of a block
    """

    score: object
    slope: object
    seen: object
    captured: tuple[Tensor | int, ...]
    lines: Tensor | None
    columns: Tensor | None
    block: int

    @property
    def kind(self) -> str:
        """The kind of call in the tables of configs: functions that read tensors want other tiles."""
        return "reading" if self.captured else "body"

    def flags(self, *, backward: bool) -> dict[str, Any]:
        """The constants of kernels."""
        slope = self.slope if backward else None
        return {"SCORE": self.score, "SLOPE": slope, "SEEN": self.seen, "BLOCK": self.block}


C = TypeVar("C", Config, BackwardConfig)
LOG2E = 1.4426950408889634


@dataclass(frozen=True, eq=False)
class Call:
    """The operands of forward and backward, and the rule of their scores."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    """Bytes, as views of four axes, strides of 0 where it broadcasts; so the bias."""
    bias: Tensor | None
    q_starts: Tensor | None
    k_starts: Tensor | None
    batch: int
    seq_q: int
    """Queries of a sequence, of the longest one if they are packed; so for keys."""
    seq_k: int
    rule: Rule
    body: Body | None = None
    """Functions that change and hide scores."""

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys and values."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def empty(self) -> bool:
        """True if there is nothing to compute."""
        return not (self.q.numel() and self.k.numel() and self.batch)

    @property
    def extras(self) -> int:
        """The number of operations that take registers beside a diagonal: mask, bias, softcap and window count one,
        dropout two, and two more where mask or bias cannot be read several elements at once."""
        rule = self.rule
        said = (self.mask is not None, self.bias is not None, rule.softcap is not None, rule.window is not None)
        body = self.body
        own = 0 if body is None else (body.score is not None) + (body.seen is not None)
        return own + sum(said) + 2 * (rule.prob > 0.0) + 2 * self.scattered

    @property
    def scattered(self) -> bool:
        """True if the rows of a mask or bias do not begin at multiples of 16 elements, or have gaps."""
        spread = [x for x in (self.mask, self.bias) if x is not None and x.shape[3] > 1]
        return any(x.stride(3) > 1 or x.stride(2) % 16 for x in spread)

    def past(self, cols: int) -> int:
        """Tells if blocks of so many keys reach past the last one where a mask or bias is read, as `beside` asks."""
        inside = self.seq_k % cols == 0 or (self.mask is None and self.bias is None)
        return 0 if inside else 1 if self.seq_k % 16 == 0 else 2

    def full(self, rows: int) -> bool:
        """Tells if blocks of so many queries end where each sequence does, and each block of keys is seen by one.

        For keys past the last query a block of queries is computed all the same, which must not be read then.
        """
        rule = self.rule
        diagonal = (rule.causal or rule.window is not None) and not rule.bottom_right
        unseen = diagonal and self.seq_k > self.seq_q
        whole = self.seq_q % rows == 0 and (self.body is None or self.seq_q % self.body.block == 0)
        return self.q_starts is None and whole and not unseen

    def steps(self, x: Tensor) -> Steps:
        """The strides of batch entries, heads and positions; packed sequences have one batch entry."""
        return Steps(0 if self.q_starts is not None else x.stride(0), x.stride(1), x.stride(2))

    def statistics(self) -> Tensor:
        """A number a query in float32, (batch, heads, seq_q); of packed sequences (1, heads, total_q)."""
        return torch.empty(self.q.shape[:3], dtype=torch.float32, device=self.q.device)

    def arguments(self, *, columns: bool = False) -> tuple[Any, ...]:
        """The arguments that every kernel takes first; with `columns` those of one that owns keys."""
        rule, (_, heads, rows, dim) = self.rule, self.q.shape
        spread = [(0, 0, 0, 0) if x is None else x.stride() for x in (self.mask, self.bias)]
        lists, captured = None, None
        apart: list[int] = [0, 0, 0]
        if self.body is not None:
            lists, captured = self.body.columns if columns else self.body.lines, self.body.captured or None
            if lists is not None:
                apart = [0 if n == 1 else step for n, step in zip(lists.shape, lists.stride()[:3], strict=False)]
        steps = (*self.steps(self.q), *self.steps(self.k), *self.steps(self.v))
        strides = Strides(*steps, *spread[0], *spread[1])
        if lists is not None:
            strides = strides._replace(list_batch=apart[0], list_head=apart[1], list_line=apart[2])
        # queries are numbered over batch and heads, of packed sequences over heads and all tokens
        numbers = 0 if self.q_starts is not None else heads * rows
        sizes = Sizes(heads, self.group, self.seq_q, self.seq_k, dim, numbers, rows)
        unit = 1.0 if self.q.dtype == torch.float32 else LOG2E
        scale = rule.factor * unit if rule.softcap is None else rule.factor / rule.softcap
        if self.body is not None and self.body.score is not None:
            scale = rule.factor  # the function is given scores in base e
        draw = (0, 0, 0, 0.0)
        if rule.prob:
            draw = (*random.numbers(rule.key, rule.stream), *mask_numbers(rule.prob, torch.float32))
        tensors = (self.q, self.k, self.v, self.mask, self.bias, self.q_starts, self.k_starts)
        return (*tensors, strides, sizes, scale, rule.factor, rule.softcap, rule.window or 0, *draw, lists, captured)

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
        """The constants of every kernel."""
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
            **({} if self.body is None else self.body.flags(backward=backward)),
        )

    def choose(self, config: C, ours: Callable[[], C]) -> tuple[int, C]:
        """The number of torch's kernel, the one that it takes itself if it is "torch's", or 0 and a config of ours."""
        number = config.library
        if number == library.TORCHS:
            number = library.choose(self.q, self.k, self.v, self.rule.causal)
            config = config if number else ours()  # torch has nothing but plain products for these
        return number, config

    def facts(self) -> tuple[Any, ...]:
        """The arguments of `facts_of`."""
        tensors = (self.q, self.k, self.v)
        address = self.q.data_ptr() | self.k.data_ptr() | self.v.data_ptr()
        spans = tuple(n for x in tensors for n in x.stride()[:3])
        packed, rule = all(x.is_contiguous() for x in tensors), self.rule
        words = (
            rule.causal, rule.bottom_right and self.seq_q != self.seq_k, rule.window is not None, self.mask is not None,
            self.bias is not None, rule.softcap is not None, rule.prob > 0.0, self.q_starts is not None, self.scattered,
            rule.precision,
        )  # fmt: skip
        sizes = (self.batch, self.seq_q, self.seq_k, self.heads, self.k.shape[1], self.q.shape[3])
        return (self.q.dtype, *sizes, spans, address & 15, packed, words)


def call_of(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, rule: Rule) -> Call:
    """The call of operands that were checked."""
    q, k, v = (lines(x) for x in (q, k, v))
    scores = (*q.shape[:3], k.shape[2])
    spread = [None if x is None else x.expand(scores) for x in (mask, bias)]
    seen = None if spread[0] is None else spread[0].view(torch.uint8)
    return Call(q, k, v, seen, spread[1], None, None, q.shape[0], q.shape[2], k.shape[2], rule)


def packed_call_of(
    q: Tensor, k: Tensor, v: Tensor, starts: tuple[Tensor, Tensor], longest: tuple[int, int], rule: Rule
) -> Call:
    """The call of packed operands that were checked."""
    q, k, v = (lines(x).transpose(0, 1)[None] for x in (q, k, v))
    q_starts, k_starts = starts[0].contiguous(), starts[1].contiguous()
    return Call(q, k, v, None, None, q_starts, k_starts, q_starts.shape[0] - 1, *longest, rule)


def lines(x: Tensor) -> Tensor:
    """x with its last axis next to itself: itself, or a copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def room_like(x: Tensor) -> Tensor:
    """Memory for a result of (batch, heads, seq, d_head): heads or positions first, as in x."""
    batch, heads, seq, dim = x.shape
    if x.stride(1) < x.stride(2):
        return torch.empty(batch, seq, heads, dim, dtype=x.dtype, device=x.device).transpose(1, 2)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
