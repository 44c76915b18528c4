"""Fusion: operations that become one generated kernel; see docs/building-blocks/fusion.md."""

from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning.schedule import Boundary, Group, Plan, fuse, plan_of
from burn_torch.fusion.rewrites.patterns import Pattern, register_pattern, unregister_pattern
from burn_torch.fusion.telling.explanation import FusionExplanation, KernelReport, SymbolReport, explain

__all__ = [
    "Boundary",
    "FusionExplanation",
    "Group",
    "KernelReport",
    "Pattern",
    "Plan",
    "Reason",
    "SymbolReport",
    "Unfusible",
    "explain",
    "fuse",
    "plan_of",
    "register_pattern",
    "unregister_pattern",
]
