"""How long a config should take, from the machine's figures: what chooses where nothing was measured.

A kernel at the memory limit takes its bytes over the bandwidth, if enough of them are on their way at once.  How many
are, follows from how many programs fit a processor; that, from their threads and registers:

    resident  = programs of a processor, by threads, registers and the limit of 32
    overlap   = n / (n + 0.3), n = tiles that a processor has under way: one alone waits between loading and storing
    flying    = min(programs, processors * resident) * bytes that one program has asked for
    bandwidth = min(peak * overlap, flying / latency)
    time      = max(bytes / bandwidth, flops / rate), longer by idle lanes, a last wave that is not full, and spills

The model knows nothing of instruction counts or shared memory: on 8192 rows of the shapes in the shipped table its
favourite reaches 64 to 100 % of the best, the defaults 94 to 100 %.  So `choice` leaves the default where that fills
the machine, which is what defaults are made for, and elsewhere takes another one only for a gain of MARGIN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from burn_kernels.launch import Machine

__all__ = ["MARGIN", "Figures", "Work", "choice", "figures", "predict"]

MARGIN = 1.3


@dataclass(frozen=True)
class Work:
    """The work that a config makes of a problem."""

    programs: int
    """Programs in the grid."""
    warps: int
    """The warps of a program, of 32 threads each."""
    elements: int
    """That a program holds at once."""
    itemsize: int
    bytes_moved: int
    """That must cross the memory bus."""
    flops: int
    useful: float = 1.0
    """Share of the lanes that have an element."""
    live: float = 1.0
    """Registers of 4 bytes that an element takes while it is held."""
    passes: float = 1.0
    """How often the program waits for memory for one tile: a row that is read twice waits twice."""
    ahead: int = 1
    """Tiles that a program loads before it needs them."""


@dataclass(frozen=True)
class Figures:
    """The rates and limits of a machine."""

    bytes_per_s: float
    flops_per_s: float
    latency_s: float = 8e-7
    threads: int = 2048
    registers: int = 65_536


_MACHINES: dict[int | str, Figures] = {
    # copies measured on an H200, 2026-11-21; the others from their makers' figures, at the H200's share of them
    90: Figures(4.2e12, 5.0e13),
    100: Figures(7.0e12, 6.0e13),
    80: Figures(1.8e12, 1.9e13),
    "gfx942": Figures(4.5e12, 1.2e14, registers=131_072),
}


def figures(machine: Machine) -> Figures:
    """The figures of a machine; of one that is not known, by its number of processors, as of an A100's."""
    known = _MACHINES.get(machine.arch)
    if known is not None:
        return known
    a100 = _MACHINES[80]
    return Figures(a100.bytes_per_s * machine.processors / 108, a100.flops_per_s * machine.processors / 108)


def choice(works: Mapping[str, Work], machine: Machine) -> str:
    """The candidate to take without timings; `works` has the default first."""
    default = next(iter(works))
    if works[default].programs >= machine.processors:
        return default
    costs = {name: predict(work, machine) for name, work in works.items()}
    best = min(costs, key=lambda name: costs[name])
    return best if costs[default] >= MARGIN * costs[best] else default


def predict(work: Work, machine: Machine) -> float:
    """Milliseconds that a kernel should take."""
    known = figures(machine)
    threads = 32 * work.warps
    held = max(1.0, work.elements / threads)
    registers = 24 + work.live * held
    most = min(255, known.registers // threads)
    spilled = 1.0 if registers <= most else 1.5 * registers / most
    resident = max(1, min(32, known.threads // threads, int(known.registers // (threads * min(registers, most)))))
    slots = machine.processors * resident
    flying = min(work.programs, slots) * work.elements * work.useful * work.itemsize / work.passes
    overlap = resident * work.ahead / (resident * work.ahead + 0.3)
    bandwidth = min(known.bytes_per_s * overlap, flying / known.latency_s)
    # one program cannot ask a processor for more than the processor can take
    bandwidth = min(bandwidth, known.bytes_per_s * min(1.0, 2.0 * work.programs / machine.processors))
    waves = work.programs / slots
    tail = -(-work.programs // slots) / waves if waves > 1 else 1.0
    seconds = max(work.bytes_moved / bandwidth, work.flops / known.flops_per_s)
    return 1e3 * seconds * spilled * (1 + 0.25 * (tail - 1) + 0.25 * (1 / work.useful - 1))
