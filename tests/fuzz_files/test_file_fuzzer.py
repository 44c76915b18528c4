"""The fuzzer of files: what it does not find here, and what it finds where a fault is planted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz_files import runner
from tests.fuzz_files.readers import READERS, Reader

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(os, "fork"), reason="memory is measured with Linux's /proc"
)


def fuzz(name: str, seed: int, count: int) -> list[tuple[int, str]]:
    """The faults of a reader, run as `make fuzz-files` runs it."""
    read, faults = runner.fuzz_reader(name, seed, count, 60)
    assert read == count or faults
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

    monkeypatch.setattr(runner, "MAX_SECONDS", 0.2)
    assert all("more than 0.2 s" in fault for _, fault in planted(monkeypatch, hangs))


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
