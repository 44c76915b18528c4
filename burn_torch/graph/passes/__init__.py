"""Passes: pure functions Graph -> Graph.  They see the properties of rows, never their names."""

from burn_torch.graph.passes.casting import Precision, dtype_policy
from burn_torch.graph.passes.constants import fold_constants
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.driver import PASSES, PassReport, PassReports, pipeline
from burn_torch.graph.passes.grouping import group_updates
from burn_torch.graph.passes.identities import algebra
from burn_torch.graph.passes.invariants import Body, check_overwrites, rewritten
from burn_torch.graph.passes.isolation import isolate_outputs
from burn_torch.graph.passes.memory import Buffer, MemoryPlan, memory_plan, peak_bytes
from burn_torch.graph.passes.narrowing import narrow_gradients
from burn_torch.graph.passes.overlapping import launch_early
from burn_torch.graph.passes.recomputing import recompute
from burn_torch.graph.passes.rewrite import Numerics
from burn_torch.graph.passes.subexpressions import common_subexpressions
from burn_torch.graph.passes.view_chains import fold_views

__all__ = [
    "PASSES",
    "Body",
    "Buffer",
    "MemoryPlan",
    "Numerics",
    "PassReport",
    "PassReports",
    "Precision",
    "algebra",
    "check_overwrites",
    "common_subexpressions",
    "dead_code",
    "dtype_policy",
    "fold_constants",
    "fold_views",
    "group_updates",
    "isolate_outputs",
    "launch_early",
    "memory_plan",
    "narrow_gradients",
    "peak_bytes",
    "pipeline",
    "recompute",
    "rewritten",
]
