"""The choice of a kernel's config: decided without measuring at first, measured where that is allowed, and kept.

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

from typing import TYPE_CHECKING, Final

from burn_kernels.lazy import public_names

if TYPE_CHECKING:
    from burn_kernels.autotune.bundle import export_bundle as export_bundle
    from burn_kernels.autotune.bundle import import_bundle as import_bundle
    from burn_kernels.autotune.errors import AutotuneWarning as AutotuneWarning
    from burn_kernels.autotune.errors import BundleError as BundleError
    from burn_kernels.autotune.errors import CandidateError as CandidateError
    from burn_kernels.autotune.errors import LockfileError as LockfileError
    from burn_kernels.autotune.levels import LEVELS as LEVELS
    from burn_kernels.autotune.levels import deterministic as deterministic
    from burn_kernels.autotune.levels import is_deterministic as is_deterministic
    from burn_kernels.autotune.levels import level as level
    from burn_kernels.autotune.levels import set_level as set_level
    from burn_kernels.autotune.levels import using as using
    from burn_kernels.autotune.report import Report as Report
    from burn_kernels.autotune.report import report_of as report_of
    from burn_kernels.autotune.selection import Selector as Selector
    from burn_kernels.autotune.selection import current as current
    from burn_kernels.autotune.selection import lock as lock
    from burn_kernels.autotune.selection import still as still
    from burn_kernels.autotune.selection import unlock as unlock
    from burn_kernels.autotune.tunable import TUNABLES as TUNABLES
    from burn_kernels.autotune.tunable import Tunable as Tunable
    from burn_kernels.autotune.warmup import Measured as Measured
    from burn_kernels.autotune.warmup import tune as tune
    from burn_kernels.autotune.warmup import tune_pending as tune_pending

_EXPORTS: Final = {
    "bundle": ("export_bundle", "import_bundle"),
    "errors": ("AutotuneWarning", "BundleError", "CandidateError", "LockfileError"),
    "levels": ("LEVELS", "deterministic", "is_deterministic", "level", "set_level", "using"),
    "report": ("Report", "report_of"),
    "selection": ("Selector", "current", "lock", "still", "unlock"),
    "tunable": ("TUNABLES", "Tunable"),
    "warmup": ("Measured", "tune", "tune_pending"),
}
"""Public names by the module that has them."""

__all__, __getattr__ = public_names(__name__, _EXPORTS)  # a list
