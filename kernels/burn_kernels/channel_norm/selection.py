"""How batch norm and group norm judge and try configs: their tunables share these."""

from __future__ import annotations

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.channel_norm.configs import Config, grid
from burn_kernels.channel_norm.layout import Tiling
from burn_kernels.launch import Machine


def supports(config: Config, facts: Facts) -> bool:
    """Tells if a tile fits the registers of a program."""
    return config.kept * config.rows * config.block <= 16_384


def work_of(tiling: Tiling, config: Config, facts: Facts, machine: Machine, *, passes: int = 2) -> Work:
    """The work of a forward, which reads x in so many `passes`."""
    return _work(tiling, config, facts, machine, 1 + passes, 10, 3.0, passes)


def work_of_backward(tiling: Tiling, config: Config, facts: Facts, machine: Machine) -> Work:
    """The work of a backward, which reads x and dy twice."""
    return _work(tiling, config, facts, machine, 5, 24, 4.0, 2)


def _work(
    tiling: Tiling, config: Config, facts: Facts, machine: Machine, moved: int, operations: int, live: float,
    passes: int,
) -> Work:  # fmt: skip
    blocks, parts, steps = grid(tiling, config, machine)
    tile, count, size = config.kept * config.rows * config.block, tiling.kept * tiling.elements, facts.dtype.itemsize
    useful = count / (blocks * parts * steps * tile)
    programs, bytes_moved = blocks * parts, moved * count * size
    return Work(programs, config.warps, tile, size, bytes_moved, operations * count, useful, live, passes=passes)


def activation_of(facts: Facts) -> str:
    """The activation of a problem."""
    return next((word for word in facts.flags.split() if word in ("relu", "silu")), "none")


def draw_weights(facts: Facts, inputs: Inputs, channels: int) -> list[torch.Tensor | None]:
    """Weights and biases of a trial; None where the problem has none."""
    flags = facts.flags.split()
    return [inputs.normal(channels, dtype=torch.float32) if part in flags else None for part in ("w", "b")]
