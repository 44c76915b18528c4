"""The choice between direct kernels and torch's convolution: keys, the order of candidates, their cost, trials."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.convolution.configs import LIBRARY, STEPS, Config, direct_candidates, tile_candidates
from burn_kernels.convolution.references import (
    MOST_PLANE_TAPS,
    STEM_CHANNELS,
    STEM_RESULTS,
    Geometry,
    in_tf32,
    is_direct,
    is_stem,
)
from burn_kernels.launch import Machine, ceil_div

Choice = TypeVar("Choice")
MOST_SUMS = 64 * 512
"""Running sums of a program: past it they do not fit its registers."""


def facts_of(dtype: torch.dtype, geometry: Geometry, address: int, packed: bool, flags: str) -> Facts:
    """The facts of a call."""
    return Facts(geometry[:1], geometry[1:], dtype, alignment(address), "packed" if packed else "strided", flags)


def key_of(geometry: Geometry, read: torch.Tensor, flags: str) -> tuple[object, ...]:
    """The arguments of `facts_of` for a call that reads this tensor."""
    return read.dtype, geometry, read.data_ptr() & 15, read.is_contiguous(), flags


def geometry_of(facts: Facts) -> Geometry:
    """The sizes of a problem."""
    return Geometry(*facts.free, *facts.exact)


def words_of(dtype: torch.dtype, geometry: Geometry, *words: str) -> str:
    """The flags of a call."""
    return " ".join(word for word in (*words, "tf32" if in_tf32(dtype, geometry) else "") if word)


def in_tiles(facts: Facts) -> bool:
    """Tells if cores for tensors may compute it: in half types, in tf32 where it is allowed, and nothing but a bias."""
    words = set(facts.flags.split())
    return words <= {"b", "tf32"} and (facts.dtype != torch.float32 or "tf32" in words)


def offers_tiles(facts: Facts, machine: Machine) -> bool:
    """Tells if tiles are candidates on a machine: not on AMD's, where scalars for so many taps do not fit registers."""
    return in_tiles(facts) and machine.backend != "hip"


def digits_of(facts: Facts) -> torch.dtype:
    """The type whose digits the results have: a product in tf32 has those of a float16."""
    return torch.float16 if "tf32" in facts.flags.split() else facts.dtype


def compared_exactly(trial: Trial, facts: Facts) -> Trial:
    """The trial with torch's convolutions multiplying float32 exactly while results are compared; timed as it was.

    By torch's default cuDNN takes tf32 where it thinks fit, at 1024 images of 64 channels but not at 3 (H200).  Beside
    that, the kernels that are exact would look wrong: 0.0167 of 46.
    """
    if facts.dtype != torch.float32 or "tf32" in facts.flags.split():
        return trial

    def run(given: object, config: object) -> Any:
        with _exact_products():
            return trial.run(given, config)

    def reference(given: object) -> Any:
        with _exact_products():
            return trial.reference(given)

    return dataclasses.replace(trial, run=run, reference=reference, timed=trial.timed or trial.run)


@contextlib.contextmanager
def _exact_products() -> Iterator[None]:
    cudnn: object = torch.backends.cudnn
    # from torch 2.9 on, `allow_tf32` may not be read where convolutions and recurrences have unlike settings
    place, name, exact = (
        (cudnn.conv, "fp32_precision", "ieee") if hasattr(cudnn, "conv") else (cudnn, "allow_tf32", False)
    )
    before = getattr(place, name)
    setattr(place, name, exact)
    try:
        yield
    finally:
        setattr(place, name, before)


FEW_TERMS, FEW_RESULTS = 16, 8
"""Below so many products a sum, or channels of the result, tiles are mostly empty and direct kernels as fast: H200, one
channel to 8 and 32 to 3, 3 x 3."""


def with_tiles(direct: Sequence[Choice], tiles: Sequence[Choice], terms: int, results: int) -> list[Choice]:
    """Both kinds, tiles first where a sum has enough terms and there are enough channels of results."""
    return [*tiles, *direct] if terms >= FEW_TERMS and results >= FEW_RESULTS else [*direct, *tiles]


FIRST_TERMS = 48
"""Products a sum of a first layer in half types, from which tiles and steps of 1 were timed: 4 x 4 of 3 channels."""


def is_first(geometry: Geometry) -> bool:
    """Tells if it is the first layer of a network on pictures: few channels make many."""
    few = geometry.groups == 1 and geometry.sources <= STEM_CHANNELS and geometry.targets >= STEM_RESULTS
    return few and geometry.sources * geometry.taps >= FIRST_TERMS and geometry.taps <= MOST_PLANE_TAPS


def beats_library(facts: Facts, machine: Machine, *, weights: bool = False) -> bool:
    """Tells if tiles were faster than cuDNN (H200, 2026-11-22, benchmarks/notes/convolution.md), to its digits.

    They were for all first layers in half types and where tf32 is asked for; otherwise in float32 for the weight
    gradient of stems, which cuDNN computes in tf32 too: of seven forwards it was exact in four.
    """
    geometry = geometry_of(facts)
    if machine.arch != 90 or not offers_tiles(facts, machine):
        return False
    rounded = facts.dtype != torch.float32 or in_tf32(facts.dtype)
    return is_first(geometry) if rounded else weights and is_stem(geometry)


