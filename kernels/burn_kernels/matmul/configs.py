"""The configs of a linear layer: the library's product, its own ending, and tables of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from burn_kernels.launch import Machine, next_power

LIBRARY, ENDING, TILES = range(3)


@dataclass(frozen=True)
class Config:
    """A way, and of TILES their `rows`, `features` and steps of `inner`; `group` rows of tiles side by side."""

    way: int
    rows: int = 0
    features: int = 0
    inner: int = 0
    group: int = 0
    warps: int = 0
    stages: int = 0


_HALVES = {
    # rows, features, inner, warps and stages
    # largest first; each within 255 registers of a thread and the shared memory of its machine
    "hopper": (
        (128, 256, 64, 8, 3),
        (128, 128, 64, 8, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (16, 128, 64, 4, 5),
    ),
    "ampere": (
        (128, 256, 32, 8, 3),
        (128, 128, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 64, 4, 3),
        (16, 128, 64, 4, 4),
    ),
    "amd": ((256, 128, 32, 8, 2), (128, 128, 64, 8, 2), (128, 64, 64, 4, 2), (64, 64, 64, 4, 2), (16, 64, 128, 4, 2)),
}
_WHOLES = {
    "hopper": ((128, 64, 16, 8, 3), (64, 64, 16, 8, 3), (32, 64, 32, 4, 3)),
    "ampere": ((128, 64, 16, 8, 3), (64, 64, 16, 8, 3), (32, 64, 32, 4, 3)),
    "amd": ((128, 64, 16, 8, 2), (64, 64, 16, 4, 2), (32, 64, 32, 4, 2)),
}


def tiles(rows: int, features: int, itemsize: int, machine: Machine, *, flags: str = "") -> list[Config]:
    """The tiles that are worth a try, the largest first."""
    family = "amd" if machine.backend == "hip" else "hopper" if machine.arch == 90 else "ampere"
    table = (_WHOLES if itemsize > 2 else _HALVES)[family]
    # 128 elements a thread leave no registers for an activation between two tensors more: such tiles spill
    most = 64 if {"kept", "residual"} <= set(flags.split()) and machine.backend == "cuda" else 128
    return [
        Config(TILES, m, n, k, 8, warps, stages)
        for m, n, k, warps, stages in table
        # a tile that is mostly outside computes nothing; the smallest one serves everything
        if (m, n) == table[-1][:2]
        or (m <= next_power(rows) and n <= next_power(features) and m * n <= 32 * warps * most)
    ]


def candidates(rows: int, features: int, itemsize: int, machine: Machine, *, flags: str = "") -> list[Config]:
    """The configs that a tuner may try, the default first; `flags` as the facts have them."""
    # in halves the ending is 1.06 to 1.37 times as fast on an H200, which the shipped table knows of the sizes that
    # were timed; not the default, as 64 x 49 by 300 left 1.1 times what the rule of errors allows
    ending = [Config(ENDING)] if machine.backend == "cuda" and has_ending(itemsize, flags) else []
    return [Config(LIBRARY), *ending, *tiles(rows, features, itemsize, machine, flags=flags)]


def default(rows: int, features: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing: the library's product."""
    return candidates(rows, features, itemsize, machine)[0]


def has_ending(itemsize: int, flags: str) -> bool:
    """Tells if the library's own ending computes what follows the product."""
    words = flags.split()
    relu = "relu" in words  # its output serves the backward too
    # cuBLASLt's gelu leaves 1.8e-6, RMS of outputs of 0.9 in float32 on an H200: five times what torch's own leaves
    gelu = "gelu_tanh" in words and "kept" not in words and itemsize == 2
    return "bias" in words and "residual" not in words and (relu or gelu)
