"""Rotary position embedding of queries and keys together, out of place.

    y1 = x1 * cos(a) - x2 * sin(a)        y2 = x2 * cos(a) + x1 * sin(a)        a = position * frequency[pair]

Pairs (x1, x2) are columns (i, i + rotary / 2), or, interleaved, (2 i, 2 i + 1); columns from `rotary` on are copied.
The backward is the rotation by -a of both gradients.

Limit: memory.  Forward and backward each read and write q and k: 2 * (q + k) elements.
Layout: any strides; the last axis is read in place where its elements are neighbours (views of a fused projection
are), otherwise a copy is made first.  Results lie in the order of axes of their inputs.  Computes in float32.
Deterministic.

Angles come from tables of cosines and sines, or are computed: a frequency is kept in turns as a fraction of 2^64, so
position * frequency, modulo 2^64, is exact at every position, where float32 angles lose a digit at each tenfold.
Source: Su et al. 2021, section 3.2, https://arxiv.org/abs/2104.09864.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError, explain
from burn_kernels.launch import (
    FLOATS,
    Machine,
    ceil_div,
    check,
    describe,
    launch,
    machine_of,
    next_power,
    runs_kernel,
    wide_type,
)
from burn_kernels.prims import sin_cos_of_turn
from burn_kernels.spec import Draw, KernelSpec, Problem, register

Pair = tuple[torch.Tensor, torch.Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(q: torch.Tensor, k: torch.Tensor | None, *_: Any, backward: bool = False, **__: Any) -> int:
    """q and k read and written; the same backward, of their gradients."""
    return 2 * sum(x.numel() * x.element_size() for x in (q, k) if x is not None)


def flops(q: torch.Tensor, k: torch.Tensor | None, *_: Any, backward: bool = False, **__: Any) -> int:
    """Per element two products and a sum."""
    return 3 * sum(x.numel() for x in (q, k) if x is not None)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`tokens` and `heads` of a tile, `warps` of 32 threads."""

    tokens: int
    heads: int
    warps: int


