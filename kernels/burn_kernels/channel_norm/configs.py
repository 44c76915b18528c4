"""How the tiles of norms over channels are cut, and the configs to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from burn_kernels.channel_norm.layout import Sizes, Tiling
from burn_kernels.launch import Machine, ceil_div, next_power


class Tile(NamedTuple):
    """The form of a tile, and how many are loaded ahead."""

    KEPT: int
    ROWS: int
    BLOCK: int
    STAGES: int


@dataclass(frozen=True)
class Config:
    """A tile of `kept` results by `rows` x `block` elements, `warps` of 32 threads, `programs` a processor.

    With `stages` above 1 the tiles to come are loaded ahead of the one that is computed.
    """

    kept: int
    rows: int
    block: int
    warps: int
    programs: int
    stages: int = 1

    @property
    def tile(self) -> Tile:
        """The constant that kernels that go over tiles are compiled with."""
        return Tile(self.kept, self.rows, self.block, self.stages)


def default(tiling: Tiling, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(tiling, itemsize, machine)[0]


def candidates(tiling: Tiling, itemsize: int, machine: Machine) -> list[Config]:
    """Lists the configs that a tuner may try, the default first."""
    if tiling.cols == 1:
        return _candidates_of_rows(tiling, itemsize, machine)
    configs, tried = [], [(4096, 8, 4), (2048, 4, 8), (4096, 4, 4), (8192, 8, 2)]
    if tiling.outer > 1 and tiling.kept >= machine.processors:
        # of group norm, 0.89 to 1 of the fastest on an H200, where tiles of twice the elements are 0.67 to 1
        tried.insert(0, tried.pop(1))
    for elements, warps, programs in tried:
        most = elements if itemsize == 2 else elements // 2
        block = _block(tiling.cols, max(most // next_power(tiling.rows), min(1024, most)))
        rows = min(next_power(tiling.rows), most // block)
        kept = min(next_power(tiling.kept), max(1, most // (4 * rows * block)))
        configs.append(Config(kept, rows, block, warps, programs))
    return list(dict.fromkeys(configs))


def _candidates_of_rows(tiling: Tiling, itemsize: int, machine: Machine) -> list[Config]:
    """The same where channels are last: 128 bytes of neighbours, by as many rows as fit."""
    kept = min(next_power(tiling.kept), 128 // itemsize)
    # H200, 2026-11-22, benchmarks/notes/norm.md: ahead by two tiles; large ones where each program has many of them
    tiles = ceil_div(tiling.rows * kept * itemsize, 16_384) * ceil_div(tiling.kept, kept)
    # a lane of float32 has the statistics of its channels in two parts each: half as many elements a thread
    cuts = [(8192, 8, 2, 3), (4096, 4 if itemsize == 2 else 8, 4, 3)]
    if tiles < 16 * machine.processors:
        cuts.reverse()
    cuts += [(4096, 8, 4, 1), (4096, 8, 4, 3), (2048, 4, 8, 1), (2048, 4, 8, 3), (8192, 8, 2, 4)]
    if machine.backend != "cuda":
        cuts = [(4096, 8, 4, 1), (2048, 4, 8, 1), (4096, 4, 4, 1), (8192, 8, 2, 1)]
    configs = []
    for elements, warps, programs, stages in cuts:
        most = elements if itemsize == 2 else elements // 2
        configs.append(Config(kept, min(next_power(tiling.rows), most // kept), 1, warps, programs, stages))
    return list(dict.fromkeys(configs))


def _block(cols: int, most: int) -> int:
    """The columns of a tile: the widest of which under a seventh lies past the end, or the one of which least does."""
    widths = [w for w in (8192, 4096, 2048, 1024, 512, 256, 128, 64) if w <= min(next_power(cols), most)] or [
        next_power(cols)
    ]
    idle = {w: ceil_div(cols, w) * w / cols for w in widths}
    return next((w for w in widths if idle[w] < 8 / 7), min(widths, key=lambda w: (idle[w], -w)))


def grid(tiling: Tiling, config: Config, machine: Machine) -> tuple[int, int, int]:
    """Blocks of results, parts of their tiles, and tiles of a part."""
    blocks, tiles = ceil_div(tiling.kept, config.kept), sizes_of(tiling, config).tiles
    # a part has four tiles at least: what it leaves behind must be small beside what it reads
    parts = max(1, min(machine.processors * config.programs // blocks, tiles // 4))
    steps = ceil_div(tiles, parts)
    return blocks, ceil_div(tiles, steps), steps


def sizes_of(tiling: Tiling, config: Config) -> Sizes:
    """The sizes that kernels over tiles take."""
    tiles = ceil_div(tiling.rows, config.rows) * ceil_div(tiling.cols, config.block)
    return Sizes(tiling.kept, tiling.inner, tiling.rows, tiling.cols, tiles)
