"""Core is no drawer: each of its files is named with its reason, and is used by several rooms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CORE: Final = ROOT / "burn_torch" / "core"
PAGE: Final = ROOT / "docs" / "decisions" / "0027-what-core-holds.md"
FILES: Final = sorted(path.stem for path in CORE.iterdir() if not path.name.startswith("__"))
OF_CORE: Final = {"annotations", "deprecation", "small_floats", "tolerance"}
"""Files behind `checking` and `data`, and the one that no name of ours needs yet."""


def rooms_that_use(file: str) -> set[str]:
    word = re.compile(rf"burn_torch\.core\.{file}\b|from burn_torch\.core import .*\b{file}\b")
    sources = [path for path in (ROOT / "burn_torch").rglob("*.py") if CORE not in path.parents]
    using = [path for path in sources if word.search(path.read_text(encoding="utf-8"))]
    return {path.relative_to(ROOT / "burn_torch").parts[0] for path in using}


def test_the_page_names_each_file_of_core() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == FILES


@pytest.mark.parametrize("file", sorted(set(FILES) - OF_CORE))
def test_several_rooms_use_each_file_of_core(file: str) -> None:
    assert len(rooms_that_use(file)) > 1


def test_a_file_of_one_room_would_be_found() -> None:
    assert rooms_that_use("tolerance") == set()
    assert rooms_that_use("share") >= {"data", "module", "train"}
