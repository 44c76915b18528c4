"""How large a generated kernel's tiles are, without timing: from what it reads and how far its loops run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from burn_torch.fusion.loops import Kernel

__all__ = ["Tiles", "tiles_of"]


@final
@dataclass(frozen=True)
class Tiles:
    """`x` elements (or rows) and `r` elements of a row a program, `warps` of 32 threads."""

    x: int
    r: int
    warps: int

    def programs(self, kernel: Kernel) -> int:
        """How many programs run."""
        return kernel.domain.parts or -(-kernel.domain.rows // self.x)


_FEW: Final = 1024
"""Elements that a program of element-wise work holds: two 16-byte accesses a thread of four warps."""


def tiles_of(kernel: Kernel) -> Tiles:
    """The tiles that are used without timing."""
    rows, length = kernel.domain.rows, kernel.domain.length
    if kernel.domain.reduced is None:
        half = all(spec.dtype.itemsize <= 2 for spec in kernel.outputs)
        return Tiles(min(_power(rows), 2 * _FEW if half else _FEW), 1, 4)
    if kernel.domain.parts:
        r = _power(length)
        x = max(min(_power(rows // kernel.domain.parts), 2048 // r), 1)
        return Tiles(x, r, _warps(x * r))
    if kernel.rows_together:
        if kernel.whole_rows:
            r = _power(length)
            x = max(min(_power(rows), 4096 // r, 64), 1)
            return Tiles(x, r, _warps(x * r))
        x = min(_power(rows), 32)
        return Tiles(x, 2048 // x, 8)
    if kernel.whole_rows:
        r = _power(length)
        x = max(min(_power(rows), 1024 // r), 1)
        return Tiles(x, r, _warps(x * r))
    return Tiles(1, 4096, 8)


def _warps(elements: int) -> int:
    return max(1, min(16, elements // 512))


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
