"""Ticks of an axis at numbers that people like, and those numbers as short texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["labels", "linear_ticks", "log_ticks", "short"]

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_SUFFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def linear_ticks(low: float, high: float, at_most: int, *, whole: bool = False) -> list[float]:
    """The multiples of 1, 2, 2.5 or 5 times a power of ten within [low, high]: as many as fit `at_most`, 1 at least.

    >>> linear_ticks(0.03, 0.97, 5)
    [0.2, 0.4, 0.6, 0.8]
    >>> linear_ticks(0, 7, 5, whole=True)
    [0.0, 2.0, 4.0, 6.0]
    """
    span = high - low
    if at_most < 1 or not math.isfinite(span) or span <= 0:
        return [low]
    power = math.floor(math.log10(span / at_most))
    for exponent in range(power, power + 3):
        for step in _STEPS:
            size = step * 10.0**exponent
            if whole and size != math.floor(size):
                continue
            first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
            if 1 <= last - first + 1 <= at_most:
                digits = max(0, 1 - math.floor(math.log10(size)))
                return [round(number * size, digits) + 0.0 for number in range(first, last + 1)]
    return [low]


def log_ticks(low: float, high: float, at_most: int) -> list[float]:
    """Powers of ten within [low, high], or 1, 2 and 5 times them; where none lie inside, as on a linear axis."""
    first, last = math.floor(math.log10(low)), min(math.ceil(math.log10(high)), 308)
    for factors in ((1.0, 2.0, 5.0), (1.0, 5.0), (1.0,)):
        inside = [f * 10.0**e for e in range(first, last + 1) for f in factors if low <= f * 10.0**e <= high]
        if 2 <= len(inside) <= at_most:
            return inside
    if len(inside) >= 2:  # too many decades: every second one, every third one, ...
        every = math.ceil(len(inside) / max(at_most, 1))
        return inside[::every]
    return linear_ticks(low, high, at_most)


def labels(ticks: Sequence[float]) -> list[str]:
    """The ticks of one axis as texts, with as many digits as it takes to tell them apart.

    >>> labels([0.0, 0.5, 1.0]), labels([20_000.0, 40_000.0]), labels([0.00002, 0.00004])
    (['0.0', '0.5', '1.0'], ['20k', '40k'], ['2e-05', '4e-05'])
    """
    largest = max(map(abs, ticks), default=0.0)
    if 0 < largest < 1e-3:
        return [f"{tick:.3g}" for tick in ticks]
    for size, suffix in _SUFFIXES:
        texts = _fixed(ticks, size) if largest >= size else []
        if texts and max(len(text.partition(".")[2]) for text in texts) <= 1:
            return ["0" if tick == 0 else text + suffix for tick, text in zip(ticks, texts, strict=True)]
    return _fixed(ticks, 1.0)


def _fixed(ticks: Sequence[float], size: float) -> list[str]:
    for digits in range(6):
        texts = [f"{tick / size:.{digits}f}" for tick in ticks]
        errors = (abs(float(text) * size - tick) for text, tick in zip(texts, ticks, strict=True))
        if max(errors, default=0.0) <= 1e-9 * max(map(abs, ticks), default=0.0):
            return texts
    return [f"{tick / size:.4g}" for tick in ticks]


def short(value: float, unit: str | None = None) -> str:
    """A value of a metric in little room.

    >>> short(93.128, "%"), short(0.000123456), short(123456.7), short(float("nan"))
    ('93.13 %', '0.0001235', '1.235e+05', 'nan')
    """
    text = f"{value:.2f}" if unit == "%" and math.isfinite(value) else f"{value:.4g}"
    return f"{text} {unit}" if unit else text
