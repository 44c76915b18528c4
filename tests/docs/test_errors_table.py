"""The table of errors: the largest share counts, what is beyond the rule stands out, what is not measured is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RUN = {"device": "NVIDIA H200", "date": "2026-11-22", "torch": "2.11", "triton": "3.6", "seeds": 5}


@pytest.fixture(scope="module")
def errors(generator: Callable[[str], Any]) -> Any:
    return generator("errors")


def row(dtype: str, what: str, share: float) -> dict[str, Any]:
    return {"op": "softmax", "dtype": dtype, "what": what, "share": share}


def test_the_largest_share_of_each_kind_is_reported(errors: Any) -> None:
    rows = [
        row("float32", "outputs", 0.25),
        row("float32", "outputs", 0.5),
        row("float32", "gradients", 0.75),
        row("bfloat16", "outputs", 1.25),
    ]
    text = errors.table(RUN | {"rows": rows}, "rows.json")
    assert "1 of 4 rows do not keep to it" in text
    assert text.strip().splitlines()[-1] == "| `softmax` | 0.50 / 0.75 |  | **1.25** / – |"
    assert "all 3 rows keep to it" in errors.table(RUN | {"rows": rows[:3]}, "rows.json")
