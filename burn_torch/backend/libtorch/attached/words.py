"""Words of random streams by a kernel of `burn_kernels`: `ops/philox_torch.py` names this module for CUDA devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from burn_torch.ops.philox_torch import CHUNK

__all__ = ["words_on"]


def words_on(device: torch.device) -> Any:
    """A function like `philox_torch.chunks`; None without Triton."""
    from burn_kernels import AVAILABLE

    return _words if AVAILABLE else None


def _words(key: Any, stream: Any, first: int, count: int, device: torch.device) -> Iterator[tuple[int, torch.Tensor]]:
    from burn_kernels import random

    at, end = first, first + count
    while at < end:
        size = min(CHUNK - at % CHUNK, end - at)
        yield at, random.bits(key, stream, at, 4 * size, device)
        at += size
