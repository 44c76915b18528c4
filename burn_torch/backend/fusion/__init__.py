"""Fusion: operations are recorded, and computed together when a value is needed."""

from burn_torch.backend.fusion.decorator import Fusion, fusion_of, is_fused
from burn_torch.backend.fusion.plans import FusionWarning

__all__ = ["Fusion", "FusionWarning", "fusion_of", "is_fused"]
