"""Tensors as the bytes that files hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from burn_torch.core.data import TensorData

__all__ = ["little_endian"]


def little_endian(data: TensorData) -> memoryview:
    """The elements in row-major order, each little-endian; without a copy where they lie like that."""
    array: Any = np.ascontiguousarray(data.array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")
