"""The words of `core/philox.py` in torch's int64 arithmetic, for places that numpy cannot reach.

Bit for bit the same: a product of two 32-bit words fits 64 bits, and int64 multiplication wraps modulo 2^64.
Keys and streams may be tensors of one int64 on the device, so that a captured program draws by numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from burn_torch.core.imports import named
from burn_torch.core.philox import KEY_STEPS, MASK32, MULTIPLIERS, ROUNDS, split64
from burn_torch.ops.value import Primitive

__all__ = ["CHUNK", "SOURCES", "chunks"]

CHUNK: Final = 1 << 22
"""Blocks a piece: 32 MiB a temporary, so a tensor of any size needs no more than 300 MiB."""

SOURCES: Final = {"cuda": "burn_torch.backend.libtorch.attached.words:words_on"}
"""By the type of a device the maker of a faster function like `chunks`: `maker(device)` gives it, or None."""


def chunks(
    key: Primitive, stream: Primitive, first: int, count: int, device: torch.device
) -> Iterator[tuple[int, torch.Tensor]]:
    """Blocks [first, first + count) of a stream, in pieces: (number of the first block, words as int64)."""
    source = SOURCES.get(device.type)
    faster = None if source is None else named(source)(device)
    if faster is not None:
        yield from faster(key, stream, first, count, device)
        return
    at, end = first, first + count
    while at < end:
        size = min(CHUNK - at % CHUNK, end - at)
        yield at, _cipher(at, size, split64(stream), split64(key), device)
        at += size


def _cipher(
    at: int, size: int, stream: tuple[Primitive, Primitive], key: tuple[Primitive, Primitive], device: torch.device
) -> torch.Tensor:
    low, high = split64(at)
    c0 = torch.arange(low, low + size, dtype=torch.int64, device=device)
    c1, c2, c3 = (_constant(number, device) for number in (high, *stream))
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        # `>>` keeps the sign, so the upper half is masked too
        c0, c1 = ((p1 >> 32) & MASK32) ^ c1 ^ k0, p1 & MASK32
        c2, c3 = ((p0 >> 32) & MASK32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return torch.stack((c0, c1, c2, c3), dim=-1).reshape(-1)


def _constant(number: int | torch.Tensor, device: torch.device) -> torch.Tensor:
    return number if isinstance(number, torch.Tensor) else torch.full((), number, dtype=torch.int64, device=device)
