"""Defines what a phase's process needs beside its environment, and in how many threads it runs programs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import torch

__all__ = ["opened"]

RunAll = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]

_AT_ONCE: Final = 48
"""Programs whose kernels are compiled together."""


@contextmanager
def opened(phase: str, fault: str | None = None) -> Iterator[tuple[int, RunAll]]:
    """A block in which the doors of a phase run: how many programs it takes at once, and what runs them.

    fault  the name of one that is planted until the block ends
    """
    torch.set_num_threads(1)  # programs are small, and processes run side by side
    with tempfile.TemporaryDirectory(prefix="burn-fuzz-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURN_TORCH_CACHE", folder)  # what is generated here nobody needs again
        if fault is not None:
            from tests.fuzz.faults import FAULTS

            FAULTS[fault].plant(patch)
        if phase == "c":
            from tests.fuzz.c_batches import compiled_together

            with compiled_together(Path(folder)) as builder:
                yield _AT_ONCE, builder.run_all
            return
        if phase == "interpreter":
            from tests.interpreted.mends import mended

            mended(patch)
        elif phase == "cuda":
            patch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)  # errors are judged in float32
            patch.setattr(torch.backends.cudnn, "allow_tf32", False)
        yield 1, _in_turn


def _in_turn(work: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
    return [work(item) for item in items]
