"""Calls that go to plain torch though their tensors lie where kernels run: counted, and said once each."""

from __future__ import annotations

import warnings
from collections import Counter

import torch

from burn_kernels.errors import KernelLimitError

__all__ = ["fallbacks", "note_fallback", "note_limit"]

_FALLBACKS: Counter[str] = Counter()


def fallbacks() -> dict[str, int]:
    """How often a call went to plain torch though its tensors lie where kernels run, by operation and reason."""
    return dict(_FALLBACKS)


def note_fallback(op: str, why: str) -> None:
    """Counts a fallback, and warns of the first of its kind; what torch.compile traces is not a call to count."""
    if torch.compiler.is_compiling():
        return
    reason = f"{op}: {why}"
    _FALLBACKS[reason] += 1
    if _FALLBACKS[reason] == 1:
        warnings.warn(f"burn_kernels: plain torch computes {reason}", RuntimeWarning, stacklevel=3)


def note_limit(op: str, error: KernelLimitError) -> None:
    """Counts a call past the limit of a kernel, which the reference computes."""
    note_fallback(op, str(error).splitlines()[1].strip().removeprefix("given:").strip())
