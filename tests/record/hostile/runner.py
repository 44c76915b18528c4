"""Reads every n-th file of the corpus in this process, watched, and prints a line of JSON for each.

    python -m tests.record.hostile.runner FOLDER EVERY FIRST

Watched are the seconds, the memory beyond what the process has, and through Python's audit events every file that is
opened, every process that is started, every socket and every call of exec: none may go outside the case's folder.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from burn_torch.core.errors import BurnTorchError
from burn_torch.module import ModuleRecord
from burn_torch.record.listing import listing_of
from burn_torch.record.stores import PytorchStore
from tests.record.hostile.corpus import (
    Case,
    content,
    damaged_records,
    hostile_burnpack,
    hostile_recorders,
    hostile_safetensors,
    hostile_shards,
    ours,
)
from tests.record.hostile.pytorch_corpus import CANARY, hostile_pytorch, saved

PATIENCE_S = 30
"""After which a case is stopped; the bar is lower."""
FORBIDDEN = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "socket.connect",
    "pty.spawn",
    "shutil.rmtree",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.chmod",
    "webbrowser.open",
    "ctypes.dlopen",
)
WORDS_OF_CHANGE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Watch:
    """Notes what happens outside a folder; an audit hook stays for the life of a process."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        self.code = tuple(map(os.path.realpath, {sys.prefix, sys.base_prefix, *filter(None, sys.path)}))
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {str(args)[:200]}")
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(args[0]))
            flags = args[2] if isinstance(args[2], int) else 0
            reads_code = not flags & WORDS_OF_CHANGE and path.startswith(self.code)  # an import at first use
            if (
                not path.startswith(os.path.realpath(self.folder))
                and not reads_code
                and not path.startswith("/proc/self")
            ):
                self.seen.append(f"open {path} {flags:x}")


def cases() -> Iterator[Case]:
    """The whole corpus, the same in every run."""
    rnd = random.Random(7)
    yield from damaged_records(rnd)
    yield from hostile_safetensors()
    yield from hostile_shards()
    yield from hostile_burnpack()
    yield from hostile_recorders()
    yield from hostile_pytorch(rnd)
    try:
        from tests.record.hostile.onnx_corpus import hostile_onnx
    except ImportError:  # without the package there is nothing to read
        return
    yield from hostile_onnx(rnd)


def read_record(path: Path) -> None:
    for entry in ModuleRecord.load(path).entries.values():
        entry.read()


def read_pytorch(path: Path) -> None:
    for entry in PytorchStore.from_file(path).get_all_snapshots().values():
        entry.read()


def read_onnx(path: Path) -> None:
    from burn_torch.onnx import load

    load(path)


def list_onnx(path: Path) -> None:
    from burn_torch.cli.onnx_file import listing_of_onnx

    listing_of_onnx(path)


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "record": (read_record, listing_of),
    "pytorch": (read_pytorch, listing_of),
    "onnx": (read_onnx, list_onnx),
}


def memory(word: str) -> int:
    """VmHWM or VmRSS in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(word)) // 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


class Slow(BaseException):
    """A case that took longer than anybody waits."""


def stop(_: int, __: Any) -> None:
    raise Slow


def attempt(read: Callable[[Path], Any], path: Path) -> tuple[str, str]:
    """How reading ended, and what was said."""
    signal.alarm(PATIENCE_S)
    try:
        read(path)
        return "result", ""
    except BurnTorchError as err:
        return "refused", "\n".join([str(err), *getattr(err, "__notes__", [])])
    except Slow:
        return "slow", ""
    except BaseException as err:  # whatever else a file can cause is what is looked for
        return "other", f"{type(err).__name__}: {err}"
    finally:
        signal.alarm(0)


def run(case: Case, folder: Path, watch: Watch) -> dict[str, Any]:
    place = folder / "case"
    place.mkdir()
    os.chdir(place)
    path = place / case.file
    path = case.make(path) or path
    tempfile.tempdir = str(place)
    before = memory("VmRSS")
    forget_peak()
    loader, lister = READERS[case.reader]
    watch.folder, watch.seen = place, []
    begin = time.process_time()  # of all threads: other processes of a busy machine do not count
    how, said = attempt(loader, path)
    middle = time.process_time()
    listed, listing_error = attempt(lister, path)
    end = time.process_time()
    watch.folder = None
    report = {
        "name": case.name,
        "reader": case.reader,
        "must": case.refused,
        "how": how,
        "said": said[:600],
        "named": str(place) in said or path.name in said,
        "listed": listed,
        "told": listing_error[:300] if listed == "other" else "",
        "seconds": max(middle - begin, end - middle),
        "mib": max(0, memory("VmHWM") - before),
        "outside": watch.seen,
        "ran": (place / CANARY).exists(),
    }
    os.chdir(folder)
    shutil.rmtree(place)
    return report


def main() -> None:
    """Warms every reader up with a sound file, then goes through the corpus."""
    folder, every, first = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))  # for the machine's sake; the bar is lower
    watch = Watch()
    sound = [Case(f"sound {ending}", "record", f"m{ending}", content(ours(ending))) for ending in (".bpk", ".mpk.gz")]
    sound.append(Case("sound .pt", "pytorch", "m.pt", content(saved({"a": 1}))))
    listed = list(itertools.islice(cases(), first, None, every))
    if any(case.reader == "onnx" for case in listed):
        from tests.record.hostile.onnx_corpus import sound as sound_onnx

        sound.append(Case("sound .onnx", "onnx", "m.onnx", content(sound_onnx())))
    for case in sound:
        report = run(case, folder, watch)
        assert report["how"] == report["listed"] == "result", report
    for case in listed:
        print(json.dumps(run(case, folder, watch)), flush=True)


if __name__ == "__main__":
    main()
