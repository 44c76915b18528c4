"""Fusion: operations that become one generated kernel; see docs/building-blocks/fusion.md."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.fusion.body.reasons import Reason as Reason
from burn_torch.fusion.body.reasons import Unfusible as Unfusible
from burn_torch.fusion.planning.plan import Boundary as Boundary
from burn_torch.fusion.planning.plan import Group as Group
from burn_torch.fusion.planning.plan import Plan as Plan
from burn_torch.fusion.planning.planner import *
from burn_torch.fusion.rewrites.choices import Choices as Choices
from burn_torch.fusion.rewrites.patterns import Pattern as Pattern
from burn_torch.fusion.rewrites.patterns import register_pattern as register_pattern
from burn_torch.fusion.rewrites.patterns import unregister_pattern as unregister_pattern
from burn_torch.fusion.telling.explanation import *

_list_exports(globals())
