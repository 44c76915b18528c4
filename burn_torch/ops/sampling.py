"""The map from random words to values: the one place where it is written (docs/building-blocks/randomness.md).

A map takes consecutive 32-bit words, from a multiple of four on, and gives consecutive elements; `Map.words` says how
many words an element takes.  It is written once and runs on numpy's uint32 words and on torch's int64 ones, through
the few operations that they spell differently (`Host`, `Torch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch.core import philox
from burn_torch.core.data import bf16_from_f32, f32_from_bf16
from burn_torch.core.dtype import DType
from burn_torch.core.philox import MASK32
from burn_torch.ops import philox_torch
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = [
    "Map",
    "bernoulli_map",
    "bits_map",
    "integer_map",
    "largest_below",
    "normal_map",
    "on_host",
    "on_torch",
    "threshold",
    "uniform_map",
]


class Host:
    """numpy's spelling, on both leaves."""

    sqrt, log = np.sqrt, np.log

    @staticmethod
    def cos_sin(angle: Primitive) -> tuple[Primitive, Primitive]:
        """Cosine and sine.  torch's: 3 ns an element, numpy's 13 (float64, benchmarks/notes/random.md)."""
        shared = torch.from_numpy(angle)
        return torch.cos(shared).numpy(), torch.sin(shared).numpy()

    @staticmethod
    def real(words: Primitive, dtype: DType) -> Primitive:
        """Words as floats."""
        return words.astype(dtype.numpy)

    @staticmethod
    def wide(words: Primitive) -> Primitive:
        """Words in an integer type in which their products do not lose bits."""
        return words.astype(np.uint64)

    @staticmethod
    def number(value: int) -> Primitive:
        """An integer of 64 bits, for use with `wide` words."""
        return np.uint64(value)

    @staticmethod
    def at_most(values: Primitive, cap: float) -> Primitive:
        """The smaller one of each value and `cap`."""
        return np.minimum(values, values.dtype.type(cap))

    @staticmethod
    def interleave(a: Primitive, b: Primitive) -> Primitive:
        """a0, b0, a1, b1, ..."""
        return np.stack((a, b), axis=-1).reshape(-1)


class Torch:
    """torch's spelling."""

    sqrt, log = torch.sqrt, torch.log

    @staticmethod
    def cos_sin(angle: Primitive) -> tuple[Primitive, Primitive]:
        """Cosine and sine."""
        return torch.cos(angle), torch.sin(angle)

    @staticmethod
    def real(words: Primitive, dtype: DType) -> Primitive:
        """Words as floats."""
        return words.to(TO_TORCH[dtype])

    @staticmethod
    def wide(words: Primitive) -> Primitive:
        """Words in an integer type in which their products do not lose bits: they are int64 already."""
        return words

    @staticmethod
    def number(value: int) -> int:
        """An integer of 64 bits, for use with `wide` words: the same bits with a sign."""
        return value - (1 << 64) if value >> 63 else value

    @staticmethod
    def at_most(values: Primitive, cap: float) -> Primitive:
        """The smaller one of each value and `cap`."""
        return values.clamp(max=cap)

    @staticmethod
    def interleave(a: Primitive, b: Primitive) -> Primitive:
        """a0, b0, a1, b1, ..."""
        return torch.stack((a, b), dim=-1).reshape(-1)


@dataclass(frozen=True)
class Map:
    """`values(words, math)` gives the elements that consecutive words stand for; `words` is 1, 2 or 4 an element."""

    words: int
    values: Callable[[Any, Any], Any]


# -- maps --------------------------------------------------------------------------------------------
def bits_map() -> Map:
    """The words themselves, as integers in [0, 2^32)."""
    return Map(1, lambda words, math: math.wide(words))


def threshold(prob: float) -> int:
    """How many of the 2^32 words mean "yes": prob in units of 2^-32, rounded to nearest even.

    >>> threshold(0.0), threshold(0.5) == 2**31, threshold(1.0) == 2**32
    (0, True, True)
    """
    return round(prob * 4294967296.0)


def bernoulli_map(prob: float) -> Map:
    """True where the word is below `threshold(prob)`: never for 0, always for 1."""
    limit = threshold(prob)
    return Map(1, lambda words, math: words < limit)


def uniform_map(low: float, high: float, dtype: DType) -> Map:
    """low + u * (high - low), with u of 24 bits (f64: 53), then rounded to `dtype` and kept below `high`.

    Computed in f32 (f64: in f64), product and sum rounded one after the other.
    """
    cap = largest_below(high, dtype)
    if dtype is DType.F64:
        return Map(2, lambda words, math: math.at_most(_unit53(words, math) * (high - low) + low, cap))
    scale, offset = float(np.float32(high - low)), float(np.float32(low))

    def values(words: Primitive, math: Any) -> Primitive:
        unit = math.real(words >> 8, DType.F32) * 2.0**-24
        return math.at_most(unit * scale + offset, cap)

    return Map(1, values)


