"""The errors of selection, as leaves of the tree in `burn_kernels.errors`.

    KernelError
    ├── LockfileError     (ValueError)    a lockfile that cannot be read, or that does not fit what runs
    ├── BundleError       (ValueError)    a file of exported timings that cannot be read
    └── CandidateError    (RuntimeError)  a candidate broke the device, or none of a kernel's candidates works

`AutotuneWarning` says what was disqualified, quarantined, or not written, and why; it is never an error by itself.
"""

from __future__ import annotations

from burn_kernels.errors import KernelError

__all__ = ["AutotuneWarning", "BundleError", "CandidateError", "LockfileError"]


class LockfileError(KernelError, ValueError):
    """A lockfile that cannot be read, or that does not fit what runs."""


class BundleError(KernelError, ValueError):
    """A file of exported timings that cannot be read."""


class CandidateError(KernelError, RuntimeError):
    """A candidate broke the device, or none of a kernel's candidates works."""


class AutotuneWarning(RuntimeWarning):
    """A candidate was disqualified or quarantined, or something could not be kept on disk."""
