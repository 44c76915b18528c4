"""A share of a batch: which of its items a process or a device has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

__all__ = ["Share", "shares"]


@final
@dataclass(frozen=True, slots=True)
class Share:
    """Items [first, first + count) of a batch of `total`.

    Random layers of a step with a share draw what they would draw for those items in a step with the whole batch.
    """

    first: int
    count: int
    total: int

    def first_element(self, shape: Sequence[int]) -> int:
        """The position, in the row-major order of the whole batch's tensor, at which a tensor of this shape begins.

        The items lie along the first axis, one or several rows for each.  A tensor whose first axis is no multiple of
        the number of items belongs to all of them, such as a mask of weights: it begins at 0, on every share.
        """
        if not self.first or not self.count or not shape or shape[0] % self.count:
            return 0
        return self.first * (math.prod(shape) // self.count)


def shares(total: int, parts: int) -> list[Share]:
    """A batch cut into runs whose sizes differ by one at most; the first ones are the larger.

    >>> [(share.first, share.count) for share in shares(8, 3)]
    [(0, 3), (3, 3), (6, 2)]
    """
    size, larger = divmod(total, parts)
    starts = [part * size + min(part, larger) for part in range(parts + 1)]
    return [Share(starts[i], starts[i + 1] - starts[i], total) for i in range(parts)]
