"""Fusion: operations that become one generated kernel; see docs/building-blocks/fusion.md."""

from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning.plan import Boundary, Group, Plan
from burn_torch.fusion.planning.planner import fuse, plan_of
from burn_torch.fusion.rewrites.choices import Choices
from burn_torch.fusion.rewrites.patterns import Pattern, register_pattern, unregister_pattern
from burn_torch.fusion.telling.explanation import FusionExplanation, KernelReport, SymbolReport, explain

__all__ = [
    "Boundary",
    "Choices",
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