def default(heads: int, pairs: int, itemsize: int, machine: Machine, *, by_head: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(heads, pairs, itemsize, machine, by_head=by_head)[0]


def candidates(heads: int, pairs: int, itemsize: int, machine: Machine, *, by_head: bool = False) -> list[Config]:
    """What a tuner may try, the default first; `by_head` where the tokens of a head are neighbours in memory."""
    width, most = next_power(pairs), next_power(heads)
    found = []
    for elements, warps in ((2048, 4), (2048, 8), (1024, 4), (4096, 8)):
        rows = max(1, elements // width)
        # tokens share nothing, heads of a token share their angles: as many heads as there are, unless that scatters
        together = min(most, 4 if by_head else rows, rows)
        found.append(Config(max(1, rows // together), together, warps))
        if by_head:
            found.append(Config(rows, 1, warps))
    return list(dict.fromkeys(found))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _rotate(x1, x2, cos, sin):
    return x1 * cos - x2 * sin, x2 * cos + x1 * sin


@triton.jit
def _rotate_heads(
    x_ptr, y_ptr, x_token, y_token, head, x_head_stride, y_head_stride, heads, valid, cos, sin, pairs, cols,
    INTERLEAVED: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    # tokens along axis 0, heads along axis 1, columns along axis 2
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    at = x_ptr + x_token + head * x_head_stride
    to = y_ptr + y_token + head * y_head_stride
    valid = valid & (head < heads)
    if INTERLEAVED:
        TOKENS: tl.constexpr = valid.shape[0]
        HEADS: tl.constexpr = valid.shape[1]
        col = tl.arange(0, 2 * PAIRS)[None, None, :]
        inside = valid & (col < 2 * pairs)
        x = tl.load(at + col, mask=inside, other=0.0).to(tl.float32)
        x1, x2 = tl.split(tl.reshape(x, (TOKENS, HEADS, PAIRS, 2)))
        y1, y2 = _rotate(x1, x2, cos, sin)
        y = tl.reshape(tl.join(y1, y2), (TOKENS, HEADS, 2 * PAIRS))
        tl.store(to + col, y.to(TYPE), mask=inside)
    else:
        col = tl.arange(0, PAIRS)[None, None, :]
        inside = valid & (col < pairs)
        x1 = tl.load(at + col, mask=inside, other=0.0).to(tl.float32)
        x2 = tl.load(at + col + pairs, mask=inside, other=0.0).to(tl.float32)
        y1, y2 = _rotate(x1, x2, cos, sin)
        tl.store(to + col, y1.to(TYPE), mask=inside)
        tl.store(to + col + pairs, y2.to(TYPE), mask=inside)
    if REST > 0:
        rest = 2 * pairs + tl.arange(0, REST)[None, None, :]
        inside = valid & (rest < cols)
        tl.store(to + rest, tl.load(at + rest, mask=inside, other=0.0), mask=inside)


@triton.jit
def _rope(
    q_ptr, k_ptr, qy_ptr, ky_ptr, cos_ptr, sin_ptr, turn_ptr, position_ptr,
    q_batch, q_seq, q_head, k_batch, k_seq, k_head, qy_batch, qy_seq, qy_head, ky_batch, ky_seq, ky_head,
    table_batch, table_seq, position_batch, position_seq, tokens, seq, offset, length, q_heads, k_heads, q_blocks,
    pairs, cols, INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr,
    PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    valid = token < tokens
    batch, step = token // seq, token % seq
    if position_ptr is None:
        position = step + offset
    else:
        position = tl.load(position_ptr + batch * position_batch + step * position_seq, mask=valid, other=0)
        position = position.to(tl.int64) + offset
    pair = tl.arange(0, PAIRS)
    if turn_ptr is not None:
        turn = position[:, None] * tl.load(turn_ptr + pair, mask=pair < pairs, other=0)[None, :]
        sin, cos = sin_cos_of_turn((turn >> 32).to(tl.int32))
    else:
        at = (batch * table_batch + position * table_seq)[:, None] + pair[None, :]
        # no row of the table: NaN, which shows, rather than a read of foreign memory
        there = (valid & (position >= 0) & (position < length))[:, None] & (pair < pairs)[None, :]
        cos = tl.load(cos_ptr + at, mask=there, other=float("nan")).to(tl.float32)
        sin = tl.load(sin_ptr + at, mask=there, other=float("nan")).to(tl.float32)
    if INVERSE:
        sin = -sin
    cos, sin = cos[:, None, :], sin[:, None, :]
    valid, batch, step = valid[:, None, None], batch[:, None, None], step[:, None, None]
    block = tl.program_id(1)
    if block < q_blocks:
        head = block * HEADS + tl.arange(0, HEADS).to(tl.int64)[None, :, None]
        _rotate_heads(
            q_ptr, qy_ptr, batch * q_batch + step * q_seq, batch * qy_batch + step * qy_seq, head, q_head, qy_head,
            q_heads, valid, cos, sin, pairs, cols, INTERLEAVED, PAIRS, REST,
        )  # fmt: skip
    elif k_ptr is not None:
        head = (block - q_blocks) * HEADS + tl.arange(0, HEADS).to(tl.int64)[None, :, None]
        _rotate_heads(
            k_ptr, ky_ptr, batch * k_batch + step * k_seq, batch * ky_batch + step * ky_seq, head, k_head, ky_head,
            k_heads, valid, cos, sin, pairs, cols, INTERLEAVED, PAIRS, REST,
        )  # fmt: skip


# -- launchers ---------------------------------------------------------------------------------------
def turns(
    rotary: int, base: float = 10_000.0, *, scale: float = 1.0, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """The frequencies base^(-2 i / rotary) / scale, as `turns_of` gives them: (rotary / 2,) int64."""
    if rotary % 2 or rotary < 0 or base <= 0.0 or scale <= 0.0:
        raise KernelArgumentError(
            explain(
                "rope: frequencies of numbers outside their range",
                given=f"rotary {rotary}, base {base}, scale {scale}",
                expected="an even number of rotary columns; base and scale above 0",
                mend="pass the rotary part of d_head, 10000.0 and 1.0, say",
            )
        )
    return turns_of([base ** (-2 * i / rotary) / scale for i in range(rotary // 2)], device=device)


def turns_of(frequencies: Sequence[float], *, device: torch.device | str = "cpu") -> torch.Tensor:
    """Frequencies in radians a position, as fractions of 2^64 of a turn: (pairs,) int64.

    >>> turns_of([math.tau / 4]).tolist() == [2**62]
    True
    """
    whole = [round(frequency / math.tau * 2.0**64) & 0xFFFFFFFFFFFFFFFF for frequency in frequencies]
    signed = [number - (1 << 64) if number >> 63 else number for number in whole]
    return torch.tensor(signed, dtype=torch.int64, device=device)


def forward(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """q and k, rotated by angles from tables.

    Shapes: q (batch, seq, heads, d_head), k (batch, seq, kv_heads, d_head) or None -> the same.  cos, sin
    (length, pairs), their row the position, or (batch or 1, seq, pairs), gathered already.  The first 2 * pairs columns
    are rotated.  positions (seq,) or (batch or 1, seq), integers; without them 0, 1, 2, ...; `offset` is added.
    Dtypes: q, k float32, float16, bfloat16, on the CPU float64 too; cos, sin any of them.
    A position without a row in the table raises on the CPU; on a GPU, which is not waited for, it gives NaN.
    """
    return _run("rope", q, k, (cos, sin), positions, offset, interleaved, config, inverse=False)


def backward(
    dq: torch.Tensor,
    dk: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """The gradients of q and k from those of the rotated ones: the inverse rotation."""
    return _run("rope backward", dq, dk, (cos, sin), positions, offset, interleaved, config, inverse=True)


def forward_computed(
    q: torch.Tensor,
    k: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """q and k, rotated by angles that are computed: as `forward`, but `turns` (pairs,) instead of tables."""
    return _run("rope", q, k, (turns,), positions, offset, interleaved, config, inverse=False)


def backward_computed(
    dq: torch.Tensor,
    dk: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """The gradients of q and k from those of `forward_computed`'s results."""
    return _run("rope backward", dq, dk, (turns,), positions, offset, interleaved, config, inverse=True)


def _run(
    op: str,
    q: torch.Tensor,
    k: torch.Tensor | None,
    angles: tuple[torch.Tensor, ...],
    positions: torch.Tensor | None,
    offset: int,
    interleaved: bool,
    config: Config | None,
    *,
    inverse: bool,
) -> Pair:
    _check(op, q, k, angles, positions, offset)
    if not runs_kernel(op, *(x for x in (q, k) if x is not None)):
        return _reference(q, k, angles, positions, offset, interleaved, inverse=inverse)
    if q.stride(3) != 1:
        q = q.contiguous()
    if k is not None and k.stride(3) != 1:
        k = k.contiguous()
    qy, ky = torch.empty_like(q), None if k is None else torch.empty_like(k)
    batch, seq, q_heads, cols = q.shape
    k_heads = 0 if k is None else k.shape[2]
    if not batch * seq * cols * (q_heads + k_heads):
        return qy, ky
    pairs = angles[0].shape[-1]
    none = (0, 0, 0)
    strides = [none if x is None else x.stride()[:3] for x in (q, k, qy, ky)]
    turn, cos, sin, table, length = None, None, None, (0, 0), 0
    if len(angles) == 1:
        turn = angles[0].contiguous()
    else:
        cos, sin = angles
        if cos.stride() != sin.stride() or cos.stride(-1) != 1:
            cos, sin = cos.contiguous(), sin.contiguous()
        table, length = _table_strides(cos), cos.shape[-2]
    spread = (0, 0)
    if positions is not None:
        shown = positions.expand(batch, seq)
        spread = (shown.stride(0), shown.stride(1))

    def run(config: Config) -> None:
        blocks = ceil_div(q_heads, config.heads)
        grid = (ceil_div(batch * seq, config.tokens), blocks + ceil_div(k_heads, config.heads))
        arguments = (q, k, qy, ky, cos, sin, turn, positions, *(n for group in strides for n in group))
        numbers = (*table, *spread, batch * seq, seq, offset, length, q_heads, k_heads, blocks, pairs, cols)
        flags = {"INTERLEAVED": interleaved, "INVERSE": inverse}
        rest = next_power(cols - 2 * pairs) if cols > 2 * pairs else 0
        sizes = {"TOKENS": config.tokens, "HEADS": config.heads, "PAIRS": next_power(pairs), "REST": rest}
        launch(_rope, grid, q, *arguments, *numbers, warps=config.warps, **flags, **sizes)

    by_head = q.stride(2) > q.stride(1)
    run(config or default(max(q_heads, k_heads), pairs, q.element_size(), machine_of(q), by_head=by_head))
    return qy, ky


def _table_strides(table: torch.Tensor) -> tuple[int, int]:
    if table.dim() == 2:
        return 0, table.stride(0)
    return (0 if table.shape[0] == 1 else table.stride(0)), table.stride(1)


def _check(
    op: str,
    q: torch.Tensor,
    k: torch.Tensor | None,
    angles: tuple[torch.Tensor, ...],
    positions: torch.Tensor | None,
    offset: int,
) -> None:
    names = ("turns",) if len(angles) == 1 else ("cos", "sin")
    tensors = {"q": q, "k": k, **dict(zip(names, angles, strict=True)), "positions": positions}
    first = angles[0]
    fits = q.dim() == 4 and (k is None or (k.dim() == 4 and (*k.shape[:2], k.shape[3]) == (*q.shape[:2], q.shape[3])))
    if fits:
        batch, seq = q.shape[:2]
        if len(angles) == 1:
            fits = first.dim() == 1
        else:
            gathered = first.dim() == 3 and first.shape[0] in (1, batch) and first.shape[1] == seq
            fits = angles[1].shape == first.shape and (first.dim() == 2 or gathered)
            fits = fits and not (gathered and (positions is not None or offset))
        fits = fits and 1 <= first.shape[-1] <= q.shape[3] // 2
        fits = fits and (positions is None or tuple(positions.shape) in ((seq,), (1, seq), (batch, seq)))
    if not fits:
        raise KernelShapeError(
            explain(
                f"{op}: the sizes do not fit",
                given=f"{describe(tensors)}, offset {offset}",
                expected="q (batch, seq, heads, d_head), k (batch, seq, kv_heads, d_head); turns (pairs,), or cos and "
                "sin alike (length, pairs), or gathered already (batch or 1, seq, pairs) and then neither positions "
                "nor an offset; pairs from 1 to d_head / 2; positions (seq,) or (batch or 1, seq)",
                mend="pass views: q.transpose(1, 2) of (batch, heads, seq, d_head), cos[..., :pairs] of doubled tables",
            )
        )
    whole = {"turns": angles[0] if len(angles) == 1 else None, "positions": positions}
    wrong = {name: x for name, x in whole.items() if x is not None and x.is_floating_point()}
    tables = {"cos": angles[0], "sin": angles[1]} if len(angles) == 2 else {}
    wrong |= {name: x for name, x in tables.items() if not x.is_floating_point()}
    if wrong:
        raise KernelDTypeError(
            explain(
                f"{op}: the element types do not fit",
                given=describe(wrong),
                expected="turns and positions of integers, cos and sin of floats",
                mend="make turns with rope.turns, positions with torch.arange",
            )
        )
    check(op, tensors, {}, alike=["q", "k"])


# -- reference ---------------------------------------------------------------------------------------
def reference(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    inverse: bool = False,
) -> Pair:
    """The rotation, or its inverse, in plain torch."""
    return _reference(q, k, (cos, sin), positions, offset, interleaved, inverse=inverse)


def reference_computed(
    q: torch.Tensor,
    k: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    inverse: bool = False,
) -> Pair:
    """As `reference`, with computed angles."""
    return _reference(q, k, (turns,), positions, offset, interleaved, inverse=inverse)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor | None,
    angles: tuple[torch.Tensor, ...],
    positions: torch.Tensor | None,
    offset: int,
    interleaved: bool,
    *,
    inverse: bool,
) -> Pair:
    wide = wide_type(q.dtype)
    if len(angles) == 2 and angles[0].dim() == 3:
        cos, sin = angles
    else:
        place = torch.arange(q.shape[1], device=q.device) if positions is None else positions.to(torch.int64)
        place = torch.atleast_2d(place + offset)
        if len(angles) == 1:
            angle = (place[..., None] * angles[0]).to(torch.float64) * (math.tau / 2.0**64)
            cos, sin = angle.cos(), angle.sin()
        else:
            _check_positions(place, angles[0].shape[0])
            cos, sin = (table[place] for table in angles)
    cos, sin = (x.to(wide)[:, :, None] for x in (cos, -sin if inverse else sin))
    return _plain(q, cos, sin, interleaved), None if k is None else _plain(k, cos, sin, interleaved)


def _plain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    pairs = cos.shape[-1]
    wide = x.to(cos.dtype)
    if interleaved:
        x1, x2 = wide[..., 0 : 2 * pairs : 2], wide[..., 1 : 2 * pairs : 2]
        y = torch.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).flatten(-2)
    else:
        x1, x2 = wide[..., :pairs], wide[..., pairs : 2 * pairs]
        y = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)
    return torch.cat([y.to(x.dtype), x[..., 2 * pairs :]], -1)


def _check_positions(place: torch.Tensor, length: int) -> None:
    if place.device.type != "cpu":
        return  # reading the values would wait for the device
    wrong = place[(place < 0) | (place >= length)]
    if wrong.numel():
        raise KernelArgumentError(
            explain(
                "rope: positions outside the tables",
                given=f"{wrong.numel()} positions, the first {int(wrong[0])}",
                expected=f"from 0 to {length - 1}, offset included",
                mend="make the tables longer, or compute the angles with forward_computed",
            )
        )


# -- registration ------------------------------------------------------------------------------------
def _table(length: int, pairs: int) -> dict[str, Any]:
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return {"cos": angle.cos(), "sin": angle.sin()}


def _problems(draw: Draw) -> Iterator[Problem]:
    q, k = draw.normal(2, 5, 3, 8), draw.normal(2, 5, 1, 8)
    for interleaved in (False, True):
        yield Problem((q, k), _table(5, 4) | {"interleaved": interleaved})
        yield Problem((q, k), _table(9, 3) | {"interleaved": interleaved, "offset": 4})  # two columns are copied
        positions = draw.integers(0, 9, 2, 5)
        yield Problem((q, k), _table(9, 1) | {"interleaved": interleaved, "positions": positions})
    fused = draw.normal(2, 7, 5 * 12).unflatten(-1, (5, 12))
    yield Problem((fused[:, :, :3], fused[:, :, 3:4]), _table(7, 6))  # views of one projection
    yield Problem((draw.normal(2, 3, 7, 10).transpose(1, 2), draw.normal(2, 2, 7, 10).transpose(1, 2)), _table(7, 5))
    yield Problem((draw.normal(8, 2, 3, 5).permute(3, 2, 1, 0), draw.normal(5, 3, 2, 8)), _table(3, 4))
    gathered = {name: table[None].repeat(2, 1, 1) for name, table in _table(5, 4).items()}
    yield Problem((q, k), gathered)
    yield Problem((draw.normal(1, 1, 1, 2), draw.normal(1, 1, 1, 2)), _table(1, 1))
    yield Problem((draw.normal(0, 3, 2, 4), draw.normal(0, 3, 2, 4)), _table(3, 2))
    yield Problem((draw.normal(1, 33, 5, 6), draw.normal(1, 33, 33, 6)), _table(33, 3))  # more heads than a tile


def _computed_problems(draw: Draw) -> Iterator[Problem]:
    q, k = draw.normal(2, 5, 3, 8), draw.normal(2, 5, 1, 8)
    for interleaved in (False, True):
        yield Problem((q, k), {"turns": turns(8), "interleaved": interleaved})
        options = {"turns": turns(6, 500.0, scale=2.0), "positions": draw.integers(0, 10_000_000, 2, 5)}
        yield Problem((q, k), options | {"interleaved": interleaved, "offset": 3})
    yield Problem((draw.normal(2, 3, 7, 10).transpose(1, 2), draw.normal(2, 2, 7, 10).transpose(1, 2)),
                  {"turns": turns(10)})  # fmt: skip


def _twin(q: torch.Tensor, k: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    # tables doubled, halves exchanged, as model code has it; interleaved as a product of complex numbers
    cos, sin = options["cos"], options["sin"]
    if cos.dim() == 2:
        place = options.get("positions")
        place = torch.arange(q.shape[1], device=q.device) if place is None else place
        cos, sin = cos[place + options.get("offset", 0)], sin[place + options.get("offset", 0)]
    cos, sin = (x.unsqueeze(-2) for x in (cos, sin))
    rotary = 2 * cos.shape[-1]
    return tuple(
        torch.cat([_turned(x[..., :rotary], cos, sin, options.get("interleaved", False)), x[..., rotary:]], -1)
        for x in (q, k)
    )


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    if interleaved:
        wide = wide_type(x.dtype)
        paired = torch.view_as_complex(x.to(wide).unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(paired * torch.complex(cos.to(wide), sin.to(wide))).flatten(-2).to(x.dtype)
    cos, sin = (torch.cat([t, t], -1).to(x.dtype) for t in (cos, sin))
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def _twin_computed(q: torch.Tensor, k: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    # in Python's whole numbers: a float64 angle of 10 million radians is off in its tenth digit
    place = options.get("positions")
    place = torch.atleast_2d(torch.arange(q.shape[1]) if place is None else place) + options.get("offset", 0)
    steps = options["turns"].tolist()
    angle = torch.tensor([[[math.tau * (at * step % 2**64) / 2**64 for step in steps] for at in row]
                          for row in place.tolist()], dtype=torch.float64)  # fmt: skip
    cos, sin = (x.to(q.device, wide_type(q.dtype)) for x in (angle.cos(), angle.sin()))
    return _twin(q, k, cos=cos, sin=sin, interleaved=options.get("interleaved", False))


def _register(name: str, run: Any, back: Any, plain: Any, twin: Any, problems: Any) -> KernelSpec:
    undone = functools.partial(plain, inverse=True)
    return register(
        KernelSpec(
            name=name,
            forward=run,
            gradient=lambda dy, inputs, outputs, **options: back(*dy, **options),
            reference=plain,
            reference_gradient=lambda dy, inputs, outputs, **options: undone(*dy, **options),
            twin=twin,
            bytes_moved=bytes_moved,
            flops=flops,
            problems=problems,
            dtypes=FLOATS,
            limits="none in size; float64 on a GPU",
        )
    )


SPEC = _register("rope", forward, backward, reference, _twin, _problems)
COMPUTED_SPEC = _register(
    "rope_computed", forward_computed, backward_computed, reference_computed, _twin_computed, _computed_problems
)
