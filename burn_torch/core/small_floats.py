"""Codes of a few bits on the host: the numbers of small floats (8 and 4 bits), and codes that share words."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from burn_torch.core.data import Array

__all__ = ["encode_small_floats", "pack_words", "small_float_bounds", "small_float_signs", "small_float_values"]

_FIELDS: Final = {"E5M2": (5, 2, 15), "E4M3": (4, 3, 7), "E2M1": (2, 1, 1)}
"""Bits of the exponent and of the fraction, and what is taken off the exponent."""


@functools.cache
def small_float_values(format: str) -> Array:
    """The value of each code of a small float, by the code: 256 of 8 bits, 16 of 4.

    Source: Micikevicius et al. 2022, table 1 (E4M3 has no infinities, one NaN of each sign); OCP Microscaling 1.0.
    """
    if format == "UE8M0":
        return np.array([math.ldexp(1.0, code - 127) for code in range(255)] + [math.nan])
    exponent_bits, fraction_bits, bias = _FIELDS[format]
    half = 1 << (exponent_bits + fraction_bits)
    values = []
    for code in range(half):
        exponent, fraction = code >> fraction_bits, (code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
        values.append(math.ldexp(fraction, 1 - bias) if exponent == 0 else math.ldexp(1 + fraction, exponent - bias))
    if format == "E4M3":
        values[-1] = math.nan
    if format == "E5M2":
        values[-4:] = [math.inf, math.nan, math.nan, math.nan]
    return np.array(values + [-value for value in values])


@functools.cache
def small_float_bounds(format: str) -> Array:
    """The least float64 that is rounded to each code from 1 on, of the finite and positive: ties go to even codes.

    Powers of two (UE8M0) are scales, so that a number is rounded up: none that it scales is cut off.
    """
    if format == "UE8M0":
        return np.asarray(np.nextafter(small_float_values(format)[:254], math.inf))
    values = [value for value in small_float_values(format)[: 1 << sum(_FIELDS[format][:2])] if math.isfinite(value)]
    bounds: list[float] = []
    for code, (low, high) in enumerate(pairwise(values)):
        middle = (low + high) / 2
        bounds.append(middle if code % 2 else float(np.nextafter(middle, math.inf)))
    return np.array(bounds)


def small_float_signs(format: str) -> tuple[int, int]:
    """The bit of the sign, and the code of NaN; of a format without NaN that of 0."""
    return {"E2M1": (8, 0), "UE8M0": (0, 255)}.get(format, (128, 127))


def encode_small_floats(x: Array, format: str) -> Array:
    """The codes of the nearest numbers of a format, in u8; see the row `encode_small_float`."""
    sign, not_a_number = small_float_signs(format)
    wide = x.astype(np.float64)
    codes = np.searchsorted(small_float_bounds(format), np.abs(wide), side="right")
    return np.where(np.isnan(wide), not_a_number, codes + sign * np.signbit(wide)).astype(np.uint8)


def pack_words(codes: Array, bits: int, word: np.dtype[np.generic]) -> Array:
    """Codes of a few bits, side by side in words along the last axis; see the row `pack_codes`."""
    per = 8 * word.itemsize // bits
    last = codes.shape[-1]
    padded = np.zeros((*codes.shape[:-1], -(-last // per) * per), word)
    padded[..., :last] = codes.astype(np.uint8) & ((1 << bits) - 1)
    parts = padded.reshape(*codes.shape[:-1], -(-last // per), per) << np.arange(0, per * bits, bits).astype(word)
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1))
