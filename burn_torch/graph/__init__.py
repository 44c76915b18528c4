"""The one intermediate representation, what writes it, what transforms it and what runs it anywhere."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.graph.interpreter import interpret as interpret
from burn_torch.graph.ir import *
from burn_torch.graph.origin import *
from burn_torch.graph.passes import dead_code as dead_code
from burn_torch.graph.source import straight_line as straight_line
from burn_torch.graph.trace import *
from burn_torch.graph.verifier import *

_list_exports(globals())
