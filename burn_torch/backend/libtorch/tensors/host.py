"""Memory of the machine, as torch and the C library hold it: given back, set apart, locked for transfers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from burn_torch.core.data import TensorData

__all__ = ["give_back", "lock_pages", "set_apart"]


def give_back(place: str) -> None:
    """Gives cached memory that holds no value back to the device, or to the system."""
    if place.startswith("cuda"):
        with torch.cuda.device(place):
            torch.cuda.empty_cache()
    elif place == "mps":
        torch.mps.empty_cache()
    elif (trim := _malloc_trim()) is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's function; None under another C library."""
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # on Windows
        return None


def set_apart(place: str) -> AbstractContextManager[object]:
    """A block whose values lie in memory of their own, apart from what comes and goes; on the host they do anyway."""
    if not place.startswith("cuda"):
        return nullcontext()
    return torch.cuda.use_mem_pool(_pool(place), place)


@functools.cache
def _pool(place: str) -> torch.cuda.MemPool:
    return torch.cuda.MemPool()


def lock_pages(data: TensorData, place: str) -> TensorData:
    """The same data in memory that a GPU reads by itself; on the host the data as they are."""
    if not place.startswith("cuda"):
        return data
    array = data.array
    locked = torch.empty(array.nbytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()
    copy = locked.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return TensorData(copy, data.dtype)
