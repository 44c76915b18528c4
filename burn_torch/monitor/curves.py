"""The curves of a metric as paths and ticks of an SVG: batches faint, their running mean above them, epochs as dots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

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


def figure(view: RunView, metric: MetricView) -> dict[str, object] | None:
    """One picture with all splits of a metric, as `report.html` draws it; None where there is nothing to draw yet."""
    curves = {split: of_split.series.points() for split, of_split in metric.splits.items()}
    dots = {split: _epochs(view, of_split) for split, of_split in metric.splits.items()}
    every = [point for points in (*curves.values(), *dots.values()) for point in points]
    if not every:
        return None
    low, high = _range([y for _, y in every])
    left, right = 0.0, max(x for x, _ in every) or 1.0

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return (
            _LEFT + (x - left) / (right - left) * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - (y - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM),
        )

    paths, circles = [], []
    for split, points in curves.items():
        paths += _path([place(point) for point in points], f"{split} raw")
        paths += _path([place(point) for point in _mean(points)], f"{split} mean")
    for split, of_split in metric.splits.items():
        for (epoch, value), point in zip(_finite(of_split), dots[split], strict=True):
            circles.append((split, *place(point), f"{split}, epoch {epoch}: {short(value, metric.unit)}"))
    y_ticks, x_ticks = linear_ticks(low, high, 5), linear_ticks(left, right, 6, whole=right - left >= 1)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "label": f"{metric.name} of {' and '.join(metric.splits)} over {view.x_unit}",
        "x_unit": view.x_unit,
        "y_ticks": [(place((0.0, tick))[1], text) for tick, text in zip(y_ticks, labels(y_ticks), strict=True)],
        "x_ticks": [(place((tick, 0.0))[0], text) for tick, text in zip(x_ticks, labels(x_ticks), strict=True)],
        "paths": paths,
        "dots": circles,
    }


def _finite(split: SplitView) -> list[tuple[int, float]]:
    return [(epoch, value) for epoch, value in split.epochs if math.isfinite(value)]


def _epochs(view: RunView, split: SplitView) -> list[tuple[float, float]]:
    """The values of epochs at the ends of their epochs."""
    width = view.epoch_width
    if width is None:  # nobody knows how long an epoch is: the batches end where the newest epoch does
        last = split.series.last
        newest = split.epochs[-1][0] if split.epochs else 1
        width = (last[0] if last is not None else float(newest)) / newest
    return [(epoch * width, value) for epoch, value in _finite(split)]


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
    means, total, weight = [], 0.0, 0.0
    for x, y in points:
        total, weight = keep * total + y, keep * weight + 1.0
        means.append((x, total / weight))
    return means


def _path(points: Points, kind: str) -> list[tuple[str, str]]:
    """A class and the `d` of a path; nothing without points."""
    top, bottom = _TOP - 2.0, HEIGHT - _BOTTOM + 2.0  # what lies beyond the range ends at its edge
    d = "L".join(f"{x:.1f} {min(max(y, top), bottom):.1f}" for x, y in points)
    return [(kind, f"M{d}")] if points else []
