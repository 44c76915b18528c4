"""Reads changed files without end, watched, and tells which of them a reader does not survive.

    python -m tests.fuzz_files.runner [N=20000] [SECONDS=60] [READERS=png+onnx] [SEED=3] [CASE=17]

`make fuzz-files N=...` does so.

N files for each reader, in a process of its own that is forked from this one.  Every file must end in a result or in
one of the library's errors, within 10 seconds and 512 MiB beyond the file, starting no process, opening no socket,
touching no file outside its folder, and printing nothing that a terminal would take for a command.  A reader that
kills its process is started again behind that file.  Exit status 1 where there was a fault; each is printed with the
words that make its file again.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz_files.readers import READERS, Reader, _ours

MAX_SECONDS: Final = 10
MAX_BYTES: Final = 512 << 20
MAX_FAULTS: Final = 10
"""Of a reader, after which it is left."""
FORBIDDEN: Final = frozenset(
    ["os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
     "socket.connect", "socket.bind", "pty.spawn", "webbrowser.open", "shutil.rmtree", "os.kill"]
)  # fmt: skip
_CHANGING: Final = frozenset(
    ["os.chmod", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"]
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


class _Watch:
    """What a case opened and started, by Python's audit events."""

    def __init__(self, folder: str) -> None:
        self.places = (folder, "/dev/null", tempfile.gettempdir())
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {args[:2]!r:.120}")
        elif event in _CHANGING or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES):
            path = "" if isinstance(args[0], int) else os.fsdecode(args[0])
            if path and not path.startswith(self.places):
                self.seen.append(f"{event} {path:.120}")


class _TooLong(BaseException):
    """The alarm clock."""


def _ring(signum: int, frame: FrameType | None) -> None:
    raise _TooLong


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


def read_case(reader: Reader, name: str, data: bytes, number: int, folder: Path, watch: _Watch) -> str:
    """Reads one file; what is wrong with how that ended, or nothing."""
    from burn_torch.record import bin_file, burnpack_file, json_file, mpk_file, safetensors_file, safetensors_shards

    path = folder / reader.file
    path.write_bytes(data)
    sealed = [bin_file, burnpack_file, json_file, mpk_file, safetensors_file, safetensors_shards]
    before = [module.require_sealed for module in sealed]
    if reader.sealed and number % 2:
        for module in sealed:
            module.require_sealed = lambda *_: None  # type: ignore[assignment]
    output = io.StringIO()
    fault = ""
    watch.seen.clear()
    start_bytes = _resident()
    if _peak() > start_bytes + (64 << 20):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    start_peak, start = _peak(), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            warnings.simplefilter("ignore")
            watch.watching = True
            reader.read(path)
    except _ours() as err:
        if "\n  given: " not in str(err):
            fault = f"no three parts: {type(err).__name__} {err}"
    except _TooLong:
        fault = f"more than {MAX_SECONDS} s at {_last_line()}"
    except SystemExit as err:
        fault = f"SystemExit {err}"
    except BaseException as err:
        fault = f"{type(err).__name__} {str(err)[:150]} at {_last_line()}"
    finally:
        watch.watching = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for module, function in zip(sealed, before, strict=True):
            module.require_sealed = function  # type: ignore[assignment]
    grown = _peak() - start_bytes if _peak() > start_peak else 0
    if grown > MAX_BYTES + len(data):
        fault = fault or f"{grown >> 20} MiB for {len(data)} bytes"
    if watch.seen:
        fault = f"touched {watch.seen[:3]} {fault}"
    if reader.shown and not fault and (command := _COMMANDS.search(output.getvalue())):
        at = command.start()
        fault = f"printed {output.getvalue()[max(0, at - 20) : at + 20]!r}"
    return fault or (
        f"the sound file took {time.monotonic() - start:.1f} s" if time.monotonic() - start > MAX_SECONDS else ""
    )


