"""CONTRIBUTING.md says what is so: `docs/generate/contributing.py` finds each file and name that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def checks(generator: Callable[[str], Any]) -> Any:
    return generator("contributing")


def test_each_file_and_name_of_the_recipes_exists(checks: Any) -> None:
    assert checks.faults(TEXT, ROOT) == []


def test_the_page_has_a_recipe_for_each_kind_of_addition(checks: Any) -> None:
    kinds = (
        "An operation", "A reduction", "An indexing operation", "A layer", "A loss", "An optimizer", "A metric",
        "A recipe of the command line", "A command", "An ONNX operator", "A kernel family", "A backend",
    )  # fmt: skip
    assert tuple(dict.fromkeys(row.recipe for row in checks.recipe_rows(TEXT))) == kinds


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("`burn_torch/ops/special.py`", "`burn_torch/ops/gone.py`", "there is no burn_torch/ops/gone.py"),
        ("tests/train/metric`", "tests/train/gone`", "there is no tests/train/gone"),
        ("| `lion_update` |", "| `no_such_update` |", "burn_torch/ops/updates.py does not name no_such_update"),
        ("`make generate`", "`make everything`", "there is no target everything of make"),
        ("| `HammingScore` |", "| |", "the row names no file, or nothing to copy"),
        (
            "| `burn_torch/core/spellings/layers.txt` | what PyTorch's function is called | `HuberLossConfig` |\n",
            "",
            "A loss: burn_torch/core/spellings/layers.txt names HuberLoss, and the recipe does not name that file",
        ),
    ],
)
def test_what_is_not_so_is_found(before: str, after: str, complaint: str, checks: Any) -> None:
    assert before in TEXT
    assert any(complaint in fault for fault in checks.faults(TEXT.replace(before, after, 1), ROOT))


def test_security_promises_the_bound_of_the_readers_and_of_the_fuzzer() -> None:
    from tests.fuzz_files.case import MAX_BYTES

    bound = f"{MAX_BYTES >> 20} MiB beyond the size of the file"
    for page in ("SECURITY.md", "docs/building-blocks/errors.md"):
        assert bound in " ".join((ROOT / page).read_text(encoding="utf-8").split()), page
