"""Linear algebra as functions of tensors: `linalg.solve(a, b)`.

Burn's `tensor::linalg`, and beside it what numpy and torch have in `linalg`.  Matrices lie on the last two axes, with
any axes of a batch in front.  Half types are computed in float32 and rounded once.
"""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.layers import LINALG as _LINALG
from burn_torch.tensor.linalg.contraction import *
from burn_torch.tensor.linalg.decompositions import *
from burn_torch.tensor.linalg.norms import *
from burn_torch.tensor.linalg.products import *
from burn_torch.tensor.linalg.systems import *

_list_exports(globals())
_hint_missing(globals(), _LINALG, torch="linalg")
