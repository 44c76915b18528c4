"""Several processes that work together: who is there, and collectives on tensors."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.distributed.collectives import *
from burn_torch.distributed.watchdog import Watchdog as Watchdog
from burn_torch.distributed.world import *

_list_exports(globals())
_check_exports(globals())
