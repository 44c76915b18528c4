"""How the work of reductions is cut, and the configs to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from burn_kernels.launch import Machine, ceil_div, next_power
from burn_kernels.reduce.references import FEW

MOST = 1 << 30
"""Longest part of a reduced axis: places within one fit 31 bits."""

LONG = 128
"""Elements that a part should have at least of each result, where results lie side by side."""


@dataclass(frozen=True)
class Config:
    """A tile of `kept` results by `block` elements, `warps` of 32 threads, `programs` a processor to aim at.

    The forward takes `ahead` tiles at once, and a thread `registers` at most, 0 for the compiler's choice; argmax of
    columns has `stages` - 1 such groups under way, on their way to shared memory, where no register waits for them.
    """

    kept: int
    block: int
    warps: int
    programs: int
    ahead: int = 1
    registers: int = 0
    stages: int = 1


Form = Literal["sums", "moments", "places", "peaks", "exponentials", "back"]
"""The property by which a config is chosen: a group of tiles leaves one number a lane for sums and two for moments;
each element keeps its own for peaks, and two for exponentials."""


class Tried(NamedTuple):
    """Bytes of a tile, of which `beside` are neighbours in memory where the reduced axis has none; the rest as in
    `Config`."""

    span: int
    warps: int
    programs: int
    ahead: int = 1
    beside: int = 256
    stages: int = 1


_FEW_REGISTERS = (Tried(4096, 4, 8), Tried(2048, 4, 8, 2), Tried(8192, 8, 4), Tried(4096, 8, 8), Tried(2048, 4, 16))
TRIED: dict[str, tuple[Tried, ...]] = {
    "sums one": (Tried(2048, 4, 4, 8), Tried(2048, 4, 8, 4), Tried(4096, 8, 4, 4), Tried(4096, 4, 8)),
    "sums along": (
        Tried(1024, 2, 16, 8),
        Tried(2048, 4, 8, 8),
        Tried(1024, 2, 16, 4),
        Tried(2048, 4, 8, 4),
        Tried(4096, 4, 8),
    ),
    "sums across": (Tried(1024, 2, 12, 4), Tried(2048, 4, 6, 4), Tried(512, 1, 24, 4), Tried(4096, 4, 8)),
    "moments across": (Tried(1024, 2, 8, 8), Tried(2048, 4, 4, 8), Tried(512, 1, 16, 8), Tried(4096, 4, 8)),
    "places one": (Tried(2048, 4, 6, 4), Tried(4096, 8, 3, 4), Tried(1024, 2, 12, 4), Tried(4096, 4, 8)),
    "places along": (
        Tried(512, 1, 32, 4),
        Tried(1024, 2, 16, 4),
        Tried(512, 1, 32, 8),
        Tried(2048, 4, 8, 4),
        Tried(4096, 4, 8),
    ),
    "places across": (
        Tried(1024, 2, 6, 2, 1024, 5),
        Tried(2048, 4, 3, 2, 2048, 5),
        Tried(512, 1, 12, 2, 512, 5),
        Tried(2048, 4, 7, 4, 2048),
        Tried(4096, 4, 8),
    ),
    "places of odd rows": (Tried(2048, 4, 5, 4), Tried(4096, 8, 4, 4), Tried(4096, 4, 8)),
    "places on hip": (Tried(2048, 4, 8), Tried(4096, 8, 4)),
    "peaks across": (Tried(512, 1, 24, 1, 512), Tried(2048, 8, 7, 1, 2048), Tried(1024, 2, 16), *_FEW_REGISTERS),
    "exponentials across": (Tried(2048, 4, 12, 1, 2048), Tried(1024, 2, 24, 1, 1024), *_FEW_REGISTERS),
}
"""The first was fastest at 16384 x 16384 on an H200; for what has no list, `_FEW_REGISTERS`."""


def default(
    kept: int, length: int, itemsize: int, machine: Machine, *, along: bool = True, form: Form = "sums"
) -> Config:
    """The config that is used without timing; `along` where the reduced axis is the one with neighbours in memory."""
    return candidates(kept, length, itemsize, machine, along=along, form=form)[0]


def candidates(
    kept: int, length: int, itemsize: int, machine: Machine, *, along: bool = True, form: Form = "sums", align: int = 16
) -> list[Config]:
    """Lists the configs that a tuner may try, the default first; `align` divides the address of each row, in bytes."""
    way = "along" if along else "across"
    name = f"{form} {way}"
    if form in ("sums", "moments", "places") and (along or kept == 1):
        name = f"{'places' if form == 'places' else 'sums'} {'one' if kept == 1 else way}"
    if name == "places across" and align < 4:  # too little for a copy to shared memory
        name = "places of odd rows"
    if machine.backend == "hip":  # groups of tiles spill on gfx942
        name = "places on hip" if form == "places" else ""
    table, configs = TRIED.get(name, _FEW_REGISTERS), []
    if form == "moments" and itemsize > 2 and name != "sums one":
        table = table[1:] + table[:1]  # in the first, float32 spills on sm_90 along, and loses half a unit across
    for span, warps, programs, ahead, beside, stages in table:
        size = max(32, span // itemsize)
        if along:
            block = min(next_power(length), size)
            tile = min(next_power(kept), max(1, size // block)), block
        else:
            wide = min(next_power(kept), beside // itemsize)
            # a part leaves 8 bytes a result, so where programs would share too few rows, tiles are narrower
            while wide * itemsize > 256 and kept * length < wide * LONG * programs * machine.processors:
                wide //= 2
            tile = wide, min(next_power(length), max(1, size // wide))
        ahead = min(ahead, next_power(ceil_div(length, tile[1])))
        configs.append(Config(*tile, warps, programs, ahead, stages=stages))
    return list(dict.fromkeys(configs))


def grid(outer: int, inner: int, far: int, length: int, config: Config, machine: Machine) -> tuple[int, bool, int, int]:
    """Blocks of results, whether a tile spans several outers, parts of the length and how long one is."""
    spread = outer > 1 and inner < FEW
    blocks = ceil_div(outer * inner, config.kept) if spread else outer * ceil_div(inner, config.kept)
    wanted = machine.processors * config.programs // (blocks * far)
    step = config.ahead * config.block
    longest = ceil_div(length, max(2 * step, 4 * config.block))  # a part has four tiles at least
    chunks = max(1, min(wanted, longest), ceil_div(length, MOST))
    chunk = ceil_div(ceil_div(length, chunks), step) * step
    return blocks, spread, ceil_div(length, chunk), chunk
