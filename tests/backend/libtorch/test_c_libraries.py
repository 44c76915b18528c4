"""Libraries of C kernels on the disk: what is damaged, exchanged or in nobody's folder is built again, never loaded."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burn_torch.backend.libtorch import source_file
from burn_torch.backend.libtorch.generated import c_libraries
from burn_torch.backend.libtorch.generated.c_libraries import CompilerError, build_apart, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")

SOURCES = {
    "twice": "double twice(double x) { return 2 * x; }\n",
    "thrice": "double thrice(double x) { return 3 * x; }\n",
}


def built(name: str) -> Path:
    return build_apart(name, SOURCES[name]).result()


def computed(library: Path, name: str) -> float:
    function = getattr(ctypes.CDLL(str(library)), name)
    function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    return float(function(3.5))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both libraries, built in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURN_TORCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return {name: built(name) for name in SOURCES}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "cache"


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "empty": lambda one, other: b"",
    "first page alone": lambda one, other: one[:4096],
    "last byte is gone": lambda one, other: one[:-1],
    "without its digest": lambda one, other: one[:-16],
    "one bit of the code": lambda one, other: one[:0x1100] + bytes([one[0x1100] ^ 4]) + one[0x1101:],
    "one bit of the digest": lambda one, other: one[:-1] + bytes([one[-1] ^ 128]),
    "zeros from a sector on": lambda one, other: one[:8192] + bytes(len(one) - 8192),
    "another library": lambda one, other: other,
    "another library's digest": lambda one, other: one[:-16] + other[-16:],
    "no library": lambda one, other: b"#!/bin/sh\nexit 1\n",
    "twice over": lambda one, other: one + one,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_library_is_built_again(
    kind: str, sound: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (sound[name].read_bytes() for name in ("twice", "thrice"))
    compiled: list[Path] = []

    def copied(path: str, source: Path, library: Path) -> None:
        """In the place of the compiler, which would write the same bytes."""
        compiled.append(source)
        library.write_bytes(one[:-16])

    monkeypatch.setattr(c_libraries, "_compile", copied)
    library = cache / "kernels" / sound["twice"].name
    library.parent.mkdir(parents=True)
    library.write_bytes(DAMAGE[kind](one, other))
    assert built("twice") == library
    assert len(compiled) == 1
    assert library.read_bytes() == one
    assert computed(built("twice"), "twice") == 7.0
    assert len(compiled) == 1  # a sound one is not built again


def test_a_library_that_is_whole_is_loaded_as_it_is(sound: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURN_TORCH_CACHE", str(sound["twice"].parents[1]))
    monkeypatch.setattr(c_libraries, "_compile", None)
    assert [computed(built(name), name) for name in SOURCES] == [7.0, 10.5]


def test_a_folder_in_the_place_of_a_library_is_reported_and_the_next_place_taken(
    sound: dict[str, Path], cache: Path
) -> None:
    (cache / "kernels" / sound["twice"].name).mkdir(parents=True)
    library = built("twice")
    assert library.parent.name == f"burn_torch_kernels_{os.getuid()}"
    assert computed(library, "twice") == 7.0


def test_a_full_disk_leaves_no_library_and_the_next_place_is_taken(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def full(self: Path, target: Path) -> Any:
        if cache in Path(target).parents and target.suffix == ".so":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", full)
    library = built("twice")
    assert cache not in library.parents
    assert computed(library, "twice") == 7.0
    assert not list(cache.rglob("*.so"))
    assert not list(cache.rglob("tmp*"))


def test_without_any_place_the_fault_names_what_was_tried(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        OSError, match=r"No space left on device.*kernels.*No space left on device.*burn_torch_kernels_"
    ):
        built("twice")


def test_a_folder_for_temporary_files_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the cache should be")
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"burn_torch_kernels_{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(OSError, match="can be written by others; BURN_TORCH_CACHE names another folder"):
        built("twice")
    planted.rmdir()
    (tmp_path / "elsewhere").mkdir()
    planted.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="can be written by others"):
        list(source_file.kernel_folders())


def test_a_compiler_that_fails_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, "", "no space left"))
    with pytest.raises(CompilerError, match=r"refused twice\.c: no space left"):
        built("twice")
    assert not list(cache.rglob("*.so"))
    assert not list(cache.rglob("tmp*"))
