"""Reads changed files without end, watched, and tells which of them a reader does not survive.

    python -m tests.fuzz_files.runner [N=20000] [SECONDS=60] [PROCESSES=2] [READERS=png+onnx] [SEED=3] [CASE=17] [OUT=.]

`make fuzz-files N=...` does so.

N files for each reader (2,000, or without end where SECONDS is given), all readers going on at the same pace.  The
files of a slice are read by one process, forked from this one, and as many run side by side as PROCESSES says.
Every file must end in a result or in one of the library's errors, within 10 seconds and 512 MiB beyond the file,
starting no process, connecting to nothing and touching no file outside its folder, and printing nothing that a terminal
would take for a command.  A slice that a file kills goes on behind that file.  Exit status 1 where there was a fault;
each is printed with the words that make its file again, and the file itself is kept in OUT, or in
burn-torch-fuzz-files in the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import itertools
import math
import mmap
import os
import selectors
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fuzz_files import case
from tests.fuzz_files.case import FAULT, READ, Cases, changed_file
from tests.fuzz_files.readers import READERS

MAX_FAULTS: Final = 10
"""The number of faults of a reader after which the fuzzer leaves it."""
SLICE: Final = 400
"""Files of one process: a fork takes some 20 ms, and the slowest reader 5 s for so many."""
_GRACE_S: Final = 5.0
"""How much later than the alarm clock, which Python hears between two of its steps, this process ends a case."""
_PROGRESS: Final = struct.Struct("<qqqdd")
"""Number of the file, files read and refused before it, clock and processor time when it began.

