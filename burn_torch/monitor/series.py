"""A line of a plot: every value that came, in a bounded number of points that keep its lowest and highest ones."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, final

__all__ = ["MAX_POINTS", "RECENT", "Series"]

MAX_POINTS: Final = 2000
"""The number of points of the full history."""
RECENT: Final = 1000
"""The newest points, kept as they came, also those that are not finite."""
_BUCKETS: Final = MAX_POINTS // 2 - 2  # two points each, two of the bucket that fills, and the newest one


@final
class Series:
    """Points (x, y) in the order of x.

    Neighbours share a bucket, of which the lowest and the highest point are kept; when there are too many buckets, two
    become one.  So a spike of one step is still seen after a million.  Values that are not finite are counted, not
    drawn.
    """

    __slots__ = ("_buckets", "_high", "_in_bucket", "_low", "_size", "count", "last", "not_finite", "recent")

    def __init__(self) -> None:
        self.count = 0
        """How many values came, those that are not finite included."""
        self.not_finite = 0
        self.last: tuple[float, float] | None = None
        """The newest point, finite or not."""
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._buckets: list[tuple[tuple[float, float], tuple[float, float]]] = []
        self._size = 1
        self._in_bucket = 0
        self._low = self._high = (0.0, 0.0)

    def add(self, x: float, y: float) -> None:
        """Takes the next point."""
        self.count += 1
        self.last = point = (x, y)
        self.recent.append(point)
        if not math.isfinite(y):
            self.not_finite += 1
            return
        if self._in_bucket == 0:
            self._low = self._high = point
        elif y < self._low[1]:
            self._low = point
        elif y > self._high[1]:
            self._high = point
        self._in_bucket += 1
        if self._in_bucket >= self._size:
            self._buckets.append((self._low, self._high))
            self._in_bucket = 0
            if len(self._buckets) >= _BUCKETS:
                self._halve()

    def points(self) -> list[tuple[float, float]]:
        """At most MAX_POINTS points over the whole history; all of them, where there are no more."""
        points: list[tuple[float, float]] = []
        buckets = [*self._buckets, (self._low, self._high)] if self._in_bucket else self._buckets
        for low, high in buckets:
            if low is high:
                points.append(low)
            elif low[0] <= high[0]:
                points += (low, high)
            else:
                points += (high, low)
        if self._size > 1 and self.last is not None and math.isfinite(self.last[1]) and points[-1] != self.last:
            points.append(self.last)
        return points

    def _halve(self) -> None:
        pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
        self._buckets = [
            (one[0] if one[0][1] <= two[0][1] else two[0], one[1] if one[1][1] >= two[1][1] else two[1])
            for one, two in pairs
        ]
        self._size *= 2