def normal_map(mean: float, std: float, dtype: DType) -> Map:
    """mean + std * z, computed in f64; elements 2j and 2j + 1 share a pair (u, v) of units by Box and Muller:

        z[2j]     = sqrt(-2 ln(1 - u)) cos(2 pi v)
        z[2j + 1] = sqrt(-2 ln(1 - u)) sin(2 pi v)

    Units have 32 bits, so |z| <= 6.67; for f64 they have 53 bits and |z| <= 8.58.
    Source: Box and Muller 1958, https://doi.org/10.1214/aoms/1177706645.
    """
    double = dtype is DType.F64

    def values(words: Primitive, math: Any) -> Primitive:
        unit = _unit53(words, math) if double else math.real(words, DType.F64) * 2.0**-32
        u, v = unit[0::2], unit[1::2]
        radius = math.sqrt(math.log(1.0 - u) * -2.0)
        cosine, sine = math.cos_sin(v * _TURN)
        return math.interleave(radius * cosine, radius * sine) * std + mean

    return Map(2 if double else 1, values)


def integer_map(low: int, high: int) -> Map:
    """low + floor(w * (high - low) / 2^b): w of b = 64 bits, of 128 where high - low is over 2^32.

    A value's probability is off by less than 2^-32 of itself.
    Source: Lemire 2019, "Fast random integer generation in an interval", section 3, without the rejection.
    """
    count = high - low
    limbs = 2 if count <= 1 << 32 else 4

    def values(words: Primitive, math: Any) -> Primitive:
        wide = math.wide(words).reshape(-1, limbs)
        low_part, high_part = math.number(count & MASK32), math.number(count >> 32)
        mask, half = math.number(MASK32), math.number(32)
        carry = wide[:, 0] & math.number(0)
        for limb in range(limbs):  # carry = floor((w[limb] * count + carry) / 2^32), by halves of 32 bits
            word = wide[:, limb]
            below = word * low_part + (carry & mask)
            carry = word * high_part + ((carry >> half) & mask) + ((below >> half) & mask)
        return carry + math.number(low % (1 << 64))  # wraps: a negative low is added modulo 2^64

    return Map(limbs, values)


_TURN: Final = 2.0 * math.pi


def _unit53(words: Primitive, math: Any) -> Any:
    # 53 bits of two words: 27 of the first above 26 of the second
    high, low = math.real(words[0::2] >> 5, DType.F64), math.real(words[1::2] >> 6, DType.F64)
    return (high * 67108864.0 + low) * 2.0**-53


def largest_below(limit: float, dtype: DType) -> float:
    """The largest value of a float type below `limit`.

    >>> largest_below(1.0, DType.BF16), largest_below(0.0, DType.F16)
    (0.99609375, -5.960464477539063e-08)
    """
    if dtype is DType.BF16:
        bits = bf16_from_f32(np.array([limit], np.float32))
        value = float(f32_from_bf16(bits)[0])
        if value < limit:
            return value
        # the pattern of the next value down: one less above zero, one more below it, the smallest negative at zero
        down = bits - 1 if value > 0 else bits + 1 if value < 0 else np.array([0x8001])
        return float(f32_from_bf16(down.astype(np.uint16))[0])
    rounded = np.array(limit).astype(dtype.numpy)
    below = rounded if float(rounded) < limit else np.nextafter(rounded, np.array(-np.inf, dtype.numpy))
    return float(below)


# -- drawing -----------------------------------------------------------------------------------------
def on_host(mapping: Map, key: int, stream: int, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Elements [start, start + count) of a stream, by numpy, in pieces that stay in cache."""
    out = np.empty(count, dtype)
    with np.errstate(over="ignore"):  # a normal value past the largest float is infinite, as on every device
        for at, words in philox.chunks(key, stream, *_blocks(mapping, start, count)):
            values = mapping.values(words, Host)
            begin = at * 4 // mapping.words - start
            out[max(begin, 0) : begin + values.size] = values[max(-begin, 0) : count - begin]
    return out


def on_torch(
    mapping: Map, key: object, stream: object, start: int, count: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Elements [start, start + count) of a stream, computed on a torch device.

    Key and stream are integers, or tensors of one int64 on that device.
    """
    out = torch.empty(count, dtype=dtype, device=device)
    for at, words in philox_torch.chunks(key, stream, *_blocks(mapping, start, count), device):
        values = mapping.values(words, Torch)
        begin = at * 4 // mapping.words - start
        out[max(begin, 0) : begin + values.numel()] = values[max(-begin, 0) : count - begin]
    return out


def _blocks(mapping: Map, start: int, count: int) -> tuple[int, int]:
    first = start * mapping.words // 4
    return first, -(-(start + count) * mapping.words // 4) - first