No file has begun at an infinite time: a process that is still on its way to the first one is not late.
"""


@dataclass
class Tally:
    """Holds what became of the files of one reader."""

    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    """Processor time of all its processes."""
    faults: list[tuple[int, str]] = field(default_factory=list)

    @property
    def files(self) -> int:
        """How many there were."""
        return self.read + self.refused + len(self.faults)


@dataclass
class _Slice:
    """A process that reads the files of some numbers."""

    name: str
    numbers: range
    child: int
    text: bytes = b""
    where: str = ""
    """Says where it was when it had taken too long."""


class Fuzzer:
    """Runs slices side by side, and keeps what they find."""

    def __init__(self, names: Iterable[str], seed: int, count: float, seconds: float, processes: int) -> None:
        self.tallies = {name: Tally() for name in names}
        self.seed, self.count, self.processes = seed, count, processes
        self.until = time.monotonic() + seconds
        self._again: deque[tuple[str, range]] = deque()
        self._running: dict[int, _Slice] = {}
        self._pipes = selectors.DefaultSelector()
        self._shared = mmap.mmap(-1, _PROGRESS.size * processes)
        memory = Path("/dev/shm")  # a file on a disk takes 5 ms to be cut off
        roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > (processes << 26)
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if roomy else None))

    def run(self) -> Iterator[tuple[str, int, str]]:
        """Gives each fault when it is found: the reader, the number of its file, and what was wrong."""
        rounds = self._rounds()
        places = list(range(self.processes))
        try:
            while True:
                while places and (piece := self._piece(rounds)) is not None:
                    self._start(places.pop(), *piece)
                if not self._running:
                    return
                for key, _ in self._pipes.select(timeout=0.5):
                    place: int = key.data
                    text = os.read(key.fd, 1 << 16)
                    running = self._running[place]
                    *lines, running.text = (running.text + text).split(b"\n")
                    for line in lines:
                        number, _, what = line.decode(errors="replace").partition(" ")
                        yield from self._fault(running.name, int(number), what)
                    if not text:
                        self._pipes.unregister(key.fd)
                        os.close(key.fd)
                        yield from self._end(place)
                        places.append(place)
                self._watch_clock()
        finally:
            self._close()

    def _rounds(self) -> Iterator[tuple[str, range]]:
        """Round after round of all readers, so that none is left for the end."""
        starts = itertools.count(0, SLICE) if math.isinf(self.count) else range(0, int(self.count), SLICE)
        most = sys.maxsize if math.isinf(self.count) else int(self.count)
        return ((name, range(start, min(start + SLICE, most))) for start in starts for name in self.tallies)

    def _piece(self, rounds: Iterator[tuple[str, range]]) -> tuple[str, range] | None:
        """Returns what is read next: what a death interrupted, then the next of the rounds; None where there is
        nothing now.
        """
        while time.monotonic() < self.until:
            piece = self._again.popleft() if self._again else next(rounds, None)
            if piece is None or (len(piece[1]) and len(self.tallies[piece[0]].faults) < MAX_FAULTS):
                return piece
        return None

    def _start(self, place: int, name: str, numbers: range) -> None:
        READERS[name].seeds()  # made once, and inherited
        READERS[name].beside()
        source, pipe = os.pipe()
        _PROGRESS.pack_into(self._shared, place * _PROGRESS.size, numbers.start - 1, 0, 0, math.inf, math.inf)
        child = os.fork()
        if child == 0:
            os.close(source)
            self._read_slice(place, name, numbers, pipe)
        os.close(pipe)
        self._pipes.register(source, selectors.EVENT_READ, place)
        self._running[place] = _Slice(name, numbers, child)

    def _read_slice(self, place: int, name: str, numbers: range, pipe: int) -> None:
        """In the child: reads its files, writes its progress where the parent sees it, and ends."""
        status, reader = 1, READERS[name]

        def note(number: int, read: int, refused: int) -> None:
            began = time.monotonic(), time.process_time()
            _PROGRESS.pack_into(self._shared, place * _PROGRESS.size, number, read, refused, *began)

        try:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            faulthandler.register(signal.SIGUSR1, self._trace(place).open("w"), all_threads=False)
            cases, read, refused = Cases(reader, folder), 0, 0
            for number in numbers:
                if time.monotonic() > self.until:
                    break
                data = changed_file(reader, name, self.seed, number)
                note(number, read, refused)
                outcome, fault = cases.read(data, number)
                if outcome == FAULT:
                    os.write(pipe, f"{number} {' '.join(fault.split())!r}\n".encode(errors="replace"))
                else:
                    read, refused = read + (outcome == READ), refused + (outcome != READ)
            note(-1, read, refused)
            shutil.rmtree(folder, ignore_errors=True)
            status = 0
        except BaseException as error:  # of the fuzzer itself
            os.write(pipe, f"-1 {f'the fuzzer: {error!r}'!r}\n".encode(errors="replace"))
        finally:
            os._exit(status)

    def _end(self, place: int) -> Iterator[tuple[str, int, str]]:
        """Takes in a process that is over; a fault where a file ended it."""
        ended = self._running.pop(place)
        number, read, refused, *_ = _PROGRESS.unpack_from(self._shared, place * _PROGRESS.size)
        _, status, usage = os.wait4(ended.child, 0)
        tally = self.tallies[ended.name]
        tally.read, tally.refused = tally.read + read, tally.refused + refused
        tally.seconds += usage.ru_utime + usage.ru_stime
        if status == 0 or time.monotonic() > self.until + case.MAX_SECONDS or len(tally.faults) >= MAX_FAULTS:
            return
        if number in ended.numbers:
            how = f"the process died: status {status}"
            if ended.where:
                how = f"more than {case.MAX_SECONDS} s in a library, at {ended.where}"
            yield from self._fault(ended.name, number, how)
            self._again.append((ended.name, range(number + 1, ended.numbers.stop)))

    def _fault(self, name: str, number: int, what: str) -> Iterator[tuple[str, int, str]]:
        tally = self.tallies[name]
        if len(tally.faults) < MAX_FAULTS:
            tally.faults.append((number, what))
            yield name, number, what
            if len(tally.faults) == MAX_FAULTS:
                for running in self._running.values():
                    if running.name == name:
                        os.kill(running.child, signal.SIGKILL)

    def _watch_clock(self) -> None:
        now = time.monotonic()
        for place, running in self._running.items():
            *_, began, used = _PROGRESS.unpack_from(self._shared, place * _PROGRESS.size)
            late = case.is_late(_processor_s(running.child) - used - _GRACE_S, now - began - _GRACE_S)
            if late:
                running.where = self._where(place, running.child)
            if late or now > self.until + case.MAX_SECONDS:
                os.kill(running.child, signal.SIGKILL)

    def _where(self, place: int, child: int) -> str:
        os.kill(child, signal.SIGUSR1)  # its fault handler answers, also where Python does not
        time.sleep(0.3)
        lines = self._trace(place).read_text(errors="replace").splitlines()
        frames = [line.strip().replace('File "', "").replace('", line ', ":") for line in lines if "File" in line]
        return " < ".join(frame.rpartition("/")[2] for frame in frames[:5]) or "a place that says nothing"

    def _trace(self, place: int) -> Path:
        return self._folder / f"trace-{place}"

    def _close(self) -> None:
        for running in self._running.values():
            os.kill(running.child, signal.SIGKILL)
            os.waitpid(running.child, 0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_up(names: Iterable[str]) -> None:
    """Reads a sound file with each reader, so that no process begins with importing."""
    for name in names:
        reader = READERS[name]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            for other, content in {**reader.beside(), reader.file: reader.seeds()[0]}.items():
                (Path(folder) / other).write_bytes(content)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                reader.read(Path(folder) / reader.file)
    gc.collect()
    gc.freeze()  # what is there now is not looked through again in each process


def write_case(name: str, seed: int, number: int, folder: Path) -> Path:
    """Writes the file of a case, with the reader and the numbers in its name."""
    reader = READERS[name]
    path = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}-{number}-{reader.file}"
    path.write_bytes(changed_file(reader, name, seed, number))
    return path


def print_table(tallies: Mapping[str, Tally]) -> None:
    """A line a reader."""
    print(f"{'reader':22s} {'files':>9s} {'read':>9s} {'refused':>9s} {'faults':>7s} {'a second of a core':>19s}")
    for name, tally in tallies.items():
        pace = tally.files / max(tally.seconds, 1e-9)
        print(f"{name:22s} {tally.files:9,d} {tally.read:9,d} {tally.refused:9,d} {len(tally.faults):7d} {pace:19,.0f}")
    files = sum(tally.files for tally in tallies.values())
    faults = sum(len(tally.faults) for tally in tallies.values())
    least = min(tally.files for tally in tallies.values())
    print(f"{files:,} files, at least {least:,} of a reader, {faults} faults")


def main() -> int:
    """Prints each fault, and a line a reader."""
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    unknown = words.keys() - {"N", "SECONDS", "PROCESSES", "READERS", "SEED", "CASE", "OUT"}
    names = [name for name in READERS if name in words["READERS"].split("+")] if "READERS" in words else list(READERS)
    if unknown or not names:
        print(f"unknown: {sorted(unknown)}; readers, joined by +: {'+'.join(READERS)}", file=sys.stderr)
        return 2
    start = time.monotonic()
    seed = int(words.get("SEED", time.time_ns() % 10**9))
    if "CASE" in words:
        path = write_case(names[0], seed, int(words["CASE"]), Path(words.get("OUT", ".")))
        print(f"wrote {path}: {path.stat().st_size} bytes")
        return 0
    seconds = float(words.get("SECONDS", "inf"))
    count = float(words.get("N", 2000 if math.isinf(seconds) else "inf"))
    folder = Path(words.get("OUT", Path(tempfile.gettempdir()) / "burn-torch-fuzz-files"))
    processes = int(words.get("PROCESSES", os.cpu_count() or 1))
    print(f"seed {seed}, {len(names)} readers, {processes} processes", flush=True)
    warm_up(names)
    fuzzer = Fuzzer(names, seed, count, seconds - (time.monotonic() - start), processes)
    for name, number, what in fuzzer.run():
        print(f"    SEED={seed} READERS='{name}' CASE={number}: {what}", flush=True)
        if number >= 0:
            folder.mkdir(parents=True, exist_ok=True)
            print(f"    {write_case(name, seed, number, folder)}", flush=True)
    print_table(fuzzer.tallies)
    return 1 if any(tally.faults for tally in fuzzer.tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
