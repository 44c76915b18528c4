"""Philox-4x32-10: random words as a function of (key, stream, index), in numpy.

A stream is an endless row of 32-bit words.  Word i is word i % 4 of block i // 4, and a block is the cipher of its own
number: nothing is advanced, so any part of any stream can be computed anywhere, in any order, any number of times.

    counter words   (block low, block high, stream low, stream high)
    key words       (key low, key high)

This is `triton.language.philox(key, block_lo, block_hi, stream_lo, stream_hi)`, so kernels draw the same words.
Keys and streams are integers taken modulo 2^64.  Streams from 2^63 on are reserved: `stream_of` names the others.
Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.errors import ArgumentError
from burn_torch.core.imports import named
from burn_torch.core.wording import described

__all__ = [
    "CIPHER",
    "KEY_STEPS",
    "MASK32",
    "MULTIPLIERS",
    "ROUNDS",
    "block",
    "chunks",
    "fold",
    "split64",
    "stream_of",
    "words",
]

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
"""The multipliers of counter words 0 and 2."""
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
"""Added to the two key words after each round."""
MASK32: Final = 0xFFFFFFFF

_FOLD_STREAM: Final = 1 << 63
# 16,384 counters: the four arrays of a round fit a level 2 cache of 1 MiB (benchmarks/notes/random.md).
_CHUNK: Final = 16_384

Words = NDArray[np.uint32]

CIPHER: Final = "burn_torch.backend.libtorch.generated.c_words:CIPHER"
"""A faster cipher of blocks: calling it gives `fill(out, key, stream, first)`, or None while there is none."""

_WORTH: Final = 1 << 18
"""Blocks after which a process is taken to draw many more; only then the faster cipher is imported and built."""

_drawn = 0
"""Blocks that this process has drawn."""


def split64(number: int) -> tuple[int, int]:
    """The low and the high 32 bits of an integer, taken modulo 2^64."""
    return number & MASK32, (number >> 32) & MASK32


def block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The cipher itself, on Python integers: four words of one counter.

    >>> [hex(word) for word in block((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return c0, c1, c2, c3


def fold(key: int, number: int) -> int:
    """The key of part `number` of whatever `key` stands for: `fold(fold(seed, epoch), step)`.

    The first words of block `number` of a reserved stream, so keys of different numbers are as independent as the
    words of one stream.  The result lies in [0, 2^63), which also fits a signed 64-bit argument of a kernel.

    >>> fold(42, 0) == fold(42, 0), fold(42, 0) == fold(42, 1)
    (True, False)
    """
    parts: tuple[Any, ...] = (key, number)
    for part in parts:
        folded = getattr(part, "_fold", None)
        if folded is not None:  # known only when the program runs: traced as an operation on numbers
            return folded(key, number)  # type: ignore[no-any-return]  # a traced key folds into a value
        if isinstance(part, bool) or not isinstance(part, Integral):
            raise ArgumentError(
                "fold: a key or its part is no whole number",
                given=f"fold({described(key)}, {described(number)})",
                expected="two whole numbers",
                mend="fold(fold(seed, epoch), step)",
            )
    key, number = int(key), int(number)  # numpy's wrap around
    w0, w1, _, _ = block((*split64(number), *split64(_FOLD_STREAM)), split64(key))
    return (w0 | (w1 << 32)) >> 1


def stream_of(name: str) -> int:
    """The stream of a name, in [0, 2^63): a hash that is the same in every process and on every machine.

    Two of n names share a stream with probability n^2 / 2^64: 1 in 10^10 for 40,000 names.
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def words(key: int, stream: int, start: int, count: int) -> Words:
    """Words [start, start + count) of a stream."""
    out = np.empty(count, np.uint32)
    first = start // 4
    for at, piece in chunks(key, stream, first, (start + count + 3) // 4 - first):
        begin = 4 * at - start
        out[max(begin, 0) : begin + piece.size] = piece[max(-begin, 0) : count - begin]
    return out


def chunks(key: int, stream: int, first: int, count: int) -> Iterator[tuple[int, Words]]:
    """Blocks [first, first + count) of a stream, in pieces that stay in cache: (number of the first block, words).

    The words of a piece are overwritten by the next one.
    """
    fill = _faster_cipher(count)
    if fill is not None:
        yield from _fill_chunks(fill, key, stream, first, count)
        return
    pairs = 2 * min(count, _CHUNK)
    state, carried, product, shifted = (np.empty(pairs, np.uint64) for _ in range(4))
    out = np.empty(2 * pairs, np.uint32)
    at, end = first, first + count
    while at < end:
        # a piece ends at a multiple of its size, so the high half of its counters is one number
        size = min(_CHUNK - at % _CHUNK, end - at)
        shape = (2, size)
        views = (scratch[: 2 * size].reshape(shape) for scratch in (state, carried, product, shifted))
        piece = out[: 4 * size]
        _cipher(piece.reshape(size, 4), at, split64(stream), split64(key), *views)
        yield at, piece
        at += size


def _faster_cipher(count: int) -> Callable[[Words, int, int, int], None] | None:
    """The cipher by a C loop, for `count` more blocks; None where numpy draws them."""
    global _drawn
    _drawn += count
    fill: Callable[[Words, int, int, int], None] | None = named(CIPHER)() if _drawn >= _WORTH else None
    return fill


def _fill_chunks(fill: Any, key: int, stream: int, first: int, count: int) -> Iterator[tuple[int, Words]]:
    out = np.empty(4 * min(count, _CHUNK), np.uint32)
    for at in range(first, first + count, _CHUNK):
        piece = out[: 4 * min(_CHUNK, first + count - at)]
        fill(piece, key, stream, at)
        yield at, piece


_PAIR_MULTIPLIERS: Final = np.array(MULTIPLIERS, np.uint64)[:, None]
_LOW: Final = np.uint64(MASK32)
_HALF: Final = np.uint64(32)


def _cipher(
    out: Words, at: int, stream: tuple[int, int], key: tuple[int, int], state: Any, carried: Any, product: Any, hi: Any
) -> None:
    # Counter words (0, 2) are the rows of `state`, words (3, 1) those of `carried`: one array operation serves both
    # multiplications of a round, five a round in all.  Row 0 of `product` becomes word 2, row 1 becomes word 0.
    low, high = split64(at)
    state[0] = np.arange(low, low + out.shape[0], dtype=np.uint64)
    state[1] = stream[0]
    carried[0] = stream[1]
    carried[1] = high
    crossed = state[::-1]
    for keys in _key_schedule(key):
        np.multiply(state, _PAIR_MULTIPLIERS, out=product)
        np.right_shift(product, _HALF, out=hi)
        np.bitwise_xor(hi, carried, out=hi)
        np.bitwise_xor(hi, keys, out=crossed)
        np.bitwise_and(product, _LOW, out=carried)
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = state[0], carried[1], state[1], carried[0]


def _key_schedule(key: tuple[int, int]) -> Iterator[NDArray[np.uint64]]:
    # per round a column (key word 1, key word 0): the order in which `product` has words 2 and 0
    k0, k1 = key
    for _ in range(ROUNDS):
        yield np.array([[k1], [k0]], np.uint64)
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
