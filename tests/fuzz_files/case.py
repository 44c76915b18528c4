"""One changed file, read under watch: time, memory, open files, started processes, and what is printed."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import re
import resource
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz_files.reader import Reader, errors_of_ours

__all__ = ["FAULT", "MAX_BYTES", "MAX_SECONDS", "READ", "REFUSED", "Cases", "changed_file"]

MAX_SECONDS: Final = 10
"""The limit on processor time; that on the clock is six times as long: a busy machine is no fault, a long wait is."""
PATIENCE: Final = 6
MAX_BYTES: Final = 512 << 20
MAX_OPEN: Final = 32
"""Files that may stay open behind the cases of one process, until Python collects what holds them."""
READ, REFUSED, FAULT = "read", "refused", "fault"
FORBIDDEN: Final = frozenset(
    ["os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
     "socket.bind", "pty.spawn", "webbrowser.open"]
)  # fmt: skip
_CHANGING: Final = frozenset(
    ["os.chmod", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
     "shutil.rmtree"]
)  # fmt: skip
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OF_PYTHON: Final = (
    *{sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *(path for path in sys.path if path)},
    str(Path(__file__).parents[2]), "/proc/", "/sys/", "/usr/", "/lib", "/etc/", "/dev/null", "/dev/urandom",
)  # fmt: skip
"""Says where modules are imported from, and what the system says of itself."""
_SECRETS: Final = ("/etc/passwd", "/etc/shadow")
_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


class Watch:
    """Holds what a case opened, changed, connected to and started, by Python's audit events."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in FORBIDDEN or (event == "os.kill" and args[1] != 0):
            self._note(event, args[:2])
        elif event in ("open", "sqlite3.connect") or event in _CHANGING:
            path = "" if isinstance(args[0], int) else os.fsdecode(args[0])
            writes = event in _CHANGING or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES)
            if path.startswith("/") and not self._allows(path, writes=bool(writes)):
                self._note(event, path)
        elif event == "socket.connect" and not str(args[1]).startswith(self.folder):
            self._note(event, args[1])

    def _allows(self, path: str, *, writes: bool) -> bool:
        if writes:
            return path.startswith((self.folder, "/dev/null"))
        return path.startswith((self.folder, *_OF_PYTHON)) and path not in _SECRETS

    def _note(self, event: str, what: object) -> None:
        self.seen.append(f"{event} {what!r:.120}")


class _TooLong(BaseException):
    """The alarm clock."""


