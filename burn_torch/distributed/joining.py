"""How the processes come together: each says in the store that it is there, and waits until all are.

    <prefix>/joined/<rank>   machine and process
    <prefix>/count           how many have joined
    <prefix>/broken          why they cannot all come: the rank that sees it first tells the others

torch.distributed would wait in one call that says nothing until its timeout.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, final

from burn_torch.core.errors import DistributedError
from burn_torch.core.wording import first_line
from burn_torch.distributed.liveness import AGENT_HOLDS_STORE, ProcessWatch, own_process, parent_process

__all__ = ["join"]

_TICK_S: Final = 0.1
_LOOK_AFTER_S: Final = 0.5
_FIRST_TOLD_S: Final = 5.0
_TELL_EVERY_S: Final = 10.0
_ALL_TELL: Final = 8
"""In a larger world one process a machine tells."""
_CONNECTING_S: Final = 20.0


def join(rank: int, size: int, local_rank: int, *, join_s: float, prefix: str) -> Any:
    """The store of torch.distributed, once all processes have joined.

    After 5 s, and then every 10 s, a line on stderr says which processes have joined and which have not.

    Raises: DistributedError after `join_s`, or as soon as one that had joined is gone.
    """
    meeting = _Meeting(rank, size, local_rank, join_s, prefix)
    try:
        return meeting.wait()
    except (_Incomplete, RuntimeError, ValueError, OverflowError) as err:
        raise DistributedError(
            "the processes did not come together",
            given=f"rank {rank} of {size} at {meeting.place}: {first_line(err)}",
            expected=f"{size} processes that all call init() within {join_s:g} s",
            mend="look at the output of the others, and start them with torchrun, which sets the address;"
            " BURN_TORCH_JOIN_S=900 or join_s=900 waits longer",
        ) from (None if isinstance(err, _Incomplete) else err)


class _Incomplete(Exception):
    """Not all will come; says why."""


@final
class _Meeting:
    def __init__(self, rank: int, size: int, local_rank: int, join_s: float, prefix: str) -> None:
        self._rank: Final = rank
        self._size: Final = size
        self._tells: Final = local_rank == 0 or size <= _ALL_TELL
        self._join_s: Final = join_s
        self._prefix: Final = prefix
        self.place: Final = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        self._holds: Final = rank == 0 and not AGENT_HOLDS_STORE
        self._holder: Final = "torchrun" if AGENT_HOLDS_STORE else "rank 0"
        self._began: Final = time.monotonic()
        self._tell_at = _FIRST_TOLD_S
        self._agent: Final = ProcessWatch(parent_process() if AGENT_HOLDS_STORE else None)
        self._joined: dict[int, ProcessWatch] = {}
        self._look_at = _LOOK_AFTER_S

    def wait(self) -> Any:
        """The store, once all are here."""
        store = self._store()
        try:
            store.set(f"{self._prefix}/joined/{self._rank}", own_process())
            store.add(f"{self._prefix}/count", 1)
            while int(store.add(f"{self._prefix}/count", 0)) < self._size:
                self._check(store)
                time.sleep(_TICK_S)
        except RuntimeError as err:
            raise _Incomplete(f"{self._holder}, which holds the store, ended before all had joined") from err
        return store

    # -- the store -------------------------------------------------------------------------------------
    def _store(self) -> Any:
        from torch._C._distributed_c10d import TCPStore  # where torch.distributed has it from

        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        while not self._holds:  # torch's own waiting for the store is silent
            try:
                socket.create_connection((host, port), timeout=1.0).close()
                break
            except OSError as err:
                why = err.strerror or err
            self._look_at_clock(f"{self._holder}, which holds the store, does not answer there ({why})")
            time.sleep(_TICK_S)
        timeout = timedelta(seconds=_CONNECTING_S)
        return TCPStore(host, port, self._size, self._holds, timeout, wait_for_workers=False, multi_tenant=True)

    # -- who is here ------------------------------------------------------------------------------------
    def _check(self, store: Any) -> None:
        """Raises: _Incomplete where not all will come, and tells the others why."""
        if store.check([f"{self._prefix}/broken"]):
            raise _Incomplete(bytes(store.get(f"{self._prefix}/broken")).decode())
        try:
            if self._agent.ended():
                raise _Incomplete("torchrun, which started the processes, ended before all had joined")
            self._look_for_others(store)
            self._look_at_clock(self._attendance())
        except _Incomplete as err:
            store.set(f"{self._prefix}/broken", str(err))
            if self._holds:
                time.sleep(5 * _TICK_S)  # the store goes with this process: the others are to read it
            raise

    def _look_for_others(self, store: Any) -> None:
        for rank, watch in self._joined.items():
            if watch.ended():
                raise _Incomplete(f"rank {rank} had joined, and ended before the others came")
        if time.monotonic() - self._began < self._look_at:
            return
        self._look_at += 1.0 if self._size <= _ALL_TELL else _TELL_EVERY_S
        for rank in range(self._size):
            key = f"{self._prefix}/joined/{rank}"
            if rank not in self._joined and store.check([key]):
                self._joined[rank] = ProcessWatch(bytes(store.get(key)).decode())

    def _attendance(self) -> str:
        missing = [rank for rank in range(self._size) if rank not in self._joined]
        return f"{_named(sorted(self._joined))} joined, {_named(missing)} did not" if missing else "all are joining"

    def _look_at_clock(self, attendance: str) -> None:
        """Says what it waits for where that is due.  Raises: _Incomplete where the time is over."""
        passed = time.monotonic() - self._began
        if passed >= self._join_s:
            raise _Incomplete(f"in {self._join_s:g} s {attendance}")
        if passed >= self._tell_at:
            self._tell_at += _TELL_EVERY_S
            text = f"rank {self._rank} of {self._size} has waited {passed:.0f} of {self._join_s:g} s at {self.place}"
            if self._tells:
                with suppress(OSError, ValueError):
                    sys.stderr.write(f"{text}: {attendance}\n")
                    sys.stderr.flush()


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:_ALL_TELL]))
    return f"ranks {shown}" + (f" and {len(ranks) - _ALL_TELL} more" if len(ranks) > _ALL_TELL else "")
