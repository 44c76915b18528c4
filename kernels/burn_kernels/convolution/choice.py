"""Choosing between direct kernels and torch's convolution: what keys are made of, and the order of candidates."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch

from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.convolution.kernels import LIBRARY, Config
from burn_kernels.convolution.references import (
    MOST_PLANE_TAPS,
    STEM_CHANNELS,
    STEM_RESULTS,
    Geometry,
    in_tf32,
    is_direct,
    is_stem,
)
from burn_kernels.launch import Machine

Choice = TypeVar("Choice")
MOST_SUMS = 64 * 512
"""Running sums of a program: past it they do not fit its registers."""


def facts_of(dtype: torch.dtype, made: Geometry, address: int, packed: bool, flags: str) -> Facts:
    """The facts of a call."""
    return Facts(made[:1], made[1:], dtype, alignment(address), "packed" if packed else "strided", flags)


def call_of(made: Geometry, read: torch.Tensor, flags: str, machine: Machine) -> tuple[object, ...]:
    """What `facts_of` takes of a call that reads this tensor."""
    return read.dtype, made, read.data_ptr() & 15, read.is_contiguous(), flags


def geometry_of(facts: Facts) -> Geometry:
    """The sizes of a problem."""
    return Geometry(*facts.free, *facts.exact)


def words_of(dtype: torch.dtype, made: Geometry, *words: str) -> str:
    """The flags of a call."""
    return " ".join(word for word in (*words, "tf32" if in_tf32(dtype, made) else "") if word)


def in_tiles(facts: Facts) -> bool:
    """Whether cores for tensors may compute it: in half types, in tf32 where it is allowed, and nothing but a bias."""
    words = set(facts.flags.split())
    return words <= {"b", "tf32"} and (facts.dtype != torch.float32 or "tf32" in words)


def offers_tiles(facts: Facts, machine: Machine) -> bool:
    """Whether tiles are candidates on a machine: not on AMD's, where scalars for so many taps do not fit registers."""
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


def is_first(made: Geometry) -> bool:
    """Whether it is the first layer of a network on pictures: few channels make many."""
    few = made.groups == 1 and made.sources <= STEM_CHANNELS and made.targets >= STEM_RESULTS
    return few and made.sources * made.taps >= FIRST_TERMS and made.taps <= MOST_PLANE_TAPS


def beats_library(facts: Facts, machine: Machine, *, weights: bool = False) -> bool:
    """Whether tiles were faster than cuDNN (H200, 2026-11-22, benchmarks/notes/convolution.md), to its digits.

    In half types and where tf32 is asked for, of all first layers; otherwise in float32 of the weight gradient of
    stems, which cuDNN computes in tf32 too: of seven forwards it was exact in four.
    """
    made = geometry_of(facts)
    if machine.arch != 90 or not offers_tiles(facts, machine):
        return False
    rounded = facts.dtype != torch.float32 or in_tf32(facts.dtype)
    return is_first(made) if rounded else weights and is_stem(made)


def with_library(library: Choice, direct: Sequence[Choice], facts: Facts, *, tiles: bool) -> list[Choice]:
    """The candidates: torch's convolution first where the rule takes it without timing, last where it does not.

    tiles    whether tiles beat it
    """
    made = geometry_of(facts)
    if tiles or is_direct(made, facts.dtype):
        return [*direct, library]
    if (
        facts.dtype == torch.float32
        and "tf32" not in facts.flags.split()
        and made.sources * made.targets > MOST_EXACT_PAIRS
    ):
        return [library]
    return [library, *direct]


MOST_EXACT_PAIRS = 512
"""Channels read times channels made, to which direct kernels are candidates in exact float32.  They add up one product
after the other: at 16 to 32 they are as near to float64 as cuDNN and a third slower, at 64 to 128 they are further off
(H200)."""


def supports(config: Config, facts: Facts) -> bool:
    """Whether a config is legal: pixels are counted in 32 bits."""
    made = geometry_of(facts)
    most = made.batch * max(made.height * made.width, made.out_h * made.out_w)
    if config == LIBRARY:
        return True
    fits = in_tiles(facts) if config.channels else config.outs * config.pixels <= MOST_SUMS
    return fits and most < 2**31 - 65_536


def problems(flags: Sequence[str], rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """The second layer of the Burn book's network for `rows` images, with `cols` channels in, twice as many out."""
    cols = min(cols, 16)
    made = Geometry(rows, cols, 26, 26, 2 * cols, 3, 3, 1, 1, 0, 0, 1, 1, 1)
    return [facts_of(dtype, made, 0, True, words_of(dtype, made, flag)) for flag in flags]
