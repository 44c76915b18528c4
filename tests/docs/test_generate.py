"""The generators: what is stale is told by --check, which changes nothing, and mended without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the docs with fresh generated text, and only the generator that needs no package."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "__pycache__"))
    assert generate(tmp_path, "contents").returncode == 0
    return tmp_path


def generate(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "docs/generate", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def test_fresh_files_pass_and_a_second_run_writes_nothing(checkout: Path) -> None:
    assert generate(checkout, "contents", "--check").returncode == 0
    assert generate(checkout, "contents").stdout == ""


def test_a_new_page_makes_the_contents_stale(checkout: Path) -> None:
    index = checkout / "docs" / "index.md"
    before = index.read_text(encoding="utf-8")
    (checkout / "docs" / "building-blocks" / "zebra.md").write_text(
        "# Zebras\n\nThey have stripes, and\nfour legs. More.\n", encoding="utf-8"
    )
    (checkout / "docs" / "building-blocks" / "tensor.md").write_text("# Tensor\n\nMany numbers.\n", encoding="utf-8")

    process = generate(checkout, "contents", "--check")
    assert process.returncode == 1
    assert process.stdout == "stale:   docs/index.md\n"
    assert "mend: make generate" in process.stderr
    assert index.read_text(encoding="utf-8") == before

    assert generate(checkout, "contents").stdout == "written: docs/index.md\n"
    after = index.read_text(encoding="utf-8")
    assert "* [Zebras](building-blocks/zebra.md): They have stripes, and four legs.\n" in after
    assert after.index("tensor.md") < after.index("zebra.md")
    assert generate(checkout, "contents", "--check").returncode == 0


def test_an_unknown_generator_is_a_usage_error(checkout: Path) -> None:
    process = generate(checkout, "nonsense")
    assert process.returncode == 2
    assert "no such generator: nonsense; there are" in process.stderr


def test_a_page_without_a_title_is_an_error(checkout: Path) -> None:
    (checkout / "docs" / "building-blocks" / "zebra.md").write_text("They have stripes.\n", encoding="utf-8")
    process = generate(checkout, "contents")
    assert process.returncode == 1
    assert "docs/building-blocks/zebra.md: the first line must be a title" in process.stderr
