"""The cuts of direct convolutions and of tiles that a tuner may try, the default first."""

from __future__ import annotations

from dataclasses import dataclass

from burn_kernels.convolution.references import Geometry
from burn_kernels.launch import Machine, ceil_div, next_power

MOST_COLUMNS = 80
"""Numbers that a lane loads, one after the other, before it multiplies any: registers."""


@dataclass(frozen=True)
class Config:
    """`outs` channels of `pixels` pixels a program, `warps` of 32 threads; all 0: torch's convolution.

    With `channels` they are multiplied as tiles, that many channels at a time (`convolution.tiles`), else one by one.
    """

    outs: int
    pixels: int
    warps: int
    channels: int = 0


@dataclass(frozen=True)
class WeightConfig:
    """`outs` channels by `rows` rows of a kernel, over tiles of `pixels`; `programs` a processor; or all 0.

    With `channels`, all rows of the kernels from that many channels, multiplied as tiles.
    """

    outs: int
    rows: int
    pixels: int
    warps: int
    programs: int
    channels: int = 0


LIBRARY, LIBRARY_WEIGHTS = Config(0, 0, 0), WeightConfig(0, 0, 0, 0, 0)
STEPS = Config(0, 0, 0, 1)
"""The data gradient by torch's convolution by steps of 1 (`convolution.steps`)."""
SUMS = 80
"""Running sums that a lane of the weight gradient has registers for, one of 32 lanes' programs."""


def direct_candidates(outs: int, kernel_w: int, pixels: int, machine: Machine, *, drop: bool = False) -> list[Config]:
    """Configs for so many channels of a group and pixels of all images, the default first."""
    # the weights of a row of the kernel, or the words of a cipher, are held for all channels at once
    most = 2 if machine.backend == "hip" else 4
    wide = min(outs, most if drop else 4 if kernel_w > 4 else 8)
    blocks = ceil_div(outs, wide)
    # 4 pixels a lane use a weight four times; fewer where the machine would not be filled
    each = next((n for n in (4, 2) if blocks * ceil_div(pixels, 128 * n) >= 4 * machine.processors), 1)
    table = [(wide, 128 * each, 4), (min(outs, 2 * wide), 128 * 2, 4), (min(outs, 4), 128 * 4, 4), (wide, 64 * each, 2)]
    if each == 1 and wide > 4 and ceil_div(outs, 4) * ceil_div(pixels, 128 * 4) >= 2 * machine.processors:
        # half the channels and 4 pixels fill it twice: 18 us, not 27, for 64 x 8 x 26 x 26 to 16 (H200, 2026-11-22)
        table.insert(0, (4, 128 * 4, 4))
    return [Config(*numbers) for numbers in dict.fromkeys(table)]


_SUMS_AND_WARPS = ((8, 1, 16), (4, 1, 16), (8, 1, 8), (4, 2, 8))
"""Channels, warps and programs of a processor, for the weight gradient."""


def direct_weight_candidates(geometry: Geometry, machine: Machine) -> list[WeightConfig]:
    """Configs for the weight gradient, the default first."""

    def config(outs: int, warps: int, programs: int) -> WeightConfig:
        wide = min(outs, geometry.targets, max(1, SUMS // geometry.kernel_w))
        rows = geometry.kernel_h if wide * geometry.taps <= SUMS else 1
        return WeightConfig(wide, rows, 32 * warps, warps, programs)

    return list(dict.fromkeys(config(*numbers) for numbers in _SUMS_AND_WARPS))


def tile_candidates(sources: int, outs: int, taps: int, machine: Machine) -> list[Config]:
    """Configs of tiles for the sum over so many channels, the default first; none where a kernel has too many taps."""
    channels = min(sources, MOST_COLUMNS // taps)
    rows = min(32, max(8, next_power(outs)))
    # its many taps are loaded once for twice as many sums
    table = [(64, 128, 4, 1), (64, 256, 8, 1)] if channels == 1 and outs >= 64 and machine.arch == 90 else []
    shares = ((4, 1), (2, 1), (4, 2)) if channels else ()
    table += [(rows, 32 * warps, warps, max(1, channels // parts)) for warps, parts in shares]
    return [Config(*numbers) for numbers in dict.fromkeys(table)]


def tile_weight_candidates(geometry: Geometry, machine: Machine) -> list[WeightConfig]:
    """Configs of tiles for the weight gradient, the default first."""

    def config(outs: int, warps: int, programs: int, read: int) -> WeightConfig:
        return WeightConfig(outs, geometry.kernel_h, 32 * warps, warps, programs, read)

    channels = min(geometry.sources, MOST_COLUMNS // geometry.taps)
    if not channels:
        return []
    half = max(1, channels // 2)
    first, *others = [config(16, 1, *cut) for cut in ((8, channels), (16, half), (16, channels), (4, channels))]
    # few pixels make few parts: more programs then share the channels
    few = shares(geometry, first, machine)[1] < 4 * machine.processors
    configs = [*others, first] if few else [first, *others]
    if channels == 1 and geometry.targets >= 32 and machine.arch == 90:
        configs = [config(32, 1, 8, 1), config(32, 1, 16, 1), *configs, config(32, 2, 8, 1)]
    return list(dict.fromkeys([*configs, config(16, 2, 8, half)]))


def shares(geometry: Geometry, config: WeightConfig, machine: Machine) -> tuple[int, int, int]:
    """Programs for the weights, parts of the pixels, and pixels of a part."""
    read = ceil_div(geometry.sources, config.channels or 1)
    blocks = geometry.groups * ceil_div(geometry.targets, config.outs) * read * ceil_div(geometry.kernel_h, config.rows)
    # at least eight tiles a part: its sums over lanes must be small beside its products; other tiles have no such sums
    least = 4 if config.channels else 8
    parts = max(1, min(machine.processors * config.programs // blocks, geometry.pixels // (least * config.pixels)))
    each = ceil_div(ceil_div(geometry.pixels, parts), config.pixels) * config.pixels
    return blocks, ceil_div(geometry.pixels, each), each