class _Clock:
    """Rings once a second, and raises where a case has taken too long."""

    def __init__(self) -> None:
        self.began = self.used = 0.0
        signal.signal(signal.SIGALRM, self._ring)

    def start(self) -> None:
        """A case begins."""
        self.began, self.used = time.monotonic(), time.process_time()
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS / 10, MAX_SECONDS / 10)

    def stop(self) -> None:
        """It is over."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def is_late(self) -> bool:
        """Returns whether the case has taken too long."""
        return is_late(time.process_time() - self.used, time.monotonic() - self.began)

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if self.is_late():
            self.stop()
            raise _TooLong


def is_late(processor_s: float, clock_s: float) -> bool:
    """Returns whether so much is too long for a file."""
    return processor_s > MAX_SECONDS or clock_s > PATIENCE * MAX_SECONDS


def changed_file(reader: Reader, name: str, seed: int, number: int) -> bytes:
    """The file of a case: the same for the same numbers."""
    rnd = random.Random(f"{seed} {name} {number}")
    seeds = reader.seeds()
    data = rnd.choice(seeds)
    if number % 500 == 0:
        return data  # as it is: it must be read
    for _ in range(rnd.choice((1, 1, 1, 2))):
        with contextlib.suppress(Exception):  # a change may meet a file that the last one has torn
            data = reader.change(data, rnd, seeds)
    return data[: 4 << 20]


@contextlib.contextmanager
def _forged_sums() -> Iterator[None]:
    """Within, checksums of records are taken for right."""
    from burn_torch.record import bin_file, burnpack_file, json_file, mpk_file, safetensors_file, safetensors_shards

    modules: list[Any] = [bin_file, burnpack_file, json_file, mpk_file, safetensors_file, safetensors_shards]
    before = [module.require_sealed for module in modules]
    for module in modules:
        module.require_sealed = lambda *_: None
    try:
        yield
    finally:
        for module, function in zip(modules, before, strict=True):
            module.require_sealed = function


class Cases:
    """Reads changed files of one reader in a folder of its own; for a process that does nothing else."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader = reader
        self.folder = folder / "m"
        self.folder.mkdir()
        (folder / "tmp").mkdir()
        tempfile.tempdir = str(folder / "tmp")
        os.environ.update(BURN_TORCH_CACHE=str(folder / "tmp"), BURN_KERNELS_CACHE=str(folder / "tmp"))
        self._beside: Mapping[str, bytes] = reader.beside()
        self._tidy()
        self._clock = _Clock()
        limit = _virtual() + (3 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._watch = Watch(str(folder))
        self._open = _open_files()

    def read(self, data: bytes, number: int) -> tuple[str, str]:
        """Reads one file: how that ended, and for a fault what is wrong."""
        path = self.folder / self.reader.file
        path.write_bytes(data)
        output, watch = io.StringIO(), self._watch
        outcome, fault = READ, ""
        watch.seen.clear()
        start_bytes = _resident()
        if _peak() > start_bytes + (64 << 20):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        start_peak = _peak()
        forged = _forged_sums() if self.reader.sealed and number % 2 else contextlib.nullcontext()
        try:
            with (
                forged,
                warnings.catch_warnings(),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(output),
            ):
                warnings.simplefilter("ignore")
                watch.watching = True
                self._clock.start()
                self.reader.read(path)
        except errors_of_ours() as err:
            outcome = REFUSED
            if "\n  given: " not in str(err):
                fault = f"no three parts: {type(err).__name__} {err}"
        except _TooLong:
            fault = f"more than {MAX_SECONDS} s at {_last_line()}"
        except SystemExit as err:
            fault = f"SystemExit {err}"
        except BaseException as err:
            fault = f"{type(err).__name__} {str(err)[:150]} at {_last_line()}"
        finally:
            self._clock.stop()
            watch.watching = False
        grown = _peak() - start_bytes if _peak() > start_peak else 0
        if grown > MAX_BYTES + len(data):
            fault = fault or f"{grown >> 20} MiB for {len(data)} bytes"
        if watch.seen:
            fault = f"touched {watch.seen[:3]} {fault}"
        if self.reader.shown and not fault and (command := _COMMANDS.search(output.getvalue())):
            at = command.start()
            fault = f"printed {output.getvalue()[max(0, at - 20) : at + 20]!r}"
        if not fault and number % 500 == 0 and outcome != READ:
            fault = "a sound file is refused"
        if not fault and self._clock.is_late():
            fault = f"more than {MAX_SECONDS} s"
        fault = fault or self._left_open()
        self._tidy()
        return (FAULT, fault) if fault else (outcome, "")

    def _left_open(self) -> str:
        if _open_files() <= self._open + MAX_OPEN:
            return ""
        gc.collect()
        count = _open_files() - self._open
        return f"{count} files are left open" if count > MAX_OPEN else ""

    def _tidy(self) -> None:
        """The files beside as they were, and no others."""
        there = set(os.listdir(self.folder))  # noqa: PTH208  # names are all that is needed
        for name in there - self._beside.keys() - {self.reader.file}:
            _remove(self.folder / name)
        for name in self._beside.keys() - there:
            (self.folder / name).write_bytes(self._beside[name])


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink()


def _last_line() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if "burn_torch/" in frame.filename or "burn_kernels/" in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*frames[-1:], *ours[::-1][:2]])


def _statm(column: int) -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[column]) * resource.getpagesize()


def _virtual() -> int:
    return _statm(0)


def _resident() -> int:
    return _statm(1)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # as above
