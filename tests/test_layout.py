"""The shape of the checkout: what lies where, and that the tests test it."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = (
    *(
        ".ci/release.py",
        ".ci/run",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "Makefile",
        "NOTICE",
        "README.md",
    ),
    *("burn_torch/__init__.py", "burn_torch/py.typed", "burn_torch/version.py", "docs/index.md"),
    *("kernels/burn_kernels/__init__.py", "kernels/burn_kernels/py.typed"),
    *("pyproject.toml", "setup.py", "tests/conftest.py"),
)
MAX_BYTES = 1 << 20
# Homes and mount points: a path that begins so works on one machine only.  /dev, /proc, /sys and /tmp mean the same
# on all.  Split in two, so that this file does not find itself.
ONE_MACHINE = re.compile(r"(?<![\w.~<>:/-])/(?:" + "|".join(["work", "farm", "root", r"home/\w+", r"Users/\w+"]) + ")/")


def tracked_files() -> list[Path]:
    """Returns what the checkout holds: git's list, or, in an unpacked copy, everything but what tools leave behind."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    ours = ["burn_torch", "kernels", "tests", "examples", "benchmarks", "docs", ".ci"]
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for name in ours for path in (ROOT / name).rglob("*") if path.is_file()]
    return [path for path in files if not {"__pycache__", "_build"} & set(path.relative_to(ROOT).parts)]


def test_the_code_under_test_is_this_checkout() -> None:
    homes = {"burn_torch": ROOT / "burn_torch", "burn_kernels": ROOT / "kernels" / "burn_kernels"}
    for name, home in homes.items():
        file = importlib.import_module(name).__file__
        assert file is not None, f"{name} has no __init__.py"
        assert Path(file).resolve().parent == home


def test_kernels_is_a_folder_and_no_package() -> None:
    assert [path.name for path in (ROOT / "kernels").glob("*.py")] == []


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_the_checkout_has(name: str) -> None:
    assert (ROOT / name).is_file()


def test_no_file_is_larger_than_one_mebibyte() -> None:
    assert [str(path.relative_to(ROOT)) for path in tracked_files() if path.stat().st_size > MAX_BYTES] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    places = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        lines = (line for line, content in enumerate(text.splitlines(), 1) if ONE_MACHINE.search(content))
        places += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    assert places == []


@pytest.mark.parametrize(
    "text", ["open('/ro" + "ot/x')", "cd /wo" + "rk/main", "at /ho" + "me/ann/x", "(/Us" + "ers/ann/x)"]
)
def test_a_path_of_one_machine_is_recognised(text: str) -> None:
    assert ONE_MACHINE.search(text)


@pytest.mark.parametrize(
    "text", ["https://a.org/home/x", "./work/x", "a/root/b", "~/home/x", "/tmp/x", "the work/root"]
)
def test_other_paths_are_let_be(text: str) -> None:
    assert ONE_MACHINE.search(text) is None


def test_no_test_folder_is_a_package() -> None:
    assert sorted((ROOT / "tests").rglob("__init__.py")) == []


def test_every_make_target_is_one_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (setup .+)$", makefile, re.MULTILINE)[0].split()
    helped = re.findall(r"^([a-z-]+):.*?## \S", makefile, re.MULTILINE)
    assert sorted(helped) == sorted(phony)
