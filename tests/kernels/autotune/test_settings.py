"""Settings in `burn.toml`: found from the folder upwards, below the environment, refused in three parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from burn_kernels import KernelArgumentError
from burn_kernels.autotune import level, selection
from burn_kernels.autotune.settings import setting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, from a folder of which the process runs."""
    inner = tmp_path / "project" / "deep" / "down"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return tmp_path / "project"


def test_the_nearest_file_above_names_the_first_level(folder: Path) -> None:
    (folder / "burn.toml").write_text('[autotune]\nlevel = "full"\n\n[fusion]\nothers = 1\n')
    assert level() == "full"


def test_a_nearer_file_stands_for_those_above(folder: Path) -> None:
    (folder / "burn.toml").write_text('[autotune]\nlevel = "full"\n')
    (folder / "deep" / "burn.toml").write_text("")
    assert level() == "cached"


def test_a_variable_stands_above_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "burn.toml").write_text('[autotune]\nlevel = "full"\nlock = "a.lock"\n')
    monkeypatch.setenv("BURN_KERNELS_AUTOTUNE", "off")
    monkeypatch.setenv("BURN_KERNELS_LOCK", "other.lock")
    assert level() == "off"
    assert setting("lock") == ("other.lock", "BURN_KERNELS_LOCK=")


def test_a_lockfile_is_named_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "burn.toml").write_text('[autotune]\nlock = "kernels.lock"\nlock_mode = "append"\n')
    monkeypatch.setattr(selection, "_selector", None)
    lockfile = selection.current().lockfile
    assert lockfile is not None
    assert (lockfile.path, lockfile.mode) == (folder / "kernels.lock", "append")


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (b'[autotune]\nlevels = "on"\n', r"\[autotune\] levels = 'on'"),
        (b"[autotune]\nlevel = 3\n", r"\[autotune\] level = 3"),
        (b"autotune = 1\n", "autotune = 1"),
        (b"[autotune\n", "Expected"),
        (b"\xff\xfe", "'utf-8' codec"),
        (b"# " + b"x" * 70_000, "more than 65536 bytes"),
    ],
)
def test_a_wrong_file_is_refused_in_three_parts(folder: Path, text: bytes, given: str) -> None:
    (folder / "burn.toml").write_bytes(text)
    parts = rf"(?s)burn\.toml has no.*given:    {given}.*level, lock.*mend: .*BURN"
    with pytest.raises(KernelArgumentError, match=parts):
        level()


def test_a_wrong_level_names_the_file(folder: Path) -> None:
    (folder / "burn.toml").write_text('[autotune]\nlevel = "fast"\n')
    with pytest.raises(KernelArgumentError, match=r"no such level\n  given:    burn\.toml: level = 'fast'\n"):
        level()
