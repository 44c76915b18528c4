"""Switches by which the library proves its own work as it goes.

BURN_TORCH_VERIFY=proofs     kernels are proved before they run, and graphs verified after each pass
BURN_TORCH_VERIFY=1          and what fails in planning or in a kernel is raised, where a plainer way would be taken
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["is_proving", "is_verifying"]

_VERIFY: Final = "BURN_TORCH_VERIFY"


def is_verifying() -> bool:
    """Tells if faults of our own are raised where they happen."""
    return os.environ.get(_VERIFY) == "1"


def is_proving() -> bool:
    """Tells if kernels are proved, and graphs verified after each pass."""
    return os.environ.get(_VERIFY) in ("1", "proofs")
