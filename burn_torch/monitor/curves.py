"""The curves of a metric as SVG: batches faint, their running mean above them, epochs as dots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.ticks import labels, linear_ticks, short
from burn_torch.monitor.view import MetricView, RunView, SplitView

__all__ = ["figure"]

WIDTH: Final = 480
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 8, 34
_SMOOTH: Final = 40
"""The running mean follows so many of the points that are drawn."""

Points = Sequence[tuple[float, float]]
Place = Callable[[tuple[float, float]], tuple[float, float]]
"""From a point to where it lies in the picture."""


def figure(view: RunView, metric: MetricView) -> str:
    """One picture with all splits of a metric; a text where there is nothing to draw yet."""
    curves = {split: found.series.points() for split, found in metric.splits.items()}
    dots = {split: _epochs(view, found) for split, found in metric.splits.items()}
    every = [point for points in (*curves.values(), *dots.values()) for point in points]
    if not every:
        return "<p>no values yet</p>"
    low, high = _range([y for _, y in every])
    left, right = 0.0, max(x for x, _ in every) or 1.0

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return (
            _LEFT + (x - left) / (right - left) * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - (y - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM),
        )

    parts = [*_y_axis(low, high, place), *_x_axis(left, right, place, view.x_unit)]
    for split, points in curves.items():
        placed = [place(point) for point in points]
        parts.append(_path(placed, f"{split} raw"))
        parts.append(_path([place(point) for point in _mean(points)], f"{split} mean"))
    for split, found in metric.splits.items():
        for (epoch, value), point in zip(_finite(found), dots[split], strict=True):
            x, y = place(point)
            told = f"{split}, epoch {epoch}: {short(value, metric.unit)}"
            parts.append(
                f'<circle class="{split}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(told)}</title></circle>'
            )
    label = escape(clean(f"{metric.name} of {' and '.join(metric.splits)} over {view.x_unit}"))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _finite(found: SplitView) -> list[tuple[int, float]]:
    return [(epoch, value) for epoch, value in found.epochs if math.isfinite(value)]


def _epochs(view: RunView, found: SplitView) -> list[tuple[float, float]]:
    """The values of epochs at the ends of their epochs."""
    width = view.epoch_width
    if width is None:  # nobody knows how long an epoch is: the batches end where the newest epoch does
        last = found.series.last
        newest = found.epochs[-1][0] if found.epochs else 1
        width = (last[0] if last is not None else float(newest)) / newest
    return [(epoch * width, value) for epoch, value in _finite(found)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest value, without the few highest and lowest of many that would flatten the rest."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if len(ordered) >= 200:
        inner_low, inner_high = ordered[len(ordered) // 200], ordered[-len(ordered) // 200 - 1]
        room = 2 * (inner_high - inner_low)
        if inner_high > inner_low:
            low, high = max(low, inner_low - room), min(high, inner_high + room)
    if low == high:
        return low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    return low, high


def _mean(points: Points) -> list[tuple[float, float]]:
    """The running mean, as long as there are enough points for one to say more than they do."""
    if len(points) < 2 * _SMOOTH:
        return list(points)
    keep = math.exp(-1 / (len(points) / _SMOOTH))
    found, total, weight = [], 0.0, 0.0
    for x, y in points:
        total, weight = keep * total + y, keep * weight + 1.0
        found.append((x, total / weight))
    return found


def _path(points: Points, kind: str) -> str:
    if not points:
        return ""
    top, bottom = _TOP - 2.0, HEIGHT - _BOTTOM + 2.0  # what lies beyond the range ends at its edge
    d = "L".join(f"{x:.1f} {min(max(y, top), bottom):.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{d}"/>'


def _y_axis(low: float, high: float, place: Place) -> list[str]:
    ticks = linear_ticks(low, high, 5)
    found = []
    for tick, text in zip(ticks, labels(ticks), strict=True):
        _, y = place((0.0, tick))
        found.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return found


def _x_axis(left: float, right: float, place: Place, unit: str) -> list[str]:
    ticks = linear_ticks(left, right, 6, whole=right - left >= 1)
    found = []
    for tick, text in zip(ticks, labels(ticks), strict=True):
        x, _ = place((tick, 0.0))
        found.append(f'<text x="{x:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{text}</text>')
    found.append(f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 3}" text-anchor="middle">{unit}</text>')
    return found
