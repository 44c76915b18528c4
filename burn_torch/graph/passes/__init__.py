"""Passes: pure functions Graph -> Graph.  They see the properties of rows, never their names."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.graph.passes.casting import Precision as Precision
from burn_torch.graph.passes.casting import dtype_policy as dtype_policy
from burn_torch.graph.passes.constants import fold_constants as fold_constants
from burn_torch.graph.passes.dead import *
from burn_torch.graph.passes.driver import PASSES as PASSES
from burn_torch.graph.passes.driver import PassReport as PassReport
from burn_torch.graph.passes.driver import PassReports as PassReports
from burn_torch.graph.passes.driver import pipeline as pipeline
from burn_torch.graph.passes.grouping import *
from burn_torch.graph.passes.identities import *
from burn_torch.graph.passes.invariants import Body as Body
from burn_torch.graph.passes.invariants import check_overwrites as check_overwrites
from burn_torch.graph.passes.invariants import rewritten as rewritten
from burn_torch.graph.passes.isolation import *
from burn_torch.graph.passes.memory import *
from burn_torch.graph.passes.narrowing import *
from burn_torch.graph.passes.overlapping import *
from burn_torch.graph.passes.recomputing import *
from burn_torch.graph.passes.rewrite import Numerics as Numerics
from burn_torch.graph.passes.subexpressions import *
from burn_torch.graph.passes.view_chains import *

_list_exports(globals())
