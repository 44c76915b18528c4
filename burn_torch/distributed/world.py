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
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.core.errors import ConfigError, DistributedError, explain
from burn_torch.distributed.watchdog import Watchdog, default_code
from burn_torch.ops.collectives import gather_into

__all__ = ["World", "barrier", "gather", "init", "is_initialized", "is_main", "local_rank", "rank", "shutdown", "world",
           "world_size"]  # fmt: skip

_TOLD_EVERY_S: Final = 10.0
_NAMES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@final
@dataclass(frozen=True)
class World:
    """Which of `size` processes this is; `local_rank` counts those of one machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    backend: str | None = None
    """What torch.distributed was given: "gloo", or "cpu:gloo,cuda:nccl"; None for a process alone."""
    watchdog: Watchdog | None = None


_ALONE: Final = World()
_world: World = _ALONE


def init(
    backend: str | None = None,
    *,
    timeout_s: float = 600.0,
    silence_s: float = 15.0,
    code_of: Callable[[BaseException], int] = default_code,
) -> World:
    """Joins the processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK).

    Without them, or in a world of 1, it joins nothing and collectives are the identity.  A second call gives the same
    world.

    backend     of torch.distributed: by default gloo for the CPU and, where there is CUDA, NCCL for GPUs
    timeout_s   how long a process waits for the others in one collective before it gives up
    silence_s   how long a process may give no sign of life before it counts as dead; then all others end
    code_of     the exit code of an exception that ends a process: every process ends with that of the first one

    Raises: ConfigError for an environment that is incomplete; DistributedError where the others do not come.
    """
    global _world
    if _world is not _ALONE:
        return _world
    found = _environment(os.environ)
    if found is None:
        return _ALONE
    import torch.distributed as dist

    at, size, local = found
    gpu = torch.cuda.is_available()
    name = backend or ("cpu:gloo,cuda:nccl" if gpu else "gloo")
    if gpu and "nccl" in name:
        torch.cuda.set_device(local)
    timeout = timedelta(seconds=timeout_s)
    try:
        with _telling(at, size, timeout_s):
            dist.init_process_group(name, rank=at, world_size=size, timeout=timeout)
        watchdog = Watchdog(at, size, silence_s=silence_s, code_of=code_of)
    except (RuntimeError, ValueError) as err:
        raise DistributedError(
            explain(
                "the processes did not come together",
                given=f"rank {at} of {size} at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}, {name}:"
                f" {str(err).splitlines()[0]}",
                expected=f"{size} processes that all call init() within {timeout_s:g} s",
                mend="start them with torchrun, which sets the address, and look at the output of the others",
            )
        ) from err
    _world = World(at, size, local, name, watchdog)
    watchdog.start()
    atexit.register(watchdog.close)
    return _world


@contextmanager
def _telling(rank: int, size: int, timeout_s: float) -> Iterator[None]:
    """A block that waits for the other processes; a line every ten seconds says so, and for how long it will."""
    joined, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not joined.wait(_TOLD_EVERY_S):
            address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            passed = time.monotonic() - began
            text = f"rank {rank} of {size} has waited {passed:.0f} s at {address} for the others, of {timeout_s:g} s"
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{text}: did one end before it joined?\n")
                sys.stderr.flush()

    thread = threading.Thread(target=tell, name="burn_torch waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        joined.set()
        thread.join()


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
        given = ", ".join(f"{name}={variables[name]}" for name in present)
        raise ConfigError(
            explain(
                "the environment does not say which process this is",
                given=f"{given} ({err})",
                expected="RANK from 0 below WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                mend="start the program with torchrun, or unset RANK and WORLD_SIZE to run it alone",
            )
        ) from None
    return None if numbers[1] == 1 else (numbers[0], numbers[1], local)


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
    """Whether this process works with others."""
    return _world is not _ALONE


def is_main() -> bool:
    """Whether this is process 0, which writes files and shows things."""
    return _world.rank == 0


def barrier() -> None:
    """Waits until all processes are here."""
    if _world.size > 1:
        import torch.distributed as dist

        dist.barrier()


def gather(value: Any) -> list[Any]:
    """What each process gives, in the order of their ranks: values that JSON can hold, and numpy arrays."""
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


def _array_out(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"gather: {type(value).__name__} is none of JSON's values, and no array")
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"__array__": [value.dtype.str, list(value.shape), data]}


def _array_in(value: dict[str, Any]) -> Any:
    if set(value) != {"__array__"}:
        return value
    kind, shape, data = value["__array__"]
    return np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape).copy()
