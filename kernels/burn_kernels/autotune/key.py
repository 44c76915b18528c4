"""The facts on which a choice depends: the problem, the device, the software; and the candidates that it is between.

A `Facts` is one call as it really is.  Its key, a line of text, puts free sizes (rows) into buckets of powers of two
and keeps exact ones (the length of a row).  Alignment and layout are those of the real tensors, never of the bucket: 7
elements share a bucket with 8, and a config that needs 16-byte accesses may serve only one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, NamedTuple

import torch

from burn_kernels.launch import Machine, machine_at, next_power

__all__ = ["Candidate", "Device", "Facts", "alignment", "device_of", "key_text", "row_facts", "software"]


# -- problems ----------------------------------------------------------------------------------------
class Facts(NamedTuple):
    """One call of a kernel: all of its problem on which the best config, or the legality of one, may depend."""

    free: tuple[int, ...]
    """Sizes that vary from call to call: rows, elements.  They go into buckets."""
    exact: tuple[int, ...]
    """Sizes that shape the kernel: the length of a row.  They stay as they are."""
    dtype: torch.dtype
    """The element type of the input that dominates the traffic."""
    align: int = 16
    """Bytes, a power of two to 16, that divide every address at which a row begins."""
    layout: str = "packed"
    """`packed`: rows follow each other without a gap.  `strided`: they do not."""
    flags: str = ""
    """More that makes it another kernel: options that are compiled in, other element types."""


def alignment(*numbers: int) -> int:
    """The largest power of two, at most 16, that divides all of these addresses and distances in bytes.

    >>> alignment(4096, 14336), alignment(4096, 14), alignment(4104, 14336)
    (16, 2, 8)
    """
    bits = 16
    for number in numbers:
        bits |= number
    return bits & -bits


def row_facts(
    dtype: torch.dtype, rows: int, cols: int, strides: tuple[int, ...], address: int, flags: str = ""
) -> Facts:
    """The facts of a kernel over (rows, cols), from what a launcher has at hand.

    `strides` are distances between rows in elements; `address` that of the first one in bytes, modulo 16, of several
    tensors combined by `or`.
    """
    align = alignment(cols * dtype.itemsize, address, *(stride * dtype.itemsize for stride in strides))
    layout = "packed" if all(stride == cols for stride in strides) else "strided"
    return Facts((rows,), (cols,), dtype, align, layout, flags)


def bucket(size: int) -> int:
    """The power of two that stands for a free size: the largest size of its bucket.

    >>> [bucket(n) for n in (1, 7, 8, 9, 8192)]
    [1, 8, 8, 16, 8192]
    """
    return next_power(size)


def key_text(op: str, free_names: tuple[str, ...], exact_names: tuple[str, ...], facts: Facts) -> str:
    """The key of a problem: what stores and lockfiles hold, and what people read.

    >>> key_text("softmax", ("rows",), ("cols",), Facts((5000,), (50257,), torch.bfloat16, 2))
    'softmax rows<=8192 cols=50257 bfloat16 packed align=2'
    """
    words = [op]
    words += [f"{name}<={bucket(size)}" for name, size in zip(free_names, facts.free, strict=True)]
    words += [f"{name}={size}" for name, size in zip(exact_names, facts.exact, strict=True)]
    words += [str(facts.dtype).removeprefix("torch."), facts.layout, f"align={facts.align}"]
    return " ".join([*words, facts.flags] if facts.flags else words)


# -- candidates --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Candidate:
    """One way to run a kernel, as plain data: a name and the numbers it stands for."""

    name: str
    config: Mapping[str, int]

    @staticmethod
    def of(config: Any) -> Candidate:
        """The candidate of a config, which is a dataclass of whole numbers.

        >>> from burn_kernels.glu import Config
        >>> Candidate.of(Config(block=2048, warps=4)).name
        'block=2048 warps=4'
        """
        numbers = asdict(config)
        return Candidate(" ".join(f"{name}={value}" for name, value in numbers.items()), numbers)


# -- devices -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """The device on which timings hold."""

    name: str
    machine: Machine

    def __str__(self) -> str:
        arch = self.machine.arch
        return f"{self.name} {f'sm_{arch}' if self.machine.backend == 'cuda' else arch} x{self.machine.processors}"


@functools.lru_cache(maxsize=64)
def device_of(index: int) -> Device:
    """The GPU with this number."""
    return Device(torch.cuda.get_device_name(index), machine_at(index))


# -- software ----------------------------------------------------------------------------------------
@functools.cache
def software() -> str:
    """The software that compiles and runs kernels, on one line: timings hold for one such line."""
    built = f"hip {torch.version.hip}" if torch.version.hip else f"cuda {torch.version.cuda}"
    return f"torch {torch.__version__}, triton {_version('triton')}, {built}, burn_kernels {_version('burn-torch')}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source"  # a checkout on PYTHONPATH; the hash of the kernels' source says the rest
