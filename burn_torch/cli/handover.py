"""Training on a terminal: the trainer in a process and session of its own, the dashboard in front of it.

`lead` runs in front.  It starts the same command once more with `--hand-over`, in a session of its own, so that neither
Ctrl-C nor the end of the terminal reaches it.  That process is the trainer: it prints to the terminal until it has all
it needs (a mistake or a download shows as ever), then calls `hand_over`: from there on it prints to `output.log` in its
artifact directory, and the dashboard opens.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from burn_torch.cli.failure import EXIT_HANGUP

__all__ = ["OUTPUT", "add_options", "hand_over", "lead", "wanted"]

OUTPUT: Final = "output.log"
"""Holds what the trainer printed, in its artifact directory."""
_LAST_LINES: Final = 25


# -- options ------------------------------------------------------------------------------------------------
def add_options(parser: Any) -> None:
    """Declares what decides over the dashboard."""
    parser.add_argument(
        "--plain",
        "--no-dashboard",
        action="store_true",
        help="print lines instead of opening the dashboard on a terminal",
    )
    parser.add_argument("--hand-over", type=int, metavar="FD", help=argparse.SUPPRESS)


def wanted(args: object) -> bool:
    """Returns whether this process is to lead: on a terminal that can show a dashboard, unless somebody says no.

    Not under continuous integration, not as a rank of torchrun, not for options that train or print nothing.
    """
    if getattr(args, "hand_over", None) is not None or os.name != "posix":
        return False
    if any(getattr(args, name, False) for name in ("plain", "quiet", "show_config", "dry_run")):
        return False
    if os.environ.get("CI") or "RANK" in os.environ:
        return False
    from burn_torch.monitor.dashboard import obstacle

    return obstacle() is None


# -- the trainer --------------------------------------------------------------------------------------------
def hand_over(args: object, directory: Path) -> None:
    """In the trainer, once it has all it needs: prints to a file from now on, and lets the dashboard open."""
    descriptor: int | None = getattr(args, "hand_over", None)
    if descriptor is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / OUTPUT
    with path.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        facts = {"directory": str(directory), "offset": path.stat().st_size}
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # whoever reads the file sees whole lines
    with suppress(OSError):  # nobody is in front any more; the run needs nobody
        os.write(descriptor, json.dumps(facts).encode() + b"\n")
    os.close(descriptor)


# -- in front -----------------------------------------------------------------------------------------------
def lead(given: Sequence[str]) -> int:
    """Starts the trainer and shows it; gives its exit code, 0 where the user leaves it running."""
    receive, send = os.pipe()
    command = [*_program(), *given, "--hand-over", str(send)]
    trainer = subprocess.Popen(command, pass_fds=[send], start_new_session=True)
    os.close(send)
    with os.fdopen(receive, "rb") as answers, _forwarding(trainer):
        line = answers.readline()
        if not line:  # it is over before it began, and has said why
            return _code(trainer.wait())
    return _watch(trainer, json.loads(line))


def _program() -> list[str]:
    """Returns what starts this program again; with the working directory in the path of imports only where it is
    here.
    """
    path = [] if str(Path.cwd()) in sys.path or "" in sys.path else ["-P"]
    return [sys.executable, *path, "-m", "burn_torch"]


def _watch(trainer: subprocess.Popen[bytes], facts: Mapping[str, Any]) -> int:
    from burn_torch.monitor.dashboard import Source, follow_lines, show

    directory = Path(facts["directory"])
    source = Source(directory, lives=lambda: trainer.poll() is None, signal=trainer.send_signal)
    try:
        outcome = show(source, closes=True)
    except Exception as error:  # whatever a view does wrong, the run goes on
        print(f"the dashboard failed ({type(error).__name__}: {error}); the training goes on", file=sys.stderr)
        with _forwarding(trainer):
            with suppress(Exception):  # not even its events can be read
                follow_lines(Source(directory, lives=lambda: trainer.poll() is None), sys.stdout)
            return _code(trainer.wait())
    if outcome == "hangup":
        return EXIT_HANGUP
    if outcome == "detached":
        trainer.returncode = 0  # else Popen warns that its process still runs
        print(f"the training goes on in process {trainer.pid}, its output in {directory / OUTPUT}")
        print(f"watch    burn-torch attach {shlex.quote(str(directory))}")
        return 0
    if outcome == "terminated":
        trainer.terminate()
    with _forwarding(trainer):
        code = _code(trainer.wait())
    source.poll(None)
    summary = None if source.view.ended is None else source.view.ended.summary
    _last_words(directory / OUTPUT, int(facts["offset"]), summary, code)
    print(f"plots    burn-torch attach {shlex.quote(str(directory))}")
    return code


def _last_words(path: Path, offset: int, summary: str | None, code: int) -> None:
    """Prints what the trainer printed at its end: from the summary on, or without one the last lines."""
    with path.open("rb") as output:
        output.seek(offset)
        text = output.read().decode(errors="replace")
    start = text.rfind(summary) if summary else -1
    if start >= 0:
        sys.stdout.write(text[start:])
        return
    lines = text.splitlines()
    if len(lines) > _LAST_LINES:
        print(f"the last lines of {path}:", file=sys.stderr)
    stream = sys.stderr if code else sys.stdout
    stream.write("".join(f"{line}\n" for line in lines[-_LAST_LINES:]))


def _code(returned: int) -> int:
    return 128 - returned if returned < 0 else returned


@contextmanager
def _forwarding(trainer: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that this process gets go to the trainer, which ends it in its own way."""

    def forward(number: int, frame: FrameType | None) -> None:
        trainer.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