def _last_line() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if "burn_torch/" in frame.filename or "burn_kernels/" in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*frames[-1:], *ours[::-1][:2]])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _child(name: str, seed: int, numbers: range, until: float, pipe: int) -> None:
    """Reads files in a forked process: tells its parent each number before, and each fault."""
    reader = READERS[name]
    signal.signal(signal.SIGALRM, _ring)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a file on a disk takes 5 ms to be cut off
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory))
    limit = _resident_limit()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    watch = _Watch(str(folder))
    tell = os.fdopen(pipe, "w", buffering=1)
    try:
        inner = folder / "m"
        inner.mkdir()
        for other, content in reader.beside().items():
            (inner / other).write_bytes(content)
        for number in numbers:
            if time.monotonic() > until:
                break
            data = changed_file(reader, name, seed, number)
            tell.write(f"at {number}\n")
            fault = read_case(reader, name, data, number, inner, watch)
            if fault:
                tell.write(f"fault {number} {fault!r}\n")
        tell.write("done\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        tell.flush()
        os._exit(0)


def _resident_limit() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize() + (3 << 30)


def fuzz_reader(name: str, seed: int, count: int, seconds: float) -> tuple[int, list[tuple[int, str]]]:
    """How many files one reader read, and its faults."""
    READERS[name].seeds()  # made once, and inherited
    READERS[name].beside()
    faults: list[tuple[int, str]] = []
    next_number, read, until = 0, 0, time.monotonic() + seconds
    while next_number < count and len(faults) < MAX_FAULTS and time.monotonic() < until:
        source, pipe = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(source)
            _child(name, seed, range(next_number, count), until, pipe)
        os.close(pipe)
        done = False
        with os.fdopen(source) as lines:
            for line in lines:
                word, _, rest = line.partition(" ")
                if word == "at":
                    next_number, read = int(rest) + 1, read + 1
                elif word == "fault":
                    number, _, what = rest.partition(" ")
                    faults.append((int(number), what.strip()))
                    if len(faults) >= MAX_FAULTS:
                        os.kill(child, signal.SIGKILL)
                        break
                else:
                    done = True
        _, status = os.waitpid(child, 0)
        if not done and len(faults) < MAX_FAULTS:
            faults.append((next_number - 1, f"the process died: status {status}"))
            if read == 0:
                break
    return read, faults


def fuzz(
    names: list[str], seed: int, count: int, seconds: float
) -> Iterator[tuple[str, int, float, list[tuple[int, str]]]]:
    """Each reader in turn, with an equal share of the seconds."""
    for name in names:
        start = time.monotonic()
        read, faults = fuzz_reader(name, seed, count, seconds / len(names))
        yield name, read, time.monotonic() - start, faults


def main() -> int:
    """Prints a line a reader, and each fault."""
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    unknown = given.keys() - {"N", "SECONDS", "READERS", "SEED", "CASE", "OUT"}
    names = [
        name.strip()
        for name in given.get("READERS", ",".join(READERS)).split(";" if ";" in given.get("READERS", "") else ",")
    ]
    names = (
        list(READERS) if "READERS" not in given else [name for name in READERS if name in given["READERS"].split("+")]
    )
    if unknown or not names:
        print(f"unknown: {sorted(unknown)}; readers, joined by +: {'+'.join(READERS)}", file=sys.stderr)
        return 2
    seed = int(given.get("SEED", time.time_ns() % 10**9))
    if "CASE" in given:
        data = changed_file(READERS[names[0]], names[0], seed, int(given["CASE"]))
        folder = Path(given.get("OUT", "."))
        (folder / READERS[names[0]].file).write_bytes(data)
        print(f"wrote {folder / READERS[names[0]].file}: {len(data)} bytes")
        return 0
    print(f"seed {seed}", flush=True)
    seconds = float(given.get("SECONDS", "inf"))
    total, kinds = 0, Counter[str]()
    for name, read, taken, faults in fuzz(names, seed, int(given.get("N", 2000)), seconds):
        total += read
        print(f"{name:20s} {read:8d} files {read / max(taken, 1e-9):7.0f} a second   {len(faults)} faults", flush=True)
        for number, what in faults:
            kinds[what] += 1
            print(f"    SEED={seed} READERS={name!r} CASE={number}: {what}", flush=True)
    print(f"{total} files, {sum(kinds.values())} faults")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
