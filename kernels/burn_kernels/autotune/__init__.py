"""Which config a kernel runs with: decided without measuring at first, measured where that is allowed, and kept.

with autotune.using("on"):                 off | cached | on | full; BURN_KERNELS_AUTOTUNE sets the first
    train()
autotune.tune(only="softmax")              measures on purpose; so does python -m burn_kernels tune
autotune.lock("run/autotune.lock")         the same choices from now on

key, tunable      what a choice depends on; a place in a launcher where one is made
selection         the order of sources: lockfile, timings, shipped table, cost model, default
trial, race       is a candidate right, is it fast;  tuner does both for a key,  clock keeps the time
store, lockfile   what is kept on disk;  bundle carries it elsewhere;  report, command show it
"""

from __future__ import annotations

from burn_kernels.autotune.bundle import export_bundle, import_bundle
from burn_kernels.autotune.errors import AutotuneWarning, BundleError, CandidateError, LockfileError
from burn_kernels.autotune.levels import LEVELS, deterministic, is_deterministic, level, set_level, using
from burn_kernels.autotune.report import Report, report_of
from burn_kernels.autotune.selection import Selector, current, lock, still, unlock
from burn_kernels.autotune.tunable import TUNABLES, Tunable
from burn_kernels.autotune.warmup import Measured, tune, tune_pending

__all__ = [
    "LEVELS",
    "TUNABLES",
    "AutotuneWarning",
    "BundleError",
    "CandidateError",
    "LockfileError",
    "Measured",
    "Report",
    "Selector",
    "Tunable",
    "current",
    "deterministic",
    "export_bundle",
    "import_bundle",
    "is_deterministic",
    "level",
    "lock",
    "report_of",
    "set_level",
    "still",
    "tune",
    "tune_pending",
    "unlock",
    "using",
]
