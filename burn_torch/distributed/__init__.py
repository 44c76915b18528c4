"""Several processes that work together: who is there, and collectives on tensors."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.distributed.collectives import all_gather, all_reduce, broadcast, reduce_scatter
from burn_torch.distributed.watchdog import Watchdog
from burn_torch.distributed.world import (
    World,
    barrier,
    gather,
    init,
    is_initialized,
    is_main,
    local_rank,
    rank,
    shutdown,
    world,
    world_size,
)

__all__ = [
    "Watchdog",
    "World",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "gather",
    "init",
    "is_initialized",
    "is_main",
    "local_rank",
    "rank",
    "reduce_scatter",
    "shutdown",
    "world",
    "world_size",
]

_check_exports(globals())