def with_library(library: Choice, direct: Sequence[Choice], facts: Facts, *, tiles: bool) -> list[Choice]:
    """The candidates: torch's convolution first where the rule takes it without timing, last where it does not.

    tiles    whether tiles beat it
    """
    geometry = geometry_of(facts)
    if tiles or is_direct(geometry, facts.dtype):
        return [*direct, library]
    if (
        facts.dtype == torch.float32
        and "tf32" not in facts.flags.split()
        and geometry.sources * geometry.targets > MOST_EXACT_PAIRS
    ):
        return [library]
    return [library, *direct]


MOST_EXACT_PAIRS = 512
"""Channels read times channels made, to which direct kernels are candidates in exact float32.  They add up one product
after the other: at 16 to 32 they are as near to float64 as cuDNN and a third slower, at 64 to 128 they are further off
(H200)."""


def supports(config: Config, facts: Facts) -> bool:
    """Tells if a config is legal: pixels are counted in 32 bits."""
    geometry = geometry_of(facts)
    most = geometry.batch * max(geometry.height * geometry.width, geometry.out_h * geometry.out_w)
    if config == LIBRARY:
        return True
    fits = in_tiles(facts) if config.channels else config.outs * config.pixels <= MOST_SUMS
    return fits and most < 2**31 - 65_536


# -- forward and data gradient -----------------------------------------------------------------------
def work_of_library(facts: Facts, machine: Machine, *, factor: int = 1) -> Work:
    """A guess of what torch's convolution takes: the default is `is_direct`'s, and timings decide."""
    geometry, size = geometry_of(facts), facts.dtype.itemsize
    return Work(machine.processors, 8, 4096, size, geometry.elements * size, factor * geometry.flops, 1.0)


def pixels_of(geometry: Geometry, *, back: bool) -> tuple[int, int, int]:
    """The pixels that sums are made for, and the channels of a group that each sum reads and that are made."""
    if back:
        return geometry.batch * geometry.height * geometry.width, geometry.targets, geometry.sources
    return geometry.pixels, geometry.sources, geometry.targets


def pixel_work(config: Config, facts: Facts, machine: Machine, *, back: bool) -> Work:
    """The cost of the forward, or of the data gradient."""
    if config in (LIBRARY, STEPS):
        return work_of_library(facts, machine)
    geometry, size = geometry_of(facts), facts.dtype.itemsize
    pixels, sources, outs = pixels_of(geometry, back=back)
    blocks, tiles = ceil_div(outs, config.outs), ceil_div(pixels, config.pixels)
    useful = pixels * outs / (tiles * config.pixels * blocks * config.outs)
    programs = tiles * geometry.groups * blocks
    live = min(sources, config.channels) * geometry.taps if config.channels else config.outs
    flops = geometry.flops // (4 if config.channels else 1)  # in tiles, another core's
    return Work(programs, config.warps, config.pixels, size, geometry.elements * size, flops, useful, live + 4.0)


def pixel_candidates(facts: Facts, machine: Machine, *, back: bool) -> list[Config]:
    """The configs that a tuner may try for the forward, or for the data gradient, the default first."""
    geometry, drop = geometry_of(facts), "drop" in facts.flags.split()
    pixels, sources, outs = pixels_of(geometry, back=back)
    configs = direct_candidates(outs, geometry.kernel_w, pixels * geometry.groups, machine, drop=drop)
    if offers_tiles(facts, machine):
        tiles = tile_candidates(sources, outs, geometry.taps, machine)
        configs = with_tiles(configs, tiles, sources * geometry.taps, outs)
    return with_library(LIBRARY, configs, facts, tiles=not back and beats_library(facts, machine))


# -- trials ------------------------------------------------------------------------------------------
def trial_of(names: str, facts: Facts, inputs: Inputs, run: Callable[..., Any], reference: Callable[..., Any]) -> Trial:
    """The trial of `run` beside `reference` on operands with these names; both may give None among their results."""
    geometry = geometry_of(facts)
    shapes = {
        "x": geometry[:4],
        "w": (geometry.outs, geometry.sources, geometry.kernel_h, geometry.kernel_w),
        "b": (geometry.outs,),
        "dz": (geometry.batch, geometry.outs, geometry.out_h, geometry.out_w),
    }
    operands = [
        inputs.normal(*shapes[name], dtype=facts.dtype, std=0.3 if name == "w" else 1.0) for name in names.split()
    ]
    trial = Trial(
        tuple(operands),
        lambda given, config: [x for x in run(*given, config) if x is not None],
        lambda given: [x for x in reference(*given) if x is not None],
    )
    return compared_exactly(trial, facts)


def convolution_tunable(name: str, **parts: Any) -> Tunable:
    """Registers a place at which a config is chosen by the sizes of a convolution."""
    return register_tunable(
        name=name,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        elements=lambda facts: geometry_of(facts).elements,
        judged_in=digits_of,
        **parts,
    )


def problems(flags: Sequence[str], rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """The second layer of the Burn book's network for `rows` images, with `cols` channels in, twice as many out."""
    cols = min(cols, 16)
    geometry = Geometry(rows, cols, 26, 26, 2 * cols, 3, 3, 1, 1, 0, 0, 1, 1, 1)
    return [facts_of(dtype, geometry, 0, True, words_of(dtype, geometry, flag)) for flag in flags]
