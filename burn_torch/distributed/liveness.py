"""Decides whether another process of this machine still lives, and the words that name processes to each other."""

from __future__ import annotations

import os
import select
import socket
import weakref
from typing import Any, Final, final

__all__ = ["AGENT_HOLDS_STORE", "ProcessWatch", "own_process", "parent_process"]

AGENT_HOLDS_STORE: Final = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
"""Says whether torchrun's agent, which started this process, holds the store, and not rank 0."""


def own_process() -> str:
    """Machine and number of this process."""
    return f"{socket.gethostname()} {os.getpid()}"


def parent_process() -> str:
    """Machine and number of the process that started this one."""
    return f"{socket.gethostname()} {os.getppid()}"


@final
class ProcessWatch:
    """Tells when a process of this machine is gone, at once and even before its parent has taken note.

    process   as `own_process` names it; None, or one of another machine, never ends here
    """

    def __init__(self, process: str | None) -> None:
        self.known = process is not None
        self._poll: Any = None
        self._gone = False
        machine, _, pid = (process or " ").partition(" ")
        if machine == socket.gethostname() and hasattr(os, "pidfd_open"):
            try:
                descriptor = os.pidfd_open(int(pid))
                weakref.finalize(self, os.close, descriptor)
                self._poll = select.poll()
                self._poll.register(descriptor, select.POLLIN)
            except ProcessLookupError:
                self._gone = True
            except OSError:
                self._poll = None  # not allowed here: signs of life have to do

    def ended(self) -> bool:
        """Returns whether the process is gone."""
        return self._gone or (self._poll is not None and bool(self._poll.poll(0)))
