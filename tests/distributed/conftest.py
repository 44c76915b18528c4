"""Starts a program as the processes of a world."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAIT_S = 90.0


@dataclass
class Ended:
    codes: list[int]
    out: list[str]
    err: list[str]
    at: float
    """When the last of them had ended, in Unix seconds."""

    def results(self) -> list[Any]:
        """The last line that each process printed, as JSON."""
        assert self.codes == [0] * len(self.codes), "\n".join(self.err)
        return [json.loads(text.splitlines()[-1]) for text in self.out]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def launch() -> Callable[..., Ended]:
    """launch(part, world=2, leave=(), **options): program.py's function `part` in each process.

    Ranks to `leave` are not waited for.
    """

    def launched(part: str, *, world: int = 2, leave: Sequence[int] = (), **options: Any) -> Ended:
        port = free_port()
        command = [sys.executable, str(HERE / "program.py"), part, json.dumps(options)]
        with contextlib.ExitStack() as stack:
            # files: nobody reads a pipe while all wait, and a full one would stop the process that writes
            out, err = ([stack.enter_context(TemporaryFile("w+")) for _ in range(world)] for _ in range(2))
            processes = []
            for rank in range(world):
                environment = {
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
                    "PYTHONFAULTHANDLER": "1",
                    "OMP_NUM_THREADS": "1",
                    # what torch warns of where there are GPUs is its own affair
                    "PYTHONWARNINGS": "error" if options.get("place", "cpu") == "cpu" else "default",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(world),
                }
                processes.append(
                    subprocess.Popen(command, stdout=out[rank], stderr=err[rank], env=environment, cwd=ROOT)
                )
            late = []
            try:
                for rank, process in enumerate(processes):
                    if rank not in leave:
                        process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                late = [process for process in processes if process.poll() is None]
                for process in late:
                    process.send_signal(signal.SIGABRT)  # prints where each of its threads is
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
            at = time.time()
            texts = [[_text(file) for file in files] for files in (out, err)]
        assert not late, f"{len(late)} of {world} not at their end after {WAIT_S:.0f} s\n" + "\n".join(texts[1])
        return Ended([process.returncode for process in processes], texts[0], texts[1], at)

    return launched


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
