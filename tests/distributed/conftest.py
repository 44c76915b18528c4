"""Starts a program as the processes of a world."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="session")
def launch() -> Callable[..., Ended]:
    """launch(part, world=2, leave=(), **options): program.py's function `part` in each process.

    Ranks to `leave` are not waited for.
    """

    def launched(part: str, *, world: int = 2, leave: Sequence[int] = (), **options: Any) -> Ended:
        port = free_port()
        processes = []
        for rank in range(world):
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
                "OMP_NUM_THREADS": "1",
                # what torch warns of where there are GPUs is its own affair
                "PYTHONWARNINGS": "error" if options.get("place", "cpu") == "cpu" else "default",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
            }
            command = [sys.executable, str(HERE / "program.py"), part, json.dumps(options)]
            processes.append(
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
                )
            )
        try:
            for rank, process in enumerate(processes):
                if rank not in leave:
                    process.wait(WAIT_S)
        finally:
            for process in processes:
                process.kill()
        at = time.time()
        texts = [process.communicate() for process in processes]
        return Ended([p.returncode for p in processes], [out for out, _ in texts], [err for _, err in texts], at)

    return launched
