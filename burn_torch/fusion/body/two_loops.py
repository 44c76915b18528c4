"""Element-wise work in two loops instead of one, where memory wants it.

x + bias[c] over (256, 64, 3136)      rows of 3136: what hangs on the channel alone is read and computed once a row
x.transpose(0, 1) + y                 tiles: neighbours of y lie along their rows, those of x along their columns
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from burn_torch.fusion.body.index import Index, Var, index_of
from burn_torch.fusion.body.loops import Domain
from burn_torch.symbolic.sizes import Size

__all__ = ["rows_of", "tiles_of_turned"]

_SHORTEST_ROW: Final = 256
_LONGEST_ROW: Final = 4096
"""Elements of a row that a program holds without a loop."""

_SHORTEST_SIDE: Final = 32

_FEWEST: Final = 128
"""Programs: about one for each multiprocessor of a large device."""

_ALIGNED: Final = 8
"""Rows begin where 16 bytes of a half type do, else a row would be read element by element."""


def rows_of(domain: Domain, x: Var, read: Collection[Index]) -> Domain | None:
    """The rows within which some of what is read stays the same; None where one loop is as good."""
    if domain.reduced is not None or any(isinstance(size, Size) for size in domain.shape):
        return None
    lengths = {run for index in read if x in index.variables() and (run := index.constant_run(x))}
    if not lengths:
        return None
    length = min(lengths)
    if not _SHORTEST_ROW <= length <= _LONGEST_ROW or length % _ALIGNED or domain.rows < 4 * _FEWEST * length:
        return None
    return _with_last(domain, length)


def tiles_of_turned(domain: Domain, x: Var, read: Collection[Index]) -> Domain | None:
    """Tiles over the last two axes, along the first of which some of what is read lies side by side; None without."""
    shape = domain.shape
    if domain.reduced is not None or any(isinstance(size, Size) for size in shape) or len(shape) < 2:
        return None
    turned = [index for index in read if index.stride(x) not in (0, 1)]
    if min(shape[-2:]) < _SHORTEST_SIDE or not turned:
        return None
    first = len(shape) == 2 and shape[0] < shape[1]
    other_domain = Domain(shape[1:], shape[:1], shape, (0,)) if first else _with_last(domain, shape[-1])
    if other_domain is None or other_domain.rows < _FEWEST * _SHORTEST_SIDE:
        return None
    along, other = Var("x", other_domain.rows), Var("r", other_domain.length)
    flat = (
        index_of(other) * other_domain.rows + index_of(along)
        if first
        else index_of(along) * other_domain.length + index_of(other)
    )
    other, along = (along, other) if first else (other, along)
    return other_domain if any(index.replaced({x: flat}).stride(along) == 1 for index in turned) else None


def _with_last(domain: Domain, length: int) -> Domain | None:
    """The loops over rows of the last axes, `length` elements each."""
    shape = domain.shape
    for axis in range(1, len(shape)):
        if math.prod(shape[axis:]) == length:
            return Domain(shape[:axis], shape[axis:], shape, tuple(range(axis, len(shape))))
    return None
