"""Which config a kernel runs with: decided without measuring at first, measured where that is allowed, and kept.

with autotune.using("on"):            off | cached | on | full; BURN_KERNELS_AUTOTUNE sets the first
    train()
autotune.lock("run/autotune.lock")    the same choices from now on
"""

from __future__ import annotations

from burn_kernels.autotune.errors import AutotuneWarning, BundleError, CandidateError, LockfileError
from burn_kernels.autotune.levels import LEVELS, deterministic, is_deterministic, level, set_level, using
from burn_kernels.autotune.selection import lock, unlock

__all__ = [
    "LEVELS",
    "AutotuneWarning",
    "BundleError",
    "CandidateError",
    "LockfileError",
    "deterministic",
    "is_deterministic",
    "level",
    "lock",
    "set_level",
    "unlock",
    "using",
]
