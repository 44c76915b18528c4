"""The one intermediate representation, what writes it, what transforms it and what runs it anywhere."""

import typing as _typing

from burn_torch.core.exports import export_lazily as _export_lazily
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.graph.interpreter import interpret as interpret
from burn_torch.graph.ir import *
from burn_torch.graph.origin import *
from burn_torch.graph.source import straight_line as straight_line
from burn_torch.graph.trace import *
from burn_torch.graph.verifier import verify as verify

if _typing.TYPE_CHECKING:
    from burn_torch.graph.passes import dead_code as dead_code

_list_exports(globals())
_export_lazily(globals(), {"dead_code": "passes"})
