"""How large a generated kernel's tiles are: without timing, from what it reads and how far its loops run; and what else
a tuner may try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from burn_torch.fusion.loops import Kernel

__all__ = ["Tiles", "candidates_of", "tiles_of"]


@final
@dataclass(frozen=True)
class Tiles:
    """`x` elements (or rows) and `r` elements of a row a program, `warps` of 32 threads.

    stages  of a loop: 1 reads what a step needs in that step, 3 reads what the next two will need meanwhile
    """

    x: int
    r: int
    warps: int
    stages: int = 1

    def blocks(self, kernel: Kernel) -> dict[str, int]:
        """The constants that the kernel is compiled for, in the order of its parameters."""
        found = {"XB": self.x}
        if kernel.domain.reduced is not None:
            found["RB"] = self.r
        if kernel.steps:
            found["STAGES"] = self.stages
        return found

    def programs(self, kernel: Kernel) -> int:
        """How many programs run."""
        return kernel.domain.parts or -(-kernel.domain.rows // self.x)


_FEW: Final = 1024
"""Elements that a program of element-wise work holds: two 16-byte accesses a thread of four warps."""

_MOST_HELD: Final = 32
"""Elements of a tile that a thread holds at most, each with all the values that are made of it."""


def tiles_of(kernel: Kernel) -> Tiles:
    """The tiles that are used without timing."""
    return candidates_of(kernel)[0]


def candidates_of(kernel: Kernel) -> list[Tiles]:
    """What a tuner may try, the tiles that are used without timing first."""
    if kernel.domain.reduced is None:
        found = _elements(kernel)
    elif kernel.domain.parts:
        found = _parts(kernel)
    elif kernel.turned:
        found = _turned(kernel)
    elif kernel.rows_together:
        found = _columns(kernel)
    else:
        found = _rows(kernel)
    return list(dict.fromkeys(found))


def _elements(kernel: Kernel) -> Iterator[Tiles]:
    """Work element by element."""
    most = _power(kernel.domain.rows)
    half = all(spec.dtype.itemsize <= 2 for spec in kernel.outputs)
    few = 2 * _FEW if half else _FEW
    for x, warps in ((few, 4), (few // 2, 4), (2 * few, 8), (few, 8), (few // 2, 2), (2 * few, 4)):
        yield Tiles(min(most, x), 1, warps)


def _rows(kernel: Kernel) -> Iterator[Tiles]:
    """Reductions along what lies together in memory."""
    rows, length = kernel.domain.rows, kernel.domain.length
    if not kernel.whole_rows:
        for r, warps, stages in (
            (4096, 8, 1), (4096, 8, 3), (2048, 4, 1), (2048, 4, 3), (2048, 8, 1), (8192, 16, 1), (4096, 16, 1),
        ):  # fmt: skip
            yield Tiles(1, r, warps, stages)
        return
    r, most = _power(length), _power(rows)
    x = max(min(most, 1024 // r), 1)
    yield Tiles(x, r, _warps(x * r))
    for more, halves in ((x, 1), (x, -1), (2 * x, 0), (2 * x, 1), (max(x // 2, 1), 0)):
        warps = _warps(more * r) << halves if halves >= 0 else _warps(more * r) >> -halves
        if more <= most and 1 <= warps <= 16 and more * r <= 32 * warps * _MOST_HELD:
            yield Tiles(more, r, warps)


def _turned(kernel: Kernel) -> Iterator[Tiles]:
    """Tiles that are read along the one side and written along the other."""
    most_x, most_r = _power(kernel.domain.rows), _power(kernel.domain.length)
    for x, r, warps, stages in (
        (64, 64, 8, 1), (64, 64, 4, 1), (32, 64, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1), (128, 32, 8, 1), (64, 64, 8, 3),
        (32, 64, 4, 3),
    ):  # fmt: skip
        yield Tiles(min(x, most_x), min(r, most_r), warps, stages)


def _parts(kernel: Kernel) -> Iterator[Tiles]:
    """Rows one after the other, whose columns are summed beside: a program for each part."""
    r, most = _power(kernel.domain.length), _power(kernel.domain.rows // kernel.domain.parts)
    x = max(min(most, 2048 // r), 1)
    yield Tiles(x, r, _warps(x * r))
    less, warps, twice = max(x // 2, 1), _warps(x * r), _warps(2 * x * r)
    for held, count, stages in (
        (x, warps, 3), (less, warps, 1), (less, warps, 3), (less, warps, 4), (x, 2 * warps, 1), (x, 2 * warps, 3),
        (2 * x, twice, 1), (2 * x, twice, 3),
    ):  # fmt: skip
        if held <= most and count <= 16 and held * r <= 32 * count * _MOST_HELD:
            yield Tiles(held, r, count, stages)


_WIDE: Final = 128
_NARROW: Final = 32
"""Columns side by side: of the smallest types the narrowest tile reads 64 bytes of each row, of which memory delivers
no less."""

_ENOUGH: Final = 264
"""Programs: two for each multiprocessor of a large device."""


def _columns(kernel: Kernel) -> Iterator[Tiles]:
    """Reductions across what lies together in memory: tiles of neighbouring columns."""
    most, length = _power(kernel.domain.rows), kernel.domain.length
    if kernel.whole_rows:
        r = _power(length)
        x = max(min(most, max(4096 // r, min(_NARROW, 16_384 // r)), 64), 1)
        yield Tiles(x, r, _warps(x * r))
        for wide, warps in ((2 * x, _warps(2 * x * r)), (x // 2, _warps(x * r // 2)), (x, 2 * _warps(x * r))):
            if 1 <= wide <= most and warps <= 16 and wide * r <= 32 * warps * _MOST_HELD:
                yield Tiles(wide, r, warps)
        return
    x = _WIDE
    while x > _NARROW and kernel.domain.rows < x * _ENOUGH:
        x //= 2
    for wide, held, warps, stages in (
        (x, 4096, 8, 1), (x, 4096, 8, 3), (x, 2048, 4, 1), (x, 2048, 4, 3), (x, 2048, 8, 3), (x // 2, 2048, 4, 1),
        (2 * x, 4096, 8, 1), (2 * x, 4096, 8, 3), (x, 8192, 8, 1), (x, 1024, 4, 4),
    ):  # fmt: skip
        wide = min(most, wide)
        yield Tiles(wide, held // wide, warps, stages)


def _warps(elements: int) -> int:
    return max(1, min(16, elements // 512))


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
