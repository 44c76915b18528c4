"""A terminal to run programs on: a pty, what was written to it, and the state that it is left in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
_OWN = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
MAIN = "from burn_torch.cli.main import main; sys.exit(main())"


class Terminal:
    """Runs Python code as the foreground program of a terminal of its own."""

    def __init__(
        self,
        code: str,
        words: Sequence[object] = (),
        *,
        cwd: Path,
        size: tuple[int, int] = (80, 24),
        **environment: str,
    ) -> None:
        self.master, self.slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BURN_TORCH", "PYTHON", "TEXTUAL"))
            and name not in ("NO_COLOR", "CI", "COLUMNS", "LINES")
        }
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
            "PYTHONUTF8": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TERM": "xterm-256color",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN + code, *map(str, words)],
            cwd=cwd,
            env=kept | ours | environment,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )
        self.output = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds: float = 0.0) -> bytes:
        """Takes what is written for so long."""
        end = time.monotonic() + seconds
        while select.select([self.master], [], [], max(end - time.monotonic(), 0.0))[0]:
            try:
                self.output += os.read(self.master, 65_536)
            except OSError:
                break
        return self.output

    def until(self, text: str, *, timeout_s: float = 30.0) -> None:
        """Reads until the text has been written, after whatever was waited for before."""
        start = len(self.output)
        end = time.monotonic() + timeout_s
        while text not in plain(self.output[max(start - 200, 0) :]) and text not in plain(self.output):
            assert time.monotonic() < end, f"{text!r} never came; the last were {plain(self.output)[-3000:]}"
            assert self.process.poll() is None or select.select([self.master], [], [], 0)[0], plain(self.output)[-3000:]
            self.read(0.05)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, timeout_s: float = 30.0) -> int:
        """The exit code, once the program is over and all it wrote is read."""
        end = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end; the last were {plain(self.output)[-3000:]}"
            self.read(0.02)
        self.read(0.05)
        return self.process.returncode

    def assert_as_before(self) -> None:
        """The modes of the terminal are those of before, and what the program switched on it switched off again."""
        assert termios.tcgetattr(self.slave) == self.before
        written = self.output.decode(errors="replace")
        for on, off in (
            ("?1049h", "?1049l"),
            ("?25l", "?25h"),
            ("?7l", "?7h"),
            ("?2004h", "?2004l"),
            ("?1003h", "?1003l"),
        ):
            assert written.rfind(f"\x1b[{off}") > written.rfind(f"\x1b[{on}") >= 0, on

    @property
    def after(self) -> str:
        """What was written behind the dashboard."""
        return plain(self.output[self.output.rfind(b"\x1b[?1049l") :]).replace("\r\n", "\n")


def plain(output: bytes) -> str:
    """Letters alone; where the cursor jumped they stand side by side."""
    return re.sub(
        r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>])", "", output.decode(errors="replace")
    )
