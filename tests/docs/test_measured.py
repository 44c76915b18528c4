"""The tables of measured kernels: each number is one of the rows, and the fastest rival is the one that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RUN = {
    "device": "NVIDIA H200",
    "date": "2026-11-22",
    "torch": "2.11",
    "triton": "3.6",
    "jax": "0.11 on gpu",
    "rounds": 15,
}


@pytest.fixture(scope="module")
def measured(generator: Callable[[str], Any]) -> Any:
    return generator("measured")


def row(variant: str, ms: float, **more: Any) -> dict[str, Any]:
    return {"case": "norm 8x8", "pass": "fb", "variant": variant, "median_ms": ms} | more


def last(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().splitlines()[-1].strip("|").split("|")]


def test_the_fastest_rival_counts_and_forms_of_our_own_do_not(measured: Any) -> None:
    rows = [
        row("ours", 2.0, share_of_copy=0.914, peak_mib=3.0, error=1.2e-3),
        row("our kernel", 0.1),
        row("bare product", 0.2),
        row("eager", 5.0, peak_mib=9.0, error=1.3e-3),
        row("compile", 3.0, peak_mib=4.0),
        row("flash", 4.0, peak_mib=5.0),
        row("compile, searched", 3.5, peak_mib=4.0),
        row("jax", 2.5),
        row("liger", 0.5, apart=0.3),  # not what the others compute
    ]
    text = measured.rival_table(RUN | {"rows": rows}, "rows.json")
    assert last(text) == [
        *("norm 8x8", "fb", "2.0000", "91 %", "jax **1.25**", "2.50", "1.50", "0.25 †", "1.25", "flash 2.00"),
        *("3 / –", "1.20e-3 / 1.30e-3"),
    ]
    assert "JAX 0.11 on gpu" in text
    alone = measured.rival_table(RUN | {"rows": rows[:1]}, "rows.json")
    assert last(alone)[4:6] == ["none", ""]
    failed = last(measured.rival_table(RUN | {"rows": rows[3:]}, "rows.json"))
    assert failed[:4] == ["norm 8x8", "fb", "failed", ""]
    assert len(failed) == len(last(text))


def test_bars_say_what_was_not_timed(measured: Any) -> None:
    bar = {"case": "norm 8x8", "passed": "f", "asked": "share of copy", "needed": 0.9, "holds": True, "goal": "G2"}
    text = measured.bar_table(RUN, [bar | {"found": 0.95}, bar | {"found": None, "holds": False}], "goals")
    assert "1 of 1 held on 2026-11-22, 1 were not timed" in text
    assert last(text) == ["G2 norm 8x8", "f", "share of copy", "0.900", "not timed", ""]


def test_arithmetic_has_no_share_of_a_copy(measured: Any) -> None:
    rows = [row("ours", 2.0, share_of_copy=0.05, peak_mib=3.0, case="linear 8x8x8 gelu")]
    assert last(measured.rival_table(RUN | {"rows": rows}, "rows.json"))[3] == "–"


def test_the_page_is_fresh(measured: Any) -> None:
    assert measured.main(check=True) == []
