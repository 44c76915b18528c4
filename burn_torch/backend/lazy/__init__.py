"""Fusion: operations are recorded, and computed together when a value is needed.

`Fusion` imports the scheduler, so that it is imported with the first fused device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burn_torch.backend.lazy.default import fused_by_default
from burn_torch.core.exports import export_lazily as _export_lazily

if TYPE_CHECKING:
    from burn_torch.backend.lazy.decorator import Fusion
    from burn_torch.backend.lazy.plans import FusionWarning
    from burn_torch.backend.lazy.watching import watched_streams

__all__ = ["Fusion", "FusionWarning", "fused_by_default", "fusion_of", "is_fused", "watched_streams"]


def fusion_of(stack: Any) -> Fusion | None:
    """Returns the Fusion under the tapes of a stack; None if it has none."""
    while stack.is_autodiff:
        stack = stack.inner
    return stack if stack.is_fusion else None


def is_fused(stack: object) -> bool:
    """Says whether a stack records what it computes."""
    return fusion_of(stack) is not None


_export_lazily(globals(), {"Fusion": "decorator", "FusionWarning": "plans", "watched_streams": "watching"})
