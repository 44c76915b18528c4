"""Runs to look at, a run that answers commands, and terminals to look from."""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from burn_torch.monitor import (
    EVENTS,
    CheckpointSaved,
    ControlServer,
    EpochDone,
    EpochSummary,
    Event,
    GpuUse,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    Split,
    SplitDone,
    SplitStarted,
    StepDone,
    encode,
)

START_S = 1_764_000_000.0


def story(
    epochs: int = 3,
    batches: int = 20,
    metrics: tuple[str, ...] = ("Accuracy", "Loss"),
    *,
    total_epochs: int | None = None,
    ended: str | None = "completed",
) -> Iterator[tuple[float, Event]]:
    """The events of a run, with the second of each; every number can be worked out by hand."""
    definitions = tuple(
        MetricDefinition(name, "%" if name == "Accuracy" else None, name == "Accuracy") for name in metrics
    )
    total = epochs if total_epochs is None else total_epochs
    now = 0.0
    yield now, RunStarted(total, 1, batches * 8, batches * 8, definitions, definitions, run_id="a run")
    for epoch in range(1, epochs + 1):
        for split in Split:
            yield now, SplitStarted(split, epoch, 0, batches, 0, batches * 8)
            for batch in range(1, batches + 1):
                now += 1.0
                iteration = (epoch - 1) * batches + batch
                values = tuple(MetricValue(name, value_of(name, iteration, split), 8.0) for name in metrics)
                yield now, StepDone(split, epoch, iteration, batch, batch * 8, values)
            last = tuple(MetricValue(name, value_of(name, epoch * batches, split)) for name in metrics)
            yield now, SplitDone(EpochSummary(split, epoch, last))
        yield now, LogLine(f"printed in epoch {epoch}", "stdout")
        yield (
            now,
            Resources(
                50.0, 4 << 30, 1 << 30, (GpuUse(0, "a GPU", 75.0, 8 << 30, 16 << 30, 60.0, 300.0),), 8 << 30, 150.0
            ),
        )
        yield now, EpochDone(epoch)
        yield now, CheckpointSaved(f"run/checkpoint/epoch-{epoch}.safetensors", epoch, True)
    yield now, Notice("a word to the user")
    if ended is not None:
        yield now, RunEnded(ended, "the summary")


def value_of(name: str, iteration: int, split: Split) -> float:
    """A loss that falls, an accuracy that rises; validation is a little worse."""
    loss = math.exp(-iteration / 20) + (0.1 if split is Split.VALID else 0.0)
    return 100.0 * (1.2 - loss) / 1.2 if name == "Accuracy" else loss


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the log of a run into a directory: that of `story`, or the events given."""

    def written(*events: Event, name: str = "run", **changes: object) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        timed_events = [(0.0, event) for event in events] if events else story(**changes)  # type: ignore[arg-type]
        lines = [encode(event, number, START_S + at) for number, (at, event) in enumerate(timed_events)]
        (folder / EVENTS).write_bytes(b"".join(lines))
        return folder

    return written


@dataclass
class Asked:
    """Holds what a run was asked for, in the place of its interrupter."""

    commands: list[str] = field(default_factory=list)

    def stop(self, reason: str = "", *, status: str = "stopped") -> None:
        self.commands.append("stop")

    def request_checkpoint(self) -> None:
        self.commands.append("checkpoint")

    def kill(self) -> None:
        self.commands.append("kill")


@pytest.fixture
def live(write: Write) -> Iterator[Callable[..., tuple[Path, Asked]]]:
    """A run that goes on as far as anybody can see, and takes commands."""
    servers = []

    def started(**changes: object) -> tuple[Path, Asked]:
        folder = write(**{"ended": None, "total_epochs": 5, **changes})
        asked = Asked()
        server = ControlServer(folder, asked, kill=asked.kill)
        server.start()
        servers.append(server)
        return folder, asked

    yield started
    for server in servers:
        server.close()


# -- terminals ------------------------------------------------------------------------------------------
ROOT = Path(__file__).resolve().parents[2]
_OWN = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
_MAIN = "from burn_torch.cli.main import main; sys.exit(main())"
termios: Any = None
fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows
    import fcntl
    import termios


class Terminal:
    """Runs Python code, by default the command, as the foreground program of a terminal of its own."""

    def __init__(
        self,
        *words: object,
        cwd: Path,
        code: str = _MAIN,
        before: str = "",
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
            [sys.executable, "-c", _OWN + before + code, *map(str, words)],
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
        while text not in _plain(self.output[max(start - 200, 0) :]) and text not in _plain(self.output):
            assert time.monotonic() < end, f"{text!r} never came; the last were {_plain(self.output)[-3000:]}"
            assert self.process.poll() is None or select.select([self.master], [], [], 0)[0], self.text[-3000:]
            self.read(0.05)

    def spent_s(self) -> float:
        """Processor seconds of the program so far."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            pytest.skip("only Linux says how long another process has computed")
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, timeout_s: float = 30.0) -> int:
        """The exit code, once the program is over and all it wrote is read."""
        end = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end; the last were {_plain(self.output)[-3000:]}"
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
        """Returns what was written behind the dashboard."""
        return _plain(self.output[self.output.rfind(b"\x1b[?1049l") :]).replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """The letters of all that was written; where the cursor jumped they stand side by side."""
        return _plain(self.output)


def _plain(output: bytes) -> str:
    return re.sub(
        r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>])", "", output.decode(errors="replace")
    )


@pytest.fixture(scope="session")
def open_terminal() -> type[Terminal]:
    """Opens a terminal with a program on it."""
    if termios is None:
        pytest.skip("this platform has no such terminals")
    pytest.importorskip("textual", reason="the dashboard needs textual: pip install 'burn-torch[tui]'")
    return Terminal
