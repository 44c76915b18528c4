"""The processes that work together: which one this is, and how many there are.

Each is started with the same program, by torchrun or anything else that sets the same variables:

    torchrun --nproc-per-node 2 train.py

    import burn_torch.distributed as distributed
    distributed.init()
"""

from __future__ import annotations

import atexit
import base64
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, DistributedError
from burn_torch.core.wording import first_line
from burn_torch.distributed.joining import join
from burn_torch.distributed.watchdog import Watchdog, default_code
from burn_torch.ops.collectives import gather_into

__all__ = ["World", "barrier", "gather", "init", "is_initialized", "is_main", "local_rank", "rank", "shutdown", "world",
           "world_size"]  # fmt: skip

_JOIN_S: Final = 300.0
_JOIN_VARIABLE: Final = "BURN_TORCH_JOIN_S"
_NAMES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@final
@dataclass(frozen=True)
class World:
    """Says which of `size` processes this is; `local_rank` counts those of one machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    backend: str | None = None
    """Holds what torch.distributed was given: "gloo", or "cpu:gloo,cuda:nccl"; None for a process alone."""
    watchdog: Watchdog | None = None


_ALONE: Final = World()
_world: World = _ALONE
_meetings = 0
"""How often this process has joined others: each time the keys in the store are new."""


@checked(but=("timeout_s", "silence_s", "join_s"))
def init(
    backend: str | None = None,
    *,
    timeout_s: float = 600.0,
    silence_s: float = 15.0,
    join_s: float | None = None,
    code_of: Callable[[BaseException], int] = default_code,
) -> World:
    """Joins the processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK).

    Without them, or in a world of 1, it joins nothing and collectives are the identity.  A second call gives the same
    world.

    backend     of torch.distributed: by default gloo for the CPU and, where there is CUDA, NCCL for GPUs
    timeout_s   how long a process waits for the others in one collective before it gives up
    silence_s   how long a process may give no sign of life before it counts as dead; then all others end
    join_s      how long a process waits here until all have come; by default BURN_TORCH_JOIN_S, or 300.  From the fifth
                second on it says on stderr who has come and who has not
    code_of     the exit code of an exception that ends a process: every process ends with that of the first one

    Raises: ConfigError for an environment that is incomplete, and for times that are none; DistributedError where the
        others do not come.
    """
    global _world, _meetings
    if _world is not _ALONE:
        return _world
    join_s = _seconds(_JOIN_VARIABLE, os.environ.get(_JOIN_VARIABLE) or _JOIN_S) if join_s is None else join_s
    for label, value in (("timeout_s", timeout_s), ("silence_s", silence_s), ("join_s", join_s)):
        _seconds(label, value)
    position = _environment(os.environ)
    if position is None:
        return _ALONE
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore  # where torch.distributed has it from

    at, size, local = position
    gpu = torch.cuda.is_available()
    name = backend or ("cpu:gloo,cuda:nccl" if gpu else "gloo")
    if gpu and "nccl" in name:
        torch.cuda.set_device(local)
    _meetings += 1
    prefix = f"burn_torch/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_meetings}"
    store = join(at, size, local, join_s=join_s, prefix=prefix)
    store.set_timeout(timedelta(seconds=timeout_s))
    watchdog = Watchdog(at, size, silence_s=silence_s, code_of=code_of, prefix=prefix)
    watchdog.start()  # one that ends from here on ends the others
    try:
        own = PrefixStore(f"{prefix}/group", store)
        dist.init_process_group(name, store=own, rank=at, world_size=size, timeout=timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as err:
        failure = DistributedError(
            "the processes could not be connected",
            given=f"rank {at} of {size}, {name}: {first_line(err)}",
            expected="a network over which each process reaches each other one",
            mend="GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network interface to use",
        )
        watchdog.report(failure)
        watchdog.close()
        raise failure from err
    watchdog.hook_exceptions()
    _world = World(at, size, local, name, watchdog)
    atexit.register(watchdog.close)
    return _world


def _environment(variables: Mapping[str, str]) -> tuple[int, int, int] | None:
    present = [name for name in _NAMES if variables.get(name)]
    if "RANK" not in present and "WORLD_SIZE" not in present:
        return None
    numbers: list[int] = []
    try:
        if len(present) < len(_NAMES):
            raise ValueError(f"without {', '.join(name for name in _NAMES if name not in present)}")
        numbers = [int(variables[name]) for name in ("RANK", "WORLD_SIZE")]
        local = int(variables.get("LOCAL_RANK", numbers[0]))
        if not 0 <= numbers[0] < numbers[1]:
            raise ValueError("a rank outside its world")
    except ValueError as err:
        shown = ", ".join(f"{name}={variables[name]}" for name in present)
        raise ConfigError(
            "the environment does not say which process this is",
            given=f"{shown} ({err})",
            expected="RANK from 0 below WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            mend="start the program with torchrun, or unset RANK and WORLD_SIZE to run it alone",
        ) from None
    return None if numbers[1] == 1 else (numbers[0], numbers[1], local)


def _seconds(name: str, value: float | str) -> float:
    with suppress(ValueError, TypeError):
        if 0 < float(value) < math.inf and not isinstance(value, bool):
            return float(value)
    raise ConfigError(
        f"{name} is not a time to wait",
        given=f"{name}={value!r}",
        expected="a finite number of seconds above 0",
        mend=f"{name}=600 waits ten minutes; leave it out for the default",
    )


def shutdown() -> None:
    """Leaves the world, once all processes are here: a process alone again."""
    global _world
    if _world is _ALONE:
        return
    import torch.distributed as dist

    dist.barrier()
    if _world.watchdog is not None:
        atexit.unregister(_world.watchdog.close)
        _world.watchdog.close()
    dist.destroy_process_group()
    _world = _ALONE


def world() -> World:
    """The world of this process: of size 1 before `init`."""
    return _world


def rank() -> int:
    """The number of this process, from 0."""
    return _world.rank


def world_size() -> int:
    """How many processes work together."""
    return _world.size


def local_rank() -> int:
    """The number of this process among those of its machine: which GPU is its own."""
    return _world.local_rank


def is_initialized() -> bool:
    """Returns whether this process works with others."""
    return _world is not _ALONE


def is_main() -> bool:
    """Returns whether this is process 0, which writes files and shows things."""
    return _world.rank == 0


def barrier() -> None:
    """Waits until all processes are here."""
    if _world.size > 1:
        import torch.distributed as dist

        dist.barrier()


def gather(value: object) -> list[Any]:
    """Returns what each process gives, in the order of their ranks: values that JSON can hold, and numpy arrays."""
    if _world.size == 1:
        return [value]
    import torch.distributed as dist

    data = np.frombuffer(json.dumps(value, default=_array_out).encode(), np.uint8)
    lengths = torch.zeros(_world.size, dtype=torch.int64)
    lengths[_world.rank] = len(data)
    dist.all_reduce(lengths)
    longest = int(lengths.max())
    mine = torch.zeros(longest, dtype=torch.uint8)
    mine[: len(data)] = torch.from_numpy(data.copy())
    every = torch.empty(_world.size * longest, dtype=torch.uint8)
    gather_into(every, mine)
    rows = every.reshape(_world.size, longest).numpy()
    return [json.loads(row[: int(n)].tobytes(), object_hook=_array_in) for row, n in zip(rows, lengths, strict=True)]


def _array_out(value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"gather: {type(value).__name__} is none of JSON's values, and no array")
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"__array__": [value.dtype.str, list(value.shape), data]}


def _array_in(value: dict[str, Any]) -> object:
    if set(value) != {"__array__"}:
        return value
    kind, shape, data = value["__array__"]
    return np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape).copy()
