"""The choices of forward and backward share keys, candidates (torch's kernels beside ours), costs and problems."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from burn_kernels.attention import library
from burn_kernels.attention.configs import BackwardConfig, Config
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment, bucket
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.launch import Machine, ceil_div, next_power

C = TypeVar("C")
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


def of_library(facts: Facts, *, back: bool = False) -> bool:
    """Tells if torch's kernels compute the problem: nothing but a diagonal, of a square, hides keys.

    A backward of theirs adds in any order, so the caller must have allowed that.
    """
    flags = {flag for flag in facts.flags.split() if not flag.startswith(("keys<=", "kv_heads="))}
    plain = PLAIN | {"any_order"} if back else PLAIN
    square = "self" in flags or "causal" not in flags
    loose = not back or "any_order" in flags
    return flags <= plain and loose and square and facts.exact[1] % 8 == 0 and facts.align >= 16


# -- candidates --------------------------------------------------------------------------------------
def library_numbers(facts: Facts) -> list[int]:
    """The numbers of torch's kernels that take such heads."""
    return library.numbers(facts.dtype, facts.exact[1], grouped="kv_heads=" in facts.flags)


def join_candidates(
    theirs: Callable[..., C], ours: list[C], facts: Facts, machine: Machine, *, back: bool = False
) -> list[C]:
    """torch's kernels where they compute the problem, then ours."""
    if machine.backend != "cuda" or not of_library(facts, back=back):
        return ours
    return [*(theirs(number, 0, 0, 0, 0) for number in library_numbers(facts)), *ours]


def _supports(config: Config | BackwardConfig, facts: Facts, *, back: bool) -> bool:
    if not config.library:
        return min(config.tile) >= 16
    return of_library(facts, back=back) and config.library in library_numbers(facts)


@functools.lru_cache(maxsize=256)
def tiles(rows: int, cols: int, seq_q: int, seq_k: int, causal: bool) -> int:
    """Tiles of scores that are computed for a head: about half of them under a diagonal."""
    whole = ceil_div(seq_q, rows) * ceil_div(seq_k, cols)
    return max(1, (whole + ceil_div(max(seq_q, seq_k), max(rows, cols))) // 2) if causal else whole


def _work(config: Config | BackwardConfig, facts: Facts, machine: Machine, *, back: bool) -> Work:
    (batch, seq), (heads, dim), size = facts.free, facts.exact, facts.dtype.itemsize
    (rows, cols), warps = config.tile, config.warps
    if config.library:
        rows, cols, warps = 64 if back else 128, 64, 8
    count = tiles(rows, cols, seq, seq, "causal" in facts.flags)
    programs, wide = ceil_div(seq, rows) * batch * heads, max(16, next_power(dim))
    moved = (8 if back else 4) * batch * heads * seq * dim * size
    products = 4 if not back else 18 if "dbias" in facts.flags else 14
    operations = products * batch * heads * count * rows * cols * wide
    useful, live = min(1.0, seq / (ceil_div(seq, rows) * rows)), 3.0 if back else 2.0
    return Work(programs, warps, rows * wide, size, moved, operations, useful, live, ahead=max(1, config.stages))


def attention_tunable(name: str, *, back: bool, **parts: Any) -> Tunable:
    """Registers the place at which a config of the forward, or of the backward, is chosen."""
    return register_tunable(
        name=name,
        free=("batch", "seq"),
        exact=("heads", "d_head"),
        supports=functools.partial(_supports, back=back),
        work=functools.partial(_work, back=back),
        shapes=((4096, 4096), (1024, 768)),
        **parts,
    )


# -- problems ----------------------------------------------------------------------------------------
def problems_of(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """Self-attention over `rows` positions with `cols` columns in heads of 64 where that divides them."""
    dim = next(d for d in (64, 49, cols) if cols % d == 0 and d <= 256) if cols % 64 == 0 or cols <= 256 else 40
    heads = max(1, min(64, cols // dim))
    align = alignment(dim * dtype.itemsize)
    shared = f" kv_heads={heads // 4}" if heads % 4 == 0 else ""
    flags = ("self", "self causal", f"self{shared} causal", "self mask bias", "self causal window softcap", "self drop")
    dense = [Facts((1, rows), (heads, dim), dtype, align, flags=flag) for flag in dict.fromkeys(flags)]
    return [*dense, Facts((2, rows), (heads, dim), dtype, align, flags="self causal packed")]


def draw_problem(facts: Facts, inputs: Inputs) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """The operands of a problem like this one, with mask and bias or with starts, and its options."""
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
    if "packed" in flags:
        lengths = {"longest_q": seq_q, "longest_k": seq_k}
        return _pack((q, k, v), (seq_q, seq_k), inputs), options | lengths
    return (q, k, v, mask, bias), options  # type: ignore[return-value]  # the last two may be None


def _pack(operands: tuple[torch.Tensor, ...], longest: tuple[int, int], inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """q, k and v of sequences of unlike lengths, packed, and the starts."""
    batch = operands[0].shape[0]
    starts: list[torch.Tensor] = []
    for seq in longest:
        lengths = torch.tensor([max(1, seq * (1 + at % 3) // 3) for at in range(batch)])
        lengths[-1] = seq
        starts.append(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
    totals = [int(ends[-1]) for ends in starts]
    flat = [x.transpose(1, 2).flatten(0, 1)[: totals[at > 0]].contiguous() for at, x in enumerate(operands)]
    return (*flat, *(ends.to(inputs.device, torch.int32) for ends in starts))
