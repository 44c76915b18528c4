"""Fusion: operations are recorded, and computed together when a value is needed."""

from burn_torch.backend.lazy.decorator import Fusion, fusion_of, is_fused
from burn_torch.backend.lazy.default import fused_by_default
from burn_torch.backend.lazy.plans import FusionWarning
from burn_torch.backend.lazy.watching import watched_streams

__all__ = ["Fusion", "FusionWarning", "fused_by_default", "fusion_of", "is_fused", "watched_streams"]
