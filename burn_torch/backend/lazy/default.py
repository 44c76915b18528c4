"""Devices that are fused by default: decided here, and nowhere else.

Device.cuda(0)                   as `ON_CUDA` says: fused
Device.cuda(0, fused=False)      said for one device
BURN_TORCH_FUSION=0              said for a process: 0 for no device, 1 for CUDA devices, all for CPUs too
"""

from __future__ import annotations

import os
from typing import Final

from burn_torch.core.errors import DeviceError

__all__ = ["ON_CUDA", "VARIABLE", "fused_by_default"]

ON_CUDA = True
"""Says whether CUDA devices are fused: docs/decisions/0015 says which figures change it."""

VARIABLE: Final = "BURN_TORCH_FUSION"

_KINDS: Final = {"0": (), "1": ("cuda",), "all": ("cuda", "cpu")}


def fused_by_default(place: str) -> bool:
    """Asks whether a device at `place` is fused by default.  Raises: DeviceError for an unknown word."""
    word = os.environ.get(VARIABLE, "").strip().lower()
    kinds = _KINDS.get(word or str(int(ON_CUDA)))
    if kinds is None:
        raise DeviceError(
            f"{VARIABLE} says which devices are fused",
            given=f"{VARIABLE}={word}",
            expected="0 for none, 1 for CUDA devices, all for the CPU too",
            mend=f"set one of these, or unset {VARIABLE}",
        )
    return place.partition(":")[0] in kinds
