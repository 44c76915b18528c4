"""Passes: pure functions Graph -> Graph.  They see the properties of rows, never their names."""

from burn_torch.graph.passes.constants import fold_constants
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.identities import algebra
from burn_torch.graph.passes.rewrite import Numerics
from burn_torch.graph.passes.subexpressions import common_subexpressions
from burn_torch.graph.passes.view_chains import fold_views

__all__ = ["Numerics", "algebra", "common_subexpressions", "dead_code", "fold_constants", "fold_views"]
