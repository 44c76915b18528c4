"""The cuts of attention that a tuner may try, the default first: tables of rows, of which the first that fits counts.

Defaults fit the shared memory of a processor, 228 KiB of Hopper, 164 of Ampere, 64 of CDNA 3, and compile without
spills there (tests/kernels/test_compile.py), those of float32 heads above 64 columns excepted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from burn_kernels.launch import Machine, next_power

__all__ = ["BackwardConfig", "Config", "backward_candidates", "backward_default", "candidates", "default"]


@dataclass(frozen=True)
class Config:
    """`library` is a kernel of torch's; or it is 0, and a program has `rows` queries and goes over the keys they see
    in blocks of `cols`, with `warps` of 32 threads, loading `stages` blocks ahead."""

    library: int
    rows: int
    cols: int
    warps: int
    stages: int

    @property
    def tile(self) -> tuple[int, int]:
        """Queries and keys of a tile."""
        return self.rows, self.cols


@dataclass(frozen=True)
class BackwardConfig:
    """`library` is a kernel of torch's; or it is 0, and a program owns `owned` queries or keys and goes over the others
    in `step`s, with `warps` of 32 threads, loading `stages` steps ahead; if not 0, `ahead` where it owns queries, and
    steps of `turned` where it owns keys."""

    library: int
    owned: int
    step: int
    warps: int
    stages: int
    ahead: int = 0
    turned: int = 0

    @property
    def tile(self) -> tuple[int, int]:
        """The queries or keys that a program owns, and a step of the others."""
        return self.owned, self.step


ANY = 1 << 30


class Row(NamedTuple):
    """The cuts for some heads on some machines."""

    machines: str
    """Names of `machine_name`, or `all`."""
    itemsize: int
    """Bytes of an element: 4, or 2 for both half types."""
    widest: int
    """The most columns of a head, as a power of two."""
    extras: tuple[int, int]
    """The fewest and the most of what changes scores beside a diagonal, as of `Call.extras`."""
    cuts: Sequence[tuple[int, ...]]
    """Numbers of configs after `library`."""
    kind: str = ""
    """The kind of call that the row is for, as of `backward_candidates`, or `ragged`: heads whose columns are no
    power of two."""


FORWARD = (
    Row("interpreter", 2, ANY, (0, ANY), [(16, 16, 1, 1)]),  # small, so that ragged edges and several blocks come up
    Row("interpreter", 4, ANY, (0, ANY), [(16, 16, 1, 1)]),
    # products of float32 run on the plain units: a thread holds rows and columns of both sides; sums in four parts
    # leave registers for no more, and columns that are not there take registers too
    Row("sm_90", 4, 64, (2, ANY), [(32, 32, 8, 2), (64, 32, 8, 2)], "ragged"),
    Row("sm_90", 4, 64, (2, ANY), [(32, 16, 4, 2), (64, 32, 8, 2)]),
    Row("sm_90", 4, 64, (0, 1), [(64, 32, 8, 2), (32, 16, 4, 2), (32, 32, 8, 2)]),
    # the compiler for CDNA 3 fails with more stages; with extras half as many elements a thread
    Row("hip", 4, 64, (1, ANY), [(32, 16, 4, 1), (32, 32, 4, 1), (64, 32, 8, 1)]),
    Row("hip", 4, 64, (0, 0), [(32, 32, 4, 1), (64, 32, 8, 1)]),
    Row("all", 4, 64, (2, ANY), [(32, 32, 8, 2), (32, 32, 4, 2), (64, 32, 8, 2)]),
    Row("all", 4, 64, (0, 1), [(32, 32, 4, 2), (64, 32, 8, 2)]),
    Row("all", 4, 128, (0, ANY), [(32, 32, 8, 1)]),
    Row("all", 4, ANY, (0, ANY), [(16, 32, 8, 1)]),
    # predicates of a tile lie in scalar registers there: extras need narrower ones
    Row("hip", 2, 128, (1, ANY), [(128, 16, 8, 1), (64, 16, 4, 1)]),
    Row("hip", 2, 128, (0, 0), [(128, 32, 8, 1), (64, 32, 4, 1), (128, 16, 8, 1), (64, 16, 4, 1)]),
    Row("hip", 2, ANY, (2, ANY), [(64, 16, 4, 1)]),
    Row("hip", 2, ANY, (0, 1), [(64, 32, 8, 1), (64, 16, 4, 1)]),
    # H200, 2026-11-22, benchmarks/notes/attention.md: three programs of 4 warps a processor hide each other's waits
    # H200, 2026-11-23, benchmarks/notes/flex_attention.md: functions of scores between two products
    Row("sm_90", 2, 64, (2, ANY), [(128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2)], "reading"),
    Row("sm_90", 2, 128, (1, 1), [(64, 64, 4, 3), (64, 64, 4, 2), (128, 64, 4, 2)], "reading"),
    Row("sm_90", 2, 128, (2, ANY), [(64, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 2)], "reading"),
    Row("sm_90", 2, 64, (1, ANY), [(64, 64, 4, 3), (64, 64, 4, 2), (128, 64, 4, 3)], "body"),
    Row("sm_90", 2, 128, (1, 1), [(128, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 2)], "body"),
    Row("sm_90", 2, 64, (1, ANY), [(64, 64, 4, 3), (128, 64, 4, 3), (64, 64, 4, 2), (128, 64, 8, 3), (128, 32, 8, 2)]),
    Row("sm_90", 2, 128, (1, ANY), [(64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 3), (128, 32, 8, 2)]),
    Row("all", 2, 128, (3, ANY), [(128, 16, 8, 2), (128, 32, 8, 2)]),
    Row("all", 2, ANY, (3, ANY), [(64, 16, 8, 2)]),
    Row("all", 2, 64, (2, 2), [(128, 32, 8, 2), (128, 64, 8, 2), (64, 64, 4, 3), (128, 32, 4, 4)]),
    Row("all", 2, 64, (1, 1), [(128, 64, 8, 2), (64, 64, 4, 3), (128, 32, 4, 4)]),
    Row("all", 2, 64, (0, 0), [(128, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3), (128, 32, 4, 4)]),
    Row("sm_80", 2, 128, (1, 2), [(128, 32, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)]),
    Row("all", 2, 128, (0, 2), [(128, 64, 8, 3), (128, 128, 8, 2), (128, 32, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)]),
    Row("sm_80", 2, ANY, (0, 2), [(64, 32, 8, 2)]),
    Row("all", 2, ANY, (0, 2), [(128, 32, 8, 2), (64, 64, 8, 2), (64, 32, 8, 2)]),
)

_PACKED = [(64, 32, 4, 3), (64, 32, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2)]
_WITH_EXTRAS = [(64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (128, 64, 8, 2)]
_NARROW = [(64, 32, 4, 3), (64, 64, 4, 2)]
BACKWARD = (
    Row("interpreter", 2, ANY, (0, ANY), [(16, 16, 1, 1)]),
    Row("interpreter", 4, ANY, (0, ANY), [(16, 16, 1, 1)]),
    Row("sm_80", 4, 64, (1, 1), [(32, 16, 4, 2), (32, 16, 4, 1), (32, 32, 8, 1)]),
    Row("hip", 4, 64, (2, ANY), [(16, 32, 4, 1), (32, 16, 4, 1), (32, 32, 8, 1)]),
    Row("sm_80 cuda", 4, 64, (2, ANY), [(32, 32, 8, 1), (32, 16, 4, 1)]),
    Row("all", 4, 64, (0, ANY), [(32, 16, 4, 1), (32, 32, 8, 1)]),
    Row("all", 4, 128, (0, ANY), [(32, 16, 8, 1)]),
    Row("all", 4, ANY, (0, ANY), [(16, 16, 8, 1)]),
    Row("hip", 2, 128, (1, ANY), [(128, 16, 8, 1), (128, 32, 8, 1), (64, 32, 4, 1)]),
    Row("hip", 2, 128, (0, 0), [(128, 32, 8, 1), (128, 16, 8, 1)]),
    Row("hip", 2, ANY, (0, ANY), [(64, 16, 8, 1)]),
    # H200, 2026-11-22, benchmarks/notes/attention.md: two or three programs of 4 warps a processor hide each other's
    # waits, and three steps ahead their own; what changes scores takes registers, for which steps of 32 leave room
    Row("sm_90", 2, 64, (1, ANY), _PACKED, "packed"),
    Row("sm_90", 2, 64, (0, 0), [(64, 64, 4, 2, 3, 32), *_PACKED], "packed"),
    Row("sm_90", 2, 64, (1, ANY), [(64, 32, 4, 3, 0, 64), (64, 32, 4, 3), *_WITH_EXTRAS], "bias"),
    Row("sm_90", 2, 64, (1, ANY), [(64, 64, 4, 3), (64, 32, 4, 3), (64, 64, 4, 2)], "reading"),
    Row("sm_90", 2, 128, (1, ANY), [(64, 64, 4, 2), (64, 32, 4, 3), (128, 64, 8, 2)], "reading"),
    Row("sm_90", 2, 128, (1, 1), [(64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3)], "body"),
    Row("sm_90", 2, 128, (1, ANY), [(64, 32, 4, 3), (64, 32, 4, 3, 0, 64), *_WITH_EXTRAS]),
    Row("sm_90", 2, 64, (0, 0), [(64, 64, 4, 3), (64, 64, 4, 3, 0, 32), (128, 64, 8, 3, 0, 32), *_NARROW]),
    Row("all", 2, 64, (2, ANY), [(64, 16, 8, 2), (64, 64, 4, 2)]),
    Row("all", 2, 64, (1, 1), [(128, 16, 8, 2), (64, 64, 4, 2)]),
    Row("all", 2, 64, (0, 0), [(128, 32, 8, 2), (128, 64, 8, 2), (128, 32, 4, 3), (64, 64, 4, 2)]),
    Row("sm_80", 2, 128, (1, ANY), [(64, 16, 8, 2), (128, 16, 8, 2)]),
    Row("sm_80", 2, 128, (0, 0), [(128, 16, 8, 2), (128, 32, 8, 2)]),
    Row("all", 2, 128, (2, ANY), [(128, 16, 8, 2), (128, 32, 8, 2), (64, 32, 4, 3)]),
    Row("all", 2, 128, (0, 1), [(64, 32, 4, 3), (128, 64, 8, 3), (128, 32, 8, 2), (128, 16, 8, 2), (64, 32, 4, 2)]),
    Row("all", 2, ANY, (1, ANY), [(32, 16, 8, 2)]),
    Row("all", 2, ANY, (0, 0), [(64, 16, 8, 2), (32, 16, 8, 2), (32, 32, 4, 1)]),
)


def machine_name(machine: Machine) -> str:
    """The name of a machine in the tables: `interpreter`, `hip`, `sm_90`, `sm_80`, or `cuda` for any other."""
    if machine.backend != "cuda":
        return machine.backend
    return f"sm_{machine.arch}" if machine.arch in (80, 90) else "cuda"


@functools.lru_cache(maxsize=1024)
def _cuts(back: bool, dim: int, itemsize: int, machine: Machine, extras: int, kind: str) -> Sequence[tuple[int, ...]]:
    """The cuts of the first row that fits; a launch asks each time, so they are kept."""
    name, wide = machine_name(machine), max(16, next_power(dim))
    kinds = ("", kind, "ragged" if dim < wide else "")
    for row in BACKWARD if back else FORWARD:
        (least, most), here = row.extras, row.machines == "all" or name in row.machines.split()
        if here and row.itemsize == itemsize and wide <= row.widest and least <= extras <= most and row.kind in kinds:
            return row.cuts
    raise AssertionError(f"no row for {itemsize} bytes on {machine}")


def default(dim: int, itemsize: int, machine: Machine, *, extras: int = 0, kind: str = "") -> Config:
    """The config of our kernel that is used without timing."""
    return candidates(dim, itemsize, machine, extras=extras, kind=kind)[0]


def candidates(dim: int, itemsize: int, machine: Machine, *, extras: int = 0, kind: str = "") -> list[Config]:
    """The configs of our kernel that a tuner may try, the default first; `extras` as of `Call`, kind `body`,
    `reading` or none."""
    return [Config(0, *numbers) for numbers in _cuts(False, dim, itemsize, machine, extras, kind)]


def backward_default(dim: int, itemsize: int, machine: Machine, *, extras: int = 0, kind: str = "") -> BackwardConfig:
    """The config that is used without timing where sums must not depend on chance."""
    return backward_candidates(dim, itemsize, machine, extras=extras, kind=kind)[0]


def backward_candidates(
    dim: int, itemsize: int, machine: Machine, *, extras: int = 0, kind: str = ""
) -> list[BackwardConfig]:
    """The configs of our kernels that a tuner may try, the default first; `extras` as of `Call`.

    kind   `packed` for packed sequences, `bias` for nothing but a bias beside a diagonal, `body` for functions of
           scores, `reading` if these read tensors
    """
    return [BackwardConfig(0, *numbers) for numbers in _cuts(True, dim, itemsize, machine, extras, kind)]
