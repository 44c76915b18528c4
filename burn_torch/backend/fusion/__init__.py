"""Fusion: operations are recorded, and computed together when a value is needed."""

from burn_torch.backend.fusion.decorator import Fusion
from burn_torch.backend.fusion.plans import FusionWarning

__all__ = ["Fusion", "FusionWarning"]
