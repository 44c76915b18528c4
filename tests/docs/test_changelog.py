"""News fragments: `docs/generate/changelog.py` finds each that is malformed, and towncrier joins them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checks(generator: Callable[[str], Any]) -> Any:
    return generator("changelog")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the changelog and its fragments."""
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_fragments_are_well_formed(checks: Any) -> None:
    assert checks.faults(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("tensor.news.md", "There is one.\n", "the name is not NAME.KIND.md with a kind of added, changed"),
        ("Tensor.added.md", "There is one.\n", "the name is not NAME.KIND.md"),
        ("tensor.added.txt", "There is one.\n", "the name is not NAME.KIND.md"),
        ("a.added.md", "", "it is empty"),
        ("a.added.md", "One.\n\nTwo.\n", "it is more than one paragraph"),
        ("a.added.md", "One.", "does not end with one line break"),
        ("a.added.md", "* One.\n", "it begins with a mark of a list or heading"),
        ("a.added.md", "There is one\n", "its last sentence has no full stop"),
        ("a.added.md", f"{'long ' * 25}line.\n", "a line has more than 120 characters"),
        ("a.added.md", "It takes 3.5 ms now.\n", "'3.5 ms' is a figure of a benchmark"),
        ("a.added.md", "It is 2 times as fast.\n", "'times as fast' is a figure of a benchmark"),
    ],
)
def test_a_malformed_fragment_is_found(name: str, text: str, complaint: str, checks: Any, checkout: Path) -> None:
    (checkout / "changelog.d" / name).write_text(text, encoding="utf-8")
    (fault,) = checks.faults(checkout)
    assert fault.startswith(f"changelog.d/{name}: ")
    assert complaint in fault


@pytest.mark.parametrize("above", [True, False])
def test_an_entry_outside_of_a_release_is_found(above: bool, checks: Any, checkout: Path) -> None:
    page = checkout / "CHANGELOG.md"
    before, after = page.read_text(encoding="utf-8").split(checks.MARK)
    entry = "* An entry by hand.\n"
    texts = (before + entry, after) if above else (before, entry + after)
    page.write_text(checks.MARK.join(texts), encoding="utf-8")
    (fault,) = checks.faults(checkout)
    assert "write a file in changelog.d instead" in fault


def test_the_settings_name_the_kinds_and_the_mark_of_the_check(checks: Any) -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    assert tuple(kind["directory"] for kind in settings["type"]) == checks.KINDS
    assert settings["start_string"] == checks.MARK


def test_a_release_joins_the_fragments_under_their_kinds(checks: Any, checkout: Path) -> None:
    pytest.importorskip("towncrier", reason="joining fragments needs towncrier: make setup")
    for path in (checkout / "changelog.d").glob("*.*.md"):
        path.unlink()
    (checkout / "changelog.d" / "b.fixed.md").write_text("A fault is\nmended.\n", encoding="utf-8")
    (checkout / "changelog.d" / "a.added.md").write_text("There is one more.\n", encoding="utf-8")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9", "--date", "2026-01-02"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = (checkout / "CHANGELOG.md").read_text(encoding="utf-8").split(checks.MARK)[1]
    lines = [line for line in written.splitlines() if line]
    assert lines[:6] == [
        "## [9.9.9] - 2026-01-02", "### Added", "* There is one more.", "### Fixed", "* A fault is", "  mended."
    ]  # fmt: skip
    assert not list((checkout / "changelog.d").glob("*.*.md"))
    assert checks.faults(checkout) == []
