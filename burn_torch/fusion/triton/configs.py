"""How large a generated kernel's tiles are: without timing, from what it reads and how far its loops run; and what else
a tuner may try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, final

from burn_torch.fusion.body.loops import Kernel

__all__ = ["Tiles", "candidates_of", "chosen_tiles", "tiles_of"]


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
        sizes = {"XB": self.x}
        if kernel.domain.reduced is not None:
            sizes["RB"] = self.r
        if kernel.steps:
            sizes["STAGES"] = self.stages
        return sizes

    def programs(self, kernel: Kernel) -> int:
        """How many programs run."""
        return kernel.domain.parts or -(-kernel.domain.rows // self.x)


def chosen_tiles(
    kernel: Kernel, known: Callable[[str], tuple[Tiles, str] | None] | None, *names: str
) -> tuple[Tiles, str]:
    """The tiles of a kernel, or one that runs under another of the names, and who chose them; else the default.

    known  what was chosen for the kernel of a name
    """
    for name in (kernel.name, *names):
        known_tiles = None if known is None else known(name)
        if known_tiles is not None:
            return known_tiles
    return tiles_of(kernel), "default"


_FEW: Final = 1024
"""Elements that a program of element-wise work holds: two 16-byte accesses a thread of four warps."""

_MOST_HELD: Final = 32
"""Elements of a tile that a thread holds at most, each with all the values that are made of it."""


def tiles_of(kernel: Kernel) -> Tiles:
    """The tiles that are used without timing."""
    return candidates_of(kernel)[0]


def candidates_of(kernel: Kernel) -> list[Tiles]:
    """Returns the tiles that a tuner may try, those that are used without timing first."""
    if kernel.domain.reduced is None:
        tiles = _elements(kernel)
    elif kernel.domain.parts:
        tiles = _parts(kernel)
    elif kernel.turned:
        tiles = _turned_tiles(kernel)
    elif kernel.rows_together:
        tiles = _columns(kernel)
    else:
        tiles = _rows(kernel)
    return list(dict.fromkeys(tiles))


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


def _turned_tiles(kernel: Kernel) -> Iterator[Tiles]:
    """Tiles that are read along the one side and written along the other."""
    most_x, most_r = _power(kernel.domain.rows), _power(kernel.domain.length)
    for x, r, warps, stages in (
        (64, 64, 8, 1), (64, 64, 4, 1), (32, 64, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1), (128, 32, 8, 1), (64, 64, 8, 3),
        (32, 64, 4, 3),
    ):  # fmt: skip
        yield Tiles(min(x, most_x), min(r, most_r), warps, stages)


_AHEAD: Final = 66_000
"""Bytes that each multiprocessor of a large device has on their way: with 16,000 to 40,000 sums of columns took 1.2 to
1.5 times as long (H200, torch 2.11, Triton 3.6, 2026-11-22, benchmarks/notes/fusion.md)."""

_MOST_AHEAD: Final = 128 << 10
"""Bytes that a program of what is on its way keeps in shared memory at most."""

_MULTIPROCESSORS: Final = 132


def _ahead(kernel: Kernel, tiles: Tiles) -> float:
    """Bytes that a multiprocessor has on their way while it computes."""
    together = max(tiles.programs(kernel) / _MULTIPROCESSORS, 1.0)
    return (tiles.stages - 1) * tiles.x * tiles.r * kernel.streamed * together


def _fitting(kernel: Kernel, tiles: Tiles) -> Tiles:
    """With no more stages than there are steps, nor than shared memory holds of what is read ahead."""
    domain = kernel.domain
    steps = -(-(domain.rows // domain.parts) // tiles.x) if domain.parts else -(-domain.length // tiles.r)
    room = 1 + _MOST_AHEAD // (tiles.x * tiles.r * max(kernel.streamed, 1))
    return replace(tiles, stages=max(min(tiles.stages, steps, room), 1))


def _parts(kernel: Kernel) -> Iterator[Tiles]:
    """Rows one after the other, whose columns are summed beside: a program for each part."""
    r, most = _power(kernel.domain.length), _power(kernel.domain.rows // kernel.domain.parts)

    def of(x: int, stages: int, more: int = 1) -> Tiles:
        warps = max(min(4, x * r // 256), x * r // 512) * more
        return _fitting(kernel, Tiles(x, r, max(1, min(16, warps)), stages))

    x, stages = max(min(most, 1024 // r), 1), 3
    if _ahead(kernel, of(x, 3)) < _AHEAD:  # not both: on AMD what is read ahead lies in registers
        x, stages = (2 * x, 3) if 2 * x <= most and 2 * x * r <= 2048 else (x, 4)
    yield of(x, stages)
    less = max(x // 2, 1)
    for tiles in (
        of(x, 1), of(x, 2), of(x, 3), of(x, 4), of(less, 3), of(less, 4), of(2 * x, 3), of(2 * x, 1), of(x, 3, 2),
    ):  # fmt: skip
        if tiles.x <= most and tiles.x * r <= max(x * r, 4096):
            yield tiles


_WIDE: Final = 128
_NARROW: Final = 32
"""Columns side by side: of the smallest types the narrowest tile reads 64 bytes of each row, of which memory delivers
no less."""


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
    while x > _NARROW and kernel.domain.rows < x * 2 * _MULTIPROCESSORS:
        x //= 2

    def of(wide: int, held: int, warps: int, stages: int) -> Tiles:
        wide = min(most, wide)
        return _fitting(kernel, Tiles(wide, held // wide, warps, stages))

    usual = of(x, 4096, 8, 3)
    yield usual if _ahead(kernel, usual) >= _AHEAD else of(x, 8192, 8, 3)
    yield from (
        usual, of(x, 4096, 8, 1), of(x, 2048, 4, 3), of(x, 2048, 4, 1), of(x, 8192, 8, 1), of(x, 8192, 8, 3),
        of(x, 2048, 8, 3), of(2 * x, 4096, 8, 3), of(x // 2, 2048, 4, 3), of(x, 1024, 4, 4),
    )  # fmt: skip


def _warps(elements: int) -> int:
    return max(1, min(16, elements // 512))


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
