"""Fusion: operations that become one generated kernel; see docs/building-blocks/fusion.md."""

from burn_torch.fusion.reasons import Reason, Unfusible
from burn_torch.fusion.schedule import Boundary, Group, Plan, fuse, plan_of

__all__ = ["Boundary", "Group", "Plan", "Reason", "Unfusible", "fuse", "plan_of"]
