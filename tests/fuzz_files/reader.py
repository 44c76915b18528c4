"""Defines what a reader of files is, and helpers of those that are listed in `readers`."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz_files.mutations import bytes_changed

__all__ = [
    "Change",
    "Reader",
    "WrongValueError",
    "either",
    "errors_of_ours",
    "packed_again",
    "read_all",
    "require_equal",
]

Change = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


class WrongValueError(Exception):
    """The library read another value than the format's own reader."""


@dataclass(frozen=True)
class Reader:
    """One kind of file, and what reads it.

    Examples of sound files are made by `seeds`, `change` makes one file of them, and `read` reads it as users do: it
    raises one of the library's errors or returns.
    """

    file: str
    """Its name; the ending matters to most."""
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], object]
    change: Change = bytes_changed
    beside: Callable[[], Mapping[str, bytes]] = field(default=dict)
    """The files that lie in the same folder and stay sound."""
    sealed: bool = False
    """Says whether it has a checksum of ours: half of the files are read as if it fitted, which who forges one can
    have.
    """
    shown: bool = False
    """Says whether what `read` prints goes to a terminal."""


def either(*changes: Change) -> Change:
    """One of several ways, each time another."""
    return lambda data, rnd, others: rnd.choice(changes)(data, rnd, others)


def read_all(*uses: Callable[[], object]) -> None:
    """Reads a file in several ways.  Raises: the last error of the library where no way succeeds."""
    error: BaseException | None = None
    failures = 0
    for use in uses:
        try:
            use()
        except errors_of_ours() as err:
            error, failures = err, failures + 1
    if error is not None and failures == len(uses):
        raise error


def packed_again(inner: Change) -> Change:
    """The content of a gzipped file changed, and packed again; sometimes the packed bytes themselves."""

    def change(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
        if rnd.random() < 0.3:
            return bytes_changed(data, rnd, others)
        plain = inner(gzip.decompress(data), rnd, [gzip.decompress(other) for other in others[:1]])
        times = rnd.choice((1,) * 40 + (300,)) if len(plain) < 1 << 16 else 1
        return gzip.compress(plain * times, 1, mtime=0)

    return change


@cache
def errors_of_ours() -> tuple[type[BaseException], ...]:
    """The bases of the errors that a reader may raise."""
    from burn_kernels.errors import KernelError
    from burn_torch.core.errors import BurnTorchError

    return BurnTorchError, KernelError


def require_equal(name: str, ours: Any, theirs: Any) -> None:
    """Raises: WrongValueError unless two arrays have one type, one shape and the same bits."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape) or ours.tobytes() != theirs.tobytes():
        raise WrongValueError(f"{name}: {ours.dtype} {ours.shape} {ours!r:.60} for {theirs.dtype} {theirs.shape}")
