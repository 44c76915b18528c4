"""Choosing between direct kernels and torch's convolution: what keys are made of, and the order of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.convolution_kernels import LIBRARY, Config
from burn_kernels.convolution_parts import Geometry, is_direct
from burn_kernels.launch import Machine

Choice = TypeVar("Choice")
MOST_SUMS = 64 * 512
"""Running sums of a program: past it they do not fit its registers."""


def facts_of(dtype: torch.dtype, made: Geometry, address: int, packed: bool, flags: str) -> Facts:
    """The facts of a call."""
    return Facts(made[:1], made[1:], dtype, alignment(address), "packed" if packed else "strided", flags)


def call_of(made: Geometry, read: torch.Tensor, flags: str, machine: Machine) -> tuple[Any, ...]:
    """What `facts_of` takes of a call that reads this tensor."""
    return read.dtype, made, read.data_ptr() & 15, read.is_contiguous(), flags


def geometry_of(facts: Facts) -> Geometry:
    """The sizes of a problem."""
    return Geometry(*facts.free, *facts.exact)


def with_library(library: Choice, direct: Sequence[Choice], facts: Facts) -> list[Choice]:
    """The candidates: torch's convolution first where the rule takes it without timing, last where it does not."""
    return [*direct, library] if is_direct(geometry_of(facts), facts.dtype) else [library, *direct]


def supports(config: Config, facts: Facts) -> bool:
    """Whether a config is legal: pixels are counted in 32 bits."""
    made = geometry_of(facts)
    most = made.batch * max(made.height * made.width, made.out_h * made.out_w)
    return config == LIBRARY or (config.outs * config.pixels <= MOST_SUMS and most < 2**31 - 65_536)


def problems(flags: Sequence[str], rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """The second layer of the Burn book's network for `rows` images, with `cols` channels in, twice as many out."""
    cols = min(cols, 64)
    made = Geometry(rows, cols, 26, 26, 2 * cols, 3, 3, 1, 1, 0, 0, 1, 1, 1)
    return [facts_of(dtype, made, 0, True, flag) for flag in flags]
