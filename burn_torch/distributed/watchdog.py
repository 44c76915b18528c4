"""When one process dies, all end: soon, with its exit code, and what it failed with is shown first.

A collective waits for every process, so without this the others would wait until its timeout.  Each process gives a
sign of life in the store of torch.distributed, watches the next one in the ring, and looks for a report of failure:

    <prefix>/beat/<rank>    counts up
    <prefix>/pid/<rank>     machine and process, so that the death of a neighbour on this machine is seen at once
    <prefix>/done/<rank>    it left in good order
    <prefix>/failure        the first failure, as JSON: rank, code, message, traceback

What only follows from another's death (a connection that closed) waits for the report of that death.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, final

from burn_torch.core.errors import BurnTorchError, DistributedError
from burn_torch.distributed.liveness import AGENT_HOLDS_STORE, ProcessWatch, own_process, parent_process

__all__ = ["Watchdog", "default_code"]

_TICK_S: Final = 0.25
_BEAT_S: Final = 1.0
_KILLED: Final = 128 + 9
"""The code of a process that is gone without a word: most often the system killed it."""

_CLEAN_UP_S: Final = 5.0
_LOST_S: Final = 1.5
"""A store that has closed its connection gets one more try after this time."""
_AGENT: Final = -1
"""In the place of a rank: the process that started them."""
_CONNECTION_WORDS: Final = ("gloo", "connection", "nccl", "socket", "peer", "timed out", "broken pipe")


def default_code(err: BaseException) -> int:
    """The exit code that Python gives an exception."""
    if isinstance(err, SystemExit):
        return err.code if isinstance(err.code, int) else 0 if err.code is None else 1
    return 130 if isinstance(err, KeyboardInterrupt) else 1


@final
class Watchdog:
    """The thread that watches; `report` tells the others of a failure here."""

    def __init__(
        self, rank: int, size: int, *, silence_s: float, code_of: Callable[[BaseException], int], prefix: str
    ) -> None:
        from torch._C._distributed_c10d import TCPStore  # where torch.distributed has it from

        self.rank: Final = rank
        self.size: Final = size
        self._silence_s: Final = silence_s
        self._code_of: Final = code_of
        self._prefix: Final = prefix
        self._agent: Final = ProcessWatch(parent_process() if AGENT_HOLDS_STORE else None)
        self._stop: Final = threading.Event()
        self._lock: Final = threading.Lock()
        self._clean_up: Final[list[Callable[[str], None]]] = []
        # a connection of its own: one that is shared waits for whoever waits on it
        self._store: Final = TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=max(silence_s, 5.0)),
        )  # fmt: skip
        self._thread: Final = threading.Thread(target=self._watch, name="burn_torch watchdog", daemon=True)
        self._hook: Callable[..., object] = sys.excepthook
        self._reported = False
        self._holder_left = False
        """Says whether rank 0, which has the store, left in good order."""
        self._set(f"pid/{rank}", own_process())

    # -- from the outside --------------------------------------------------------------------------
    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def hook_exceptions(self) -> None:
        """Tells the others of an exception that ends this process.

        After init_process_group: torch's own hook, set there, calls the one before it with another sys.stderr.
        """
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception

    def close(self) -> None:
        """Leaves in good order."""
        self._stop.set()
        self._thread.join()
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._hook
        with contextlib.suppress(RuntimeError):  # the store may be gone: the process that has it was faster
            self._set(f"done/{self.rank}", "1")
            others = [f"done/{rank}" for rank in range(1, self.size)]
            if self.rank == 0 and not AGENT_HOLDS_STORE and not all(map(self._has, others)):
                time.sleep(2 * _TICK_S)  # the store goes with this process: the others are to see that it left

    def on_failure(self, clean_up: Callable[[str], None]) -> Callable[[], None]:
        """Has `clean_up(message)` called before this process ends because of another; gives what takes that back."""
        self._clean_up.append(clean_up)
        return lambda: self._clean_up.remove(clean_up)

    def report(self, err: BaseException) -> None:
        """Tells the others that this process fails with `err`.

        Where `err` only follows from another's failure, waits for the report of that one, and ends this process with
        its code.
        """
        if self._reported or self._stop.is_set():
            return
        self._reported = True
        if _follows(err):
            self._stop.wait(self._silence_s + 3.0)  # the watching thread ends the process if it finds another's failure
        code = self._code_of(err)
        self._fail(self.rank, code, f"{type(err).__name__}: {err}", _trace_text(err, code))

    # -- the thread ------------------------------------------------------------------------------------
    def _watch(self) -> None:
        neighbour = (self.rank + 1) % self.size
        beats, last, seen, heard = 0, "", time.monotonic(), time.monotonic()
        death = ProcessWatch(None)
        beat_at, lost = 0.0, False
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            if self._agent.ended():  # before the store is asked, which went with it: torch tells of that in 100 lines
                self._end(_gone(_AGENT, "is gone, and the store of the run with it"))
            try:
                if now >= beat_at:
                    beats, beat_at = beats + 1, now + _BEAT_S
                    self._set(f"beat/{self.rank}", str(beats))
                    if not death.known and self._has(f"pid/{neighbour}"):
                        death = ProcessWatch(self._get(f"pid/{neighbour}"))
                    if self._has(f"beat/{neighbour}"):
                        value = self._get(f"beat/{neighbour}")
                        if value != last:
                            last, seen = value, now
                heard, lost = now, False
                self._holder_left = self._holder_left or (self.rank > 0 and self._has("done/0"))
                if self._has("failure"):
                    self._end(json.loads(self._get("failure")))
                silent = now - seen > self._silence_s
                if (death.ended() or silent) and not self._has(f"done/{neighbour}"):
                    time.sleep(2 * _TICK_S)  # it may have reported its own failure with its last words
                    why = f"gave no sign of life for {self._silence_s:g} s" if silent else "ended without a word"
                    self._fail(neighbour, _KILLED, f"{why} (killed by the system? out of memory?)", "")
            except RuntimeError as err:  # the store does not answer
                if self._holder_left and not AGENT_HOLDS_STORE:
                    return  # rank 0 had it, and left in good order
                if lost or now - heard > self._silence_s:
                    who = _AGENT if AGENT_HOLDS_STORE else 0
                    self._end(_gone(who, "is gone, and the store of the run with it"))
                if not _is_slow(err):  # a connection that is closed stays so, and torch tells of each try in 100 lines
                    lost = True
                    self._stop.wait(_LOST_S)

    def _fail(self, rank: int, code: int, message: str, trace: str) -> None:
        """Puts the failure down, if it is the first one."""
        failure = json.dumps({"rank": rank, "code": code or 1, "message": message, "trace": trace})
        with contextlib.suppress(RuntimeError), self._lock:
            self._store.compare_set(f"{self._prefix}/failure", "", failure)

    def _end(self, failure: dict[str, Any]) -> None:
        """Ends this process because of a failure, unless it is its own: then the exception does."""
        rank, code, message = int(failure["rank"]), int(failure["code"]), str(failure["message"])
        if rank == self.rank and self._reported:
            self._stop.set()
            return
        who = "the launcher (torchrun)" if rank == _AGENT else f"rank {rank}"
        lines = [f"rank {self.rank} ends with code {code}: {who} {_first_words(message, failure['trace'])}"]
        if failure["trace"] and self.rank == (0 if rank else 1):  # one of them shows it, whose screen people watch
            lines.insert(0, f"the first failure, of rank {rank}:\n{failure['trace'].rstrip()}")
        if "imed out" in message or "imeout" in message:
            lines.append(f"rank {self.rank} was here:\n{_main_stack()}")
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\n".join(lines) + "\n")
            sys.stderr.flush()
        cleaning = threading.Thread(target=self._clean, args=(message,), daemon=True)
        cleaning.start()
        cleaning.join(_CLEAN_UP_S)
        os._exit(code)

    def _clean(self, message: str) -> None:
        for clean_up in reversed(self._clean_up):
            with contextlib.suppress(Exception):  # the process ends in any case, and for another reason
                clean_up(message)

    def _on_exception(self, kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
        if not _follows(err):
            self._hook(kind, err, trace)  # shown before the others hear of it
            self.report(err)
        else:
            self.report(err)
            self._hook(kind, err, trace)

    # -- the store -------------------------------------------------------------------------------------
    def _set(self, key: str, value: str) -> None:
        with self._lock:
            self._store.set(f"{self._prefix}/{key}", value)

    def _has(self, key: str) -> bool:
        with self._lock:
            return bool(self._store.check([f"{self._prefix}/{key}"]))

    def _get(self, key: str) -> str:
        with self._lock:
            return bytes(self._store.get(f"{self._prefix}/{key}")).decode()


def _gone(rank: int, message: str) -> dict[str, object]:
    return {"rank": rank, "code": _KILLED, "message": message, "trace": ""}


def _is_slow(err: RuntimeError) -> bool:
    """Returns whether a store may answer later: it is busy, and not gone."""
    text = str(err).lower()
    return "timeout" in text or "timed out" in text


def _follows(err: BaseException) -> bool:
    """Returns whether an error is most likely the echo of another process's end."""
    if isinstance(err, DistributedError) or not isinstance(err, RuntimeError):
        return False
    text = str(err).lower()
    return type(err).__name__.startswith("Dist") or any(word in text for word in _CONNECTION_WORDS)


def _trace_text(err: BaseException, code: int) -> str:
    """Returns what one of the others shows: of a mistake that has a code of its own our message, else the traceback."""
    if isinstance(err, BurnTorchError) and code != 1:
        return "\n".join([f"error: {err}", *(f"  {note}" for note in getattr(err, "__notes__", ()))])
    return "".join(traceback.format_exception(err))


def _first_words(message: str, trace: str) -> str:
    return f"failed with {message.splitlines()[0]}" if trace else message


def _main_stack() -> str:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "".join(traceback.format_stack(frame)).rstrip() if frame is not None else "(no main thread)"
