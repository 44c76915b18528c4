"""Fusion: operations that become one generated kernel; see docs/building-blocks/fusion.md."""

from burn_torch.fusion.explanation import FusionExplanation, KernelReport, SymbolReport, explain
from burn_torch.fusion.patterns import Pattern, register_pattern, unregister_pattern
from burn_torch.fusion.reasons import Reason, Unfusible
from burn_torch.fusion.schedule import Boundary, Group, Plan, fuse, plan_of

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
