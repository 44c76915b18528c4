"""The fuzzer of files: what it does not find here, and what it finds where a fault is planted."""

from __future__ import annotations

import faulthandler
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burn_torch.core.errors import DataError, explain
from tests.fuzz_files import case, runner
from tests.fuzz_files.reader import Reader
from tests.fuzz_files.readers import READERS

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(os, "fork"), reason="memory is measured with Linux's /proc"
)


def fuzz(name: str, seed: int, count: int) -> list[tuple[int, str]]:
    """The faults of a reader, run as `make fuzz-files` runs it."""
    fuzzer = runner.Fuzzer([name], seed, count, 600, 1)  # seconds, of which a busy machine takes most
    faults = [(number, what) for _, number, what in fuzzer.run()]
    assert faults == fuzzer.tallies[name].faults
    assert fuzzer.tallies[name].files == count
    return faults


@pytest.mark.parametrize("name", ["png", "pt", "events", "graph"])
def test_damaged_files_end_in_an_error_of_the_library(name: str) -> None:
    if name == "png":
        pytest.importorskip("PIL")
    assert fuzz(name, 11, 25) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_end_in_an_error_of_the_library(name: str) -> None:
    assert fuzz(name, 12, 500) == []


def planted(monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], **options: Any) -> list[tuple[int, str]]:
    """The faults of a reader of its own."""
    monkeypatch.setitem(READERS, "planted", Reader("m.bin", lambda: [b"seed"], read, **options))
    return fuzz("planted", 1, 3)


def raises(path: Path) -> None:
    raise KeyError(path.name)


def starts(path: Path) -> None:
    import subprocess

    subprocess.run(["true"], check=True)


def grows(path: Path) -> None:
    bytearray(700 << 20)[::4096] = bytes(700 << 8)


def dies(path: Path) -> None:
    faulthandler.disable()  # pytest's would print where
    os.abort()


def prints(path: Path) -> None:
    print("a\x1b[2J")


@pytest.mark.parametrize(
    ("read", "what", "options"),
    [
        (raises, "KeyError", {}),
        (starts, r"subprocess\.Popen", {}),
        (grows, "MiB for", {}),
        (dies, "the process died", {}),
        (prints, "printed", {"shown": True}),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], what: str, options: dict[str, Any]
) -> None:
    faults = planted(monkeypatch, read, **options)
    assert len(faults) == 3
    assert all(what.replace("\\", "") in fault for _, fault in faults)


def test_a_hang_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(path: Path) -> None:
        while True:
            pass

    monkeypatch.setattr(case, "MAX_SECONDS", 0.2)
    assert all("more than 0.2 s" in fault for _, fault in planted(monkeypatch, hangs))


def test_a_hang_within_a_library_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(path: Path) -> None:
        sum(range(1 << 50))  # Python hears no signal before it is over

    monkeypatch.setattr(case, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(runner, "_GRACE_S", 0.2)
    faults = planted(monkeypatch, hangs)  # where the machine is busy the clock strikes before the library is entered
    assert all("more than 0.2 s" in fault for _, fault in faults)
    assert any("in a library" in fault for _, fault in faults)


def test_a_process_that_has_not_begun_a_file_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on a busy machine takes seconds to begin: it was ended, and the files of its slice were not read."""
    monkeypatch.setitem(READERS, "planted", Reader("m.bin", lambda: [b"seed"], lambda path: None))
    monkeypatch.setattr(runner.Fuzzer, "_read_slice", lambda *_: time.sleep(60))
    fuzzer = runner.Fuzzer(["planted"], 1, 3, math.inf, 1)
    try:
        fuzzer._start(0, "planted", range(3))
        monkeypatch.setattr(case, "MAX_SECONDS", -1000)  # whatever has begun is late
        fuzzer._watch_clock()
        assert not fuzzer._running[0].where
    finally:
        fuzzer._close()


def test_foreign_files_are_not_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"key")
    assert all(
        "touched" in fault and "open " in fault for _, fault in planted(monkeypatch, lambda path: secret.read_bytes())
    )
    assert all(
        "touched" in fault and "open " in fault
        for _, fault in planted(monkeypatch, lambda path: secret.write_bytes(b""))
    )


def test_files_that_stay_open_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def leaks(path: Path) -> None:
        kept.extend(path.open("rb") for _ in range(40))

    assert all("files are left open" in fault for _, fault in planted(monkeypatch, leaks))


def test_a_sound_file_that_is_refused_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path) -> None:
        raise DataError(explain("no", given="a", expected="b", mend="c"))

    assert [what for _, what in planted(monkeypatch, refuses)] == ["'a sound file is refused'"]


def test_all_readers_go_on_at_one_pace_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice that a file kills goes on behind that file, and the table has every file."""
    monkeypatch.setattr(runner, "SLICE", 10)
    for name, read in (("first", lambda path: None), ("second", dies_now_and_then)):
        monkeypatch.setitem(READERS, name, Reader("m.bin", lambda: [b"a", b"b"], read, lambda data, rnd, others: data))
    fuzzer = runner.Fuzzer(["first", "second"], 4, 30, 60, 2)
    deaths = [number for name, number, what in fuzzer.run() if name == "second" and "died" in what]
    assert 0 < len(deaths) <= runner.MAX_FAULTS
    assert fuzzer.tallies["first"].read == fuzzer.tallies["first"].files == 30
    second = fuzzer.tallies["second"]
    assert second.files == 30 or len(deaths) == runner.MAX_FAULTS


def dies_now_and_then(path: Path) -> None:
    if path.read_bytes() == b"b":
        dies(path)


def test_the_picture_that_starts_a_program_is_found_where_all_readers_of_pillow_may_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = pytest.importorskip("PIL.Image")

    def read(path: Path) -> None:
        with image.open(path) as picture:
            picture.load()

    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    monkeypatch.setitem(READERS, "planted", Reader("m.png", lambda: [postscript], read, lambda data, rnd, others: data))
    assert any("Popen" in fault for _, fault in fuzz("planted", 1, 2))  # Pillow asks for it once


def test_a_zip_file_with_two_directories_is_found_where_the_library_of_python_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check of before: sizes by zipfile, values by torch; a tensor may not show bytes that are not its own."""
    import zipfile

    import torch

    from burn_torch.core.errors import RecordError
    from burn_torch.record.stores import PytorchStore
    from tests.record.hostile.pytorch_corpus import rebuilt, zipped
    from tests.record.test_zip_directory import two_directories

    def body(count: int) -> bytes:
        return zipped(rebuilt("torch", "FloatStorage", count, (count,), (1,)), {"data/0": bytes(12)})

    hostile = two_directories(body(3), body(200))

    def believing(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo("m/data/0").file_size
            assert b"\xc8" not in archive.read("m/data.pkl")
        assert torch.load(path, weights_only=True, mmap=True)["a"].nbytes <= size

    def ours(path: Path) -> None:
        with pytest.raises(RecordError):
            PytorchStore.from_file(path).read()

    keep = lambda data, rnd, others: data  # noqa: E731  # the file is hostile as it is
    monkeypatch.setitem(READERS, "planted", Reader("m.pt", lambda: [hostile], believing, keep))
    assert any("AssertionError" in fault for _, fault in fuzz("planted", 1, 1))
    monkeypatch.setitem(READERS, "planted", Reader("m.pt", lambda: [hostile], ours, keep))
    assert fuzz("planted", 1, 1) == []


def test_a_case_is_the_same_file_again() -> None:
    for name in ("pt", "config json", "safetensors"):
        first, second = (runner.changed_file(READERS[name], name, 5, 7) for _ in range(2))
        assert first == second
