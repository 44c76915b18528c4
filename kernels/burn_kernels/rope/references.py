"""Rotary embedding beside its kernel: frequencies, checks, the rotation in plain torch, problems to check it on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.launch import describe, wide_type
from burn_kernels.spec import Draw, Problem

Pair = tuple[Tensor, Tensor | None]


# -- frequencies -------------------------------------------------------------------------------------
def turns(rotary: int, base: float = 10_000.0, *, scale: float = 1.0, device: torch.device | str = "cpu") -> Tensor:
    """The frequencies base^(-2 i / rotary) / scale, as `turns_of` gives them: (rotary / 2,) int64."""
    if rotary % 2 or rotary < 0 or base <= 0.0 or scale <= 0.0:
        raise KernelArgumentError(
            "rope: frequencies of numbers outside their range",
            given=f"rotary {rotary}, base {base}, scale {scale}",
            expected="an even number of rotary columns; base and scale above 0",
            mend="pass the rotary part of d_head, 10000.0 and 1.0, say",
        )
    return turns_of([base ** (-2 * i / rotary) / scale for i in range(rotary // 2)], device=device)


def turns_of(frequencies: Sequence[float], *, device: torch.device | str = "cpu") -> Tensor:
    """Frequencies in radians a position, as fractions of 2^64 of a turn: (pairs,) int64.

    >>> turns_of([math.tau / 4]).tolist() == [2**62]
    True
    """
    whole = [round(frequency / math.tau * 2.0**64) & 0xFFFFFFFFFFFFFFFF for frequency in frequencies]
    signed = [number - (1 << 64) if number >> 63 else number for number in whole]
    return torch.tensor(signed, dtype=torch.int64, device=device)


# -- checks ------------------------------------------------------------------------------------------
def check_call(
    op: str, q: Tensor, k: Tensor | None, tables: dict[str, Tensor], positions: Tensor | None, offset: int
) -> None:
    """Raises KernelShapeError or KernelDTypeError for angles or positions that do not fit q and k."""
    first, *others = tables.values()
    fits = q.dim() == 4 and (k is None or (k.dim() == 4 and (*k.shape[:2], k.shape[3]) == (*q.shape[:2], q.shape[3])))
    if fits:
        batch, seq = q.shape[:2]
        if others:
            gathered = first.dim() == 3 and first.shape[0] in (1, batch) and first.shape[1] == seq
            fits = others[0].shape == first.shape and (first.dim() == 2 or gathered)
            fits = fits and not (gathered and (positions is not None or offset))
        else:
            fits = first.dim() == 1
        fits = fits and 1 <= first.shape[-1] <= q.shape[3] // 2
        fits = fits and (positions is None or tuple(positions.shape) in ((seq,), (1, seq), (batch, seq)))
    if not fits:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=f"{describe({'q': q, 'k': k, **tables, 'positions': positions})}, offset {offset}",
            expected="q (batch, seq, heads, d_head), k (batch, seq, kv_heads, d_head); turns (pairs,), or cos and "
            "sin alike (length, pairs), or gathered already (batch or 1, seq, pairs) and then neither positions "
            "nor an offset; pairs from 1 to d_head / 2; positions (seq,) or (batch or 1, seq)",
            mend="pass views: q.transpose(1, 2) of (batch, heads, seq, d_head), cos[..., :pairs] of doubled tables",
        )
    wrong = {
        name: x
        for name, x in {**tables, "positions": positions}.items()
        if x is not None and x.is_floating_point() is (name in ("turns", "positions"))
    }
    if wrong:
        raise KernelDTypeError(
            f"{op}: the element types do not fit",
            given=describe(wrong),
            expected="turns and positions of integers, cos and sin of floats",
            mend="make turns with rope.turns, positions with torch.arange",
        )


# -- reference ---------------------------------------------------------------------------------------
def reference(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    inverse: bool = False,
) -> Pair:
    """The rotation, or its inverse, in plain torch."""
    return _rotate(q, k, (cos, sin), positions, offset, interleaved, inverse=inverse)


def reference_computed(
    q: Tensor,
    k: Tensor | None,
    turns: Tensor,
    positions: Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    inverse: bool = False,
) -> Pair:
    """As `reference`, with computed angles."""
    return _rotate(q, k, (turns,), positions, offset, interleaved, inverse=inverse)


def _rotate(
    q: Tensor,
    k: Tensor | None,
    angles: tuple[Tensor, ...],
    positions: Tensor | None,
    offset: int,
    interleaved: bool,
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


def _plain(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    pairs = cos.shape[-1]
    wide = x.to(cos.dtype)
    if interleaved:
        x1, x2 = wide[..., 0 : 2 * pairs : 2], wide[..., 1 : 2 * pairs : 2]
        y = torch.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).flatten(-2)
    else:
        x1, x2 = wide[..., :pairs], wide[..., pairs : 2 * pairs]
        y = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)
    return torch.cat([y.to(x.dtype), x[..., 2 * pairs :]], -1)


def _check_positions(place: Tensor, length: int) -> None:
    if place.device.type != "cpu":
        return  # reading the values would wait for the device
    wrong = place[(place < 0) | (place >= length)]
    if wrong.numel():
        raise KernelArgumentError(
            "rope: positions outside the tables",
            given=f"{wrong.numel()} positions, the first {int(wrong[0])}",
            expected=f"from 0 to {length - 1}, offset included",
            mend="make the tables longer, or compute the angles with forward_computed",
        )


# -- registration ------------------------------------------------------------------------------------
def _table(length: int, pairs: int) -> dict[str, Any]:
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return {"cos": angle.cos(), "sin": angle.sin()}


def problems(draw: Draw) -> Iterator[Problem]:
    """Small inputs that can expose a mistake, with tables."""
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


def computed_problems(draw: Draw) -> Iterator[Problem]:
    """The same without tables, at far positions too."""
    q, k = draw.normal(2, 5, 3, 8), draw.normal(2, 5, 1, 8)
    for interleaved in (False, True):
        yield Problem((q, k), {"turns": turns(8), "interleaved": interleaved})
        options = {"turns": turns(6, 500.0, scale=2.0), "positions": draw.integers(0, 10_000_000, 2, 5)}
        yield Problem((q, k), options | {"interleaved": interleaved, "offset": 3})
    yield Problem((draw.normal(2, 3, 7, 10).transpose(1, 2), draw.normal(2, 2, 7, 10).transpose(1, 2)),
                  {"turns": turns(10)})  # fmt: skip


def twin(q: Tensor, k: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """The rotation as model code has it."""
    # tables doubled, halves exchanged, as model code has it; interleaved as a product of complex numbers
    cos, sin = options["cos"], options["sin"]
    if cos.dim() == 2:
        place = options.get("positions")
        place = torch.arange(q.shape[1], device=q.device) if place is None else place
        cos, sin = cos[place + options.get("offset", 0)], sin[place + options.get("offset", 0)]
    cos, sin = (x.unsqueeze(-2) for x in (cos, sin))
    rotary = 2 * cos.shape[-1]
    return tuple(
        torch.cat([_turn(x[..., :rotary], cos, sin, options.get("interleaved", False)), x[..., rotary:]], -1)
        for x in (q, k)
    )


def _turn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        wide = wide_type(x.dtype)
        paired = torch.view_as_complex(x.to(wide).unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(paired * torch.complex(cos.to(wide), sin.to(wide))).flatten(-2).to(x.dtype)
    cos, sin = (torch.cat([t, t], -1).to(x.dtype) for t in (cos, sin))
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def twin_computed(q: Tensor, k: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """The rotation as model code has it, with exact angles."""
    # in Python's whole numbers: a float64 angle of 10 million radians is off in its tenth digit
    place = options.get("positions")
    place = torch.atleast_2d(torch.arange(q.shape[1]) if place is None else place) + options.get("offset", 0)
    steps = options["turns"].tolist()
    angle = torch.tensor([[[math.tau * (at * step % 2**64) / 2**64 for step in steps] for at in row]
                          for row in place.tolist()], dtype=torch.float64)  # fmt: skip
    cos, sin = (x.to(q.device, wide_type(q.dtype)) for x in (angle.cos(), angle.sin()))
    return twin(q, k, cos=cos, sin=sin, interleaved=options.get("interleaved", False))


def draw_call(name: str, draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator."""
    batch, seq, heads, pairs = (draw.integer(1, most) for most in (4, 20, 6, 20))
    width, far = 2 * pairs + draw.integer(0, 4), draw.one_in(3)
    shapes = [(batch, seq, count, width) for count in (heads, draw.integer(1, heads + 1))]
    if far:  # as attention has it: heads before tokens
        q, k = (draw.normal(b, h, s, d).transpose(1, 2) for b, s, h, d in shapes)
    else:
        q, k = (draw.normal(*shape) for shape in shapes)
    offset = draw.integer(0, 3)
    positions = draw.integers(0, 30, batch, seq) if draw.one_in(3) else None
    rest = (positions, offset, bool(draw.integer(0, 2)), bool(draw.integer(0, 2)))
    other = None if draw.one_in(4) else k
    if name == "rope_computed":
        return q, other, turns(2 * pairs, 500.0), *rest
    angle = torch.arange(40, dtype=torch.float64)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return q, other, angle.cos(), angle.sin(), *rest


def large(draw: Draw) -> Iterator[Problem]:
    """Computed angles of far positions, of both orders of pairs."""
    for interleaved in (False, True):
        heads = draw.normal(2, 100, 8, 128), draw.normal(2, 100, 2, 128)
        yield Problem(heads, {"turns": turns(128), "interleaved": interleaved, "offset": 100_000})
